"""A shrunk topic is deleted and created again under its name, and no controller runs to remove the old record (I8)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from modeaware import Consumer, Producer
from modeaware.aio import AIOConsumer, AIOProducer
from modeaware.local import Kafka
from modeaware.modelog.records import RetiredPartition
from modeaware.modes import ReplicaState
from modeaware.views import registry
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled, produce
from tests.support.group import Group, Member, settings_of
from tests.support.modelog import NONE, RealLog, topic_record
from tests.support.plain import create_topic, produce_keyed
from tests.support.waiting import eventually

COUNT, WRITABLE, RECLAIMED_TO = 12, 4, 20
RECORDS = 480
PROTOCOLS = ["range", "cooperative-sticky", "consumer"]
"""Under these the consumer's group is classic eager, classic incremental, and KIP-848's."""
KEYS = [b"key-%d" % number for number in range(200)]


class Recreating:
    """A mode log that keeps the record of a topic that was deleted and created again."""

    def __init__(self, kafka: Kafka, make_topic: MakeTopic) -> None:
        self.servers = kafka.bootstrap_servers
        self.log = RealLog(self.servers)
        self.log.create()
        self.topic = make_topic(COUNT)
        self.old_id = self.shrink()

    def shrink(self) -> str:
        """Write the record of a shrink that is through and reclaimed, as a controller does."""
        gone = RetiredPartition(seal_offset=RECLAIMED_TO, replica_state=ReplicaState.DELETION_SUCCESSFUL)
        retired = dict.fromkeys(range(WRITABLE, COUNT), gone)
        record = topic_record(self.topic, 3, writable=WRITABLE, count=COUNT, rest=NONE)
        self.log.append(replace(record, retired=retired))
        return self.log.live_id(self.topic)

    def conf(self, **settings: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.servers,
            "modeaware.mode.log.topic": self.log.topic,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }

    def recreate(self, partitions: int = COUNT) -> None:
        recreate(self.log.admin, self.servers, self.topic, partitions)
        eventually(lambda: self.log.live_id(self.topic) != self.old_id)

    def send(self, each: int = RECORDS // COUNT, partitions: int = COUNT) -> set[tuple[str, int, int]]:
        """Write ``each`` records to every partition with a stock producer."""
        sent = [
            message
            for partition in range(partitions)
            for message in produce_keyed(self.servers, self.topic, [(None, b"v")] * each, partition=partition)
        ]
        return {(self.topic, message.partition(), message.offset()) for message in sent}

    def group(self, name: str, protocol: str, reset: str, members: int = 1) -> Group:
        conf = {**self.conf(group_id=name, auto_offset_reset=reset), **settings_of(protocol)}
        return Group([Member([self.topic], conf) for _ in range(members)])


def recreate(admin: AdminClient, servers: str, topic: str, partitions: int) -> None:
    admin.delete_topics([topic])[topic].result(30)
    eventually(lambda: topic not in admin.list_topics(timeout=30).topics)
    create_topic(servers, topic, partitions, configs={})


@pytest.fixture
def world(kafka: Kafka, make_topic: MakeTopic) -> Iterator[Recreating]:
    made = Recreating(kafka, make_topic)
    yield made
    made.log.close()


class Sent:
    """What became of the records of one producer."""

    def __init__(self) -> None:
        self.delivered: list[Message] = []
        self.failed: list[KafkaError] = []

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.delivered.append(message)
        else:
            self.failed.append(error)

    @property
    def partitions(self) -> set[int | None]:
        return {message.partition() for message in self.delivered}


def send_all(producer: Producer, topic: str) -> Sent:
    sent = Sent()
    for key in KEYS:
        producer.produce(topic, b"v", key, on_delivery=sent)
    assert producer.flush(30) == 0
    return sent


# Consumers


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_new_earliest_group_reads_every_record_of_the_new_topic(
    world: Recreating, make_group: Callable[[], str], protocol: str
) -> None:
    world.recreate()
    sent = world.send()
    with world.group(make_group(), protocol, "earliest") as group:
        group.check(sent)
        group.await_held(world.topic, range(COUNT))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_new_latest_group_reads_every_record_written_after_it_joined(
    world: Recreating, make_group: Callable[[], str], protocol: str
) -> None:
    world.recreate()
    with world.group(make_group(), protocol, "latest", members=2) as group:
        group.await_held(world.topic, range(COUNT), [6, 6])  # a rebalance after this would be a start at the end anew
        group.check(world.send())


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_living_group_reads_every_record_of_the_new_topic(
    world: Recreating, make_group: Callable[[], str], protocol: str, reset: str
) -> None:
    with world.group(make_group(), protocol, reset) as group:
        group.await_held(world.topic, range(WRITABLE))
        world.recreate()
        group.check(world.send())
        group.await_held(world.topic, range(COUNT))


def test_assigned_consumer_reads_every_partition_of_the_new_topic(
    world: Recreating, make_group: Callable[[], str]
) -> None:
    world.recreate()
    sent = world.send()
    consumer = Consumer(world.conf(group_id=make_group(), auto_offset_reset="earliest"))
    consumer.assign([TopicPartition(world.topic, partition) for partition in range(COUNT)])
    read: Counter[tuple[str, int, int]] = Counter()

    def all_read() -> bool:
        read.update((m.topic(), m.partition(), m.offset()) for m in consumer.consume(100, 0.1) if m.error() is None)
        return read.keys() >= sent

    eventually(all_read, 60)
    assert read == Counter(sent)
    consumer.close()


# Producers


@pytest.mark.parametrize("partitions", [COUNT, 2])
def test_new_producer_sends_to_every_partition_of_the_new_topic(world: Recreating, partitions: int) -> None:
    world.recreate(partitions)
    producer = Producer(world.conf())
    sent = send_all(producer, world.topic)
    assert sent.failed == []
    assert sent.partitions == set(range(partitions))
    assert producer.modeaware_stats()["state"] == "direct"
    producer.close()


@pytest.mark.parametrize("batch", [False, True])
def test_living_producer_sends_to_every_partition_of_the_new_topic(world: Recreating, batch: bool) -> None:
    producer = Producer(world.conf(topic_metadata_refresh_interval_ms=500))
    assert send_all(producer, world.topic).partitions == set(range(WRITABLE))
    world.recreate(2)

    def direct() -> bool:  # as soon as librdkafka has the metadata of the new topic, nothing of ours stands in its way
        return len(producer.list_topics(world.topic, timeout=30).topics[world.topic].partitions) == 2

    eventually(direct)
    sent = Sent()
    if batch:
        messages: list[dict[str, Any]] = [{"value": b"v", "key": key} for key in KEYS]
        assert producer.produce_batch(world.topic, messages, on_delivery=sent) == len(KEYS)
        assert producer.flush(30) == 0
    else:
        sent = send_all(producer, world.topic)
    assert sent.failed == []
    assert sent.partitions == {0, 1}
    producer.close()


def test_explicit_partition_of_the_new_topic_is_accepted(world: Recreating) -> None:
    producer = Producer(world.conf())
    assert send_all(producer, world.topic).partitions == set(range(WRITABLE))
    world.recreate()
    sent = Sent()
    producer.produce(world.topic, b"v", partition=COUNT - 1, on_delivery=sent)
    assert producer.flush(30) == 0
    assert sent.failed == []
    assert sent.partitions == {COUNT - 1}
    producer.close()


# asyncio


def test_aio_clients_write_and_read_every_partition_of_the_new_topic(
    world: Recreating, make_group: Callable[[], str]
) -> None:
    world.recreate()

    async def main() -> None:
        producer = AIOProducer(world.conf(), buffer_timeout=0.05)
        waiting = [await producer.produce(world.topic, b"v", key) for key in KEYS]
        await producer.flush()
        sent = {(message.partition(), message.offset()) for message in await asyncio.gather(*waiting)}
        assert {partition for partition, _ in sent} == set(range(COUNT))
        await producer.close()
        consumer = AIOConsumer(world.conf(group_id=make_group(), auto_offset_reset="earliest"))
        await consumer.subscribe([world.topic])
        read: set[tuple[int | None, int | None]] = set()
        async with asyncio.timeout(60):
            while read < sent:
                message = await consumer.poll(1.0)
                if message is not None and message.error() is None:
                    read.add((message.partition(), message.offset()))
        assert read == sent
        await consumer.close()

    asyncio.run(main())


# What proves nothing


def test_topic_that_is_gone_keeps_its_view_and_is_not_created_by_the_comparison(world: Recreating) -> None:
    views = registry.acquire({"bootstrap.servers": world.servers}, world.log.config)
    assert views.wait_ready(30)
    views.verify([world.topic], 10.0)
    assert views.stats()["unverified_topics"] == []
    held = views.view(world.topic)
    assert held.topic_id == world.old_id
    world.log.admin.delete_topics([world.topic])[world.topic].result(30)
    eventually(lambda: world.topic not in world.log.admin.list_topics(timeout=30).topics)
    views.verify([world.topic], 10.0, 0.0)
    assert views.view(world.topic) == held
    assert views.stats()["unverified_topics"] == [world.topic]
    assert world.topic not in world.log.admin.list_topics(timeout=30).topics
    views.close()


# The whole of it, with a controller that shrinks and stops


def test_record_of_a_real_shrink_applies_to_nothing_once_its_topic_was_recreated(
    setting: Controlled, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    topic = make_topic(COUNT)
    produce(setting, topic, RECORDS)
    setting.start(seal_quiet_ms=200)
    setting.shrink(topic, WRITABLE)
    setting.wait_done(topic)
    for controller in setting.started:
        controller.stop()
    recreate(setting.admin, setting.servers, topic, COUNT)
    conf = {**setting.conf, "modeaware.mode.log.topic": setting.log}
    producer = Producer(conf)
    sent = send_all(producer, topic)
    producer.close()
    assert sent.failed == []
    assert sent.partitions == set(range(COUNT))
    places = {(topic, message.partition(), message.offset()) for message in sent.delivered}
    with Group([Member([topic], {**conf, "group.id": make_group(), "auto.offset.reset": "earliest"})]) as group:
        group.check(places)  # type: ignore[arg-type] # a delivered message has a partition and an offset
