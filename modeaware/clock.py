"""Time, passed in wherever a decision depends on it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time. ``now_ms`` is wall-clock time (records carry it); ``monotonic_s`` is for waiting."""

    def now_ms(self) -> int: ...

    def monotonic_s(self) -> float: ...


class SystemClock:
    """The machine's clocks. Safe to use from any thread."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()


SYSTEM_CLOCK = SystemClock()
