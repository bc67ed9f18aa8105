"""Many schedules: spread over processes, counted, and told about."""

from __future__ import annotations

import gc
import multiprocessing
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from statistics import median_high

from tests.simulation.controller import seams
from tests.simulation.drain_invariants import Violation
from tests.simulation.faults import IMPOSSIBLE, PHASES, REPLACED, Coverage, Fault
from tests.simulation.schedule import CHAIN_FROM as CHAIN_FROM
from tests.simulation.schedule import DELETE_FROM as DELETE_FROM
from tests.simulation.schedule import NAMES_FROM as NAMES_FROM
from tests.simulation.schedule import REPLACE_FROM as REPLACE_FROM
from tests.simulation.schedule import run as run_schedule
from tests.simulation.world import World

BATCH = 500
MOST_FAILURES = 10
LEAST_STEPS = 100
LEAST_SHRUNK = 0.5
"""Half of the schedules complete a shrink, and half of them have so many steps."""


@dataclass
class Report:
    """What became of a range of seeds.

    Attributes:
        coverage: what struck: (fault, phase) -> how often.
        steps: how many schedules had how many steps.
        shrunk: in how many a shrink was completed.
        failures: seed -> (invariant, or the kind of error; what it says).
    """

    coverage: Coverage = field(default_factory=Counter)
    steps: Counter[int] = field(default_factory=Counter)
    shrunk: int = 0
    failures: dict[int, tuple[str, str]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def schedules(self) -> int:
        return self.steps.total() + len(self.failures)

    @property
    def median_steps(self) -> int:
        return median_high(self.steps.elements()) if self.steps else 0

    @property
    def met(self) -> dict[str, int]:
        """What happened in schedules that replace topics: its name -> how often."""
        return {
            what.label if isinstance(what, Fault) else what: count
            for (what, phase), count in self.coverage.items()
            if phase == REPLACED
        }

    @property
    def _resizes(self) -> bool:
        return any(phase != REPLACED for _, phase in self.coverage)

    def add(self, other: Report) -> None:
        self.coverage.update(other.coverage)
        self.steps.update(other.steps)
        self.shrunk += other.shrunk
        self.failures.update(other.failures)

    def _share(self, count: int) -> float:
        return count / max(self.schedules, 1)

    def problems(self, at_least: int) -> list[str]:
        """What a run has to show and does not: pairs met too seldom, pairs that cannot be, short schedules, shrinks."""
        found = []
        for fault in Fault if self._resizes else ():
            for index, phase in enumerate(PHASES):
                count, impossible = self.coverage[fault, index], (fault, phase) in IMPOSSIBLE
                if impossible and count:
                    found.append(f"{fault.label} in phase {phase} is declared impossible and happened {count} times")
                if not impossible and count < at_least:
                    found.append(f"{fault.label} in phase {phase}: only {count}")
        if self.median_steps < LEAST_STEPS:
            found.append(f"median {self.median_steps} steps: fewer than {LEAST_STEPS}")
        if self._share(self.shrunk) < LEAST_SHRUNK:
            found.append(f"only {self._share(self.shrunk):.1%} completed a shrink, not {LEAST_SHRUNK:.0%}")
        return found

    def text(self) -> str:
        rate = self.schedules / self.seconds if self.seconds else 0.0
        lines = [f"{what:<22}{count:>10}" for what, count in sorted(self.met.items())]
        if self._resizes:
            lines.append(f"{'fault':<22}" + "".join(f"{phase:>10}" for phase in PHASES))
        for fault in Fault if self._resizes else ():
            counts = (self.coverage[fault, index] for index in range(len(PHASES)))
            lines.append(f"{fault.label:<22}" + "".join(f"{count:>10}" for count in counts))
        lines += [
            f"{self.schedules} schedules in {self.seconds:.0f} s: {rate:.0f} seeds/s",
            f"median {self.median_steps} steps; {self._share(self.shrunk):.1%} completed a shrink",
        ]
        for seed, (kind, what) in sorted(self.failures.items())[:MOST_FAILURES]:
            lines.append(f"seed {seed}: {kind}: {what}   (python -m tests.simulation --seed {seed} --story)")
        return "\n".join(lines)


def run_range(first: int, count: int) -> Report:
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
                if len(report.failures) >= MOST_FAILURES:
                    break
                if seed % 64 == 0:
                    gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()
    report.seconds = time.monotonic() - began_s
    return report


def run(seed: int, report: Report, story: list[str] | None = None) -> World:
    """Run the schedule of a seed; ``report`` is told what happened in it."""
    return run_schedule(seed, report.coverage, story)


def run_one(seed: int, report: Report) -> None:
    """Run one schedule, and note in ``report`` how it went."""
    try:
        outcome = run(seed, report)
    except Violation as violation:
        report.failures[seed] = (violation.invariant, str(violation))
    except Exception as error:  # noqa: BLE001 - whatever a broken guard leads to is a finding; it names its seed
        report.failures[seed] = (type(error).__name__, str(error))
    else:
        report.steps[outcome.steps] += 1
        report.shrunk += outcome.shrinks > 0


def run_many(first: int, count: int, processes: int, *, show_progress: bool = False) -> Report:
    """Run ``count`` seeds on several processes; ends early after a few failures."""
    if processes <= 1:
        return run_range(first, count)
    total = Report()
    began_s = time.monotonic()
    batches = range(first, first + count, BATCH)
    # A fresh interpreter each: no thread of a test run before it is forked.
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for part in pool.imap_unordered(partial(_run_batch, end=first + count), batches):
            total.add(part)
            total.seconds = time.monotonic() - began_s
            if show_progress:
                rate = total.schedules / total.seconds
                print(f"\r{total.schedules} schedules, {rate:.0f}/s ", end="", file=sys.stderr, flush=True)
            if len(total.failures) >= MOST_FAILURES:
                break
    return total


def _run_batch(first: int, end: int) -> Report:
    return run_range(first, min(BATCH, end - first))


def tell_story(seed: int) -> tuple[list[str], Exception | None]:
    """The schedule of one seed in words, and how it ended if it ended badly."""
    story: list[str] = []
    with seams():
        try:
            run(seed, Report(), story)
        except Exception as error:  # noqa: BLE001 - the end of the story, whatever it is
            return story, error
    return story, None
