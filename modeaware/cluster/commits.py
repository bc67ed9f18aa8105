"""Checks of committed offsets: lag that contains no records, and commits on a part of a log that was truncated.

A consumer's committed offset stops after its last record. So a transaction's commit marker at the end of a partition
looks like lag, but no consumer can ever consume the marker. A *gap* is a stretch of a log. *Lag* is the gap from a
group's commit to the log's end, once the partition has a *seal* (its final end offset). A broken seal counts, too: the
next seal is not below that end. A gap is *clear* if it contains only control records or aborted records. If the log's
last record is known, lag ends behind this record. Otherwise the markers of a producer that aborts repeatedly could make
the gap longer than :data:`MAX_GAP`.

A commit with another leader epoch may lie on a truncated part of the log. If the commit is above that epoch's end in
the leader's log, the gap from this end to the commit is in doubt. If a commit has no epoch, the gap from a known
truncation to the commit is in doubt. Without a known truncation, the partition is only noted as ``epochless``. If a gap
in doubt is clear, the group missed nothing. Such gaps occur: after a marker, some clients commit the next offset with
an epoch before the marker's epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from modeaware.clock import Clock
from modeaware.cluster.groups import GroupsFound
from modeaware.cluster.metadata import Partition, epoch_ends
from modeaware.errors import ClusterError
from modeaware.librdkafka import TO_THE_END, Consumer, KafkaError, KafkaException, Message, TopicPartition
from modeaware.lifecycle.facts import GroupFacts, PartitionFacts
from modeaware.lifecycle.seal import seal_broken_by
from modeaware.lifecycle.state import drains, needs_groups
from modeaware.modelog.records import RetiredPartition, TopicRecord
from modeaware.modes import PartitionMode, ReplicaState
from modeaware.wire.brokers import Brokers

READ_TIMEOUT_S = 15.0
"""The time for reading all gaps of one snapshot. It is short, because the controller has to poll its election."""
MAX_GAP = 10_000


class Gap(NamedTuple):
    """The offsets of a partition from ``start`` up to, but without, ``end``."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class CommitsSeen:
    """The snapshot of a topic that has a record: the topic's logs, and the groups that use the topic."""

    record: TopicRecord
    partitions: Mapping[int, PartitionFacts]
    groups: GroupsFound

    @cached_property
    def drained(self) -> frozenset[int]:
        """Return the retired partitions whose drain depends on commits, except those whose records are deleted."""
        record = self.record
        if not needs_groups(record):
            return frozenset()
        return frozenset(
            p for p, r in record.retired.items()
            if p in self.partitions and drains(p, record)
            and r.replica_state is not ReplicaState.DELETION_SUCCESSFUL
        )  # fmt: skip

    @cached_property
    def earlier(self) -> set[tuple[int, int]]:
        """Return (partition, epoch) of each commit that was made under another leader epoch."""
        return {
            (partition, epoch)
            for epochs in self.groups.epochs.values()
            for partition, epoch in epochs.items()
            if partition in self.drained and epoch != self.partitions[partition].leader_epoch
        }

    def due(self, now_ms: int) -> frozenset[int]:
        """Return the partitions whose gaps affect a decision now."""
        deletion = self.record.deletion
        if deletion is None or now_ms >= deletion.earliest_ms:
            return self.drained
        # During the delay, only the drains of partitions in mode None are checked.
        return frozenset(p for p in self.drained if self.record.modes[p] is PartitionMode.NONE)


def check_commits(
    conf: Mapping[str, Any], brokers: Brokers, topics: Sequence[CommitsSeen], clock: Clock, before_due: bool = False
) -> list[GroupsFound]:
    """Return each topic's groups, with ``caught_up``, ``truncated`` and ``epochless`` computed from their commits on
    retired partitions.

    Until a shrink's delay has passed, decisions need only the drains of partitions in mode None. Gaps on other
    partitions are not read, and count as not clear.

    Args:
        before_due: whether to read the gaps on all partitions, even before the delay has passed.
    """
    asked: dict[Partition, set[int]] = {}
    for topic in topics:
        for p, epoch in topic.earlier:
            asked.setdefault((topic.record.topic, p), set()).add(epoch)
    ends = epoch_ends(brokers, asked)
    doubts = [_all_doubts(topic, ends) for topic in topics]
    gaps = set()
    for topic, by_group in zip(topics, doubts, strict=True):
        due = topic.drained if before_due else topic.due(clock.now_ms())
        gaps |= {
            gap
            for of_group in by_group.values()
            for three in of_group.values()
            for gap in three
            if isinstance(gap, Gap) and gap.partition in due
        }
    clear = without_records(conf, gaps, clock.monotonic_s)
    return [_checked(topic, by_group, clear, ends) for topic, by_group in zip(topics, doubts, strict=True)]


def _checked(topic: CommitsSeen, doubts: _Doubts, clear: frozenset[Gap], ends: _Ends) -> GroupsFound:
    if not topic.drained:
        return topic.groups

    def where(name: str, kind: int, *, is_clear: bool) -> frozenset[int]:
        of_kind = ((p, three[kind]) for p, three in doubts[name].items())
        return frozenset(p for p, gap in of_kind if gap is not None and (gap in clear) is is_clear)

    groups = {
        name: replace(
            group,
            caught_up=where(name, 0, is_clear=True),
            truncated=where(name, 1, is_clear=False),
            epochless=where(name, 2, is_clear=False),
        )
        if doubts[name]
        else group
        for name, group in topic.groups.groups.items()
    }
    name = topic.record.topic
    unchecked = frozenset(p for p, epoch in topic.earlier if (name, p, epoch) not in ends)
    return replace(topic.groups, groups=groups, unchecked=unchecked)


_Doubt = Gap | str | None
"""A doubt about a commit: the gap that must be clear, or the reason why there is no gap to read; None without a
doubt."""
_Doubts = Mapping[str, Mapping[int, tuple[_Doubt, _Doubt, _Doubt]]]
_Ends = Mapping[tuple[str, int, int], int]


def _all_doubts(topic: CommitsSeen, ends: _Ends) -> _Doubts:
    """Return group -> partition -> the doubts about the commit. A commit at the end, under the leader's epoch,
    leaves no doubt, and the result omits its partition. In a large topic, nearly every commit is of this kind."""
    at_end = {p: (topic.partitions[p].end_offset, topic.partitions[p].leader_epoch) for p in topic.drained}
    doubts: dict[str, dict[int, tuple[_Doubt, _Doubt, _Doubt]]] = {}
    for name, group in topic.groups.groups.items():
        committed, epochs = group.committed, topic.groups.epochs.get(name, {})
        doubts[name] = {
            p: _doubts(topic.record, p, topic.partitions[p], group, epochs.get(p), ends)
            for p, end in at_end.items()
            if (committed.get(p), epochs.get(p)) != end
        }
    return doubts


def _doubts(
    record: TopicRecord,
    partition: int,
    log: PartitionFacts,
    group: GroupFacts,
    epoch: int | None,
    ends: _Ends,
) -> tuple[_Doubt, _Doubt, _Doubt]:
    """Return the doubts about a group's commit: lag, a truncation, and a truncation that a missing epoch may hide."""
    committed = group.committed.get(partition)
    retired = record.retired[partition]
    start = max(committed or 0, log.log_start)
    lag = None
    if retired.seal_offset is not None and start < log.end_offset:
        last = _last_record(retired, log)
        lag = Gap(record.topic, partition, start, log.end_offset if last is None else max(start, last))
    truncated: _Doubt = None
    epochless: _Doubt = None
    if committed is not None and epoch is None:
        truncated_to = retired.truncated_to
        start = max(truncated_to or 0, log.log_start)
        known = truncated_to is not None and start < committed
        epochless = Gap(record.topic, partition, start, committed) if known else "no epoch"
    elif committed is not None and epoch is not None and epoch != log.leader_epoch:
        end = ends.get((record.topic, partition, epoch))
        if end is None:
            truncated = "the leader did not answer"
        elif (start := max(end, log.log_start)) < committed:
            truncated = Gap(record.topic, partition, start, committed) if end >= 0 else "the leader has no such epoch"
    return lag, truncated, epochless


def _last_record(retired: RetiredPartition, log: PartitionFacts) -> int | None:
    """Return the offset behind the log's last record, if known: from the facts or, while the seal holds, from the mode
    log."""
    if log.read_up_to is not None or retired.seal_offset is None:
        return log.read_up_to
    return retired.read_up_to if seal_broken_by(retired.seal_offset, log) is None else None


# Gaps


def without_records(conf: Mapping[str, Any], gaps: Collection[Gap], monotonic_s: Callable[[], float]) -> frozenset[Gap]:
    """Return the clear gaps: those in which a reader (read_committed) receives no record.

    A gap is missing if it may have a record, is longer than :data:`MAX_GAP`, or was not read within
    :data:`READ_TIMEOUT_S`.
    """
    reading = _GapReading(gaps)
    settings = {
        "group.id": "modeaware-control-records",
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "max.partition.fetch.bytes": 1 << 16,  # only the next record of each partition matters
    }
    starts = {key: waiting[0].start for key, waiting in reading.waiting.items()}
    try:
        read_partitions({**conf, **settings}, starts, reading.waiting, reading.take, READ_TIMEOUT_S, monotonic_s)
    except KafkaException as error:
        topics = ", ".join(sorted({repr(topic) for topic, _ in starts}))
        raise ClusterError(f"cannot read {topics}: {error.args[0].str()}") from error
    return frozenset(reading.clear)


def read_partitions(
    conf: Mapping[str, Any],
    starts: Mapping[Partition, int],
    waiting: Collection[Partition],
    take: Callable[[Partition, Message, Consumer], None],
    timeout_s: float,
    monotonic_s: Callable[[], float],
) -> None:
    """Read partitions from ``starts`` on, until ``take`` has removed all partitions from ``waiting``, or time is up."""
    if not waiting:
        return
    consumer = Consumer({**conf, **TO_THE_END})
    try:
        consumer.assign([TopicPartition(topic, partition, offset) for (topic, partition), offset in starts.items()])
        deadline_s = monotonic_s() + timeout_s
        while waiting and monotonic_s() < deadline_s:
            for message in consumer.consume(500, timeout=0.2):
                topic, partition = message.topic(), message.partition()
                if topic is not None and partition is not None and (topic, partition) in waiting:
                    take((topic, partition), message, consumer)
    finally:
        consumer.close()


class _GapReading:
    """The gaps that are clear; and, by partition, the gaps whose first record is still to be read (``waiting``)."""

    def __init__(self, gaps: Collection[Gap]) -> None:
        self.clear: set[Gap] = set()
        self.waiting: dict[Partition, list[Gap]] = {}
        for gap in sorted(gaps):
            if gap.start == gap.end:
                self.clear.add(gap)
            elif 0 < gap.end - gap.start <= MAX_GAP:
                self.waiting.setdefault((gap.topic, gap.partition), []).append(gap)

    def take(self, key: Partition, message: Message, consumer: Consumer) -> None:
        """Note the next record of a partition, and seek to the next gap that starts behind this record."""
        offset, error = message.offset(), message.error()
        waiting, left = self.waiting[key], []
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            if offset is None or offset < waiting[0].start:
                return  # fetched before the last seek
            self.clear.update(gap for gap in waiting if gap.end <= offset)
            left = [gap for gap in waiting if gap.start > offset]
        if left:
            self.waiting[key] = left
            consumer.seek(TopicPartition(*key, left[0].start))
        else:
            del self.waiting[key]
            consumer.pause([TopicPartition(*key)])
