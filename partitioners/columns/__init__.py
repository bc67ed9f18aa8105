"""Whole columns of keys at once, with NumPy: what the hashes and the named partitioners say for each row.

A column is a pyarrow ``Array`` or ``ChunkedArray`` of binary or string (large, view, fixed-size and dictionary ones
too; slices as they are), a NumPy array of objects or of ``S``, or a sequence of bytes, str and None. Arrow's buffers
are read in place (views, fixed-size and dictionary ones are copied first). A str is its UTF-8, as clients send it.
NumPy drops trailing zero bytes of ``S`` values: keys that may end in one belong in another kind of column.

The functions hold no state: any number of threads may call them, and NumPy lets them run side by side.

Needs NumPy (``modeaware[columns]``), and pyarrow for its arrays.
"""

from __future__ import annotations

try:
    import numpy as np
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "partitioners.columns needs NumPy: install modeaware[columns]", name=missing.name
    ) from missing

import random
from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike, NDArray

from partitioners.columns.jumps import jump_column
from partitioners.columns.kernels import numbers_of
from partitioners.columns.keys import Keys, keys_of
from partitioners.hashes import Hash, positive
from partitioners.manual import Manual, ManualPartitionRequired
from partitioners.minimal_movement import MinimalMovement
from partitioners.rules import DEFAULT_NAME, RULES, Rule
from partitioners.table import NAMES, OUR_RULES

__all__ = ["hash_column", "partition_column"]

_MOST = 2**31 - 1


def hash_column(column: Any, which: Hash) -> NDArray[np.uint32]:
    """The number of each key whose remainder by a count is its index; a null key counts as an empty one.

    Equal to :data:`partitioners.NUMBERS` for each row: murmur2 without its sign bit, FNV-1a made positive.

    Raises:
        TypeError: ``column`` is no column of keys.
    """
    return _numbers(keys_of(column), which)


def partition_column(
    column: Any,
    count: int,
    name: str = DEFAULT_NAME,
    *,
    null_partitions: ArrayLike | None = None,
    randomness: Callable[[], float] = random.random,
) -> NDArray[np.int32]:
    """The index, ``0 <= index < count``, of each key with the partitioner called ``name``.

    Args:
        column: the keys.
        count: how many candidates there are, from 1 to 2**31 - 1.
        name: one of :data:`partitioners.NAMES`.
        null_partitions: the indices for the rows that ``name`` does not hash (null keys; for ``consistent_random``
            empty ones as well, for ``random`` and the like all): one for all, or one for each row of the column. Left
            out, these rows go to one candidate after the other, from a random one on: as even as can be. There are no
            batches and no time here that a pick could stick to.
        randomness: numbers ``0 <= x < 1``.

    Raises:
        TypeError: ``column`` is no column of keys.
        ValueError: no such partitioner, ``count`` or ``null_partitions`` are out of range, or ``manual`` without
            ``null_partitions`` (:class:`~partitioners.manual.ManualPartitionRequired`).
    """
    rule = RULES.get(name) or OUR_RULES.get(name)
    if rule is None:
        raise ValueError(f"no partitioner is called {name!r}; there are {', '.join(NAMES)}")
    if positive(count) > _MOST:
        raise ValueError(f"the number of candidates must be below 2**31, not {count}")
    chunks = keys_of(column)
    others = _unhashed(chunks, rule)
    if rule.hash is None:
        indices = np.zeros(len(others), np.int32)
    elif name == MinimalMovement.RULE.name:
        indices = jump_column(_numbers(chunks, rule.hash), count)
    else:
        numbers = _numbers(chunks, rule.hash)
        indices = np.remainder(numbers, np.uint32(count), out=numbers).view(np.int32)
    if others.any():
        if null_partitions is None and name == Manual.RULE.name:
            raise ManualPartitionRequired("'manual' places no keys: give null_partitions")
        _place(indices, others, count, null_partitions, randomness)
    return indices


def _numbers(chunks: list[Keys], which: Hash) -> NDArray[np.uint32]:
    numbers = np.empty(sum(len(chunk) for chunk in chunks), np.uint32)
    at = 0
    for chunk in chunks:
        numbers_of(chunk, which, numbers[at : at + len(chunk)])
        at += len(chunk)
    return numbers


def _unhashed(chunks: list[Keys], rule: Rule) -> NDArray[np.bool_]:
    parts = []
    for chunk in chunks:
        if rule.hash is None:
            part = np.ones(len(chunk), np.bool_)
        elif not rule.empty_hashed:
            part = chunk.lengths == 0  # a null key is an empty one there
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
