"""Partition modes and the states of a retiring partition (KIP-694, Metadata Changes and Proposed Changes).

:mod:`modeaware.lifecycle.state` has the transitions between modes, and between states.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum, StrEnum


class PartitionMode(IntEnum):
    """Whether clients may write or read a partition. The values are KIP-694's codes on the wire and in the mode log."""

    READ_WRITE = 0
    READ_ONLY = 1
    NONE = -1

    @property
    def writable(self) -> bool:
        """Whether producers may choose the partition."""
        return self is PartitionMode.READ_WRITE

    @property
    def readable(self) -> bool:
        """Whether consumers are assigned the partition."""
        return self is not PartitionMode.NONE

    @property
    def label(self) -> str:
        """The name KIP-694 gives the mode: ``ReadWrite``, ``ReadOnly`` or ``None``."""
        return _LABELS[self]


_LABELS = {
    PartitionMode.READ_WRITE: "ReadWrite",
    PartitionMode.READ_ONLY: "ReadOnly",
    PartitionMode.NONE: "None",
}


class PartitionState(StrEnum):
    """The controller's partition states, as KIP-694 and Kafka's PartitionStateMachine name them."""

    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"
    NON_EXISTENT = "NonExistentPartition"


class ReplicaState(StrEnum):
    """The controller's replica states, as KIP-694 and Kafka's ReplicaStateMachine name them."""

    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


def to_ranges(modes: Iterable[PartitionMode]) -> list[tuple[int, int, PartitionMode]]:
    """Return runs of equal modes as ``(first, last, mode)``, both ends included, for partitions 0, 1, 2, ..."""
    ranges: list[tuple[int, int, PartitionMode]] = []
    for partition, mode in enumerate(modes):
        if ranges and ranges[-1][2] is mode:
            ranges[-1] = (ranges[-1][0], partition, mode)
        else:
            ranges.append((partition, partition, mode))
    return ranges


def format_ranges(partitions: Iterable[int]) -> str:
    """Return partition numbers as text: ``[0, 1, 2, 5]`` becomes ``"0-2,5"``; no partitions become ``"-"``."""
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs(partitions)) or "-"


def runs(partitions: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield runs of consecutive partitions as ``(first, last)``, both ends included, ascending."""
    first = last = None
    for partition in sorted(partitions):
        if first is None or last is None:
            first = last = partition
        elif partition == last + 1:
            last = partition
        else:
            yield first, last
            first = last = partition
    if first is not None and last is not None:
        yield first, last


def divides(one: int, other: int) -> bool:
    """Return whether one partition count divides the other. A hash modulo the count then moves the fewest keys."""
    return max(one, other) % min(one, other) == 0


def nearest_dividing(before: int, wanted: int) -> list[int]:
    """Return the nearest numbers below and above ``wanted`` that divide ``before`` or are multiples of ``before``. If
    ``wanted`` itself is such a number, return only ``wanted``. ``before`` is left out of the result.

    Raises:
        ValueError: a number is not positive.
    """
    if before < 1 or wanted < 1:
        raise ValueError(f"counts of partitions must be positive, not {before} and {wanted}")
    below, above = wanted, wanted
    while not divides(before, below):
        below -= 1
    while not divides(before, above):
        above += 1
    return sorted({below, above} - {before})


def divides_text(before: int, after: int) -> str:
    """Return in words whether one number of partitions divides the other, and which keys a hash would move."""
    shrinks, moves = after < before, "a hash modulo the number of partitions moves"
    if divides(before, after):
        relation = "divides" if shrinks else "is a multiple of"
        which = "only keys of the retired ones" if shrinks else "keys to the new ones only"
        return f"{after} {relation} {before}: {moves} {which}"
    relation = "does not divide" if shrinks else "is no multiple of"
    instead = " or ".join(map(str, nearest_dividing(before, after)))
    return f"{after} {relation} {before}: {moves} keys also between partitions that stay ({instead} would not)"
