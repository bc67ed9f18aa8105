"""The wait for the first view of the modes, to one deadline for all calls of a client."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from modeaware.config import ClientConfig
from modeaware.kafka_python.errors import FirstViewPending, FirstViewTimeout

log = logging.getLogger(__name__)


class FirstView:
    """What ``modeaware_view_timeout_ms`` and ``modeaware_on_unknown`` mean; any thread may call.

    Args:
        config: our settings.
        wait_known: waits for the first view, up to so many seconds; whether the client follows it now.
        failure: why the source of the views cannot be read now, for messages.

    Attributes:
        over: calls may go on: there is a view, or every partition is taken as ReadWrite until there is one.
    """

    def __init__(
        self,
        config: ClientConfig,
        wait_known: Callable[[float], bool],
        failure: Callable[[], Exception | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._wait_known = wait_known
        self._failure = failure
        self._clock = clock
        self._lock = threading.Lock()
        self._deadline_s: float | None = None
        self.over = False

    def wait(self) -> None:
        """Return when calls may go on.

        Raises:
            FirstViewPending: not in time, and ``on_unknown`` is ``block``.
            FirstViewTimeout: not in time, and ``on_unknown`` is ``error``.
        """
        if not self.over and not self.arrived(max(0.0, self._deadline() - self._clock())):
            raise FirstViewPending(f"{self._message()}; nothing was queued, try again")

    def arrived(self, timeout_s: float) -> bool:
        """Whether calls may go on, after a wait of up to ``timeout_s``; with ``block`` that may never be.

        Raises:
            FirstViewTimeout: the deadline has passed, and ``on_unknown`` is ``error``.
        """
        deadline_s = self._deadline()
        if self.over or self._wait_known(timeout_s):
            self.over = True
        elif self._clock() >= deadline_s and self._config.on_unknown != "block":
            if self._config.on_unknown == "error":
                raise FirstViewTimeout(self._message())
            log.warning("%s; every partition is taken as ReadWrite until there is one", self._message())
            self.over = True
        return self.over

    def _deadline(self) -> float:
        with self._lock:
            if self._deadline_s is None:
                self._deadline_s = self._clock() + self._config.view_timeout_ms / 1000
            return self._deadline_s

    def _message(self) -> str:
        return (
            f"no view of the partition modes within {self._config.view_timeout_ms} ms (modeaware_view_timeout_ms): "
            f"{self._failure() or 'the mode log was not read to its end yet'}"
        )
