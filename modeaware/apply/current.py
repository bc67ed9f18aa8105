"""A topic as the cluster and the mode log have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from modeaware.lifecycle.phases import in_progress, partition_phase, topic_phase
from modeaware.modelog.records import TopicRecord
from modeaware.modes import format_ranges


@dataclass(frozen=True)
class CurrentTopic:
    """One topic.

    Attributes:
        count: how many partitions it has on the brokers.
        replication_factors: how many replicas partitions have (as before a reassignment that is in progress); more than
            one number where they differ.
        overrides: the configs of its own; None where the user may not know.
        cleanup_policy: the one in force.
        record: its record in the mode log; None for a topic that was never changed.
    """

    count: int
    replication_factors: frozenset[int] = frozenset()
    overrides: Mapping[str, str] | None = field(default_factory=dict)
    cleanup_policy: str = "delete"
    internal: bool = False
    record: TopicRecord | None = None

    @property
    def listed(self) -> int:
        """How many partitions the record lists; without one, those there are."""
        return len(self.record.modes) if self.record is not None else self.count

    @property
    def writable(self) -> int:
        """How many take writes. What another tool has added does while none is retired."""
        if self.record is None:
            return self.count
        added = max(self.count - self.listed, 0) if not self.record.retired else 0
        return self.record.writable_count + added

    @property
    def goal(self) -> int:
        """How many will take writes once new partitions that are being opened do, and what comes with them."""
        retired = self.record.retired.values() if self.record is not None else ()
        opening = [partition.opening for partition in retired]
        if opening and all(opening):  # then none is retired any more
            return max(self.count, self.listed)
        return self.writable + sum(opening)

    @property
    def in_progress(self) -> bool:
        """Whether a shrink or a growth has not finished."""
        return in_progress(self.record)

    @property
    def progress(self) -> str | None:
        """What is in progress, in words, such as ``drain of partitions 4-11``; None: nothing."""
        if self.record is None or not self.in_progress:
            return None
        record, phase = self.record, topic_phase(self.record)
        those = [p for p, r in sorted(record.retired.items()) if partition_phase(record.modes[p], r) == phase]
        return f"{phase} of partitions {format_ranges(those)}"
