"""A consumer is given a replaced topic's records under the name that it subscribed to, on a real Kafka."""

from __future__ import annotations

import time
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaException, TopicPartition

from modeaware import DeserializingConsumer, Producer
from tests.support.succession import Following
from tests.support.waiting import eventually


def test_application_that_knows_one_name_reads_and_commits_through_a_replacement(following: Following) -> None:
    old, new = following.topic, following.new_topic
    seen: set[Any] = set()

    def deserialize(value: bytes, context: Any) -> bytes:
        seen.add(context.topic)
        return value

    conf = following.conf(enable_auto_commit=False, modeaware_topic_names="logical", value_deserializer=deserialize)
    with Producer(following.producer) as producer, DeserializingConsumer[Any, bytes](conf) as consumer:
        consumer.subscribe([old])
        read(following, producer, consumer, b"first", old)
        following.replace()
        eventually(lambda: consumer.poll(0.1) is None and old in producer.modeaware_stats()["replaced"], 40)
        last: Any = read(following, producer, consumer, b"second", new)
        following.served.wait_done(old)
        kept = TopicPartition(old, last.partition(), last.offset() + 1)
        for refused in (lambda: consumer.commit(offsets=[kept]), lambda: consumer.seek(kept)):
            with pytest.raises(KafkaException, match="ambiguous"):
                refused()
    assert seen == {old}


def read(
    following: Following, producer: Producer, consumer: DeserializingConsumer[Any, bytes], value: bytes, physical: str
) -> confluent_kafka.Message:
    """Write records, and read and commit each of them until the last one is read."""
    for number in range(40):
        producer.produce(following.topic, value, b"%d" % number)
    producer.flush(30)
    left, until_s = 40, time.monotonic() + 60
    while left:
        assert time.monotonic() < until_s, consumer.modeaware_stats()["gates"]
        message: Any = consumer.poll(0.2)
        if message is None:
            continue
        assert (message.error(), message.value()) == (None, value)
        assert message.topic() == consumer.logical_topic(message) == following.topic
        assert consumer.physical_topic(message) == physical
        (done,) = consumer.commit(message=message, asynchronous=False)
        assert (done.topic, done.partition, done.offset) == (physical, message.partition(), message.offset() + 1)
        left -= 1
    return message
