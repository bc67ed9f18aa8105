"""What the controller has observed of a topic; all a decision may rest on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class WriterFacts:
    """A producer that the leader remembers for a partition (DescribeProducers).

    ``transaction_start`` is the first offset of the transaction it has open there, None without one.
    """

    producer_id: int
    producer_epoch: int
    last_timestamp_ms: int = -1
    transaction_start: int | None = None


@dataclass(frozen=True)
class PartitionFacts:
    """One partition's log, as its leader reported it.

    Attributes:
        log_start, end_offset, last_stable_offset: its offsets; the end is the high watermark.
        leader_epoch: the leader epoch they were read under.
        quiet_since_ms: the wall-clock time since which the controller has seen this same end offset under this same
            leader epoch.
        moved: whether it saw another end before that (not so for a controller that has just begun to look).
        seal_epoch_end: where the leader's log ends for the leader epoch that the record's seal was read under, or was
            found broken under; asked where that is not the present epoch. Below the seal: the log was truncated, and
            has grown again since.
        writers: the producers the leader remembers; asked where a record arrived after the seal, or a transaction is
            open.
        samples: some of the records after the seal, in words.
    """

    log_start: int
    end_offset: int
    last_stable_offset: int
    leader_epoch: int
    quiet_since_ms: int
    moved: bool = False
    seal_epoch_end: int | None = None
    writers: tuple[WriterFacts, ...] = ()
    samples: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether every record is gone."""
        return self.log_start >= self.end_offset

    @property
    def lowest_end(self) -> int:
        """Where the log ends, or ended for a while since its seal was read."""
        return self.end_offset if self.seal_epoch_end is None else min(self.end_offset, self.seal_epoch_end)

    @property
    def settled(self) -> bool:
        """Whether no transaction is open: the last stable offset is the high watermark."""
        return self.last_stable_offset == self.end_offset


@dataclass(frozen=True)
class GroupFacts:
    """One group's progress on one topic.

    Attributes:
        committed: partition -> committed offset, of a share group the offset before which everything is acknowledged; a
            partition without one is missing.
        caught_up: partitions where between what the group has committed (else the log start) and the end only control
            records or aborted records lie: nothing a group would be given.
        has_members: whether any are running.
        kind: ``classic``, ``consumer``, ``share`` or ``streams``.
        stateful: it keeps state per partition: members of Kafka Streams, or changelog topics of its name.
        truncated: partitions where its commit was made on a part of the log that was truncated since.
        epochless: partitions where its commit names no leader epoch, so that nobody can tell whether it was.
    """

    committed: Mapping[int, int] = field(default_factory=dict)
    caught_up: frozenset[int] = frozenset()
    has_members: bool = False
    kind: str = "classic"
    stateful: bool = False
    truncated: frozenset[int] = frozenset()
    epochless: frozenset[int] = frozenset()


@dataclass(frozen=True)
class GroupsDoubt:
    """Why a list of groups may be incomplete. ``hidden``: the right to DESCRIBE the cluster is missing, no more."""

    detail: str
    hidden: bool = False


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
        listed_ms: the wall-clock time at which that list was made; None: just now.
        stateful_owner: the Streams group whose internal topic this is (repartition, changelog); None for others.
    """

    topic: str
    topic_id: str | None
    partition_count: int = 0
    internal: bool = False
    cleanup_policy: str = "delete"
    partitions: Mapping[int, PartitionFacts] = field(default_factory=dict)
    groups: Mapping[str, GroupFacts] = field(default_factory=dict)
    groups_doubt: GroupsDoubt | None = None
    listed_ms: int | None = None
    stateful_owner: str | None = None
    gone: bool = False

    @property
    def compacted(self) -> bool:
        """Whether the topic is not cleaned up by deletion alone: the latest value of a key must not go then."""
        return self.cleanup_policy.strip() != "delete"

    @property
    def deletes(self) -> bool:
        """Whether records of the topic may be deleted at all: brokers refuse that where it is only compacted."""
        return "delete" in (policy.strip() for policy in self.cleanup_policy.split(","))
