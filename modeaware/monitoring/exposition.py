"""``/metrics``: what is exported, in the form that is asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder

from modeaware.controller.watched import Snapshot
from modeaware.monitoring.controller_metrics import ControllerCollector
from modeaware.monitoring.server import Answer


class Exposition:
    """The controller's metrics and those of its process (``process_...``, ``python_gc_...``). Thread-safe; one thread
    at a time makes an answer."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._lock = threading.Lock()
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._registry.register(ControllerCollector(snapshot))

    def __call__(self, accept: str) -> Answer:
        # Only which of the two: 0.26 of the library fails at a version that is none, and repeats it in its answer.
        open_metrics = "application/openmetrics-text"
        encode, content_type = choose_encoder(open_metrics if open_metrics in accept else "")
        with self._lock:
            return Answer(HTTPStatus.OK, content_type, encode(self._registry))
