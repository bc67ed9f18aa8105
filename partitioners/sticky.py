"""Picks that stick for a while, so that records without a key fill batches.

:class:`StickyRandom` goes by time (librdkafka's sticky partitioning), :class:`Sticky` by batches (KIP-480).
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from partitioners.base import HashPartitioner, TopicHashPartitioner
from partitioners.hashes import Hash, HashFunction, murmur2, positive
from partitioners.rules import Rule

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
        return int(self._randomness() * positive(count))


class Sticky(HashPartitioner):
    """KIP-480: records without a key stick to one candidate until a batch for it ends; then to another one at random.

    Keys, the empty one too, are hashed with murmur2, as Java's ``DefaultPartitioner`` did from Kafka 2.4 to 3.2 and
    kafka-python's ``StickyPartitioner`` does. Its topic partitioners are :class:`~partitioners.seam.BatchAware`; as
    long as nobody has told one of a batch, a batch is taken to last ``linger_s``.

    Args:
        hash_function: murmur2, in Python or in C.
        linger_s: how long a batch lasts where nobody tells of them, in seconds.
        clock: seconds that never go back.
        randomness: numbers ``0 <= x < 1``.
    """

    RULE = Rule("sticky", Hash.MURMUR2, null_hashed=False, empty_hashed=True)

    def __init__(
        self,
        hash_function: HashFunction = murmur2,
        *,
        linger_s: float = DEFAULT_LINGER_S,
        clock: Callable[[], float] = time.monotonic,
        randomness: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(self.RULE, hash_function)
        self._linger_s = linger_s
        self._clock = clock
        self._randomness = randomness

    def for_topic(self, topic: str) -> _TopicSticky:
        return _TopicSticky(self.rule, self.hash_function, self._linger_s, self._clock, self._randomness)


class _TopicSticky(TopicHashPartitioner):
    def __init__(
        self,
        rule: Rule,
        hash_function: HashFunction | None,
        linger_s: float,
        clock: Callable[[], float],
        randomness: Callable[[], float],
    ) -> None:
        super().__init__(rule, hash_function)
        self._linger_s = linger_s
        self._clock = clock
        self._randomness = randomness
        self._lock = threading.Lock()
        self._told = False  # of a batch
        self._pick: tuple[int, int, float] = (-1, 0, 0.0)  # index, count it was picked from, until when

    def _spread(self, key: bytes | None, count: int) -> int:
        index, picked_from, until = self._pick
        if picked_from == positive(count) and (self._told or self._clock() <= until):
            return index
        with self._lock:
            index, picked_from, until = self._pick  # another thread may have been faster
            if picked_from != count:
                self._move(-1, count)
            elif not self._told and self._clock() > until:
                self._move(index, count)
            return self._pick[0]

    def on_new_batch(self, index: int) -> None:
        with self._lock:
            self._told = True
            if self._pick[0] == index:
                self._move(index, self._pick[1])

    def _move(self, away: int, count: int) -> None:
        """Pick at random, but not ``away`` where there is another; -1: any."""
        if away < 0 or count < 2:
            index = int(self._randomness() * count)
        else:
            index = int(self._randomness() * (count - 1))
            index += index >= away
        self._pick = (index, count, self._clock() + self._linger_s)
