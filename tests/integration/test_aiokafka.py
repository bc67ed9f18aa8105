"""modeaware.aiokafka.AIOKafkaProducer on a real Kafka."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import murmur2

from modeaware.aiokafka import AIOKafkaProducer, RetiredPartitionError
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


def test_what_names_a_retired_partition_is_refused_and_what_was_queued_goes_on(
    fake_views: FakeViews, make_topic: MakeTopic, kafka: Kafka
) -> None:
    topic = make_topic(6)

    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, linger_ms=200) as producer:
            queued = await producer.send(topic, b"queued", partition=5)
            fake_views.set(topic, modes_of(6, 3))
            batch = producer.create_batch()
            assert batch.append(timestamp=None, key=b"k", value=b"batch")
            await asyncio.sleep(0)  # lets the loop take up the views
            with pytest.raises(RetiredPartitionError, match="partition 5"):
                await producer.send(topic, b"named", partition=5)
            with pytest.raises(RetiredPartitionError, match="partition 4"):
                await producer.send_batch(batch, topic, partition=4)
            await (await producer.send_batch(batch, topic, partition=2))
            assert (await queued).partition == 5

    asyncio.run(send())
    found = {message.value(): message.partition() for message in drain_topic(kafka.bootstrap_servers, topic)}
    assert found == {b"queued": 5, b"batch": 2}
