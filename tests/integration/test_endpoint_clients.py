"""Clients that know no modes bootstrap through a controller's endpoint: before, during and after a shrink."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

from modeaware.modes import PartitionMode
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.controlled import produce as produce_at_brokers
from tests.support.groups import RunningGroup
from tests.support.guarded import address_of
from tests.support.kafka_tools import run_tool
from tests.support.plain import drain_topic, produce_keyed
from tests.support.waiting import eventually

RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE
LONG_DELAY_MS = 3_600_000


def confluent_round_trip(address: str, topic: str, value: bytes, partition: int) -> None:
    sent = produce_keyed(address, topic, [(b"key", value)], partition=partition)
    assert sent[0].partition() == partition
    assert value in {message.value() for message in drain_topic(address, topic)}


def kafka_python_round_trip(address: str, topic: str, value: bytes, partition: int) -> None:
    with KafkaProducer(bootstrap_servers=[address]) as producer:
        sent = producer.send(topic, value, partition=partition).get(30)
    with KafkaConsumer(bootstrap_servers=[address], enable_auto_commit=False) as consumer:
        place = KafkaPythonPartition(topic, partition)
        consumer.assign([place])
        consumer.seek(place, sent.offset)
        found = eventually(lambda: [record.value for records in consumer.poll(500).values() for record in records])
    assert found == [value]


def all_work(address: str, topic: str, phase: str, partition: int) -> None:
    """Both libraries in each phase, writing to ``partition``; Kafka's tools, each a JVM, during the shrink alone."""
    confluent_round_trip(address, topic, f"confluent {phase}".encode(), partition)
    kafka_python_round_trip(address, topic, f"kafka-python {phase}".encode(), partition)
    if phase != "during":
        return
    there = f"--bootstrap-server {address} --topic {topic}"
    assert "PartitionCount: 4" in run_tool(f"kafka-topics.sh {there} --describe")
    present = len(drain_topic(address, topic))
    limits = f"--from-beginning --max-messages {present} --timeout-ms 60000"
    assert f"Processed a total of {present} messages" in run_tool(f"kafka-console-consumer.sh {there} {limits}")


def test_served_clients_work_before_during_and_after_a_shrink(
    setting: Controlled, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    address, topic, group = address_of(setting.start()), make_topic(4), make_group()
    read = produce_at_brokers(setting, topic, 40)
    with RunningGroup(address, topic, group) as running:
        running.wait_for(read)
    all_work(address, topic, "before", 3)

    setting.shrink(topic, 1)
    held = setting.wait_for(topic, lambda record: record.retired[3].reason == f"group-lag:{group}")
    assert (held.modes[0], held.modes[3]) == (RW, RO), "the group has not read what was written before"
    all_work(address, topic, "during", 3)
    with RunningGroup(address, topic, group) as running:
        names, phases = ("confluent", "kafka-python"), ("before", "during")
        running.wait_for({f"{name} {phase}".encode() for name in names for phase in phases})
        assert setting.wait_done(topic).modes == (RW, NONE, NONE, NONE)

    all_work(address, topic, "after", 0)


def confluent_code(address: str, topic: str) -> int:
    """The error that the topic is told with; 0: none."""
    told = AdminClient({"bootstrap.servers": address}).list_topics(topic, timeout=30).topics[topic]
    return 0 if told.error is None else told.error.code()


def sent_by_confluent(address: str, topic: str) -> bool:
    """Whether a record that names no partition gets there. A client of its own: one that knows a broker asks it."""
    producer = Producer({"bootstrap.servers": address, "message.timeout.ms": 3_000, "log_level": 0})
    errors: list[KafkaError | None] = []
    producer.produce(topic, b"value", on_delivery=lambda error, message: errors.append(error))
    assert producer.flush(30) == 0
    return [error is None for error in errors] == [True]


def test_refused_confluent_kafka(setting: Controlled, make_topic: MakeTopic) -> None:
    address = address_of(setting.start(old_clients="refuse"))
    other, shrinking = make_topic(4), make_topic(4)
    produce_at_brokers(setting, shrinking, 20)
    setting.shrink(shrinking, 2, LONG_DELAY_MS)
    eventually(lambda: confluent_code(address, shrinking) == KafkaError.LEADER_NOT_AVAILABLE)
    assert not sent_by_confluent(address, shrinking)
    assert sent_by_confluent(address, other)

    setting.grow(shrinking, 4)
    eventually(lambda: confluent_code(address, shrinking) == 0)
    confluent_round_trip(address, shrinking, b"welcome again", 3)


def test_served_confluent_kafka_asks_a_broker_for_growth(setting: Controlled, make_topic: MakeTopic) -> None:
    """Which answers as of a topic without modes: 4 are no increase of 6. A controller that no broker names would be a
    node that comes and goes to librdkafka, and what was asked of it would be lost."""
    address, topic = address_of(setting.start()), make_topic(6)
    setting.shrink(topic, 2)
    setting.wait_done(topic)
    admin = AdminClient({"bootstrap.servers": address})
    brokers = admin.list_topics(timeout=30).brokers.values()
    assert [f"{node.host}:{node.port}" for node in brokers] == [setting.servers], "records never pass through it"
    failure = admin.create_partitions([NewPartitions(topic, 4)])[topic].exception(30)
    assert isinstance(failure, KafkaException)
    assert failure.args[0].code() == KafkaError.INVALID_PARTITIONS
    assert setting.modes(topic) == (RW, RW, NONE, NONE, NONE, NONE)


def test_growth_reaches_the_active_controller_through_a_standbys_endpoint(
    setting: Controlled, make_topic: MakeTopic
) -> None:
    active, topic = setting.start(), make_topic(6)
    setting.shrink(topic, 2)
    setting.wait_done(topic)
    standby = setting.start()
    assert active.is_active
    assert not standby.is_active

    servers = f"--bootstrap-server {address_of(standby)}"

    def grown() -> bool:
        """It hears of the claim a moment after it has joined; until then a broker is asked: 4 are no increase of 6."""
        return "rror" not in run_tool(f"kafka-topics.sh {servers} --alter --topic {topic} --partitions 4")

    eventually(grown)
    setting.wait_for(topic, lambda record: record.modes == (RW,) * 4 + (NONE,) * 2)
