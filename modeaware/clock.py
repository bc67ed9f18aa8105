"""Time, passed in wherever a decision depends on it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time. ``now_ms`` is wall-clock time (records carry it). ``monotonic_s`` is for waiting, and for
    leases: it never goes back, and runs on while the machine is suspended, where the operating system has such a
    clock."""

    def now_ms(self) -> int: ...

    def monotonic_s(self) -> float: ...


# Linux stops CLOCK_MONOTONIC in a suspend, and with it would stop a lease that the brokers have long let run out.
_MONOTONIC: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class SystemClock:
    """The machine's clocks. Safe to use from any thread."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.clock_gettime(_MONOTONIC) if _MONOTONIC is not None else time.monotonic()


SYSTEM_CLOCK = SystemClock()
