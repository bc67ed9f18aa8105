"""One candidate after the other."""

from __future__ import annotations

import itertools

from partitioners.hashes import positive
from partitioners.seam import HashPartitioner, Rule, TopicHashPartitioner

_FIRST_BELOW = 1 << 30


class _TopicRoundRobin(TopicHashPartitioner):
    def __init__(self, made_by: HashPartitioner, topic: str) -> None:
        super().__init__(made_by, topic)
        # next() of it is one step: threads share it without a lock.
        self._numbers = itertools.count(int(made_by.randomness() * _FIRST_BELOW))

    def _spread(self, key: bytes | None, count: int) -> int:
        return next(self._numbers) % positive(count)


class RoundRobin(HashPartitioner):
    """Each record goes to the next candidate, whatever its key: Java's ``RoundRobinPartitioner``.

    Unlike Java's, a topic begins at a random candidate: many short-lived producers do not all begin at the first.
    """

    RULE = Rule("round_robin", None, null_hashed=False, empty_hashed=False)
    _TOPIC = _TopicRoundRobin
