"""Key order within ``produce_batch`` under ``modeaware.on.resize=hold``, beside a thread that polls."""

from __future__ import annotations

import threading
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import murmur2

from modeaware.confluent.producer import Producer
from modeaware.local import Kafka
from tests.conftest import MakeTopic
from tests.support.fake_views import FakeViews, modes_of
from tests.support.waiting import eventually

ROUNDS = 3
RECORDS = 20_000
KEY = next(key for key in (b"key-%d" % n for n in range(100)) if murmur2(key, 12) != murmur2(key, 5))


@pytest.mark.filterwarnings("default::modeaware.errors.ResizeWarning")
def test_batch_keeps_the_order_of_a_key_whose_guard_opens_in_mid_batch(
    kafka: Kafka, fake_views: FakeViews, make_topic: MakeTopic
) -> None:
    """The producer's own records for the old partition are delivered, and their reports served, during the call."""
    for _ in range(ROUNDS):
        topic = make_topic(12)
        calls, in_order = one_round(kafka, fake_views, topic)
        assert in_order == list(range(RECORDS)), f"{calls} calls"


def one_round(kafka: Kafka, views: FakeViews, topic: str) -> tuple[int, list[int]]:
    """Send the key's records before and after a switch.

    Returns:
        The number of ``produce_batch`` calls until all records were queued, and the records of the new partition.
    """
    conf = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "partitioner": "murmur2_random",
        "modeaware.on.resize": "hold",
    }
    producer = Producer({**conf, "linger.ms": 60_000})  # what is queued goes when it is flushed
    stopping = threading.Event()
    flusher = threading.Thread(target=lambda: [producer.flush(0.01) for _ in iter(stopping.is_set, True)], daemon=True)
    try:
        producer.produce(topic, b"first", KEY)
        producer.flush(30)
        left: list[dict[str, Any]] = [{"key": KEY, "value": b"%d" % number} for number in range(RECORDS)]
        for _ in range(100):
            producer.produce(topic, b"old", KEY)
        views.set(topic, modes_of(12, 5), previous_count=12, handed_over=range(12))
        assert producer.produce_batch(topic, left) == 0, "the old records wait, so the key is held"
        flusher.start()
        calls = 0
        while left:
            calls += 1
            producer.produce_batch(topic, left)
            left = [{"key": KEY, "value": message["value"]} for message in left if "_error" in message]
        eventually(lambda: len(producer) == 0, 60)
    finally:
        stopping.set()
        flusher.join(30)
        producer.close()
    return calls, read(kafka, topic, murmur2(KEY, 5))


def read(kafka: Kafka, topic: str, partition: int) -> list[int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "reads-all"})
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
    values: list[int] = []
    try:
        eventually(
            lambda: values.extend(int(m.value()) for m in consumer.consume(5000, 1.0)) or len(values) >= RECORDS, 60
        )
    finally:
        consumer.close()
    return values
