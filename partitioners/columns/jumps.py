"""Jump hashing over columns; equal to :func:`partitioners.minimal_movement.jump_over` with murmur2."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from partitioners.minimal_movement import JUMP_FACTOR, MURMUR2_COUNT, SEED_FACTOR

_BLOCK = 16_384
_33 = np.uint64(33)
_ONE = np.uint64(1)
_FACTOR = np.uint64(JUMP_FACTOR)
_TWO_TO_31 = 2147483648.0


def jump_column(numbers: NDArray[np.uint32], count: int) -> NDArray[np.int32]:
    """The index, ``0 <= index < count``, of each of murmur2's numbers."""
    indices = np.empty(len(numbers), np.int32)
    for first in range(0, len(numbers), _BLOCK):
        _jump(numbers[first : first + _BLOCK], count, indices[first : first + _BLOCK])
    return indices


def _jump(numbers: NDArray[np.uint32], count: int, indices: NDArray[np.int32]) -> None:
    states = (numbers % np.uint32(MURMUR2_COUNT)).astype(np.uint64)
    states *= np.uint64(SEED_FACTOR)
    rows = np.arange(len(numbers))
    following = np.zeros(len(numbers), np.int64)
    while len(rows):
        indices[rows] = following
        states *= _FACTOR
        states += _ONE
        # In doubles, step by step as the scalar form computes it.
        following = ((following + 1) * (_TWO_TO_31 / ((states >> _33) + _ONE).astype(np.float64))).astype(np.int64)
        on = following < count
        rows, states, following = rows[on], states[on], following[on]
