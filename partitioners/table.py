"""Partitioners by the names librdkafka gives them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping

from partitioners.hashes import PURE_HASHES, Hash, HashFunction
from partitioners.rules import DEFAULT_NAME, RULES, Rule
from partitioners.seam import TopicPartitioner
from partitioners.sticky import DEFAULT_LINGER_S, StickyRandom


class HashPartitioner:
    """A partitioner that follows a :class:`~partitioners.rules.Rule`. Made by :func:`named`.

    Attributes:
        rule: how keys are treated.
        hash_function: what keys are hashed with; None where the rule hashes none.
    """

    def __init__(
        self,
        rule: Rule,
        hashes: Mapping[Hash, HashFunction],
        linger_s: float,
        clock: Callable[[], float],
        randomness: Callable[[], float],
    ) -> None:
        self.rule = rule
        self.hash_function = None if rule.hash is None else hashes[rule.hash]
        self._linger_s = linger_s
        self._clock = clock
        self._randomness = randomness

    def for_topic(self, topic: str) -> TopicPartitioner:
        sticky = StickyRandom(self._linger_s, clock=self._clock, randomness=self._randomness)
        return _TopicHashPartitioner(self.rule, self.hash_function, sticky)


class _TopicHashPartitioner:
    def __init__(self, rule: Rule, hash_function: HashFunction | None, sticky: StickyRandom) -> None:
        self._rule = rule
        self._hash = hash_function
        self._sticky = sticky

    def requires_consistency(self, key: bytes | None) -> bool:
        return self._rule.is_hashed(key)

    def partition(self, key: bytes | None, count: int) -> int:
        if self._hash is not None and self._rule.is_hashed(key):
            return self._hash(b"" if key is None else key, count)
        if self._rule.is_sticky(key):
            return self._sticky.sticky(count)
        return self._sticky.fresh(count)


def named(
    name: str = DEFAULT_NAME,
    *,
    hashes: Mapping[Hash, HashFunction] = PURE_HASHES,
    linger_s: float = DEFAULT_LINGER_S,
    clock: Callable[[], float] = time.monotonic,
    randomness: Callable[[], float] = random.random,
) -> HashPartitioner:
    """The partitioner that librdkafka calls ``name``.

    Args:
        name: one of :data:`~partitioners.rules.RULES`.
        hashes: the hash functions to use.
        linger_s: how long records without a key stick to one pick, in seconds; 0 = every one is picked anew.
        clock: seconds that never go back.
        randomness: numbers ``0 <= x < 1``.

    Raises:
        ValueError: no such partitioner; the message lists those there are.
    """
    rule = RULES.get(name)
    if rule is None:
        raise ValueError(f"no partitioner is called {name!r}; there are {', '.join(RULES)}")
    return HashPartitioner(rule, hashes, linger_s, clock, randomness)
