"""Whether only control records or aborted records lie between a committed offset and a seal.

A consumer's committed offset stops at its last record, so a transaction's commit marker at the end of a partition
looks like lag that nobody can ever consume.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from modeaware.librdkafka import Consumer, KafkaError, TopicPartition

READ_TIMEOUT_S = 5.0
MAX_GAP = 10_000


def only_control_records(
    conf: Mapping[str, Any], topic: str, partition: int, start: int, end: int, monotonic_s: Callable[[], float]
) -> bool:
    """Read from ``start`` (read_committed); True if the partition's end, at or past ``end``, comes before any record.

    A gap that is not plainly free of records, or that takes longer than a few seconds to read, counts as lag.
    """
    if not 0 < end - start <= MAX_GAP:
        return False
    consumer = Consumer(
        {
            **conf,
            "group.id": "modeaware-control-records",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        deadline_s = monotonic_s() + READ_TIMEOUT_S
        while monotonic_s() < deadline_s:
            message = consumer.poll(0.5)
            if message is None:
                continue
            error, offset = message.error(), message.offset()
            at_end = error is None or error.code() == KafkaError._PARTITION_EOF
            return at_end and offset is not None and offset >= end
        return False
    finally:
        consumer.close()
