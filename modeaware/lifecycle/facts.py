"""What the controller has observed of a topic; all a decision may rest on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PartitionFacts:
    """One partition's log, as its leader reported it.

    ``quiet_since_ms`` is the wall-clock time since which the controller has seen this same end offset; ``moved`` says
    whether it saw another one before that (not so for a controller that has just begun to look).
    """

    log_start: int
    end_offset: int
    last_stable_offset: int
    leader_epoch: int
    quiet_since_ms: int
    moved: bool = False

    @property
    def empty(self) -> bool:
        """Whether every record is gone."""
        return self.log_start >= self.end_offset

    @property
    def settled(self) -> bool:
        """Whether no transaction is open: the last stable offset is the high watermark."""
        return self.last_stable_offset == self.end_offset


@dataclass(frozen=True)
class GroupFacts:
    """One group's progress on one topic.

    ``committed`` maps a partition to the committed offset; a partition without a commit is missing. ``caught_up`` are
    partitions where between what the group has committed (else the log start) and the end only control records or
    aborted records lie: nothing a group would be given.
    """

    committed: Mapping[int, int] = field(default_factory=dict)
    caught_up: frozenset[int] = frozenset()
    has_members: bool = False


@dataclass(frozen=True)
class TopicFacts:
    """One topic as the cluster shows it now.

    Attributes:
        topic_id: the topic id; None when the cluster knows no topic of that name.
        gone: the topic's absence (or another id under its name) has been confirmed, not merely not mentioned by one
            broker.
        partitions: facts of the partitions that could be asked; one that could not is missing.
        groups: every group known to use the topic (a commit on it, or members assigned to it).
        groups_doubt: why that list may be incomplete; None when it is sure.
    """

    topic: str
    topic_id: str | None
    partition_count: int = 0
    internal: bool = False
    cleanup_policy: str = "delete"
    partitions: Mapping[int, PartitionFacts] = field(default_factory=dict)
    groups: Mapping[str, GroupFacts] = field(default_factory=dict)
    groups_doubt: str | None = None
    gone: bool = False
