"""The hashes over blocks of keys; each equals its namesake in :mod:`partitioners.hashes`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

from partitioners.columns.blocks import LONGEST_BYTES, Block, Words, blocks_of
from partitioners.columns.keys import Keys
from partitioners.hashes import FNV1A_OFFSET, FNV1A_PRIME, MURMUR2_M, MURMUR2_SEED, NUMBERS, Hash

_M = np.uint32(MURMUR2_M)
_M_WITH_REST = np.array([1, MURMUR2_M, MURMUR2_M, MURMUR2_M], np.uint32)
_PRIME = np.uint32(FNV1A_PRIME)
_BYTE = np.uint32(0xFF)
_CRC_POLYNOMIAL = 0xEDB88320
_8, _13, _15, _16, _24 = (np.uint32(bits) for bits in (8, 13, 15, 16, 24))


def numbers_of(keys: Keys, which: Hash, out: NDArray[np.uint32]) -> None:
    """Write the number of each key into ``out``."""
    kernel = _KERNELS[which]
    for first, last in blocks_of(keys):
        block = Block(keys, first, last)
        out[first:last][block.order] = kernel(block)
    for row in np.flatnonzero(keys.lengths > LONGEST_BYTES).tolist():
        start = int(keys.starts[row])
        out[row] = NUMBERS[which](keys.data[start : start + int(keys.lengths[row])].tobytes())


def _murmur2(block: Block) -> Words:
    h = block.lengths.astype(np.uint32)
    h ^= np.uint32(MURMUR2_SEED)
    for k in block.words():
        k *= _M
        k ^= k >> _24
        k *= _M
        some = h[: len(k)]
        some *= _M
        some ^= k
    h ^= block.rest_words()
    h *= _M_WITH_REST.take(block.rests)
    h ^= h >> _13
    h *= _M
    h ^= h >> _15
    h &= np.uint32(0x7FFFFFFF)
    return h


def _fnv1a(block: Block) -> Words:
    h = np.full(len(block.order), FNV1A_OFFSET, np.uint32)
    for word in block.words():
        some = h[: len(word)]
        for _ in range(4):
            some ^= word & _BYTE
            some *= _PRIME
            word >>= _8
    word = block.rest_words()
    for number in range(3):
        h ^= word & _BYTE  # zero where there is no such byte
        h *= np.where(block.rests > number, _PRIME, np.uint32(1))
        word >>= _8
    return np.where(h >> np.uint32(31), -h, h)


def _crc32(block: Block) -> Words:
    one, low, high = _crc_tables()
    h = np.full(len(block.order), 0xFFFFFFFF, np.uint32)
    for word in block.words():
        some = h[: len(word)]
        word ^= some
        np.bitwise_xor(low.take(word & np.uint32(0xFFFF)), high.take(word >> _16), out=some)
    word = block.rest_words()
    for number in range(3):
        further = one.take((h ^ word) & _BYTE) ^ (h >> _8)
        h = np.where(block.rests > number, further, h)
        word >>= _8
    return ~h


@cache
def _crc_tables() -> tuple[Words, Words, Words]:
    """What one byte does to the remainder, and the halves of what a word does ("slicing by 4", two bytes a table)."""
    byte = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        byte = np.where(byte & np.uint32(1), byte >> np.uint32(1) ^ np.uint32(_CRC_POLYNOMIAL), byte >> np.uint32(1))
    before = [byte]  # with 0, 1, 2, 3 bytes following
    for _ in range(3):
        before.append((before[-1] >> _8) ^ byte.take(before[-1] & _BYTE))
    halves = np.arange(1 << 16)
    first, second = halves & 0xFF, halves >> 8
    return byte, before[3].take(first) ^ before[2].take(second), before[1].take(first) ^ before[0].take(second)


_KERNELS: Mapping[Hash, Callable[[Block], Words]] = {
    Hash.CRC32: _crc32,
    Hash.MURMUR2: _murmur2,
    Hash.FNV1A: _fnv1a,
}
