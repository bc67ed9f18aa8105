"""What a run has to reach before it says anything: a run in which nothing happened loses nothing either."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

SHORT_MINUTES = 2.0
"""A run that does harm for less than this is too short for the figures: what it has to reach is its caller's to say."""

PER_MINUTE = {
    "acknowledged records": 100_000,
    "faults": 4,
    "shrinks that Kafka confirms": 1,
    "switches slept through": 0.3,
}
KINDS, KINDS_AT_ONCE, KINDS_AFTER_MINUTES = 6, 2, 10


class Goal(NamedTuple):
    """Something that is to be so; ``wanted`` and ``found`` are for people."""

    what: str
    wanted: str
    found: str
    met: bool

    def as_json(self) -> dict[str, Any]:
        return self._asdict()


def figures(minutes: float, found: dict[str, int], kinds: int) -> Iterator[Goal]:
    """How much has to happen, in proportion to the minutes; after ten: 1 000 000 acknowledged records, 40 faults of 6
    kinds, 10 shrinks. Nothing for a short run.

    Args:
        found: by the names of :data:`PER_MINUTE`.
        kinds: of faults.
    """
    if minutes < SHORT_MINUTES:
        return
    for what, each in PER_MINUTE.items():
        least = round(each * minutes)
        yield Goal(what, f"{least:,}", f"{found[what]:,}", found[what] >= least)
    share = min(minutes / KINDS_AFTER_MINUTES, 1.0)
    least = round(KINDS_AT_ONCE + (KINDS - KINDS_AT_ONCE) * share)
    yield Goal("kinds of faults", str(least), str(kinds), kinds >= least)


def judged(routing: dict[str, int]) -> Goal:
    """Whether the checks of routing have checked anything, where there was something to check."""
    least = 1 if routing["aware"] else 0
    found = min(routing["homes"], routing["writable"])
    return Goal("records whose routing was judged", str(least), f"{found:,} of {routing['aware']:,}", found >= least)


def nobody(what: str, found: list[str]) -> Goal:
    """That there is nobody of whom this can be said."""
    return Goal(what, "nobody", ", ".join(found) or "nobody", not found)
