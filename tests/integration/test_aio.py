"""modeaware.aio: confluent_kafka's asyncio clients over ours, on a real Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, murmur2

from modeaware.aio import AIOConsumer, AIOProducer, AsyncDeserializingConsumer, AsyncSerializingProducer
from modeaware.local import Kafka
from modeaware.modes import PartitionMode
from tests.conftest import MakeTopic
from tests.support.fake_views import FakeViews, modes_of

NONE = PartitionMode.NONE


async def until(condition: Callable[[], Awaitable[Any]], deadline_s: float = 30.0) -> Any:
    async with asyncio.timeout(deadline_s):
        while not (found := await condition()):
            pass
        return found


def test_keyed_records_go_to_writable_partitions_and_a_retired_one_fails_its_message_alone(
    kafka: Kafka, fake_views: FakeViews, make_topic: MakeTopic
) -> None:
    topic = make_topic(6)
    fake_views.set(topic, modes_of(6, 4))
    keys = [b"key-%d" % number for number in range(50)]

    async def main() -> None:
        conf = {"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "murmur2_random"}
        producer = AIOProducer(conf, buffer_timeout=0.05)
        sent = [await producer.produce(topic, b"v", key) for key in keys]
        await producer.flush()
        assert [(await each).partition() for each in sent] == [murmur2(key, 4) for key in keys]
        assert producer.modeaware_stats()["state"] == "routed"
        refused = await producer.produce(topic, b"v", partition=5)
        allowed = await producer.produce(topic, b"v", partition=3)
        await producer.flush()
        with pytest.raises(KafkaException, match="partition 5") as error:
            await refused
        assert error.value.args[0].code() == KafkaError._UNKNOWN_PARTITION
        assert (await allowed).partition() == 3
        assert len(producer) == 0, "a refused message is not kept to be sent again"
        await producer.close()

    asyncio.run(main())
    assert fake_views.closed


def test_a_partition_in_mode_none_is_released_and_taken_up(
    kafka: Kafka,
    fake_views: FakeViews,
    make_topic: MakeTopic,
    make_group: Callable[[], str],
    send: Callable[..., None],
) -> None:
    topic = make_topic(3)
    told: list[tuple[str, list[int]]] = []

    def callback(name: str) -> Callable[..., Awaitable[None]]:
        async def call(consumer: AIOConsumer, partitions: Iterable[Any]) -> None:
            assert isinstance(consumer, AIOConsumer)
            told.append((name, sorted(p.partition for p in partitions)))

        return call

    async def main() -> None:
        conf = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": make_group(),
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
        }
        async with AIOConsumer(conf, max_workers=4) as consumer:
            await consumer.subscribe([topic], on_assign=callback("assign"), on_revoke=callback("revoke"))

            async def holds(count: int) -> bool:
                await consumer.poll(0.05)
                return len(await consumer.assignment()) == count

            await until(lambda: holds(3))
            fake_views.set(topic, modes_of(3, 2, NONE))
            await until(lambda: holds(2))
            assert consumer.modeaware_stats()["hidden"] == 1
            send(topic, 2, 2)
            fake_views.set(topic, modes_of(3, 3))
            messages = await until(lambda: consumer.consume(2, 5.0))
            assert [(message.partition(), message.offset()) for message in messages] == [(2, 0), (2, 1)]
        assert told[:3] == [("assign", [0, 1, 2]), ("revoke", [2]), ("assign", [2])]

    asyncio.run(main())
    assert fake_views.closed


def test_the_serializing_clients_are_over_ours(
    kafka: Kafka, fake_views: FakeViews, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    topic = make_topic(6)
    fake_views.set(topic, modes_of(6, 4))
    keys = [f"key-{number}" for number in range(20)]

    async def main() -> None:
        conf = {"bootstrap.servers": kafka.bootstrap_servers}
        producer = await AsyncSerializingProducer[str, str](
            {**conf, "partitioner": "murmur2_random", "key.serializer": lambda key, _: key.encode()}
        )
        sent = [await producer.produce(topic, key=key, value=b"v") for key in keys]
        await producer.flush()
        assert [(await each).partition() for each in sent] == [murmur2(key.encode(), 4) for key in keys]
        await producer.close()
        group = {"group.id": make_group(), "auto.offset.reset": "earliest"}
        decoding = {"key.deserializer": lambda key, _: key.decode()}
        consumer = await AsyncDeserializingConsumer[str, str]({**conf, **group, **decoding})
        await consumer.subscribe([topic])
        got: list[str] = []

        async def all_read() -> bool:
            got.extend(message.key() for message in await consumer.consume(100, 0.1))
            return len(got) >= len(keys)

        await until(all_read)
        assert sorted(got) == sorted(keys)
        await consumer.close()

    asyncio.run(main())
    assert fake_views.closed
