"""A shrunk topic is deleted and created again under its name while clients live: none applies the old modes (I8).

No controller runs to remove the old record. All protocols, resets and counts: ``tests/long``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import murmur2

from modeaware import Producer
from modeaware.aio import AIOConsumer, AIOProducer
from modeaware.kafka_python import KafkaConsumer, KafkaProducer
from tests.support.fetching import Fetching
from tests.support.group import Record
from tests.support.plain import drain_topic
from tests.support.recreating import COUNT, KEYS, WRITABLE, Recreating, send_all
from tests.support.waiting import eventually


def test_running_group_reads_every_record_of_the_recreated_topic(
    recreating: Recreating, make_group: Callable[[], str]
) -> None:
    fetching = Fetching()
    with recreating.group(make_group(), "cooperative-sticky", "latest", **fetching.conf) as group:
        group.await_held(recreating.topic, range(WRITABLE))
        fetching.await_fetched(recreating.topic, range(COUNT))
        recreating.recreate()
        group.check(recreating.send())
        group.await_held(recreating.topic, range(COUNT))


@pytest.mark.parametrize("batch", [False, True])
def test_living_producer_sends_to_every_partition_of_the_new_topic(recreating: Recreating, batch: bool) -> None:
    producer = Producer(recreating.conf(topic_metadata_refresh_interval_ms=500))
    assert send_all(producer, recreating.topic) == set(range(WRITABLE))
    recreating.recreate(2)

    def direct() -> bool:  # as soon as librdkafka has the metadata of the new topic, nothing of ours stands in its way
        return len(producer.list_topics(recreating.topic, timeout=30).topics[recreating.topic].partitions) == 2

    eventually(direct)
    if batch:
        told: set[tuple[object, int | None]] = set()
        messages: list[dict[str, Any]] = [{"value": b"v", "key": key} for key in KEYS]
        taken = producer.produce_batch(
            recreating.topic, messages, on_delivery=lambda error, message: told.add((error, message.partition()))
        )
        assert taken == len(KEYS)
        assert producer.flush(30) == 0
        assert told == {(None, 0), (None, 1)}
    else:
        assert send_all(producer, recreating.topic) == {0, 1}
    producer.close()


def test_aio_clients_write_and_read_every_partition_of_the_recreated_topic(
    recreating: Recreating, make_group: Callable[[], str]
) -> None:
    recreating.recreate()

    async def main() -> None:
        producer = AIOProducer(recreating.conf(), buffer_timeout=0.05)
        waiting = [await producer.produce(recreating.topic, b"v", key) for key in KEYS]
        await producer.flush()
        sent = {(message.partition(), message.offset()) for message in await asyncio.gather(*waiting)}
        assert {partition for partition, _ in sent} == set(range(COUNT))
        await producer.close()
        consumer = AIOConsumer(recreating.conf(group_id=make_group(), auto_offset_reset="earliest"))
        await consumer.subscribe([recreating.topic])
        read: set[tuple[int | None, int | None]] = set()
        async with asyncio.timeout(60):
            while read < sent:
                message = await consumer.poll(1.0)
                if message is not None and message.error() is None:
                    read.add((message.partition(), message.offset()))
        assert read == sent
        await consumer.close()

    asyncio.run(main())


def kafka_python_consumer(recreating: Recreating, group: str, reset: str) -> closing[KafkaConsumer]:
    consumer = KafkaConsumer(
        recreating.topic,
        bootstrap_servers=recreating.servers,
        group_id=group,
        auto_offset_reset=reset,
        session_timeout_ms=300_000,  # a member that a busy machine holds up is not assigned anew, with another start
        modeaware_mode_log_topic=recreating.log.topic,
    )
    return closing(consumer)


def read_until(consumer: KafkaConsumer, condition: Callable[[set[Record]], bool]) -> set[Record]:
    read: set[Record] = set()

    def looked() -> bool:
        for records in consumer.poll(200).values():
            read.update((record.topic, record.partition, record.offset) for record in records)
        return condition(read)

    eventually(looked, 60)
    return read


def test_running_kafka_python_consumer_reads_partitions_that_it_had_left_out(
    recreating: Recreating, make_group: Callable[[], str]
) -> None:
    """Of the partitions that it held, positions are the application's, as with stock clients."""
    with kafka_python_consumer(recreating, make_group(), "latest") as consumer:
        writable = set(range(WRITABLE))
        read_until(consumer, lambda _: {each.partition for each in consumer.assignment()} == writable)
        recreating.recreate()
        expected = {place for place in recreating.send() if place[1] >= WRITABLE}
        read_until(consumer, lambda read: read >= expected)


def test_new_kafka_python_group_reads_every_record_of_the_recreated_topic(
    recreating: Recreating, make_group: Callable[[], str]
) -> None:
    recreating.recreate()
    sent = recreating.send()
    with kafka_python_consumer(recreating, make_group(), "earliest") as consumer:
        assert read_until(consumer, lambda read: read >= sent) == sent


def test_earlier_producer_writes_to_all_partitions_of_the_recreated_topic(recreating: Recreating) -> None:
    producer = KafkaProducer(bootstrap_servers=recreating.servers, modeaware_mode_log_topic=recreating.log.topic)
    with closing(producer):
        recreating.recreate()
        for future in [producer.send(recreating.topic, b"v", key=key) for key in KEYS]:
            future.get(30)
    landed = {message.key(): message.partition() for message in drain_topic(recreating.servers, recreating.topic)}
    assert landed == {key: murmur2(key, COUNT) for key in KEYS}
