"""Keys that move no more than they must when the number of partitions changes, for any old and new number.

Jump consistent hashing (Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm", 2014) over murmur2.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from partitioners.base import HashPartitioner, TopicHashPartitioner
from partitioners.hashes import Hash, HashFunction, murmur2, positive
from partitioners.rules import Rule
from partitioners.sticky import DEFAULT_LINGER_S, StickyRandom

MURMUR2_COUNT = 0x7FFFFFFF
"""The largest count that librdkafka's murmur2 takes: its result for it is what is jumped on."""
SEED_FACTOR = 0x9E3779B97F4A7C15
JUMP_FACTOR = 2862933555777941757
_MASK = 0xFFFFFFFFFFFFFFFF
_TWO_TO_31 = 2147483648.0


def jump(state: int, count: int) -> int:
    """The paper's ``JumpConsistentHash(state, count)`` for ``0 <= state < 2**64`` and ``count`` > 0.

    From ``n + 1`` to ``n`` candidates only those move that were on the last one, and they spread evenly.
    """
    index, following = 0, 0
    while following < count:
        index = following
        state = (state * JUMP_FACTOR + 1) & _MASK
        following = int((index + 1) * (_TWO_TO_31 / ((state >> 33) + 1)))
    return index


def jump_over(hash_function: HashFunction) -> HashFunction:
    """Jump hashing of the 31 bits that ``hash_function`` (murmur2) gives, spread over 64 bits."""

    def minimal_movement(key: bytes, count: int) -> int:
        return jump(hash_function(key, MURMUR2_COUNT) * SEED_FACTOR & _MASK, positive(count))

    return minimal_movement


class MinimalMovement(HashPartitioner):
    """Keys go where jump hashing puts them; records without a key stick as with ``murmur2_random``.

    A shrink from any ``old`` to any ``new`` moves the keys of the retired (highest) partitions only, ``1 - new/old`` of
    all, and spreads them evenly over the others; a growth moves ``1 - old/new``, all of them to new partitions. No
    other client of Kafka puts keys there: every producer of the topic has to use it.

    Args:
        hash_function: murmur2, in Python or in C.
        linger_s, clock, randomness: see :class:`~partitioners.sticky.StickyRandom`.
    """

    RULE = Rule("minimal_movement", Hash.MURMUR2, null_hashed=False, empty_hashed=True)

    def __init__(
        self,
        hash_function: HashFunction = murmur2,
        *,
        linger_s: float = DEFAULT_LINGER_S,
        clock: Callable[[], float] = time.monotonic,
        randomness: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(self.RULE, jump_over(hash_function))
        self._linger_s = linger_s
        self._clock = clock
        self._randomness = randomness

    def for_topic(self, topic: str) -> _TopicMinimalMovement:
        sticky = StickyRandom(self._linger_s, clock=self._clock, randomness=self._randomness)
        return _TopicMinimalMovement(self.rule, self.hash_function, sticky)


class _TopicMinimalMovement(TopicHashPartitioner):
    def __init__(self, rule: Rule, hash_function: HashFunction | None, sticky: StickyRandom) -> None:
        super().__init__(rule, hash_function)
        self._sticky = sticky

    def _spread(self, key: bytes | None, count: int) -> int:
        return self._sticky.sticky(count)
