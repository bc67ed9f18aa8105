"""A sample of a topic's records (offsets, weights and the reading), and the topic's facts from the brokers.

The consumer reads bounded ranges of offsets (*stretches*), joins no group and commits nothing. It consumes no more
records than were requested. (The network carries slightly more, because brokers return whole batches.) Records of open
transactions are read, too, because they show the partition of their key.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

from modeaware.clock import SYSTEM_CLOCK
from modeaware.cluster.cluster import cluster_error
from modeaware.cluster.groups import GroupsFound, find_groups
from modeaware.cluster.metadata import writers
from modeaware.config import ControllerConfig
from modeaware.errors import ClusterError, ModeSourceError, RecordError
from modeaware.librdkafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from modeaware.lifecycle.facts import GroupsDoubt, PartitionFacts, TopicFacts
from modeaware.modelog.records import TopicRecord
from modeaware.reports.session import Session, no_such_topic

READ_TIMEOUT_S = 30.0
"""The time for the whole sample. A partition whose part is not complete by then is reported as unread."""
_BATCH = 500
_FETCH_BYTES = 1 << 16
"""The most bytes of a partition in one response. A batch that is larger comes whole."""
_HARMLESS = (KafkaError._PARTITION_EOF, KafkaError.GROUP_AUTHORIZATION_FAILED)  # the consumer joins no group
STRETCHES = 4
"""The number of stretches to read from a partition. Half of the records come from the newest stretch."""


class SampledRecord(NamedTuple):
    """One record, without its value.

    Attributes:
        key: None if the record has no key.
        size: bytes of key, value and headers, before compression.
        timestamp_ms: -1 if the record has no timestamp.
    """

    partition: int
    offset: int
    key: bytes | None
    size: int
    timestamp_ms: int = -1


class Stretch(NamedTuple):
    """The offsets of a partition from ``start`` up to, but without, ``end``."""

    start: int
    end: int

    @property
    def length(self) -> int:
        return max(0, self.end - self.start)


@dataclass(frozen=True)
class Sample:
    """Some records of a topic.

    Attributes:
        count: the topic's number of partitions.
        asked: the requested number of records; the sample may have fewer.
        logs: partition -> its log start and end at the time of the sample; only partitions whose leader answered.
        recent_from: partition -> the offset at which the newer half of the partition's sample begins.
        from_start: whether the sample begins at each log's start, so that its timestamps span the whole topic.
        total_records: the number of offsets from the log starts to the log ends.
        sampled_bytes, total_bytes: the bytes of key, value and headers before compression, in the sample and, as an
            estimate, in the topic.
        span_ms: the time from the oldest to the newest record of the sample, if the sample spans the topic.
        unread: partitions whose part of the sample could not be read to its end in time.
    """

    json_only: ClassVar = {
        "asked": "asked",
        "records": "record_count",
        "of_records": "total_records",
        "bytes": "sampled_bytes",
        "of_bytes": "total_bytes",
        "span_ms": "span_ms",
        "unread": "unread",
    }

    topic: str
    count: int
    asked: int
    logs: Mapping[int, Stretch]
    records: tuple[SampledRecord, ...]
    recent_from: Mapping[int, int] = field(default_factory=dict)
    from_start: bool = False
    unread: frozenset[int] = frozenset()

    @cached_property
    def weights(self) -> Mapping[int, float]:
        """Partition -> the number of the topic's records that one sampled record represents (>= 1)."""
        sampled = Counter(record.partition for record in self.records)
        return {p: max(1.0, self.logs[p].length / n) if p in self.logs else 1.0 for p, n in sampled.items()}

    @cached_property
    def span_ms(self) -> int | None:
        """None if the sample does not span the topic, or its timestamps are not usable."""
        if not self.from_start:
            return None
        stamps = [record.timestamp_ms for record in self.records if record.timestamp_ms > 0]
        return max(stamps) - min(stamps) if stamps and max(stamps) > min(stamps) else None

    @property
    def record_count(self) -> int:
        return len(self.records)

    @property
    def total_records(self) -> int:
        return sum(log.length for log in self.logs.values())

    @property
    def sampled_bytes(self) -> int:
        return sum(record.size for record in self.records)

    @cached_property
    def total_bytes(self) -> int:
        return round(sum(record.size * self.weights[record.partition] for record in self.records))

    @cached_property
    def _recent_since_ms(self) -> int | None:
        stamps = sorted(record.timestamp_ms for record in self.records)
        return stamps[len(stamps) // 2] if stamps and stamps[0] > 0 and stamps[-1] > stamps[0] else None

    def is_recent(self, record: SampledRecord) -> bool:
        """Return whether the record is in the newer half: by timestamp if all records have one and these differ, else
        by offset."""
        if self._recent_since_ms is not None:
            return record.timestamp_ms >= self._recent_since_ms
        return record.offset >= self.recent_from.get(record.partition, 0)


def choose_stretches(logs: Mapping[int, Stretch], asked: int) -> dict[int, tuple[Stretch, ...]]:
    """Return the stretches to read of each partition, oldest first.

    Partitions with records have equal shares of ``asked``. If a partition has fewer records than its share, partitions
    with more records get the rest. A small share is one stretch at the log end. Otherwise the first of several
    stretches begins at the log start, and the last one ends at the log end.

    Raises:
        ValueError: ``asked`` is not positive.
    """
    if asked < 1:
        raise ValueError(f"a sample of {asked} records")
    quotas = _quotas({p: log.length for p, log in logs.items() if log.length > 0}, asked)
    return {p: _places(logs[p], quota) for p, quota in quotas.items() if quota > 0}


def recent_from(stretches: tuple[Stretch, ...]) -> int:
    """Return the offset at which the newer half of a partition's sample begins."""
    last = stretches[-1]
    return last.start if len(stretches) > 1 else last.start + last.length // 2


def _quotas(lengths: Mapping[int, int], asked: int) -> dict[int, int]:
    if asked < len(lengths):  # too few for one record per partition: choose evenly among the partitions
        spread = sorted(lengths)
        return {spread[i * len(spread) // asked]: 1 for i in range(asked)}
    quotas: dict[int, int] = {}
    left = asked
    waiting = sorted(lengths, key=lambda p: (lengths[p], p))  # shortest first: longer ones get the rest of its share
    while waiting:
        partition, *waiting = waiting
        quotas[partition] = min(lengths[partition], left // (len(waiting) + 1))
        left -= quotas[partition]
    return quotas


def _places(log: Stretch, quota: int) -> tuple[Stretch, ...]:
    older = quota // 2 // (STRETCHES - 1)
    if quota >= log.length or older < 1:
        return (Stretch(log.end - quota, log.end),)
    newest = Stretch(log.end - (quota - older * (STRETCHES - 1)), log.end)
    step = (newest.start - log.start - older) / (STRETCHES - 1)
    starts = [log.start + int(i * step) for i in range(STRETCHES - 1)]
    places = [Stretch(start, start + older) for start in starts] + [newest]
    if any(after.start < before.end for before, after in pairwise(places)):  # stretches would overlap: one is enough
        return (Stretch(log.end - quota, log.end),)
    return tuple(places)


@dataclass(frozen=True)
class TopicSnapshot:
    """The topic on the brokers and in the mode log.

    Attributes:
        unknown: the facts that could not be read, in words.
        record: the topic's record; None if the topic was never changed.
        replaced: the records of all topics with a replacement: in progress, complete or undone.
        config: the configs that the controller is assumed to have.
    """

    facts: TopicFacts
    unknown: tuple[str, ...] = ()
    record: TopicRecord | None = None
    replaced: tuple[TopicRecord, ...] = ()
    config: ControllerConfig = field(default_factory=ControllerConfig)

    @property
    def logs(self) -> dict[int, Stretch]:
        return {p: Stretch(log.log_start, log.end_offset) for p, log in self.facts.partitions.items()}


def take_snapshot(session: Session, topic: str) -> TopicSnapshot:
    """Return the topic, its groups and its producers from the brokers, and its record in the mode log, if any.

    Facts that cannot be read are noted in ``unknown``. If the groups cannot be read, the facts have a doubt instead.

    Raises:
        RequestRefused: the topic does not exist.
        ClusterError: the brokers did not answer.
    """
    cluster = session.cluster
    shape = cluster.shape(topic)
    if shape is None:
        raise no_such_topic(topic, cluster.topic_names())
    partitions = [(topic, p) for p in range(shape.partition_count)]
    unknown: list[str] = []
    logs = cluster.offsets(partitions)
    try:
        policy = cluster.cleanup_policies([topic])[topic]
    except ClusterError as error:
        policy = error
    if isinstance(policy, ClusterError):
        unknown.append(f"It is unknown whether the topic is compacted: {policy}.")
        policy = "delete"
    try:
        wanted = {topic: range(shape.partition_count)}
        groups = find_groups(cluster, wanted, mode_log=session.config.mode_log_topic)[topic]
    except ClusterError as error:
        groups = GroupsFound(doubt=GroupsDoubt(str(error)))
    wrote = writers(cluster.brokers, logs)
    if logs and not wrote:
        unknown.append(
            "It is unknown which producers wrote to the topic: no leader answers (DescribeProducers needs READ "
            "on the topic)."
        )
    record: TopicRecord | None = None
    replaced: tuple[TopicRecord, ...] = ()
    try:
        log = session.read_log()
        record, replaced = log.record(topic, shape.topic_id), log.replaced
    except (ModeSourceError, RecordError) as error:
        unknown.append(f"It is unknown whether the topic is being changed: {error}.")
    now_ms = session.clock.now_ms()
    facts = TopicFacts(
        topic,
        shape.topic_id,
        partition_count=shape.partition_count,
        internal=shape.internal,
        cleanup_policy=policy,
        partitions={
            p: PartitionFacts(
                log.log_start, log.end_offset, log.last_stable_offset, log.leader_epoch, now_ms,
                writers=wrote.get((topic, p), ()),
            )
            for (_, p), log in logs.items()
        },
    )  # fmt: skip
    return TopicSnapshot(groups.added_to(facts), tuple(unknown), record, replaced, session.controller)


def read_sample(
    conf: Mapping[str, Any],
    topic: str,
    count: int,
    logs: Mapping[int, Stretch],
    asked: int,
) -> Sample:
    """Read at most ``asked`` records, spread over the partitions.

    Args:
        conf: librdkafka configuration (``bootstrap.servers``, security settings).
        count: the topic's number of partitions.
        logs: the log start and end of the readable partitions.

    Raises:
        ClusterError: the topic cannot be read.
    """
    stretches = choose_stretches(logs, asked)
    reading = _Reading(topic, asked)
    deadline_s = SYSTEM_CLOCK.monotonic_s() + READ_TIMEOUT_S
    try:
        for place in range(max(map(len, stretches.values()), default=0)):
            stretches_there = {p: all_[place] for p, all_ in stretches.items() if place < len(all_)}
            reading.read(conf, stretches_there, lambda: SYSTEM_CLOCK.monotonic_s() < deadline_s)
    except KafkaException as error:
        raise cluster_error(f"read topic {topic!r}", error) from error
    return Sample(
        topic,
        count,
        asked,
        dict(logs),
        tuple(reading.records),
        {p: recent_from(all_) for p, all_ in stretches.items()},
        all(all_[0].start == logs[p].start for p, all_ in stretches.items()),
        frozenset(reading.unread),
    )


def _settings() -> dict[str, Any]:
    return {
        "group.id": f"modeaware-plan-{uuid.uuid4().hex}",  # librdkafka requires an id; no group is joined
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "isolation.level": "read_uncommitted",
        "auto.offset.reset": "earliest",  # if retention has advanced the log start
        "queued.min.messages": 1,
        "fetch.queue.backoff.ms": 10,
        "max.partition.fetch.bytes": _FETCH_BYTES,
        "fetch.wait.max.ms": 100,
        "allow.auto.create.topics": False,
    }


class _Reading:
    """The records so far, and the partitions whose stretches are not complete."""

    def __init__(self, topic: str, asked: int) -> None:
        self._topic = topic
        self._left = asked
        self.records: list[SampledRecord] = []
        self.unread: set[int] = set()

    def read(self, conf: Mapping[str, Any], places: Mapping[int, Stretch], in_time: Callable[[], bool]) -> None:
        """Read one stretch of each partition, by a new consumer: a paused partition would take a second to resume."""
        consumer = Consumer({**conf, **_settings()})
        try:
            consumer.assign([TopicPartition(self._topic, p, place.start) for p, place in sorted(places.items())])
            waiting = {p: place.length for p, place in places.items()}
            while waiting and self._left > 0 and in_time():
                # Consume at most what the shortest unfinished stretch lacks, so that no partition exceeds its stretch.
                for message in consumer.consume(min(_BATCH, self._left, *waiting.values()), timeout=0.2):
                    partition = message.partition()
                    if self._take(message, places, waiting) and partition is not None:
                        del waiting[partition]
                        consumer.pause([TopicPartition(self._topic, partition)])
            self.unread |= waiting.keys()
        finally:
            consumer.close()

    def _take(self, message: Message, places: Mapping[int, Stretch], waiting: dict[int, int]) -> bool:
        """Take a message; return whether the stretch of its partition is complete."""
        partition, offset, error = message.partition(), message.offset(), message.error()
        if error is not None and error.code() not in _HARMLESS:
            raise KafkaException(error)
        if error is None:
            self._left -= 1
        if partition is None or offset is None or partition not in waiting:
            return False
        if error is not None:
            return error.code() == KafkaError._PARTITION_EOF
        if offset >= places[partition].end:  # the stretch ended in offsets without records
            return True
        self.records.append(_record(message, partition, offset))
        waiting[partition] -= 1
        return waiting[partition] <= 0 or offset + 1 >= places[partition].end


def _record(message: Message, partition: int, offset: int) -> SampledRecord:
    key = message.key()
    kind, timestamp_ms = message.timestamp()
    size = len(key or b"") + len(message.value() or b"")
    with suppress(UnicodeDecodeError, SystemError):  # the client decodes header names, but they may be any bytes
        size += sum(len(header[0]) + len(header[1] or b"") for header in message.headers() or [])
    return SampledRecord(partition, offset, None if key is None else bytes(key), size, timestamp_ms if kind else -1)
