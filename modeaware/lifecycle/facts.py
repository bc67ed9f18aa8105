"""What the controller has observed of a topic; every decision rests on a record and on these facts alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from modeaware.errors import ClusterError, ErrorCode
from modeaware.modelog.records import Straggler
from modeaware.notes import Note


@dataclass(frozen=True)
class WriterFacts:
    """A producer that the leader remembers for a partition (DescribeProducers).

    ``transaction_start`` is the first offset of its open transaction there, None without one.
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
        quiet_since_ms: the wall-clock time since which the controller has seen this end offset under this leader epoch.
        moved: whether the controller saw another end offset before that.
        seal_epoch_end: where the leader's log ends for the leader epoch that the record's seal was read under, or was
            found broken under; requested where that is not the present epoch. Below the seal: the log was truncated,
            and has grown again since.
        writers: the producers that the leader remembers; requested where a transaction is open.
        straggler: the first record after the seal; requested where there are any. None: not known.
        samples: descriptions of some records after the seal.
        log_end: the end of the leader's own log, replicated or not; requested where the topic is replaced and fenced,
            after the fence was probed and before the other offsets were read.
        read_up_to: the offset behind the last record that readers are given; requested where the topic is replaced and
            the end is final. None: not known.
    """

    log_start: int
    end_offset: int
    last_stable_offset: int
    leader_epoch: int
    quiet_since_ms: int
    moved: bool = False
    seal_epoch_end: int | None = None
    writers: tuple[WriterFacts, ...] = ()
    straggler: Straggler | None = None
    samples: tuple[str, ...] = ()
    log_end: int | None = None
    read_up_to: int | None = None

    @property
    def empty(self) -> bool:
        return self.log_start >= self.end_offset

    @property
    def lowest_end(self) -> int:
        """Return where the log ends, or ended for a while since its seal was read."""
        return self.end_offset if self.seal_epoch_end is None else min(self.end_offset, self.seal_epoch_end)

    @property
    def settled(self) -> bool:
        """Return whether no transaction is open: the last stable offset is the high watermark."""
        return self.last_stable_offset == self.end_offset


@dataclass(frozen=True)
class MembersSeen:
    """The members of a group that read a topic, as brokers show them.

    Mode-aware clients have a client id of their own where the application sets none
    (:data:`modeaware.wire.capabilities.CLIENT_ID`). Any client can be given that id, and one with another id may be
    mode-aware too: the first are *seen* to be mode-aware, which proves nothing, and of the others it is *not told*.

    Attributes:
        aware: how many are seen to be mode-aware.
        not_told: of how many that is not told.
        holding: how many hold a partition of the topic, where a partition has one member.
    """

    aware: int = 0
    not_told: int = 0
    holding: int = 0

    @property
    def text(self) -> str:
        """Their numbers in words, such as ``2 seen to be mode-aware, 1 not told``."""
        counts = ((self.aware, "seen to be mode-aware"), (self.not_told, "not told"))
        return ", ".join(f"{n} {words}" for n, words in counts if n) or "none"

    def __add__(self, other: MembersSeen) -> MembersSeen:
        return MembersSeen(self.aware + other.aware, self.not_told + other.not_told, self.holding + other.holding)


@dataclass(frozen=True)
class GroupFacts:
    """One group's progress on one topic.

    Attributes:
        committed: partition -> committed offset (of a share group, the offset before which everything is
            acknowledged); a partition without one is missing.
        caught_up: partitions where only control records or aborted records lie between the commit (else the log start)
            and the end.
        has_members: whether any are running.
        kind: ``classic``, ``consumer``, ``share`` or ``streams``.
        stateful: the group keeps state per partition: members of Kafka Streams, or changelog topics of its name.
        truncated: partitions where the commit was made on a part of the log that was truncated since.
        epochless: partitions where the commit has no leader epoch, so that a truncation cannot be detected.
        subscribed: members are subscribed to the topic, or assigned partitions of it; None: not known, as in a
            rebalance.
        notes: partition -> what the metadata of the commit says; one without metadata is missing.
        owned: the partitions that members are assigned; None: not known, as in a rebalance.
        members: those that are subscribed to the topic or assigned partitions of it; while that is not known, all.
    """

    committed: Mapping[int, int] = field(default_factory=dict)
    caught_up: frozenset[int] = frozenset()
    has_members: bool = False
    kind: str = "classic"
    stateful: bool = False
    truncated: frozenset[int] = frozenset()
    epochless: frozenset[int] = frozenset()
    subscribed: bool | None = False
    notes: Mapping[int, Note] = field(default_factory=dict)
    owned: frozenset[int] | None = None
    members: MembersSeen = MembersSeen()

    def has_committed(self, partition_count: int) -> bool:
        """Return whether the group has an offset on each partition of a topic that has so many."""
        return self.committed.keys() >= set(range(partition_count))


@dataclass(frozen=True)
class GroupsDoubt:
    """Why a list of groups may be incomplete, or why it is not known whether one of them uses a topic, and how far.

    Attributes:
        hidden: only the right to DESCRIBE the cluster is missing.
        settling: the group that is in a rebalance, where that is all: what it consumes will be known soon.
        too_many: the topic's record has no room for the names of more (:mod:`modeaware.lifecycle.record_size`).
    """

    detail: str
    hidden: bool = False
    settling: str | None = None
    too_many: bool = False


def worst_doubt(doubts: Iterable[GroupsDoubt | None]) -> GroupsDoubt | None:
    """Return the doubt that most has to change for: one that passes by itself, or that a closed list of groups would
    forgive, only if there is no other."""
    known = (doubt for doubt in doubts if doubt is not None)
    return min(known, key=lambda doubt: (doubt.hidden, doubt.settling is not None), default=None)


@dataclass(frozen=True)
class FenceFacts:
    """The fence of a topic that is replaced (:mod:`modeaware.lifecycle.replacement`).

    Attributes:
        configs: what the topic itself has set of the fence's configs.
        proved: partition -> the leader epoch under which its leader refused a probe as a fenced one does, after the
            brokers of all its in-sync replicas had shown these configs.
        answered: the partitions whose leaders answered a probe as a leader does, with the fence or without.
        failure: what a broker answered instead: a missing right, say. None: no broker refused anything.
        refused: brokers have refused for good to set these configs.
    """

    configs: Mapping[str, str] = field(default_factory=dict)
    proved: Mapping[int, int] = field(default_factory=dict)
    answered: frozenset[int] = frozenset()
    failure: ClusterError | None = None
    refused: bool = False

    @property
    def is_denied(self) -> bool:
        """Return whether the right to set the fence, or to look at it, is missing."""
        may_not_look = self.failure is not None and self.failure.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return self.refused or may_not_look


def is_compacted(cleanup_policy: str) -> bool:
    """Return whether a topic with this ``cleanup.policy`` is not cleaned up by deletion alone."""
    return cleanup_policy.strip() != "delete"


@dataclass(frozen=True)
class TopicFacts:
    """One topic as the cluster shows it now.

    Attributes:
        topic_id: the topic id; None when the cluster has no topic of that name.
        gone: the topic's absence (or another id under its name) is confirmed, not merely reported by one broker.
        successor: the facts of the topic that has, or is to have, the successor's name, where this topic is replaced.
        predecessor: the name of the topic that this one has replaced, where that is not gone.
        replication_factor, configs: of the topic that has the successor's name while that is not known to be the
            successor: its replicas, where each partition has as many, and what is set on the topic itself. None: not
            known.
        fence: of a topic whose successor exists, until the topic is gone.
        partitions: facts of the partitions whose leaders answered; others are missing.
        groups: every group that uses the topic (a commit on it, or members assigned to it).
        groups_doubt: why that list may be incomplete; None when it is certain but for ``unclear_groups``.
        unclear_groups: the groups of which it is not known whether they use the topic, or what they have committed on
            it -> why.
        listed_ms: the wall-clock time at which the list was made; None: now.
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
    unclear_groups: Mapping[str, GroupsDoubt] = field(default_factory=dict)
    listed_ms: int | None = None
    stateful_owner: str | None = None
    gone: bool = False
    successor: TopicFacts | None = None
    fence: FenceFacts | None = None
    predecessor: str | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str] | None = None

    @property
    def any_doubt(self) -> GroupsDoubt | None:
        """Return the worst doubt about the list or a group, of a topic that no rule is about: one that is about to
        replace another. What a drain doubts is in its requirement."""
        return worst_doubt((self.groups_doubt, *self.unclear_groups.values()))

    @property
    def compacted(self) -> bool:
        """Return whether the topic is not cleaned up by deletion alone, so that latest values must be kept."""
        return is_compacted(self.cleanup_policy)

    @property
    def untouched(self) -> bool | None:
        """Return whether nothing was ever written to the topic; None: not every leader answered."""
        if any(log.end_offset for log in self.partitions.values()):
            return False
        return True if len(self.partitions) == self.partition_count else None

    @property
    def offsets_left(self) -> list[str]:
        """Return the groups that have offsets behind the end of an empty topic: from an earlier one of its name, kept
        by a coordinator that was away when that was deleted. These groups would skip records (invariant I2)."""
        return sorted(name for name, group in self.groups.items() if self.untouched and any(group.committed.values()))
