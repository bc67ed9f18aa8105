"""The rules by which a key may have been placed: a number of the key, and an index of it for any count. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from partitioners import least_share_moved, share_moved
from partitioners.hashes import crc32_number, fnv1a_number, murmur2_number
from partitioners.minimal_movement import MURMUR2_COUNT, SEED_FACTOR, jump

KeyNumbers = Mapping[str, int]
"""Placer -> the key's number by it."""


@dataclass(frozen=True)
class Placer:
    """One rule.

    Attributes:
        name: the hash's, or the partitioner's where the hash alone does not tell.
        clients: who places keys so; it is the same function in all of them.
        index: of a key's number (see :func:`key_numbers`) and a count (> 0).
        share_moved: the share of keys that move between two counts, by arithmetic.
        hashes_empty: an empty key is hashed like any other, not treated like none.
    """

    name: str
    clients: str
    index: Callable[[int, int], int]
    share_moved: Callable[[int, int], float] = share_moved
    hashes_empty: bool = True


def _modulo(number: int, count: int) -> int:
    return number % count


PLACERS: Mapping[str, Placer] = MappingProxyType(
    {
        placer.name: placer
        for placer in (
            Placer(
                "murmur2",
                "Kafka's Java producer, kafka-python, and librdkafka's murmur2 and murmur2_random",
                _modulo,
            ),
            Placer(
                "crc32",
                "librdkafka's consistent_random, its default (confluent-kafka), and consistent",
                _modulo,
                hashes_empty=False,
            ),
            Placer(
                "fnv1a",
                "Sarama, and librdkafka's fnv1a and fnv1a_random",
                _modulo,
            ),
            Placer("minimal_movement", "modeaware's minimal_movement", jump, least_share_moved),
        )
    }
)


def key_numbers(keys: Iterable[bytes]) -> dict[bytes, KeyNumbers]:
    """Each key's number by each placer."""
    return {key: _numbers(key) for key in keys}


def _numbers(key: bytes) -> KeyNumbers:
    hashed = murmur2_number(key)
    return {
        "murmur2": hashed,
        "crc32": crc32_number(key),
        "fnv1a": fnv1a_number(key),
        "minimal_movement": hashed % MURMUR2_COUNT * SEED_FACTOR & 0xFFFFFFFFFFFFFFFF,
    }
