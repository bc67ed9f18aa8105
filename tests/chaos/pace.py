"""When an unaware writer writes where, and how many records are due. Pure: the time is passed in."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.chaos.setting import LOWEST_TARGET, PARTITIONS

CYCLE_S = 40.0
EVERYWHERE_S = 5.0
BURST_PAUSE_S = (15.0, 60.0)
BURST_RECORDS = 40
MOST_DEBT_S = 3.0


class Pace:
    """So many records a second; what could not be sent is made up for, up to :data:`MOST_DEBT_S` of it."""

    def __init__(self, rate_per_s: float, now_s: float) -> None:
        self._rate_per_s = rate_per_s
        self._last_s = now_s
        self._due = 0.0

    def due(self, now_s: float) -> int:
        """How many records may be sent now; they count as sent."""
        self._due = min(self._due + (now_s - self._last_s) * self._rate_per_s, self._rate_per_s * MOST_DEBT_S)
        self._last_s = now_s
        whole = int(self._due)
        self._due -= whole
        return whole


class Manners:
    """Where a writer that knows no modes sends: for some seconds of each cycle wherever its partitioner says, retired
    partitions included; else to partitions that no shrink retires, so that the others can be drained at all; and now
    and then a burst into the last ones, whatever they are at that moment.

    All unaware writers are in the same part of the cycle: their time is the run's.
    """

    def __init__(self, chance: random.Random, now_s: float) -> None:
        self._chance = chance
        self._burst_s = now_s + chance.uniform(*BURST_PAUSE_S)

    def everywhere(self, now_s: float) -> bool:
        """Whether the partitioner has its way."""
        return now_s % CYCLE_S < EVERYWHERE_S

    def partition(self, key: int) -> int:
        """Where a key goes that may not go everywhere."""
        return key % LOWEST_TARGET

    def burst(self, now_s: float) -> Iterator[int]:
        """The keys' partitions of a burst, if one is due."""
        if now_s < self._burst_s:
            return
        self._burst_s = now_s + self._chance.uniform(*BURST_PAUSE_S)
        width = self._chance.randint(1, PARTITIONS - LOWEST_TARGET)
        for number in range(BURST_RECORDS):
            yield PARTITIONS - 1 - number % width
