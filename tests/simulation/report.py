"""Many schedules: spread over processes, counted, and told about."""

from __future__ import annotations

import gc
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.simulation.client_invariants import Violation
from tests.simulation.faults import Coverage
from tests.simulation.schedule import run
from tests.simulation.seams import seams

BATCH = 500
MOST_FAILURES = 10
LEAST_STEPS = 100
LEAST_SHRUNK = 0.5
"""Half of the schedules complete a shrink, and half of them have so many steps."""


@dataclass
class Report:
    """What became of a range of seeds.

    Attributes:
        steps: how many schedules had how many steps.
        shrunk, shrunk_under_faults: in how many a shrink was completed, and before everything grew calm.
        failures: seed -> (invariant, or the kind of error; what it says).
    """

    coverage: Coverage = field(default_factory=Coverage)
    steps: Counter[int] = field(default_factory=Counter)
    shrunk: int = 0
    shrunk_under_faults: int = 0
    windows: int = 0
    failures: dict[int, tuple[str, str]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def schedules(self) -> int:
        return self.steps.total() + len(self.failures)

    @property
    def median_steps(self) -> int:
        left = self.steps.total() // 2
        for steps in sorted(self.steps):
            left -= self.steps[steps]
            if left < 0:
                return steps
        return 0

    def add(self, other: Report) -> None:
        self.coverage.add(other.coverage)
        self.steps.update(other.steps)
        self.shrunk += other.shrunk
        self.shrunk_under_faults += other.shrunk_under_faults
        self.windows += other.windows
        self.failures.update(other.failures)

    def _share(self, count: int) -> float:
        return count / max(self.schedules, 1)

    def problems(self, at_least: int) -> list[str]:
        """What a run has to show and does not: pairs met too seldom, schedules too short, too few shrinks."""
        found = self.coverage.problems(at_least)
        if self.median_steps < LEAST_STEPS:
            found.append(f"median {self.median_steps} steps: fewer than {LEAST_STEPS}")
        if self._share(self.shrunk) < LEAST_SHRUNK:
            found.append(f"only {self._share(self.shrunk):.1%} completed a shrink, not {LEAST_SHRUNK:.0%}")
        return found

    def text(self) -> str:
        under_faults = self._share(self.shrunk_under_faults)
        rate = self.schedules / self.seconds if self.seconds else 0.0
        lines = [
            self.coverage.table(),
            "",
            f"{self.schedules} schedules in {self.seconds:.0f} s: {rate:.0f} seeds/s",
            f"median {self.median_steps} steps",
            f"{self._share(self.shrunk):.1%} completed a shrink, {under_faults:.1%} while there still were faults",
            f"{self.windows} deletions met the window that is documented",
        ]
        for seed, (kind, what) in sorted(self.failures.items())[:MOST_FAILURES]:
            lines.append(f"seed {seed}: {kind}: {what}   (python -m tests.simulation --seed {seed} --story)")
        return "\n".join(lines)


def run_range(first: int, count: int, *, stop_at_failure: bool = False) -> Report:
    """Run the schedules of ``count`` seeds in this process."""
    report = Report()
    gc.collect()
    gc.freeze()
    gc.disable()  # worlds are full of cycles, and small: collecting them once in a while is enough
    began_s = time.monotonic()
    try:
        with seams():
            for seed in range(first, first + count):
                run_one(seed, report)
                if report.failures and stop_at_failure:
                    break
                if seed % 64 == 0:
                    gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()
    report.seconds = time.monotonic() - began_s
    return report


def run_one(seed: int, report: Report) -> None:
    """Run one schedule, and note in ``report`` how it went."""
    try:
        outcome = run(seed, report.coverage)
    except Violation as violation:
        report.failures[seed] = (violation.invariant, str(violation))
    except Exception as error:  # noqa: BLE001 - whatever a broken guard leads to is a finding; it names its seed
        report.failures[seed] = (type(error).__name__, str(error))
    else:
        report.steps[outcome.steps] += 1
        report.shrunk += outcome.shrinks > 0
        report.shrunk_under_faults += outcome.under_faults > 0
        report.windows += outcome.windows


def run_many(first: int, count: int, processes: int, *, show_progress: bool = False) -> Report:
    """Run ``count`` seeds on several processes; ends early after a few failures."""
    total = Report()
    began_s = time.monotonic()
    ranges = [(seed, min(BATCH, first + count - seed)) for seed in range(first, first + count, BATCH)]
    for part in _parts(ranges, processes):
        total.add(part)
        total.seconds = time.monotonic() - began_s
        if show_progress:
            rate = total.schedules / total.seconds
            print(f"\r{total.schedules} schedules, {rate:.0f}/s ", end="", file=sys.stderr, flush=True)
        if len(total.failures) >= MOST_FAILURES:
            break
    if show_progress:
        print(file=sys.stderr)
    return total


def _parts(ranges: list[tuple[int, int]], processes: int) -> Iterator[Report]:
    if processes <= 1:
        for one in ranges:
            yield run_range(*one)
        return
    # A fresh interpreter each: no thread of a test run before it is forked.
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(_run_pair, ranges)


def _run_pair(pair: tuple[int, int]) -> Report:
    return run_range(*pair)


def tell_story(seed: int) -> tuple[list[str], Exception | None]:
    """The schedule of one seed in words, and how it ended if it ended badly."""
    story: list[str] = []
    with seams():
        try:
            run(seed, Coverage(), story)
        except Exception as error:  # noqa: BLE001 - the end of the story, whatever it is
            return story, error
    return story, None
