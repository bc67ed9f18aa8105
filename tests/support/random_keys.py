"""Random keys of all bytes and of lengths 0 to 300, the same ones for a seed on every machine."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

LONGEST = 300
COUNTS = 500
"""The highest number of partitions that is tried."""


@dataclass(frozen=True, eq=False)
class RandomKeys:
    """Keys one behind the other.

    Attributes:
        data: the bytes of all.
        lengths: of each, in bytes.
    """

    data: bytes
    lengths: NDArray[np.int64]

    def listed(self, number: int | None = None) -> list[bytes]:
        """The first ``number`` keys, or all, each by itself."""
        ends = np.cumsum(self.lengths)[:number].tolist()
        return [self.data[first:last] for first, last in zip([0, *ends], ends, strict=False)]

    def own_counts(self) -> NDArray[np.int64]:
        """A number of partitions for each key: 1, 2, ... 500, 1, ..."""
        return np.arange(len(self.lengths)) % COUNTS + 1


@cache
def million_keys() -> RandomKeys:
    """1 000 000 of them, 150 MB."""
    return random_keys(1_000_000, 694)


def random_keys(number: int, seed: int, *, shortest: int = 0, longest: int = LONGEST) -> RandomKeys:
    source = random.Random(seed)
    chances = np.frombuffer(source.randbytes(4 * number), "<u4")
    lengths = chances.astype(np.int64) % (longest - shortest + 1) + shortest
    total = int(lengths.sum())
    # A generator gives no more than 256 MB at once.
    step = 1 << 24
    return RandomKeys(b"".join(source.randbytes(min(step, total - at)) for at in range(0, total, step)), lengths)
