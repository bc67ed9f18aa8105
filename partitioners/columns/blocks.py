"""Keys cut into 32-bit words, a block of keys at a time: the words of a block stay in the processor's cache."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from partitioners.columns.keys import Keys

Words = NDArray[np.uint32]

LONGEST_BYTES = 4096
"""Longer keys are hashed one by one: a few of them would keep a whole block waiting."""
_MOST_KEYS = 8192
_MOST_BYTES = 1 << 18

_REST_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)
_32 = np.uint64(32)


def blocks_of(keys: Keys) -> Iterator[tuple[int, int]]:
    """From where to where each block goes, in rows."""
    if len(keys) == 0:
        return
    mean = max(int(keys.lengths.mean()), 1)
    step = max(min(_MOST_KEYS, _MOST_BYTES // mean), 256)
    for first in range(0, len(keys), step):
        yield first, min(first + step, len(keys))


class Block:
    """Some keys, those with most whole words first, so that the keys that have a further word are the first ones.

    Attributes:
        order: which row, counted from the first of the block, each key is.
        lengths: of the keys in that order, in bytes.
        rests: how many bytes, 0 to 3, each key has after its whole words.
    """

    def __init__(self, keys: Keys, first: int, last: int) -> None:
        starts, lengths = keys.starts[first:last], keys.lengths[first:last]
        # Where they are too long, they are taken for empty ones here.
        lengths = np.where(lengths > LONGEST_BYTES, 0, lengths)
        whole = (lengths >> 2).astype(np.int16)
        most = int(whole.max())
        self.order = np.argsort(np.int16(most) - whole, kind="stable")
        self.lengths = lengths[self.order]
        self.rests = (self.lengths & 3).astype(np.uint8)
        self._whole = whole[self.order]
        # How many keys have more than 0, 1, 2, ... whole words.
        shorter = np.cumsum(np.bincount(whole, minlength=most + 1))[:-1]
        self._counts: list[int] = (len(whole) - shorter).tolist()
        begin, end = int(starts[0]), int((starts + lengths).max())
        self._pairs = _pairs(keys.data[begin:end])
        at = (starts - begin)[self.order]
        self._at = at >> 2
        self._shifts = ((at & 3) << 3).astype(np.uint64)

    def words(self) -> Iterator[Words]:
        """The first words of the keys that have one, then their second ones, and so on; little-endian."""
        for number, count in enumerate(self._counts):
            found = self._pairs[number:].take(self._at[:count])
            found >>= self._shifts[:count]
            yield found.astype(np.uint32)

    def rest_words(self) -> Words:
        """The bytes after each key's whole words, as a word filled up with zeros."""
        found = self._pairs.take(self._at + self._whole)
        found >>= self._shifts
        rest = found.astype(np.uint32)
        rest &= _REST_MASKS.take(self.rests)
        return rest


def _pairs(data: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """At ``i``, the two words from byte ``4 * i`` on: shifted by up to 24 bits they give the word at any byte."""
    words = np.zeros(len(data) // 4 + 3, "<u4")
    words.view(np.uint8)[: len(data)] = data
    pairs = words[1:].astype(np.uint64)
    pairs <<= _32
    pairs |= words[:-1]
    return pairs
