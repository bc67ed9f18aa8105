"""How long a connection is waited for, in one timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from modeaware.endpoint.limits import Limits
from modeaware.endpoint.quotas import Quotas


class Deadlines:
    """Calls ``passed(why)`` once, when the first of a connection's deadlines has passed.

    The idle time runs from one whole request, or answer, to the next, so that nobody holds a place by dripping bytes.
    It stands still while the controller works for the connection: commands have a time of their own.

    All in the loop's thread.
    """

    __slots__ = (
        "_ending",
        "_full_s",
        "_limits",
        "_loop",
        "_passed",
        "_progress_s",
        "_quotas",
        "_timer",
        "asked",
        "working",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, limits: Limits, quotas: Quotas, passed: Callable[[str], None]
    ) -> None:
        self._loop = loop
        self._limits = limits
        self._quotas = quotas
        self._passed = passed
        self._timer: asyncio.TimerHandle | None = None
        self._progress_s = loop.time()
        self._full_s: dict[str, float] | None = None
        self._ending = False
        self.asked = False
        """Whether a whole request has come."""
        self.working = False
        """Whether the controller has something in work for it."""

    def progressed(self) -> None:
        """A whole request, or an answer, has passed."""
        self._progress_s = self._loop.time()

    def full(self, who: str, full: bool) -> None:
        """``who`` does not take what is sent, or does again."""
        full_s = self._full_s if self._full_s is not None else {}
        if full:
            full_s[who] = self._loop.time()
        else:
            full_s.pop(who, None)
        self._full_s = full_s
        self.watch()

    def ending(self) -> None:
        """Only the last bytes are waited for now."""
        self.stop()
        self._progress_s = self._loop.time()
        self._ending = True
        self.watch()

    def watch(self) -> None:
        """See that the next deadline is looked at. Those that move away are found to have moved."""
        (when_s, _) = min(self._deadlines())
        if self._timer is not None:
            if self._timer.when() <= when_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when_s, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        (when_s, why) = min(self._deadlines())
        if self._loop.time() < when_s:
            self.watch()
        else:
            self._passed(why)

    def _deadlines(self) -> Iterator[tuple[float, str]]:
        idle_s = self._limits.idle_s
        if self._ending:
            yield self._progress_s + self._quotas.linger_s, "it does not take its last answers"
            return
        if not self.asked:
            yield self._progress_s + min(self._quotas.first_request_s, idle_s), "it has sent no request"
        elif self.working:
            yield self._loop.time() + idle_s, ""
        else:
            yield self._progress_s + idle_s, "idle for too long"
        for who, since_s in (self._full_s or {}).items():
            yield since_s + min(self._quotas.drain_s, idle_s), f"{who} takes nothing of what is sent"
