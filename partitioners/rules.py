"""What librdkafka's ``partitioner`` names mean for null, empty and other keys (``rdkafka_msg.c``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from partitioners.hashes import Hash


@dataclass(frozen=True)
class Rule:
    """How one named partitioner treats keys.

    Attributes:
        name: librdkafka's name of the partitioner.
        hash: what it hashes keys with; None picks at random for each record with a key.
        null_hashed: a record without a key hashes as one with an empty key; else it sticks to a random candidate.
        empty_hashed: an empty key is hashed like any other; else it is treated like a null key where keys are hashed at
            all, and at random for each record where they are not.
    """

    name: str
    hash: Hash | None
    null_hashed: bool
    empty_hashed: bool

    def is_hashed(self, key: bytes | None) -> bool:
        """Whether equal keys have to go to one partition."""
        if self.hash is None:
            return False
        if key is None:
            return self.null_hashed
        return self.empty_hashed or len(key) > 0

    def is_sticky(self, key: bytes | None) -> bool:
        """Whether the record goes where other records without a key went in the last moments (if sticking is on)."""
        return not self.is_hashed(key) and (key is None or self.hash is not None)


DEFAULT_NAME = "consistent_random"

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
