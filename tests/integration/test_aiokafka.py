"""modeaware.aiokafka.AIOKafkaProducer on a real Kafka."""

from __future__ import annotations

import asyncio

from confluent_kafka import murmur2

from modeaware.aiokafka import AIOKafkaProducer
from modeaware.local import Kafka
from tests.conftest import MakeTopic
from tests.support.fake_views import FakeViews, modes_of
from tests.support.plain import drain_topic

KEYS = [b"key-%d" % number for number in range(200)] + [b""]


def landed(kafka: Kafka, topic: str, value: bytes) -> dict[bytes | None, int | None]:
    messages = drain_topic(kafka.bootstrap_servers, topic)
    return {message.key(): message.partition() for message in messages if message.value() == value}


def test_records_go_to_the_writable_partitions_that_their_keys_name(
    fake_views: FakeViews, make_topic: MakeTopic, kafka: Kafka
) -> None:
    topic, writable = make_topic(12), (0, 1, 2, 3, 5)

    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
            for value, modes in ((b"1", modes_of(12, 12)), (b"2", modes_of(12, writable)), (b"3", modes_of(12, 12))):
                fake_views.set(topic, modes)
                await asyncio.gather(*[producer.send_and_wait(topic, value, key) for key in KEYS])
            fake_views.set(topic, modes_of(12, writable))
            unkeyed = await asyncio.gather(*[producer.send_and_wait(topic, b"4") for _ in range(60)])
            assert {delivered.partition for delivered in unkeyed} <= {*writable}

    asyncio.run(send())
    assert landed(kafka, topic, b"1") == {key: murmur2(key, 12) for key in KEYS}
    assert landed(kafka, topic, b"2") == {key: writable[murmur2(key, 5)] for key in KEYS}
    assert landed(kafka, topic, b"3") == {key: murmur2(key, 12) for key in KEYS}
