"""The admin commands a controller takes, and its answers."""

from __future__ import annotations

from dataclasses import dataclass

from modeaware.errors import ErrorCode
from modeaware.modelog.records import RETENTION_DELAY_MS
from modeaware.modes import PartitionMode


@dataclass(frozen=True)
class DeletePartitionsCommand:
    """KIP-694's DeletePartitions for one topic: keep ``total_count`` partitions, retire the rest.

    ``delay_ms`` -1 names the ``retention`` reclaim policy, 0 or more ``drained`` (see DeleteTopicPartitions).
    """

    topic: str
    total_count: int
    delay_ms: int = RETENTION_DELAY_MS
    immediate_delete: bool = False


@dataclass(frozen=True)
class CreatePartitionsCommand:
    """KIP-195's CreatePartitions for one topic: ``total_count`` writable partitions.

    Retired partitions are revived first, lowest id first; only what is still missing is created. ``assignments``
    gives the replicas (broker ids) of each really new partition.
    """

    topic: str
    total_count: int
    assignments: tuple[tuple[int, ...], ...] | None = None
    validate_only: bool = False


Command = DeletePartitionsCommand | CreatePartitionsCommand


@dataclass(frozen=True)
class CommandResult:
    """The controller's answer for one topic: an error code with a message for people, and the modes now in force."""

    topic: str
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    modes: tuple[PartitionMode, ...] = ()
