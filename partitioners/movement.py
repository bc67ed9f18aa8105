"""How many keys another number of partitions moves: shares of all keys, ``0 <= share <= 1``."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable

from partitioners.base import HashPartitioner
from partitioners.hashes import positive
from partitioners.minimal_movement import MinimalMovement
from partitioners.seam import Partitioner

SAMPLED_KEYS = 2000


def share_moved(old: int, new: int) -> float:
    """The share of keys that move from ``old`` to ``new`` partitions where the index is ``hash % count``.

    Of each ``lcm(old, new)`` consecutive hashes ``min(old, new)`` have the same remainder by both. Where one count
    divides the other that is the least there can be.
    """
    return 1 - min(positive(old), positive(new)) / math.lcm(old, new)


def least_share_moved(old: int, new: int) -> float:
    """The share that has to move for an even load, and does with ``minimal_movement``."""
    return 1 - min(positive(old), positive(new)) / max(old, new)


def share_moved_of(keys: Iterable[bytes], index: Callable[[bytes, int], int], old: int, new: int) -> float:
    """The share of ``keys`` that move; each counts as often as it comes.

    Args:
        keys: at least one.
        index: key and count to the index.
        old, new: the numbers of partitions.

    Raises:
        ValueError: there are no keys, or a count is not positive.
    """
    moved = [index(key, positive(old)) != index(key, positive(new)) for key in keys]
    if not moved:
        raise ValueError("a share of no keys is asked for")
    return sum(moved) / len(moved)


def expected_share_moved(partitioner: Partitioner, old: int, new: int) -> float:
    """The share of keys that ``partitioner`` moves: exact for those of this package, else by 2000 random keys.

    0.0 for one that hashes no keys: its records keep to no partition anyway. By sample the error is below 0.03
    (at 99 %), and the same arguments give the same result where the partitioner's picks depend on the key alone.
    """
    if isinstance(partitioner, MinimalMovement):
        return least_share_moved(old, new)
    if isinstance(partitioner, HashPartitioner):
        return share_moved(old, new) if partitioner.hash_function is not None else 0.0
    topic = partitioner.for_topic("")
    numbers = random.Random(0)
    keys = [key for key in (numbers.randbytes(16) for _ in range(SAMPLED_KEYS)) if topic.requires_consistency(key)]
    return share_moved_of(keys, topic.partition, old, new) if keys else 0.0
