"""Interleaved rounds, and what is made of them.

Whoever else uses the machine makes single figures worthless: contenders take turns in short rounds, each round is
compared with the round of the plain client beside it, and the median of these ratios counts.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Timing:
    """How long a piece of work took, in seconds: by the clock, and of the calling thread's CPU time."""

    wall_s: float
    cpu_s: float


Round = Callable[[], Timing]
"""Does a fixed piece of work and returns how long the part that counts took."""
Times = Mapping[str, Sequence[Timing]]
"""The rounds of each contender, in order."""


@contextmanager
def stopwatch() -> Iterator[Callable[[], Timing]]:
    """Measures the block: ``with stopwatch() as timing: ...``, then ``timing()``."""
    end: list[Timing] = []
    wall_s, cpu_s = time.perf_counter(), time.thread_time()
    yield lambda: end[0]
    end.append(Timing(time.perf_counter() - wall_s, time.thread_time() - cpu_s))


@dataclass(frozen=True)
class Result:
    """One line of the report.

    Attributes:
        name: what was measured.
        figure: the measured figure.
        unit: its unit; ``x`` for a ratio to the plain client (more is faster).
        at_least, below: the limit it has to keep, if any.
        details: what else belongs to it, for the JSON report.
    """

    name: str
    figure: float
    unit: str
    at_least: float | None = None
    below: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool | None:
        """Whether the limit is kept; None without one."""
        if self.at_least is not None:
            return self.figure >= self.at_least
        if self.below is not None:
            return self.figure < self.below
        return None

    @property
    def limit(self) -> str:
        """The limit for people."""
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return f"< {self.below:g}" if self.below is not None else ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "figure": round(self.figure, 4),
            "unit": self.unit,
            "limit": self.limit or None,
            "ok": self.ok,
            **self.details,
        }


def interleave(contenders: Mapping[str, Round], rounds: int) -> dict[str, list[Timing]]:
    """Let the contenders take turns, each round beginning with another one; their times by name."""
    times: dict[str, list[Timing]] = {name: [] for name in contenders}
    names = list(contenders)
    for work in contenders.values():  # a round to warm up
        work()
    for number in range(rounds):
        at = number % len(names)
        for name in names[at:] + names[:at]:
            gc.collect()
            gc.disable()
            try:
                times[name].append(contenders[name]())
            finally:
                gc.enable()
    return times


def compare(
    name: str, times: Times, count: int, *, at_least: float | None = None, ours: str = "modeaware", plain: str = "plain"
) -> Result:
    """How fast ``ours`` was beside ``plain``, in rounds of ``count`` records each."""
    others = [other for other in times if other not in (ours, plain)]
    details: dict[str, Any] = {
        "cpu": round(_ratio(times[plain], times[ours], _cpu), 3),
        **{other.replace(" ", "_"): round(_ratio(times[plain], times[other], _wall), 3) for other in others},
        "records_per_s": {
            each: round(count / statistics.median(timing.wall_s for timing in rounds)) for each, rounds in times.items()
        },
    }
    return Result(name, _ratio(times[plain], times[ours], _wall), "x", at_least=at_least, details=details)


def _ratio(plain: Sequence[Timing], own: Sequence[Timing], part: Callable[[Timing], float]) -> float:
    """The median over the rounds of plain's time by the other's."""
    return statistics.median(part(p) / part(o) for p, o in zip(plain, own, strict=True))


def _wall(timing: Timing) -> float:
    return timing.wall_s


def _cpu(timing: Timing) -> float:
    return timing.cpu_s


def percentile(values: list[float], percent: float) -> float:
    """The smallest value that ``percent`` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]


def peak_mb() -> float:
    """Return the most memory that this process has had. (``getrusage`` begins with that of its parent.)"""
    (line,) = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmHWM")]
    return int(line.split()[1]) / 1024
