"""The admin commands a controller takes, and its answers."""

from __future__ import annotations

from dataclasses import dataclass

from modeaware.errors import ErrorCode
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import RETENTION_DELAY_MS
from modeaware.modes import PartitionMode


@dataclass(frozen=True)
class DeletePartitionsCommand:
    """KIP-694's DeletePartitions for one topic: keep ``total_count`` partitions, retire the rest.

    ``delay_ms`` -1 names the ``retention`` reclaim policy, 0 or more ``drained`` (see DeleteTopicPartitions).
    ``accept_state_loss`` names the groups that keep state per partition and may lose it for the keys that move.
    ``evacuate``: the topic is compacted, and its latest values are copied before a partition goes.
    """

    topic: str
    total_count: int
    delay_ms: int = RETENTION_DELAY_MS
    immediate_delete: bool = False
    accept_state_loss: tuple[str, ...] = ()
    evacuate: bool = False


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


TopicCommand = DeletePartitionsCommand | CreatePartitionsCommand


@dataclass(frozen=True)
class AlterGroupRulesCommand:
    """Add rules about groups (one of the same kind, group and topic is replaced), and remove some by their keys."""

    add: tuple[GroupRule, ...] = ()
    remove: tuple[tuple[str, str, str], ...] = ()

    @property
    def topic(self) -> str:
        """It is about no one topic."""
        return ""


Command = TopicCommand | AlterGroupRulesCommand


@dataclass(frozen=True)
class CommandResult:
    """The controller's answer for one topic: an error code with a message for people, and the modes now in force."""

    topic: str
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    modes: tuple[PartitionMode, ...] = ()
