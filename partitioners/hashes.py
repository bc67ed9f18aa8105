"""The hash functions of Kafka's clients, in Python. A caller may pass implementations in C, which are 20 times as fast.

Each function maps a key and a number of candidates to an index below that number. For a null key, pass an empty key.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType

HashFunction = Callable[[bytes, int], int]
"""Returns the index for a key and a count, ``0 <= index < count``. Raises ValueError if the count is not positive."""


class Hash(Enum):
    """The hash functions by name."""

    CRC32 = "crc32"
    MURMUR2 = "murmur2"
    FNV1A = "fnv1a"


_MASK = 0xFFFFFFFF
_MURMUR2_SEED = 0x9747B28C
_MURMUR2_M = 0x5BD1E995
_FNV1A_OFFSET = 0x811C9DC5
_FNV1A_PRIME = 0x01000193


def _murmur2_number(key: bytes) -> int:
    h = _MURMUR2_SEED ^ len(key)
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * _MURMUR2_M & _MASK
        k = (k ^ k >> 24) * _MURMUR2_M & _MASK
        h = (h * _MURMUR2_M & _MASK) ^ k
    if rest := key[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * _MURMUR2_M & _MASK
    h = (h ^ h >> 13) * _MURMUR2_M & _MASK
    h ^= h >> 15
    return h & 0x7FFFFFFF


def _fnv1a_number(key: bytes) -> int:
    h = _FNV1A_OFFSET
    for byte in key:
        h = (h ^ byte) * _FNV1A_PRIME & _MASK
    return -h & _MASK if h & 0x80000000 else h


NUMBERS: Mapping[Hash, Callable[[bytes], int]] = MappingProxyType(
    {Hash.CRC32: zlib.crc32, Hash.MURMUR2: _murmur2_number, Hash.FNV1A: _fnv1a_number}
)
"""For each hash, the function from a key to a number, ``0 <= number < 2**32``. The index is ``number % count``."""


def crc32(key: bytes, count: int) -> int:
    """CRC-32 as in zlib: librdkafka's ``consistent``."""
    return zlib.crc32(key) % positive(count)


def murmur2(key: bytes, count: int) -> int:
    """MurmurHash2 with Kafka's seed, without its sign bit: Java's ``toPositive(murmur2(key))``, librdkafka's
    ``murmur2``."""
    return _murmur2_number(key) % positive(count)


def fnv1a(key: bytes, count: int) -> int:
    """FNV-1a as a signed 32-bit number, made positive: librdkafka's ``fnv1a``, which follows Sarama's."""
    return _fnv1a_number(key) % positive(count)


PURE_HASHES: Mapping[Hash, HashFunction] = MappingProxyType(
    {Hash.CRC32: crc32, Hash.MURMUR2: murmur2, Hash.FNV1A: fnv1a}
)


def positive(count: int) -> int:
    """Return ``count``. Raise ValueError if it is not positive."""
    if count <= 0:
        raise ValueError(f"the number of candidates must be positive, not {count}")
    return count
