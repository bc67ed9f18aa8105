"""What a committed offset proves: lag that is none, and commits on a log that was truncated.

A consumer's committed offset stops after its last record, so a transaction's commit marker at the end of a partition
looks like lag that no consumer can ever consume. A *gap* is a stretch between such a commit and the seal; it is read
once, and is *clear* when it holds control records or aborted records only.

A commit made under an earlier leader epoch, beyond where the leader's log ends for that epoch, was made on a part of
the log that was truncated. Without an epoch in the commit, everything written since the truncation is in doubt. Where
such a stretch is clear, the group has missed nothing: some clients commit past a marker under the epoch of the record
before it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from modeaware.clock import Clock
from modeaware.cluster.groups import GroupsFound
from modeaware.cluster.metadata import epoch_ends
from modeaware.errors import ClusterError
from modeaware.librdkafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from modeaware.lifecycle.facts import GroupFacts, PartitionFacts
from modeaware.lifecycle.handover import read_up_to, waits_for_groups
from modeaware.lifecycle.state import drains, in_progress, rests
from modeaware.modelog.records import TopicRecord
from modeaware.modes import PartitionMode
from modeaware.wire.brokers import Brokers

READ_TIMEOUT_S = 15.0
"""For all gaps of one topic; the controller must return to its election well before a minute has passed."""
MAX_GAP = 10_000


class Gap(NamedTuple):
    """The offsets of a partition from ``start`` up to, but without, ``end``."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class CommitsChecked:
    """The groups with ``caught_up``, ``truncated`` and ``epochless``; ``unavailable`` partitions were not checked."""

    groups: Mapping[str, GroupFacts]
    unavailable: frozenset[int] = frozenset()


def check_commits(
    conf: Mapping[str, Any],
    brokers: Brokers,
    record: TopicRecord,
    partitions: Mapping[int, PartitionFacts],
    found: GroupsFound,
    clock: Clock,
    before_due: bool = False,
) -> CommitsChecked:
    """Check the commits on retired partitions, and on survivors of a shrink, where they decide anything.

    Before the delay of a shrink has passed, no drain rests on lag: only gaps that decide a handover are read, and all
    others count as lag. A commit that decides a handover alone and cannot be checked counts as truncated.

    Args:
        before_due: read all gaps nevertheless.
    """
    if record.deletion is None:
        return CommitsChecked(found.groups)
    drained = {
        p for p, r in record.retired.items()
        if p in partitions and not r.opening and in_progress(record) and drains(p, record)
        and not rests(record.modes[p], r)
    }  # fmt: skip
    handover = partitions.keys() & waits_for_groups(record)
    wanted = drained | handover
    if not wanted:
        return CommitsChecked(found.groups)
    earlier = {
        (partition, epoch)
        for epochs in found.epochs.values()
        for partition, epoch in epochs.items()
        if partition in wanted and epoch != partitions[partition].leader_epoch
    }
    ends = epoch_ends(brokers, record.topic, earlier)
    due = wanted
    if clock.now_ms() < record.deletion.earliest_ms and not before_due:
        none = {p for p in drained if record.modes[p] is PartitionMode.NONE}  # its proof is taken anew in every pass
        due = handover | none
    doubts = {
        (name, p): _doubts(record, p, partitions[p], group, found.epochs.get(name, {}).get(p), ends)
        for name, group in found.groups.items()
        for p in wanted
    }
    gaps = {gap for each in doubts.values() for gap in each if isinstance(gap, Gap) and gap.partition in due}
    clear = without_records(conf, record.topic, gaps, clock.monotonic_s)

    def where(name: str, kind: int, *, is_clear: bool) -> frozenset[int]:
        each = ((p, doubts[name, p][kind]) for p in wanted)
        return frozenset(p for p, gap in each if gap is not None and (gap in clear) is is_clear)

    groups = {
        name: replace(
            group,
            caught_up=where(name, 0, is_clear=True),
            truncated=where(name, 1, is_clear=False),
            epochless=where(name, 2, is_clear=False),
        )
        for name, group in found.groups.items()
    }
    return CommitsChecked(groups, frozenset(p for p, epoch in earlier if (p, epoch) not in ends) & drained)


_Doubt = Gap | str | None
"""A stretch that must be clear; a text: it cannot be; None: there is no doubt."""


def _doubts(
    record: TopicRecord,
    partition: int,
    log: PartitionFacts,
    group: GroupFacts,
    epoch: int | None,
    ends: Mapping[tuple[int, int], int],
) -> tuple[_Doubt, _Doubt, _Doubt]:
    """Return what is in doubt about a group's commit: whether it lags, was truncated, or may have been."""
    committed = group.committed.get(partition)
    until = read_up_to(partition, record, log.end_offset)
    start = max(committed or 0, log.log_start)
    lag = Gap(partition, start, until) if until is not None and start < until else None
    truncated: _Doubt = None
    epochless: _Doubt = None
    if committed is not None and epoch is None:
        retired = record.retired.get(partition)
        truncated_to = retired.truncated_to if retired is not None else None
        start = max(truncated_to or 0, log.log_start)
        known = truncated_to is not None and start < committed
        epochless = Gap(partition, start, committed) if known else "no epoch"
    elif committed is not None and epoch is not None and epoch != log.leader_epoch:
        end = ends.get((partition, epoch))
        if end is None:
            truncated = "the leader did not answer"
        elif (start := max(end, log.log_start)) < committed:
            truncated = Gap(partition, start, committed) if end >= 0 else "the leader has no such epoch"
    return lag, truncated, epochless


# Gaps


def without_records(
    conf: Mapping[str, Any], topic: str, gaps: Collection[Gap], monotonic_s: Callable[[], float]
) -> frozenset[Gap]:
    """Return the clear gaps: without a record to be read (read_committed), up to their end or that of the partition.

    A gap that is not certainly clear, or was not read within :data:`READ_TIMEOUT_S`, is missing.
    """
    reading = _GapReading(topic, gaps)
    settings = {
        "group.id": "modeaware-control-records",
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "max.partition.fetch.bytes": 1 << 16,  # only the next record of many partitions matters
    }
    starts = {p: waiting[0].start for p, waiting in reading.waiting.items()}
    try:
        read_partitions({**conf, **settings}, topic, starts, reading.waiting, reading.take, READ_TIMEOUT_S, monotonic_s)
    except KafkaException as error:
        raise ClusterError(f"cannot read topic {topic!r}: {error.args[0].str()}", topic=topic) from error
    return frozenset(reading.clear)


def read_partitions(
    conf: Mapping[str, Any],
    topic: str,
    starts: Mapping[int, int],
    waiting: Collection[int],
    take: Callable[[Message, Consumer], None],
    timeout_s: float,
    monotonic_s: Callable[[], float],
) -> None:
    """Read partitions from ``starts`` on, until none is ``waiting`` (``take`` removes them) or the time is up."""
    if not waiting:
        return
    consumer = Consumer({**conf, "enable.auto.commit": False, "enable.partition.eof": True})
    try:
        consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in starts.items()])
        deadline_s = monotonic_s() + timeout_s
        while waiting and monotonic_s() < deadline_s:
            for message in consumer.consume(500, timeout=0.2):
                take(message, consumer)
    finally:
        consumer.close()


class _GapReading:
    """The gaps of each partition that wait for the next record after their start, and those found clear."""

    def __init__(self, topic: str, gaps: Collection[Gap]) -> None:
        self._topic = topic
        self.clear: set[Gap] = set()
        self.waiting: dict[int, list[Gap]] = {}
        for gap in sorted(gaps):
            if 0 < gap.end - gap.start <= MAX_GAP:
                self.waiting.setdefault(gap.partition, []).append(gap)

    def take(self, message: Message, consumer: Consumer) -> None:
        """Note the next record of a partition, and seek to its next gap that begins after it."""
        partition, offset, error = message.partition(), message.offset(), message.error()
        if partition is None or partition not in self.waiting:
            return
        waiting, left = self.waiting[partition], []
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            if offset is None or offset < waiting[0].start:
                return  # from before the last seek
            self.clear.update(gap for gap in waiting if gap.end <= offset)
            left = [gap for gap in waiting if gap.start > offset]
        if left:
            self.waiting[partition] = left
            consumer.seek(TopicPartition(self._topic, partition, left[0].start))
        else:
            del self.waiting[partition]
            consumer.pause([TopicPartition(self._topic, partition)])
