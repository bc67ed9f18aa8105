"""How fast a demo producer sends: a share of the records for each stage of the story. Pure: the time is passed in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One stage of the story.

    Attributes:
        share: which part of all records shall have gone when the stage ends (0 to 1).
        expected_s: how long the stage is expected to take. If it takes longer, the records left are spread ever
            thinner.
    """

    share: float
    expected_s: float


class Pace:
    """Says how many records are due. A stage that lasts does not run dry: it slows down, to ``floor_per_s`` at least.

    Args:
        total: how many records there are.
        stages: the stages in order. After the last one everything left is due at once.
        floor_per_s: the lowest rate, records a second; taken from later stages' shares where need be.
        tail_s: the time constant with which a stage slows down once most of its expected time is over.
    """

    def __init__(self, total: int, stages: Sequence[Stage], *, floor_per_s: float = 20.0, tail_s: float = 4.0) -> None:
        self._total = total
        self._stages = list(stages)
        self._floor_per_s = floor_per_s
        self._tail_s = tail_s
        self._stage = 0
        self._entered_s: float | None = None
        self._last_s = 0.0
        self._due = 0.0

    def due(self, stage: int, now_s: float) -> int:
        """How many records shall have gone by ``now_s`` (monotonic seconds), ``stage`` being the one in force."""
        if self._entered_s is None or stage != self._stage:
            self._last_s = now_s if self._entered_s is None else self._last_s
            self._stage, self._entered_s = stage, now_s
        if stage >= len(self._stages):
            self._due = float(self._total)
            return self._total
        current = self._stages[stage]
        left_s = max(current.expected_s - (now_s - self._entered_s), self._tail_s)
        rate = max((current.share * self._total - self._due) / left_s, self._floor_per_s)
        self._due = min(self._due + rate * max(now_s - self._last_s, 0.0), float(self._total))
        self._last_s = now_s
        return int(self._due)
