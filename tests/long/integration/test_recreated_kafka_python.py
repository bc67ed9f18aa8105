"""A topic that was shrunk, deleted and created again: kafka-python's and aiokafka's clients apply no old modes (I8).

No controller runs to remove the old record. Clients that lived before: ``tests/integration/test_recreated_topic.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import murmur2

from modeaware.aiokafka import AIOKafkaProducer
from modeaware.kafka_python import KafkaConsumer, KafkaProducer
from tests.support.group import Record
from tests.support.plain import drain_topic
from tests.support.recreating import COUNT, KEYS, Recreating
from tests.support.waiting import eventually

either_count = pytest.mark.parametrize("partitions", [COUNT, 2])


def consumer_of(recreating: Recreating, group: str, reset: str) -> KafkaConsumer:
    return KafkaConsumer(
        recreating.topic,
        bootstrap_servers=recreating.servers,
        group_id=group,
        auto_offset_reset=reset,
        modeaware_mode_log_topic=recreating.log.topic,
    )


def read_until(consumer: KafkaConsumer, seen: set[Record], condition: Callable[[], bool]) -> None:
    def looked() -> bool:
        for records in consumer.poll(200).values():
            seen.update((record.topic, record.partition, record.offset) for record in records)
        return condition()

    eventually(looked)


@either_count
def test_an_earliest_group_reads_every_record_of_the_new_topic(
    recreating: Recreating, make_group: Callable[[], str], partitions: int
) -> None:
    recreating.recreate(partitions)
    new, seen = recreating.send(partitions=partitions), set[Record]()
    with closing(consumer_of(recreating, make_group(), "earliest")) as consumer:
        read_until(consumer, seen, lambda: seen >= new)
    assert seen == new


def by_kafka_python(recreating: Recreating) -> None:
    with KafkaProducer(bootstrap_servers=recreating.servers, modeaware_mode_log_topic=recreating.log.topic) as producer:
        for future in [producer.send(recreating.topic, b"x", key=key) for key in KEYS]:
            future.get(30)


def by_aiokafka(recreating: Recreating) -> None:
    async def send() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=recreating.servers, modeaware_mode_log_topic=recreating.log.topic
        ) as producer:
            await asyncio.gather(*[producer.send_and_wait(recreating.topic, b"x", key) for key in KEYS])

    asyncio.run(send())


@pytest.mark.parametrize("send", [by_kafka_python, by_aiokafka])
@either_count
def test_a_new_producer_writes_to_all_partitions_of_the_new_topic(
    recreating: Recreating, send: Callable[[Recreating], None], partitions: int
) -> None:
    recreating.recreate(partitions)
    send(recreating)
    landed = {message.key(): message.partition() for message in drain_topic(recreating.servers, recreating.topic)}
    assert landed == {key: murmur2(key, partitions) for key in KEYS}
