"""The answer for each path: /metrics, /health, /ready, the status page and its parts."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from importlib.resources import files

from modeaware.callouts import InnerLock
from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.controller.status import Snapshot, alive, ready
from modeaware.monitoring.server import Answer
from modeaware.monitoring.status_json import status_of
from modeaware.printable import printable

KEPT_S = 1.0
"""How long the answer of /status.json is reused, so that many clients cost no more than one."""
_PLAIN = "text/plain; charset=utf-8"
_FILES = {
    "/": ("status.html", "text/html; charset=utf-8"),
    "/status.css": ("status.css", "text/css; charset=utf-8"),
    "/status.js": ("status.js", "text/javascript; charset=utf-8"),
    "/topic.js": ("topic.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


class ControllerPages:
    """The pages of one controller. Any thread may request a page.

    Args:
        snapshot: returns the controller's present state.
    """

    def __init__(self, snapshot: Callable[[], Snapshot], clock: Clock = SYSTEM_CLOCK) -> None:
        self._snapshot = snapshot
        self._status = _Kept(lambda: json.dumps(status_of(snapshot())).encode(), clock)
        self._metrics = _metrics_of(snapshot)

    def __call__(self, path: str, accept: str) -> Answer | None:
        if path == "/health":
            return _verdict(alive(self._snapshot()))
        if path == "/ready":
            return _verdict(ready(self._snapshot()))
        if path == "/status.json":
            return Answer(HTTPStatus.OK, "application/json", self._status.get())
        if path == "/metrics":
            return self._metrics(accept)
        return _file(path) if path in _FILES else None


class _Kept:
    """An answer that is made at most once in :data:`KEPT_S`, by one thread at a time."""

    def __init__(self, make: Callable[[], bytes], clock: Clock) -> None:
        self._make = make
        self._clock = clock
        self._lock = InnerLock()
        self._made: tuple[float, bytes] | None = None

    def get(self) -> bytes:
        with self._lock:
            now_s = self._clock.monotonic_s()
            if self._made is None or now_s - self._made[0] >= KEPT_S:
                self._made = now_s, self._make()
            return self._made[1]


def _verdict(wrong: str | None) -> Answer:
    if wrong is None:
        return Answer(HTTPStatus.OK, _PLAIN, b"ok\n")
    return Answer(HTTPStatus.SERVICE_UNAVAILABLE, _PLAIN, f"{printable(wrong)}\n".encode())


@cache
def _file(path: str) -> Answer:
    name, content_type = _FILES[path]
    return Answer(HTTPStatus.OK, content_type, files("modeaware.monitoring").joinpath("page", name).read_bytes())


def _metrics_of(snapshot: Callable[[], Snapshot]) -> Callable[[str], Answer]:
    """Return the answer of /metrics: an error unless prometheus_client is installed (extra ``metrics``)."""
    try:
        from modeaware.monitoring.controller_metrics import Exposition
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("prometheus_client"):
            raise
        missing = Answer(HTTPStatus.NOT_IMPLEMENTED, _PLAIN, b"no metrics: install modeaware[metrics]\n")
        return lambda accept: missing
    return Exposition(snapshot)
