"""What the audit reads from Kafka, with plain confluent_kafka clients: nothing of modeaware is involved."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import NamedTuple

from modeaware.demo.audit import Stored
from modeaware.demo.journal import position_of, record_id_of
from modeaware.errors import ModeAwareError
from modeaware.librdkafka import Consumer, KafkaError, KafkaException, TopicPartition, consistent

TIMEOUT_S = 60.0
REQUEST_TIMEOUT_S = 15.0
BATCH = 5000

choose = consistent
"""CRC32 of the key modulo n: what ``consistent_random``, librdkafka's default partitioner, does with keys."""


class Evidence(NamedTuple):
    """The topic as a plain consumer sees it: the log's start and end per partition, and every record in between."""

    logs: dict[int, tuple[int, int]]
    stored: dict[tuple[int, int], Stored]


def read_topic(conf: Mapping[str, str | int], topic: str) -> Evidence:
    """Read the whole topic.

    Raises:
        ModeAwareError: not to the end of every partition in a minute.
        KafkaException: the cluster reported an error.
    """
    consumer = Consumer(
        {
            **conf,
            "group.id": f"demo-audit-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        partitions = sorted(consumer.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic].partitions)
        logs = {
            p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=REQUEST_TIMEOUT_S) for p in partitions
        }
        consumer.assign([TopicPartition(topic, p, start) for p, (start, _) in logs.items()])
        return Evidence(logs, _read(consumer, set(partitions)))
    finally:
        consumer.close()


def _read(consumer: Consumer, unfinished: set[int]) -> dict[tuple[int, int], Stored]:
    stored: dict[tuple[int, int], Stored] = {}
    deadline_s = time.monotonic() + TIMEOUT_S
    while unfinished:
        if time.monotonic() > deadline_s:
            raise ModeAwareError(f"the audit could not read partitions {sorted(unfinished)} to their ends")
        for message in consumer.consume(BATCH, 0.2):
            error = message.error()
            position = position_of(message)
            if error is None:
                stored[position] = Stored(record_id_of(message), message.key())
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(position[0])
            else:
                raise KafkaException(error)
    return stored
