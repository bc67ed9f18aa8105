"""Whole columns of keys at once, with NumPy: the results of the hashes and of the named partitioners for each row.

A column is a pyarrow ``Array`` or ``ChunkedArray`` of binary or string (large, view, fixed-size and dictionary ones
too; slices as they are), a NumPy array of objects or of ``S``, or a sequence of bytes, str and None. Arrow's buffers
are read in place (views, fixed-size and dictionary ones are copied first). A str is its UTF-8, as clients send it.
NumPy drops trailing zero bytes of ``S`` values: keys that may end in one belong in another kind of column.

The functions hold no state: any number of threads may call them, and NumPy runs them in parallel.

Needs NumPy (``modeaware[columns]``), and pyarrow for its arrays.
"""

# How it works: a column becomes `Keys`, all bytes in one buffer with a start and a length for each key. Keys are cut
# into 32-bit words a `Block` at a time, so that a block stays in the processor's cache, and a hash takes the first word
# of all keys of a block, then their second words, and so on.

from __future__ import annotations

try:
    import numpy as np
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "partitioners.columns needs NumPy: install modeaware[columns]", name=missing.name
    ) from missing

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from numpy.typing import ArrayLike, NDArray

from partitioners.hashes import FNV1A_OFFSET, FNV1A_PRIME, MURMUR2_M, MURMUR2_SEED, NUMBERS, Hash, positive
from partitioners.librdkafka import DEFAULT_NAME
from partitioners.seam import Rule
from partitioners.spreading import ManualPartitionRequired
from partitioners.table import rule_named

__all__ = ["hash_column", "partition_column"]

_MOST = 2**31 - 1


def hash_column(column: Any, which: Hash) -> NDArray[np.uint32]:
    """Return the number of each key, whose remainder by a count is its index; a null key counts as an empty one.

    Equal to :data:`partitioners.NUMBERS` for each row. TypeError if ``column`` is not a column of keys.
    """
    return _numbers(_keys_of(column), which)


def partition_column(
    column: Any,
    count: int,
    name: str = DEFAULT_NAME,
    *,
    null_partitions: ArrayLike | None = None,
    randomness: Callable[[], float] = random.random,
) -> NDArray[np.int32]:
    """Return the index, ``0 <= index < count``, of each key with the partitioner called ``name``.

    Args:
        column: the keys.
        count: the number of candidates, from 1 to 2**31 - 1.
        name: one of :data:`partitioners.NAMES`.
        null_partitions: the indices for the rows that ``name`` does not hash: null keys; for ``consistent_random`` also
            empty keys; for ``random`` and similar ones all keys. One index for all, or one for each row of the column.
            By default these rows take turns, from a random candidate on, so their load is even. Sticky picks need
            batches or time, which do not exist here.
        randomness: numbers ``0 <= x < 1``.

    Raises:
        TypeError: ``column`` is not a column of keys.
        ValueError: there is no such partitioner, ``count`` or ``null_partitions`` are out of range, or ``manual``
            without ``null_partitions`` (:class:`~partitioners.ManualPartitionRequired`).
    """
    rule = rule_named(name)
    if positive(count) > _MOST:
        raise ValueError(f"the number of candidates must be below 2**31, not {count}")
    chunks = _keys_of(column)
    others = _unhashed(chunks, rule)
    if rule.placer is None:
        indices = np.zeros(len(others), np.int32)
    else:
        indices = rule.placer.column(_numbers(chunks, rule.placer.hash), count)
    if others.any():
        if null_partitions is None and not rule.spreads:
            raise ManualPartitionRequired(f"{name!r} places no keys: give null_partitions")
        _place(indices, others, count, null_partitions, randomness)
    return indices


def _numbers(chunks: list[Keys], which: Hash) -> NDArray[np.uint32]:
    numbers = np.empty(sum(len(chunk) for chunk in chunks), np.uint32)
    at = 0
    for chunk in chunks:
        _hash_into(chunk, which, numbers[at : at + len(chunk)])
        at += len(chunk)
    return numbers


def _unhashed(chunks: list[Keys], rule: Rule) -> NDArray[np.bool_]:
    parts = []
    for chunk in chunks:
        if rule.hash is None:
            part = np.ones(len(chunk), np.bool_)
        elif not rule.empty_hashed:
            part = chunk.lengths == 0  # a null key is an empty one here
        elif rule.null_hashed or chunk.nulls is None:
            part = np.zeros(len(chunk), np.bool_)
        else:
            part = chunk.nulls
        parts.append(part)
    return np.concatenate(parts) if parts else np.zeros(0, np.bool_)


def _place(
    indices: NDArray[np.int32],
    others: NDArray[np.bool_],
    count: int,
    null_partitions: ArrayLike | None,
    randomness: Callable[[], float],
) -> None:
    if null_partitions is None:
        spread = np.arange(np.count_nonzero(others), dtype=np.int64)
        spread += int(randomness() * count)
        indices[others] = spread % count
        return
    given = np.asarray(null_partitions)
    if given.shape not in ((), indices.shape):
        raise ValueError(f"null_partitions has the shape {given.shape}; the column has {len(indices)} rows")
    chosen = given if given.shape == () else given[others]
    if given.dtype.kind not in "iu" or bool(np.any(chosen < 0)) or bool(np.any(chosen >= count)):
        raise ValueError(f"null_partitions must be integers from 0 to {count - 1} where keys are not hashed")
    indices[others] = chosen


# Keys as bytes in one buffer


@dataclass(frozen=True, eq=False)
class Keys:
    """A column, or a chunk of one.

    Attributes:
        data: the bytes of all keys, and perhaps others.
        starts: where each key begins in ``data``, in ascending order.
        lengths: in bytes; 0 for a null key.
        nulls: which keys are null; None if no key is.
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    nulls: NDArray[np.bool_] | None

    def __len__(self) -> int:
        return len(self.lengths)


def _keys_of(column: Any) -> list[Keys]:
    if type(column).__module__.partition(".")[0] == "pyarrow":
        return _of_arrow(column)
    if isinstance(column, np.ndarray):
        if column.ndim != 1 or column.dtype.kind not in "OS":
            raise TypeError(
                f"keys are a NumPy array of one dimension, of objects or of S, not {column.ndim} of {column.dtype}"
            )
        return [_of_objects(column.tolist())]
    if isinstance(column, Sequence) and not isinstance(column, str | bytes | bytearray | memoryview):
        return [_of_objects(column)]
    raise TypeError(f"a column of keys is an Arrow or NumPy array or a sequence of keys, not {type(column).__name__}")


_BINARY = ("binary", "large_binary", "binary_view", "fixed_size_binary", "null")


def _of_arrow(column: Any) -> list[Keys]:
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        return [keys for chunk in column.chunks for keys in _of_arrow(chunk)]
    if not isinstance(column, pa.Array):
        raise TypeError(f"a column of keys is an Array or a ChunkedArray of pyarrow, not {type(column).__name__}")
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = str(column.type).partition("[")[0]
    if kind not in ("string", "large_string", "string_view", *_BINARY):
        raise TypeError(f"keys are binary or string in Arrow, not {column.type}")
    array = column.cast(pa.large_binary() if kind in _BINARY else pa.large_string())  # shares the bytes if it can
    _, offset_buffer, data_buffer = array.buffers()
    if len(array) == 0 or offset_buffer is None:
        return [_of_objects([None] * len(array))]
    offsets = np.frombuffer(offset_buffer, np.int64)[array.offset : array.offset + len(array) + 1]
    data = np.zeros(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    lengths = np.diff(offsets)
    nulls = None
    if array.null_count:
        nulls = array.is_null().to_numpy(zero_copy_only=False)
        lengths[nulls] = 0  # in Arrow a null may have bytes
    return [Keys(data, offsets[:-1], lengths, nulls)]


def _of_objects(values: Sequence[Any]) -> Keys:
    encoded = [
        value if type(value) is bytes else b"" if value is None else _encoded(value, row)
        for row, value in enumerate(values)
    ]
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    starts = np.cumsum(lengths) - lengths
    nulls = None
    if None in values:
        nulls = np.fromiter((value is None for value in values), np.bool_, len(values))
    return Keys(np.frombuffer(b"".join(encoded), np.uint8), starts, lengths, nulls)


def _encoded(value: Any, row: int) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"row {row} of a column of keys is bytes, str or None, not {type(value).__name__}")


# Blocks of words

Words = NDArray[np.uint32]
_LONGEST_BYTES = 4096
"""Longer keys are hashed one by one: a few of them would delay a whole block."""
_MOST_KEYS = 8192
_MOST_BYTES = 1 << 18
_REST_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)
_32 = np.uint64(32)


class Block:
    """Some keys, those with most whole words first, so that the keys that have a further word are the first ones.

    Attributes:
        order: the row of each key, counted from the first of the block.
        lengths: of the keys in that order, in bytes.
        rests: how many bytes, 0 to 3, each key has after its whole words.
    """

    def __init__(self, keys: Keys, first: int, last: int) -> None:
        starts, lengths = keys.starts[first:last], keys.lengths[first:last]
        lengths = np.where(lengths > _LONGEST_BYTES, 0, lengths)  # long keys count as empty here
        whole = (lengths >> 2).astype(np.int16)
        most = int(np.max(whole))
        self.order = np.argsort(np.int16(most) - whole, kind="stable")
        self.lengths = lengths[self.order]
        self.rests = (self.lengths & 3).astype(np.uint8)
        self._whole = whole[self.order]
        # How many keys have more than 0, 1, 2, ... whole words.
        shorter = np.cumsum(np.bincount(whole, minlength=most + 1))[:-1]
        self._counts: list[int] = (len(whole) - shorter).tolist()
        begin, end = int(starts[0]), int(np.max(starts + lengths))
        self._pairs = _pairs(keys.data[begin:end])
        at = (starts - begin)[self.order]
        self._at = at >> 2
        self._shifts = ((at & 3) << 3).astype(np.uint64)

    def words(self) -> Iterator[Words]:
        """Return the first words of the keys that have one, then their second ones, and so on; little-endian."""
        for number, count in enumerate(self._counts):
            words = self._pairs[number:].take(self._at[:count])
            words >>= self._shifts[:count]
            yield words.astype(np.uint32)

    def rest_words(self) -> Words:
        """Return the bytes after each key's whole words, as a word padded with zeros."""
        words = self._pairs.take(self._at + self._whole)
        words >>= self._shifts
        rest = words.astype(np.uint32)
        rest &= _REST_MASKS.take(self.rests)
        return rest


def _pairs(data: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return at ``i`` the two words from byte ``4 * i`` on: shifted by up to 24 bits they give the word at any byte."""
    words = np.zeros(len(data) // 4 + 3, "<u4")
    words.view(np.uint8)[: len(data)] = data
    pairs = words[1:].astype(np.uint64)
    pairs <<= _32
    pairs |= words[:-1]
    return pairs


# The hashes over blocks; each equals its namesake in partitioners.hashes

_M = np.uint32(MURMUR2_M)
_M_WITH_REST = np.array([1, MURMUR2_M, MURMUR2_M, MURMUR2_M], np.uint32)
_PRIME = np.uint32(FNV1A_PRIME)
_BYTE = np.uint32(0xFF)
_CRC_POLYNOMIAL = 0xEDB88320
_8, _13, _15, _16, _24 = (np.uint32(bits) for bits in (8, 13, 15, 16, 24))


def _hash_into(keys: Keys, which: Hash, out: NDArray[np.uint32]) -> None:
    if len(keys) == 0:
        return
    mean = max(int(keys.lengths.mean()), 1)
    step = max(min(_MOST_KEYS, _MOST_BYTES // mean), 256)
    for first in range(0, len(keys), step):
        last = min(first + step, len(keys))
        block = Block(keys, first, last)
        out[first:last][block.order] = _KERNELS[which](block)
    for row in np.flatnonzero(keys.lengths > _LONGEST_BYTES).tolist():
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
        h ^= word & _BYTE  # zero if there is no such byte
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
    """Return one byte's effect on the remainder, and the halves of a word's ("slicing by 4", two bytes a table)."""
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
