"""A partitioner that moves as few keys as possible when the number of partitions changes, for any old and new number.

It uses jump consistent hashing (Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm", 2014) over
murmur2.
"""

from __future__ import annotations

from partitioners.hashes import Hash, HashFunction, positive
from partitioners.librdkafka import TopicLibrdkafkaPartitioner
from partitioners.seam import HashPartitioner, Placer, Rule, least_share_moved

_MURMUR2_COUNT = 0x7FFFFFFF
"""The largest count that librdkafka's murmur2 accepts. The jumps start from murmur2's result for this count."""
_SEED_FACTOR = 0x9E3779B97F4A7C15
_JUMP_FACTOR = 2862933555777941757
_MASK = 0xFFFFFFFFFFFFFFFF
_TWO_TO_31 = 2147483648.0


def jump(state: int, count: int) -> int:
    """Return the paper's ``JumpConsistentHash(state, count)`` for ``0 <= state < 2**64`` and ``count`` > 0.

    From ``n + 1`` to ``n`` candidates, only the last candidate's keys move, and they spread evenly over the others.
    """
    index, following = 0, 0
    while following < count:
        index = following
        state = (state * _JUMP_FACTOR + 1) & _MASK
        following = int((index + 1) * (_TWO_TO_31 / ((state >> 33) + 1)))
    return index


def jump_over(hash_function: HashFunction) -> HashFunction:
    """Return a hash function that spreads the 31 bits of ``hash_function`` (murmur2) over 64 bits, and then applies
    :func:`jump`."""

    def index(key: bytes, count: int) -> int:
        return jump(hash_function(key, _MURMUR2_COUNT) * _SEED_FACTOR & _MASK, positive(count))

    return index


class _Jumps(Placer):
    def index(self, number: int, count: int) -> int:
        return jump(number % _MURMUR2_COUNT * _SEED_FACTOR & _MASK, count)

    def function(self, hash_function: HashFunction) -> HashFunction:
        return jump_over(hash_function)

    def share_moved(self, old: int, new: int) -> float:
        return least_share_moved(old, new)


class MinimalMovement(HashPartitioner):
    """Jump hashing places keys; records without a key are spread as by ``murmur2_random``.

    A shrink from any ``old`` to any ``new`` moves only the keys of the retired (highest) partitions, ``1 - new/old`` of
    all keys, and spreads them evenly over the others. A growth moves ``1 - old/new`` of all keys, and only to new
    partitions. Other projects' clients do not place keys this way, so every producer must use this partitioner.
    """

    RULE = Rule(
        "minimal_movement",
        Hash.MURMUR2,
        null_hashed=False,
        empty_hashed=True,
        placer=_Jumps("minimal_movement", Hash.MURMUR2, "modeaware's minimal_movement"),
    )
    _TOPIC = TopicLibrdkafkaPartitioner
