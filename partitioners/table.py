"""Partitioners by name: librdkafka's, and ours."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping

from partitioners.base import HashPartitioner, TopicHashPartitioner
from partitioners.hashes import PURE_HASHES, Hash, HashFunction
from partitioners.manual import Manual
from partitioners.minimal_movement import MinimalMovement
from partitioners.round_robin import RoundRobin
from partitioners.rules import DEFAULT_NAME, RULES, Rule
from partitioners.sticky import DEFAULT_LINGER_S, Sticky, StickyRandom
from partitioners.uniform_sticky import DEFAULT_BATCH_SIZE, UniformSticky

LIBRDKAFKA_NAMES = frozenset(RULES)
"""What librdkafka takes as ``partitioner``."""

OUR_RULES: Mapping[str, Rule] = {
    kind.RULE.name: kind.RULE for kind in (RoundRobin, Sticky, UniformSticky, Manual, MinimalMovement)
}
"""The rules of the partitioners that librdkafka does not have, by name."""

NAMES = (*RULES, *OUR_RULES)
"""All that :func:`named` knows."""


class LibrdkafkaPartitioner(HashPartitioner):
    """What librdkafka does by one of its :data:`~partitioners.RULES`. Made by :func:`named`."""

    def __init__(
        self,
        rule: Rule,
        hashes: Mapping[Hash, HashFunction],
        linger_s: float,
        clock: Callable[[], float],
        randomness: Callable[[], float],
    ) -> None:
        super().__init__(rule, None if rule.hash is None else hashes[rule.hash])
        self._linger_s = linger_s
        self._clock = clock
        self._randomness = randomness

    def for_topic(self, topic: str) -> _TopicLibrdkafkaPartitioner:
        sticky = StickyRandom(self._linger_s, clock=self._clock, randomness=self._randomness)
        return _TopicLibrdkafkaPartitioner(self.rule, self.hash_function, sticky)


class _TopicLibrdkafkaPartitioner(TopicHashPartitioner):
    def __init__(self, rule: Rule, hash_function: HashFunction | None, sticky: StickyRandom) -> None:
        super().__init__(rule, hash_function)
        self._sticky = sticky

    def _spread(self, key: bytes | None, count: int) -> int:
        return self._sticky.sticky(count) if self._rule.is_sticky(key) else self._sticky.fresh(count)


def named(
    name: str = DEFAULT_NAME,
    *,
    hashes: Mapping[Hash, HashFunction] = PURE_HASHES,
    linger_s: float = DEFAULT_LINGER_S,
    batch_size: int = DEFAULT_BATCH_SIZE,
    clock: Callable[[], float] = time.monotonic,
    randomness: Callable[[], float] = random.random,
) -> HashPartitioner:
    """The partitioner called ``name``.

    Args:
        name: one of :data:`NAMES`: librdkafka's (:data:`LIBRDKAFKA_NAMES`), ``round_robin``, ``sticky`` (KIP-480),
            ``uniform_sticky`` (KIP-794), ``manual`` and ``minimal_movement``.
        hashes: the hash functions to use.
        linger_s: how long records without a key stick to one pick, in seconds; 0 = every one is picked anew. For
            librdkafka's and ``minimal_movement``, and for ``sticky`` as long as nobody tells it of batches.
        batch_size: how many bytes stick to one pick with ``uniform_sticky``.
        clock: seconds that never go back.
        randomness: numbers ``0 <= x < 1``.

    Raises:
        ValueError: no such partitioner; the message lists those there are.
    """
    if rule := RULES.get(name):
        return LibrdkafkaPartitioner(rule, hashes, linger_s, clock, randomness)
    match name:
        case "round_robin":
            return RoundRobin(randomness=randomness)
        case "sticky":
            return Sticky(hashes[Hash.MURMUR2], linger_s=linger_s, clock=clock, randomness=randomness)
        case "uniform_sticky":
            return UniformSticky(hashes[Hash.MURMUR2], batch_size=batch_size, randomness=randomness)
        case "manual":
            return Manual()
        case "minimal_movement":
            return MinimalMovement(hashes[Hash.MURMUR2], linger_s=linger_s, clock=clock, randomness=randomness)
        case _:
            raise ValueError(f"no partitioner is called {name!r}; there are {', '.join(NAMES)}")
