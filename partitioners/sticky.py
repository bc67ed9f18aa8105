"""Random picks that stick for a while, so that records without a key fill batches (librdkafka: sticky partitioning)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

DEFAULT_LINGER_S = 0.01


class StickyRandom:
    """Picks one index at random and keeps to it for ``linger_s``; with 0 every pick is random.

    Safe to use from several threads: a race costs at most one more random pick.

    Args:
        linger_s: how long to keep to one pick, in seconds (librdkafka: ``sticky.partitioning.linger.ms``).
        clock: seconds that never go back.
        randomness: numbers ``0 <= x < 1``.
    """

    __slots__ = ("_clock", "_linger_s", "_pick", "_randomness")

    def __init__(
        self,
        linger_s: float = DEFAULT_LINGER_S,
        *,
        clock: Callable[[], float] = time.monotonic,
        randomness: Callable[[], float] = random.random,
    ) -> None:
        self._linger_s = linger_s
        self._clock = clock
        self._randomness = randomness
        self._pick: tuple[int, int, float] = (0, 0, 0.0)  # index, count it was picked from, until when

    def sticky(self, count: int) -> int:
        """The index kept to, or a new one when the time is over or ``count`` has changed."""
        if self._linger_s <= 0:
            return self.fresh(count)
        index, picked_from, until = self._pick  # one reference, so the three belong together
        now = self._clock()
        if picked_from != count or now > until:
            index = self.fresh(count)
            self._pick = (index, count, now + self._linger_s)
        return index

    def fresh(self, count: int) -> int:
        """A random index, whatever is kept to.

        Raises:
            ValueError: ``count`` is not positive.
        """
        if count <= 0:
            raise ValueError(f"the number of candidates must be positive, not {count}")
        return int(self._randomness() * count)
