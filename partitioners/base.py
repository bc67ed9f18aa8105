"""What all partitioners that have a :class:`~partitioners.rules.Rule` share: the hashed half of the picks."""

from __future__ import annotations

from abc import ABC, abstractmethod

from partitioners.hashes import HashFunction
from partitioners.rules import Rule
from partitioners.seam import TopicPartitioner


class HashPartitioner(ABC):
    """A partitioner that follows a rule. Made by :func:`~partitioners.named`, or by its own class.

    Attributes:
        rule: how keys are treated.
        hash_function: key and count to the index, for the keys that the rule hashes; None where it hashes none.
    """

    def __init__(self, rule: Rule, hash_function: HashFunction | None) -> None:
        if (rule.hash is None) != (hash_function is None):
            raise ValueError(f"{rule.name} hashes {'nothing' if rule.hash is None else rule.hash.value}")
        self.rule = rule
        self.hash_function = hash_function

    @abstractmethod
    def for_topic(self, topic: str) -> TopicPartitioner:
        """A new one for ``topic``, with a state of its own."""


class TopicHashPartitioner(ABC):
    """Hashes what the rule says; a subclass spreads the other records."""

    def __init__(self, rule: Rule, hash_function: HashFunction | None) -> None:
        self._rule = rule
        self._hash = hash_function

    def requires_consistency(self, key: bytes | None) -> bool:
        return self._rule.is_hashed(key)

    def partition(self, key: bytes | None, count: int) -> int:
        if self._hash is not None and self._rule.is_hashed(key):
            return self._hash(b"" if key is None else key, count)
        return self._spread(key, count)

    @abstractmethod
    def _spread(self, key: bytes | None, count: int) -> int:
        """The index for a record that is not hashed. ValueError where ``count`` is not positive."""
