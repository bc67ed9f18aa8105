"""Applications that go by what is listed of a topic, on a real Kafka, after a shrink and after a
replacement."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic
from kafka.structs import TopicPartition as KafkaPythonPartition

from modeaware import AdminClient, Consumer, Producer
from modeaware.confluent.errors import RetiredPartitionChosen
from modeaware.errors import ErrorCode
from modeaware.kafka_python import KafkaConsumer, KafkaProducer
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled, left, produce
from tests.support.succession import Following
from tests.support.waiting import eventually

EAGER, INCREMENTAL, SERVED = (
    {"partition.assignment.strategy": "range"},
    {"partition.assignment.strategy": "cooperative-sticky"},
    {"group.protocol": "consumer"},
)


def returns(wanted: object, call: Callable[[str], object], topic: str) -> bool:
    return call(topic) == wanted


def drained(served: Controlled, topic: str, group: str, count: int) -> None:
    """Shrink 12 -> 4; its group has read everything, and the retired partitions are deleted."""
    produce(served, topic, count)
    ends = [TopicPartition(topic, partition, count) for partition, count in left(served, topic).items()]
    with closing(Consumer({**served.conf, "modeaware.mode.log.topic": served.log, "group.id": group})) as consumer:
        consumer.commit(offsets=ends, asynchronous=False)
    served.shrink(topic, 4)
    served.wait_done(topic)


@pytest.mark.parametrize("settings", [EAGER, INCREMENTAL, SERVED], ids=["range", "cooperative-sticky", "KIP-848"])
@pytest.mark.parametrize("way", ["subscribe", "assign"])
def test_loop_that_waits_for_the_end_of_every_listed_partition_ends_after_a_shrink(
    served: Controlled, make_topic: MakeTopic, make_group: Any, settings: dict[str, Any], way: str
) -> None:
    topic = make_topic(12)
    drained(served, topic, make_group(), 200)
    conf = {**served.conf, "modeaware.mode.log.topic": served.log, "group.id": make_group(), **settings}
    consumer = Consumer({**conf, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    listed = set(consumer.list_topics(topic, timeout=20).topics[topic].partitions)
    assert listed == set(range(12))
    if way == "subscribe":
        consumer.subscribe([topic])
    else:
        consumer.assign([TopicPartition(topic, partition) for partition in listed])
    ended: list[int] = []
    given: list[int] = []

    def done() -> bool:
        for message in consumer.consume(100, 0.1):
            error = message.error()
            assert error is None or error.code() == KafkaError._PARTITION_EOF, error
            partition = message.partition()
            assert partition is not None
            (given if error is None else ended).append(partition)
        return set(ended) == listed

    eventually(done, 60)
    assert sorted(ended) == sorted(listed), "each of them once"
    assert set(given) <= {0, 1, 2, 3}
    assert len(given) == sum(n for p, n in left(served, topic).items() if p < 4)
    consumer.close()


def test_every_client_returns_the_partitions_that_take_writes_after_a_shrink(
    served: Controlled, make_topic: MakeTopic
) -> None:
    topic = make_topic(12)
    conf = {**served.conf, "modeaware.mode.log.topic": served.log}
    theirs = {"bootstrap_servers": served.servers, "modeaware_mode_log_topic": served.log}
    with (
        Producer(conf) as producer,
        closing(Consumer({**conf, "group.id": "g"})) as consumer,
        closing(KafkaProducer(**theirs)) as kafka_producer,
        closing(KafkaConsumer(**theirs)) as kafka_consumer,
    ):
        clients: list[Any] = [producer, consumer, kafka_producer, kafka_consumer]
        assert {client.writable_partitions(topic) for client in clients} == {tuple(range(12))}
        served.shrink(topic, 4, delay_ms=None)
        for client in clients:
            eventually(partial(returns, (0, 1, 2, 3), client.writable_partitions, topic))
        with pytest.raises(RetiredPartitionChosen) as refused:
            producer.produce(topic, b"v", partition=7)
        for partition in refused.value.writable_partitions:
            producer.produce(topic, b"v", partition=partition)
        assert producer.flush(20) == 0
        assert kafka_producer.partitions_for(topic) == kafka_consumer.partitions_for_topic(topic) == set(range(12))


def test_name_of_a_topic_that_was_replaced_and_deleted_stands_for_the_new_one(following: Following) -> None:
    served, old, new = following.served, following.topic, following.new_topic
    conf = {**served.conf, "modeaware.mode.log.topic": served.log}
    theirs = {"bootstrap_servers": served.servers, "modeaware_mode_log_topic": served.log}
    with (
        AdminClient(conf) as admin,
        Producer(conf) as producer,
        closing(Consumer({**conf, "group.id": following.group})) as consumer,
        closing(KafkaProducer(**theirs)) as kafka_producer,
        closing(KafkaConsumer(**theirs, group_id=following.group)) as kafka_consumer,
    ):
        following.replace(4, delay_ms=0)
        served.wait_done(old)
        for partition in range(4):
            producer.produce(old, b"v", partition=partition)
        assert producer.flush(20) == 0
        consumer.commit(offsets=[TopicPartition(new, 3, 1)], asynchronous=False)
        asked = TopicPartition(old, 3)
        eventually(lambda: len(producer.list_topics(old, timeout=20).topics[old].partitions) == 4)
        eventually(lambda: len(consumer.list_topics(old, timeout=20).topics[old].partitions) == 4)
        assert consumer.get_watermark_offsets(asked, timeout=20) == (0, 1)
        assert [(p.topic, p.offset) for p in consumer.committed([asked], timeout=20)] == [(old, 1)]
        assert [p.offset for p in consumer.offsets_for_times([TopicPartition(old, 3, 1)], timeout=20)] == [0]
        key = KafkaPythonPartition(old, 3)
        eventually(lambda: kafka_consumer.partitions_for_topic(old) == set(range(4)))
        assert kafka_producer.partitions_for(old) == set(range(4))
        assert kafka_consumer.end_offsets([key]) == {key: 1}
        assert kafka_consumer.beginning_offsets([key]) == {key: 0}
        assert kafka_consumer.committed(key) == 1
        assert kafka_consumer.offsets_for_times({key: 1})[key].offset == 0
        with pytest.raises(KafkaException, match=f"TOPIC_ALREADY_EXISTS.*was replaced by '{new}'") as refused:
            admin.create_topics([NewTopic(old, 12, 1)])[old].result(30)
        assert refused.value.args[0].code() == ErrorCode.TOPIC_ALREADY_EXISTS
        assert old not in admin.list_topics(timeout=20).topics, "nothing has brought it back"
