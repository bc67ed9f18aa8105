"""What a decision asks to be done outside the mode log. Every effect may be done again without harm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class DeleteRecords:
    """Delete the records of ``offsets``' partitions below the given offsets: always recorded seals, never the end."""

    topic: str
    topic_id: str
    offsets: Mapping[int, int]


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
