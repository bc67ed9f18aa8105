"""What a decision asks to be done outside the mode log. Every effect may be done again without harm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class DeleteRecords:
    """Delete the records of ``offsets``' partitions below the given offsets: always recorded seals, never the end.

    ``leader_epochs`` (partition -> leader epoch) are those under which the logs were looked at. A leader of another
    epoch may have other records there, so it is not asked; nor is one whose partition is missing here.
    """

    topic: str
    topic_id: str
    offsets: Mapping[int, int]
    leader_epochs: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class CreatePartitions:
    """Grow the topic on the brokers to ``total_count`` partitions in all."""

    topic: str
    topic_id: str
    total_count: int
    assignments: tuple[tuple[int, ...], ...] | None


@dataclass(frozen=True)
class CommitOffsets:
    """Commit ``offsets`` (partition -> offset) for a group without members, on partitions it has no commit on."""

    topic: str
    topic_id: str
    group: str
    offsets: Mapping[int, int]


Effect = DeleteRecords | CreatePartitions | CommitOffsets
