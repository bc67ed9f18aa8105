"""Reads the sample: assigned partitions, bounded stretches, no commit. And looks the topic up on the brokers.

No more records are consumed than the sample has. (What goes over the network is a little more: brokers answer with
whole batches.) Open transactions are read too: it is where records lie that counts.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.cluster.cluster import Cluster, cluster_error
from modeaware.cluster.groups.found import GroupsFound, find_groups
from modeaware.cluster.partition_leaders import writers
from modeaware.errors import ClusterError, ErrorCode, RequestRefused
from modeaware.librdkafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from modeaware.lifecycle.facts import GroupsDoubt, PartitionFacts, TopicFacts
from modeaware.plan.sample import Sample, SampledRecord, Stretch, TopicLook, choose_stretches, recent_from

READ_TIMEOUT_S = 30.0
"""For the whole sample; what has not come by then is left out, and said to be."""
_BATCH = 500
_FETCH_BYTES = 1 << 16
"""A partition's part of one answer; brokers send at least one batch."""
_HARMLESS = (KafkaError._PARTITION_EOF, KafkaError.GROUP_AUTHORIZATION_FAILED)  # it is no member of any group


def look(cluster: Cluster, topic: str, clock: Clock = SYSTEM_CLOCK) -> TopicLook:
    """What brokers say of the topic, its groups and its producers; what they refuse to say is noted.

    Raises:
        RequestRefused: there is no such topic.
        ClusterError: the brokers did not answer.
    """
    shape = cluster.describe([topic])[topic]
    if shape is None:
        raise RequestRefused(f"topic {topic!r} does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=topic)
    partitions = range(shape.partition_count)
    unknown: list[str] = []
    logs = cluster.offsets(topic, partitions)
    policy = "delete"
    try:
        policy = cluster.cleanup_policy(topic)
    except ClusterError as error:
        unknown.append(f"Whether the topic is compacted: {error}.")
    try:
        found = find_groups(cluster, topic, partitions)
    except ClusterError as error:
        found = GroupsFound(doubt=GroupsDoubt(str(error)))
    wrote = writers(cluster.brokers, topic, logs)
    if logs and not wrote:
        unknown.append("Which producers wrote to it: no leader says (DescribeProducers needs READ on the topic).")
    now_ms = clock.now_ms()
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
                    writers=wrote.get(p, ()),
                )
                for p, log in logs.items()
            },
            groups=found.groups,
            groups_doubt=found.doubt,
            stateful_owner=found.stateful_owner,
        ),
        tuple(unknown),
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
        """Read one stretch of each partition, by a consumer of its own: one that was paused takes a second to go on.

        Raises:
            KafkaException: a partition cannot be read.
        """
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
        """Whether the stretch of the message's partition has been read with it."""
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
