"""A sample of a topic's records: where it is taken, what it stands for, and reading it; and the topic on the brokers.

Assigned partitions are read in bounded stretches, and nothing is committed. No more records are consumed than the
sample has. (The network carries a little more: brokers answer with whole batches.) Open transactions are read too: what
counts is where records lie.
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

from modeaware.clock import SYSTEM_CLOCK, Clock
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
"""For the whole sample; what has not come by then is left out, and reported as unread."""
_BATCH = 500
_FETCH_BYTES = 1 << 16
"""A partition's part of one answer; brokers send at least one batch."""
_HARMLESS = (KafkaError._PARTITION_EOF, KafkaError.GROUP_AUTHORIZATION_FAILED)  # it is no member of any group
STRETCHES = 4
"""The places of a partition in which records are read; the newest place gives half of them."""


class SampledRecord(NamedTuple):
    """One record, without its value.

    Attributes:
        key: None for a record without one.
        size: bytes of key, value and headers, before compression.
        timestamp_ms: -1 where it has none.
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
        asked: the most records there were to be.
        logs: partition -> its log start and end when the sample was taken; one that could not be asked is missing.
        recent_from: partition -> the offset at which the newer half of its sample begins.
        from_start: whether it begins at each log's start, so that its timestamps span all that the topic holds.
        total_records: the offsets that the topic holds.
        sampled_bytes, total_bytes: of key, value and headers, before compression.
        span_ms: the time that the records of the topic span.
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
        """Partition -> how many records of it each of its sampled records stands for (>= 1)."""
        sampled = Counter(record.partition for record in self.records)
        return {p: max(1.0, self.logs[p].length / n) if p in self.logs else 1.0 for p, n in sampled.items()}

    @cached_property
    def span_ms(self) -> int | None:
        """None where the sample or its timestamps do not say."""
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
        """Whether it is in the newer half: by time where all have timestamps, else of its partition."""
        if self._recent_since_ms is not None:
            return record.timestamp_ms >= self._recent_since_ms
        return record.offset >= self.recent_from.get(record.partition, 0)


def choose_stretches(logs: Mapping[int, Stretch], asked: int) -> dict[int, tuple[Stretch, ...]]:
    """Return where to read: equal shares of all partitions that hold records, each from several places, oldest first.

    The others make up for a short partition. The lengths add up to at most ``asked``. The first place is the log's
    start and the last one ends at its end, so timestamps show what time the topic spans.

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
    if asked < len(lengths):  # not even one of each: partitions spread over all
        spread = sorted(lengths)
        return {spread[i * len(spread) // asked]: 1 for i in range(asked)}
    quotas: dict[int, int] = {}
    left = asked
    waiting = sorted(lengths, key=lambda p: (lengths[p], p))  # the shortest first: what they leave goes to the others
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
    if any(after.start < before.end for before, after in pairwise(places)):  # they would overlap: one piece
        return (Stretch(log.end - quota, log.end),)
    return tuple(places)


@dataclass(frozen=True)
class TopicLook:
    """The topic on the brokers and in the mode log.

    Attributes:
        unknown: what neither says, in words.
        record: the topic's; None: it was never changed.
        replaced: the records of all topics that are or were replaced.
        config: what a controller is taken to be configured with.
    """

    facts: TopicFacts
    unknown: tuple[str, ...] = ()
    record: TopicRecord | None = None
    replaced: tuple[TopicRecord, ...] = ()
    config: ControllerConfig = field(default_factory=ControllerConfig)

    @property
    def logs(self) -> dict[int, Stretch]:
        return {p: Stretch(log.log_start, log.end_offset) for p, log in self.facts.partitions.items()}


def look(session: Session, topic: str) -> TopicLook:
    """Return the topic, its groups and its producers as brokers describe them, and its record in the mode log, where
    there is one; what is refused is noted.

    Raises:
        RequestRefused: there is no such topic.
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
        unknown.append(f"Whether the topic is compacted: {policy}.")
        policy = "delete"
    try:
        found = find_groups(cluster, {topic: range(shape.partition_count)})[topic]
    except ClusterError as error:
        found = GroupsFound(doubt=GroupsDoubt(str(error)))
    wrote = writers(cluster.brokers, logs)
    if logs and not wrote:
        unknown.append("Which producers wrote to it: no leader answers (DescribeProducers needs READ on the topic).")
    record: TopicRecord | None = None
    replaced: tuple[TopicRecord, ...] = ()
    try:
        log = session.read_log()
        record, replaced = log.record(topic, shape.topic_id), log.replaced
    except (ModeSourceError, RecordError) as error:
        unknown.append(f"Whether the topic is being changed: {error}.")
    now_ms = session.clock.now_ms()
    return TopicLook(
        TopicFacts(
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
            groups=found.groups,
            groups_doubt=found.doubt,
            unclear_groups=found.unclear,
            stateful_owner=found.stateful_owner,
        ),
        tuple(unknown),
        record,
        replaced,
        session.controller,
    )  # fmt: skip


def read_sample(
    conf: Mapping[str, Any],
    topic: str,
    count: int,
    logs: Mapping[int, Stretch],
    asked: int,
    clock: Clock = SYSTEM_CLOCK,
) -> Sample:
    """Read at most ``asked`` records, spread over the partitions.

    Args:
        conf: librdkafka configuration (``bootstrap.servers``, security settings).
        count: how many partitions the topic has.
        logs: the log start and end of those that can be read.

    Raises:
        ClusterError: the topic cannot be read.
    """
    stretches = choose_stretches(logs, asked)
    reading = _Reading(topic, asked)
    deadline_s = clock.monotonic_s() + READ_TIMEOUT_S
    try:
        for place in range(max(map(len, stretches.values()), default=0)):
            now = {p: all_[place] for p, all_ in stretches.items() if place < len(all_)}
            reading.read(conf, now, lambda: clock.monotonic_s() < deadline_s)
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
        "group.id": f"modeaware-plan-{uuid.uuid4().hex}",  # librdkafka wants one; nothing joins it or commits
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "isolation.level": "read_uncommitted",
        "auto.offset.reset": "earliest",  # the log start may have moved on since
        "queued.min.messages": 1,
        "fetch.queue.backoff.ms": 10,
        "max.partition.fetch.bytes": _FETCH_BYTES,
        "fetch.wait.max.ms": 100,
        "allow.auto.create.topics": False,
    }


class _Reading:
    """The records so far, and partitions of which a part is missing."""

    def __init__(self, topic: str, asked: int) -> None:
        self._topic = topic
        self._left = asked
        self.records: list[SampledRecord] = []
        self.unread: set[int] = set()

    def read(self, conf: Mapping[str, Any], places: Mapping[int, Stretch], in_time: Callable[[], bool]) -> None:
        """Read one stretch of each partition, by a consumer of its own: a paused one takes a second to resume."""
        consumer = Consumer({**conf, **_settings()})
        try:
            consumer.assign([TopicPartition(self._topic, p, place.start) for p, place in sorted(places.items())])
            waiting = {p: place.length for p, place in places.items()}
            while waiting and self._left > 0 and in_time():
                # No more at a time than the least that any partition still has to give: none gives more than its part.
                for message in consumer.consume(min(_BATCH, self._left, *waiting.values()), timeout=0.2):
                    partition = message.partition()
                    if self._take(message, places, waiting) and partition is not None:
                        del waiting[partition]
                        consumer.pause([TopicPartition(self._topic, partition)])
            self.unread |= waiting.keys()
        finally:
            consumer.close()

    def _take(self, message: Message, places: Mapping[int, Stretch], waiting: dict[int, int]) -> bool:
        """Returns whether the stretch of the message's partition is complete."""
        partition, offset, error = message.partition(), message.offset(), message.error()
        if error is not None and error.code() not in _HARMLESS:
            raise KafkaException(error)
        if error is None:
            self._left -= 1
        if partition is None or offset is None or partition not in waiting:
            return False
        if error is not None:
            return error.code() == KafkaError._PARTITION_EOF
        if offset >= places[partition].end:  # the log is thinner than its offsets
            return True
        self.records.append(_record(message, partition, offset))
        waiting[partition] -= 1
        return waiting[partition] <= 0 or offset + 1 >= places[partition].end


def _record(message: Message, partition: int, offset: int) -> SampledRecord:
    key = message.key()
    kind, timestamp_ms = message.timestamp()
    size = len(key or b"") + len(message.value() or b"")
    with suppress(UnicodeDecodeError, SystemError):  # the client makes text of headers' names, which may be any bytes
        size += sum(len(header[0]) + len(header[1] or b"") for header in message.headers() or [])
    return SampledRecord(partition, offset, None if key is None else bytes(key), size, timestamp_ms if kind else -1)
