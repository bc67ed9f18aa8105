"""Stretches of partitions in which only control records or aborted records lie: nothing that a consumer would be given.

A consumer's committed offset stops at its last record, so a transaction's commit marker at the end of a partition
looks like lag that nobody can ever consume.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from modeaware.errors import ClusterError
from modeaware.librdkafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

READ_TIMEOUT_S = 15.0
"""For all gaps of one topic; the controller must be back at its election long before a minute has passed."""
MAX_GAP = 10_000


class Gap(NamedTuple):
    """The offsets of a partition from ``start`` up to, but without, ``end``."""

    partition: int
    start: int
    end: int


def without_records(
    conf: Mapping[str, Any], topic: str, gaps: Collection[Gap], monotonic_s: Callable[[], float]
) -> frozenset[Gap]:
    """Those of ``gaps`` in which there is no record to be read (read_committed): what comes next lies at their end or
    beyond, or the partition ends there.

    One that is not plainly free of records, or not read when the time for all of them is up, is not among them.

    Raises:
        ClusterError: a consumer cannot be made.
    """
    reading = _Reading(gaps)
    if not reading.waiting:
        return frozenset()
    try:
        consumer = Consumer(
            {
                **conf,
                "group.id": "modeaware-control-records",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "max.partition.fetch.bytes": 1 << 16,  # of each the next record matters, of many partitions
            }
        )
    except KafkaException as error:
        raise ClusterError(f"cannot read topic {topic!r}: {error.args[0].str()}", topic=topic) from error
    try:
        consumer.assign([TopicPartition(topic, p, starts[0].start) for p, starts in reading.waiting.items()])
        deadline_s = monotonic_s() + READ_TIMEOUT_S
        while reading.waiting and monotonic_s() < deadline_s:
            for message in consumer.consume(500, timeout=0.2):
                reading.take(message, consumer, topic)
    except KafkaException as error:
        raise ClusterError(f"cannot read topic {topic!r}: {error.args[0].str()}", topic=topic) from error
    finally:
        consumer.close()
    return frozenset(reading.clear)


class _Reading:
    """Which gaps wait for what comes at their start, by partition and by start; ``clear`` are those without records."""

    def __init__(self, gaps: Collection[Gap]) -> None:
        self.clear: set[Gap] = set()
        self.waiting: dict[int, list[Gap]] = {}
        for gap in sorted(gaps):
            if 0 < gap.end - gap.start <= MAX_GAP:
                self.waiting.setdefault(gap.partition, []).append(gap)

    def take(self, message: Message, consumer: Consumer, topic: str) -> None:
        """Note what comes next in a partition, and go on to its next gap that begins behind it."""
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
            consumer.seek(TopicPartition(topic, partition, left[0].start))
        else:
            del self.waiting[partition]
            consumer.pause([TopicPartition(topic, partition)])
