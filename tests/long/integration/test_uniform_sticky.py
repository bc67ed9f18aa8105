"""``uniform_sticky`` on real brokers: one that is slow gets less."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from confluent_kafka import KafkaError, Message

from modeaware.confluent.producer import Producer
from modeaware.local import LocalKafka
from tests.conftest import topic_maker

PARTITIONS = 6
SLOW_S, SETTLED_S = 12.0, 6.0
TICK_S = 0.005


def test_a_frozen_broker_gets_less(make_kafka: Callable[..., LocalKafka]) -> None:
    kafka = make_kafka(nodes=2)
    topic = topic_maker(kafka)(PARTITIONS)
    conf = {"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "uniform_sticky", "batch.size": 1_000}
    conf["queue.buffering.max.messages"] = 1_000_000  # what the frozen broker does not take stays there meanwhile
    # Leaders alone acknowledge: with acks=all the other broker, too, waits for the frozen one, its replica.
    producer = Producer({**conf, "linger.ms": 5, "acks": 1})
    leaders = {p: found.leader for p, found in producer.list_topics(topic, timeout=30).topics[topic].partitions.items()}
    frozen = next(broker for broker in kafka.brokers if broker.node_id == 2)
    late: Counter[int] = Counter()

    def counted(error: KafkaError | None, message: Message) -> None:
        assert error is None
        late[leaders[message.partition()]] += 1

    for _ in range(200):
        producer.produce(topic, b"x" * 100)
        producer.poll(0.005)
    frozen.pause()
    try:
        began_s = next_s = time.monotonic()
        while (passed_s := time.monotonic() - began_s) < SLOW_S:
            for _ in range(10):
                producer.produce(topic, b"x" * 100, on_delivery=counted if passed_s > SETTLED_S else None)
            next_s += TICK_S  # no faster than the other broker keeps up with on any machine: its queue counts, too
            while (left_s := next_s - time.monotonic()) > 0:
                producer.poll(left_s)
    finally:
        frozen.resume()
    assert producer.flush(60) == 0
    assert late.total() > 500
    assert late[2] < late.total() / 10, late
    producer.close()
