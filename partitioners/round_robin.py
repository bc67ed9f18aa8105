"""One candidate after the other."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

from partitioners.base import HashPartitioner, TopicHashPartitioner
from partitioners.hashes import positive
from partitioners.rules import Rule

_FIRST_BELOW = 1 << 30


class RoundRobin(HashPartitioner):
    """Each record goes to the next candidate, whatever its key: Java's ``RoundRobinPartitioner``.

    Unlike there, a topic begins at a random candidate: many short-lived producers do not all begin at the first.

    Args:
        randomness: numbers ``0 <= x < 1``.
    """

    RULE = Rule("round_robin", None, null_hashed=False, empty_hashed=False)

    def __init__(self, *, randomness: Callable[[], float] = random.random) -> None:
        super().__init__(self.RULE, None)
        self._randomness = randomness

    def for_topic(self, topic: str) -> _TopicRoundRobin:
        return _TopicRoundRobin(self.rule, int(self._randomness() * _FIRST_BELOW))


class _TopicRoundRobin(TopicHashPartitioner):
    def __init__(self, rule: Rule, first: int) -> None:
        super().__init__(rule, None)
        self._numbers = itertools.count(first)  # next() of it is one step: threads share it without a lock

    def _spread(self, key: bytes | None, count: int) -> int:
        return next(self._numbers) % positive(count)
