"""Facts: what brokers returned about a topic in one snapshot. Decisions use records and facts, and make no requests.

Where a broker did not answer, an entry is missing or a value is None; decisions wait for the answer. A *doubt* is the
reason why a list of groups may be incomplete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from modeaware.errors import ClusterError, ErrorCode
from modeaware.modelog.records import Straggler
from modeaware.notes import Note


@dataclass(frozen=True)
class WriterFacts:
    """A producer that the leader remembers for a partition (DescribeProducers).

    ``transaction_start`` is the first offset of the producer's open transaction there, or None if none is open.
    """

    producer_id: int
    producer_epoch: int
    last_timestamp_ms: int = -1
    transaction_start: int | None = None


@dataclass(frozen=True)
class PartitionFacts:
    """One partition's log, as its leader reported it.

    Attributes:
        log_start, end_offset, last_stable_offset: the log's offsets; ``end_offset`` is the high watermark.
        leader_epoch: the leader epoch under which these offsets were read.
        quiet_since_ms: the wall-clock time since which the controller has seen this end offset under this leader epoch.
        moved: whether ``quiet_since_ms`` is when the end offset changed. If not, the log was first seen then, or only
            its leader epoch changed.
        seal_epoch_end: where the seal's leader epoch ends in the leader's log; requested if that epoch is over. The
            seal was read, or found broken, under that epoch. An end below the seal shows that the log was truncated,
            even if the log has grown again.
        writers: the producers that the leader remembers; requested if the log is not stable (:attr:`is_stable`).
        straggler: the first record at or after the seal, if known; requested if the log ends behind the seal.
        samples: descriptions of some records at or after the seal.
        log_end: the end of the leader's own log, replicated or not; requested after the switch of a replacement with a
            fence. The request follows the probe of the fence, and precedes the requests for the other offsets.
        read_up_to: the offset behind the last record that readers receive. It is requested if the end of an old topic's
            log may become the seal. None if it is not known, or is already in the topic's record for this end.
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
        """Return the end of the log, or a lower offset at which the log ended for a while after its seal was read."""
        return self.end_offset if self.seal_epoch_end is None else min(self.end_offset, self.seal_epoch_end)

    @property
    def is_stable(self) -> bool:
        """Return whether no transaction is open: the last stable offset is the high watermark."""
        return self.last_stable_offset == self.end_offset


@dataclass(frozen=True)
class MembersSeen:
    """How many members of a group read a topic, as brokers show the members.

    A mode-aware client has the client id :data:`modeaware.wire.capabilities.CLIENT_ID` unless the application sets one.
    Members with that id are *seen* to be mode-aware; others are *unknown*. The id is no proof: a stock client may have
    that id, and a mode-aware client another id.

    Attributes:
        aware: the number of members seen to be mode-aware.
        unknown: the number of other members.
        holding: the number of members that hold a partition of the topic; not for share groups.
    """

    aware: int = 0
    unknown: int = 0
    holding: int = 0

    @property
    def text(self) -> str:
        """Return the numbers of members in words, such as ``2 seen to be mode-aware, 1 unknown``."""
        counts = ((self.aware, "seen to be mode-aware"), (self.unknown, "unknown"))
        return ", ".join(f"{n} {words}" for n, words in counts if n) or "none"

    def __add__(self, other: MembersSeen) -> MembersSeen:
        return MembersSeen(self.aware + other.aware, self.unknown + other.unknown, self.holding + other.holding)


@dataclass(frozen=True)
class GroupFacts:
    """One group's progress on one topic.

    Attributes:
        committed: partition -> committed offset; a partition without a commit is missing. For a share group, all
            records before that offset are acknowledged.
        caught_up: partitions where only control records or aborted records lie between the commit (without a commit,
            the log start) and the end.
        has_members: whether the group has members.
        kind: ``classic``, ``consumer``, ``share`` or ``streams``.
        stateful: whether the group keeps state per partition: brokers show it as Kafka Streams, or there are changelog
            topics with the group's name.
        truncated: partitions whose commit lies on a part of the log that was truncated after the commit.
        epochless: partitions whose commit has no leader epoch, so that a truncation cannot be detected.
        subscribed: whether members are subscribed to the topic or assigned its partitions. None if that is not known,
            as in a rebalance.
        notes: partition -> the note in the metadata of the commit; a partition whose commit has no metadata is missing.
        owned: the partitions assigned to members, or None if these are not known, as in a rebalance.
        members: the members that read the topic; all members of the group while ``subscribed`` is not known.
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
        """Return whether the group has an offset on each partition of a topic with ``partition_count`` partitions."""
        return self.committed.keys() >= set(range(partition_count))


@dataclass(frozen=True)
class GroupsDoubt:
    """Why a list of groups may be incomplete, or why a group's use of a topic, or its commits there, are uncertain.

    Attributes:
        hidden: whether the only cause is a missing right to DESCRIBE the cluster.
        rebalancing: the group whose rebalance is the only cause; its subscription will be known soon. Otherwise None.
        too_many: the topic's record has no room for more names (:mod:`modeaware.lifecycle.record_size`).
    """

    detail: str
    hidden: bool = False
    rebalancing: str | None = None
    too_many: bool = False


def worst_doubt(doubts: Iterable[GroupsDoubt | None]) -> GroupsDoubt | None:
    """Return the most serious doubt. Hidden groups are the least serious, because the operator may declare the list
    complete. Rebalances are the next, because they end by themselves."""
    known = (doubt for doubt in doubts if doubt is not None)
    return min(known, key=lambda doubt: (doubt.hidden, doubt.rebalancing is not None), default=None)


@dataclass(frozen=True)
class FenceFacts:
    """The fence of a topic that is replaced (:mod:`modeaware.lifecycle.replacement`).

    Attributes:
        configs: the fence's configs as set on the topic itself.
        proved: partition -> the leader epoch under which its leader refused a probe as a fenced leader does. Before the
            probe, the brokers of all in-sync replicas had shown these configs.
        answered: the partitions whose leaders answered a probe as a leader does, fenced or not.
        failure: the error if another request about the fence was rejected, for example because a right is missing.
        refused: whether brokers permanently reject these configs.
    """

    configs: Mapping[str, str] = field(default_factory=dict)
    proved: Mapping[int, int] = field(default_factory=dict)
    answered: frozenset[int] = frozenset()
    failure: ClusterError | None = None
    refused: bool = False

    @property
    def is_denied(self) -> bool:
        """Return whether brokers permanently reject the fence, or a right to read or probe it is missing."""
        may_not_look = self.failure is not None and self.failure.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return self.refused or may_not_look


def is_compacted(cleanup_policy: str) -> bool:
    """Return whether a topic with this ``cleanup.policy`` is compacted: the policy is not ``delete`` alone."""
    return cleanup_policy.strip() != "delete"


@dataclass(frozen=True)
class TopicFacts:
    """One topic as the cluster shows it now.

    Attributes:
        topic_id: the topic id, or None if the cluster has no topic of that name.
        gone: whether all brokers have confirmed that the topic is absent, or that its name has another id.
        new_topic: the facts of the topic under the new topic's name, if this topic is replaced or is to be.
        earlier_topic: the name of the nearest earlier topic of the chain that is not gone, if any.
        new_topic_replaced: whether producers have switched from the new topic to a later topic of the chain.
        replication_factor: the number of replicas, if all partitions have the same number. This and ``configs`` are
            known only for a topic that may become a new topic, and are None otherwise.
        configs: the topic's own configs.
        fence: the state of the fence. None unless the replacement has a fence and a new topic, and this topic is not
            gone.
        partitions: facts of the partitions whose leaders answered; others are missing.
        groups: every group that uses the topic: by a commit on it, or by members that are subscribed to it or assigned
            its partitions.
        groups_doubt: why ``groups`` may be incomplete. If it is None, only ``unclear_groups`` are uncertain.
        unclear_groups: group -> why it is uncertain whether the group uses the topic, or what it has committed there.
        listed_ms: the wall-clock time at which the groups were listed; None stands for now.
        stateful_owner: the Streams group whose internal topic this is (repartition, changelog); None for other topics.
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
    new_topic: TopicFacts | None = None
    fence: FenceFacts | None = None
    earlier_topic: str | None = None
    new_topic_replaced: bool = False
    replication_factor: int | None = None
    configs: Mapping[str, str] | None = None

    @property
    def any_doubt(self) -> GroupsDoubt | None:
        """Return the worst doubt about the list of groups or one group, for a topic that is to become a new topic. The
        operator's rules do not count there. (For a drain, ``Requirement.doubt`` counts.)"""
        return worst_doubt((self.groups_doubt, *self.unclear_groups.values()))

    @property
    def compacted(self) -> bool:
        """Return whether ``cleanup.policy`` is not ``delete`` alone, so that latest values must be kept."""
        return is_compacted(self.cleanup_policy)

    @property
    def untouched(self) -> bool | None:
        """Return whether the topic never contained a record, or None if a leader did not answer."""
        if any(log.end_offset for log in self.partitions.values()):
            return False
        return True if len(self.partitions) == self.partition_count else None

    @property
    def offsets_left(self) -> list[str]:
        """Return the groups with offsets beyond the end of an empty topic: such a group would skip records (invariant
        I2). A coordinator keeps these offsets if it was down when an earlier topic of the name was deleted."""
        return sorted(name for name, group in self.groups.items() if self.untouched and any(group.committed.values()))
