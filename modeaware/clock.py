"""Sources of time. Code whose decisions depend on time gets its clock as an argument."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """A source of time. ``now_ms`` is wall-clock time, as in records. ``monotonic_s`` never goes back, so it is for
    waits and leases. On an operating system with a clock that also runs while the machine is suspended,
    ``monotonic_s`` is that clock. ``cpu_s`` is the CPU time of the calling thread.
    """

    def now_ms(self) -> int: ...

    def monotonic_s(self) -> float: ...

    def cpu_s(self) -> float: ...


# Linux stops CLOCK_MONOTONIC in a suspend. By that clock a lease would last longer than the session at the brokers.
_MONOTONIC: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class SystemClock:
    """The machine's clocks. Safe to use from any thread."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.clock_gettime(_MONOTONIC) if _MONOTONIC is not None else time.monotonic()

    def cpu_s(self) -> float:
        return time.thread_time()


SYSTEM_CLOCK = SystemClock()


class Backoff:
    """Pauses between attempts, in seconds: each is twice the pause before, up to a maximum. For one thread."""

    def __init__(self, first_s: float, last_s: float) -> None:
        self.first_s = first_s
        self.last_s = last_s
        self.now_s = first_s

    def next_s(self, last_s: float | None = None) -> float:
        """Return the pause before the next attempt, and double it, up to ``last_s`` (by default the maximum)."""
        last_s = self.last_s if last_s is None else last_s
        pause_s = min(self.now_s, last_s)
        self.now_s = min(2 * pause_s, last_s)
        return pause_s

    def reset(self) -> None:
        """Begin with the first pause again, because an attempt has succeeded."""
        self.now_s = self.first_s


def utc(ms: int, timespec: str = "seconds") -> str:
    """Return a wall-clock time in ms since the epoch as text: ``2026-01-31 12:00:00 UTC``.

    A record's timestamp may be any number. A number beyond the calendar becomes ``<n> ms``.

    Args:
        timespec: as for ``datetime.isoformat``, such as ``"milliseconds"``.
    """
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).replace(tzinfo=None).isoformat(" ", timespec) + " UTC"
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
