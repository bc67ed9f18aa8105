"""librdkafka's partitioners: the meaning of their names for null, empty and other keys (``rdkafka_msg.c``)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

from partitioners.hashes import Hash, positive
from partitioners.seam import DEFAULT_LINGER_S, HashPartitioner, Rule, TopicHashPartitioner

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        rule.name: rule
        for rule in (
            Rule("random", None, null_hashed=False, empty_hashed=False),
            Rule("consistent", Hash.CRC32, null_hashed=True, empty_hashed=True),
            Rule("consistent_random", Hash.CRC32, null_hashed=False, empty_hashed=False),
            Rule("murmur2", Hash.MURMUR2, null_hashed=True, empty_hashed=True),
            Rule("murmur2_random", Hash.MURMUR2, null_hashed=False, empty_hashed=True),
            Rule("fnv1a", Hash.FNV1A, null_hashed=True, empty_hashed=True),
            Rule("fnv1a_random", Hash.FNV1A, null_hashed=False, empty_hashed=True),
        )
    }
)
DEFAULT_NAME = "consistent_random"
LIBRDKAFKA_NAMES = frozenset(RULES)
"""The values of librdkafka's ``partitioner``."""


class StickyRandom:
    """Picks an index at random and keeps it for ``linger_s`` (librdkafka: ``sticky.partitioning.linger.ms``).

    If ``linger_s`` is 0, every pick is random. Safe to use from several threads: a race costs at most one more pick.
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
        self._pick: tuple[int, int, float] = (0, 0, 0.0)  # index, number of candidates, end of the linger

    def sticky(self, count: int) -> int:
        """Return the last pick. Make a new one after ``linger_s``, or if ``count`` has changed."""
        if self._linger_s <= 0:
            return self.fresh(count)
        index, picked_from, until = self._pick  # one reference, so the three values are consistent
        now_s = self._clock()
        if picked_from != count or now_s > until:
            index = self.fresh(count)
            self._pick = (index, count, now_s + self._linger_s)
        return index

    def fresh(self, count: int) -> int:
        """Return a random index. Raise ValueError if ``count`` is not positive."""
        return int(self._randomness() * positive(count))


class TopicLibrdkafkaPartitioner(TopicHashPartitioner):
    """A record that is not hashed goes to the sticky pick if :meth:`Rule.is_sticky` holds, else to any candidate."""

    def __init__(self, made_by: HashPartitioner, topic: str) -> None:
        super().__init__(made_by, topic)
        self._sticky = StickyRandom(made_by.linger_s, clock=made_by.clock, randomness=made_by.randomness)

    def _spread(self, key: bytes | None, count: int) -> int:
        return self._sticky.sticky(count) if self._rule.is_sticky(key) else self._sticky.fresh(count)


class LibrdkafkaPartitioner(HashPartitioner):
    """librdkafka's behaviour by one of its :data:`~partitioners.RULES`. Made by :func:`~partitioners.named`."""

    RULE = RULES[DEFAULT_NAME]
    _TOPIC = TopicLibrdkafkaPartitioner
