"""One consumer, on a real Kafka, while modes change: what the application sees and does itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, Message, Producer, TopicPartition
from confluent_kafka import Consumer as PlainConsumer

from modeaware.confluent.consumer import Consumer
from modeaware.local import Kafka
from modeaware.modes import PartitionMode
from tests.support.fake_views import modes_of
from tests.support.group import Reading, await_held, committed, held, read, settings_of
from tests.support.program import run_program
from tests.support.waiting import eventually

NONE = PartitionMode.NONE
protocols = pytest.mark.parametrize("strategy", ["range,roundrobin", "cooperative-sticky"])


@protocols
def test_a_thread_inside_an_endless_poll_follows(reading: Reading, strategy: str) -> None:
    topic = reading.topic(4)
    consumer = reading.consumer(partition_assignment_strategy=strategy)
    consumer.subscribe([topic])
    await_held(consumer, range(4))
    polled: list[Message | None] = []
    poll = consumer.poll  # an alias
    thread = threading.Thread(target=lambda: polled.append(poll()), daemon=True)
    thread.start()
    reading.views.set(topic, modes_of(4, 2, NONE))
    eventually(lambda: consumer.modeaware_stats()["assigned"] == 2)
    reading.views.set(topic, modes_of(4, 4))
    eventually(lambda: consumer.modeaware_stats()["assigned"] == 4)
    assert thread.is_alive()
    reading.send(topic, 3)
    thread.join(30)
    assert polled[0] is not None
    assert polled[0].partition() == 3


@protocols
def test_pauses_stay_as_they_were(reading: Reading, strategy: str) -> None:
    topic = reading.topic(4)
    consumer = reading.consumer(partition_assignment_strategy=strategy)
    consumer.subscribe([topic])
    await_held(consumer, range(4))
    paused = [TopicPartition(topic, 0), TopicPartition(topic, 3)]
    consumer.pause(paused)
    reading.views.set(topic, modes_of(4, 2, NONE))
    await_held(consumer, range(2))
    consumer.resume([TopicPartition(topic, 2)])
    for partition in range(4):
        reading.send(topic, partition)
    assert read(consumer, 1) == [(1, 0)], "hidden ones are not resumed, paused ones stay paused"
    reading.views.set(topic, modes_of(4, 4))
    assert read(consumer, 1) == [(2, 0)], "3 comes back as it went: paused"
    consumer.resume(paused)
    assert read(consumer, 2) == [(0, 0), (3, 0)]


def test_eager_callbacks_see_a_rebalance_of_what_is_held_and_may_assign_themselves(reading: Reading) -> None:
    topic = reading.topic(4)
    for partition in range(4):
        reading.send(topic, partition, 3)
    calls: list[tuple[str, list[int]]] = []

    def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        calls.append(("assign", [p.partition for p in partitions]))
        for partition in partitions:
            assert partition.offset == OFFSET_INVALID
            if partition.partition == 2:
                partition.offset = 2
        consumer.assign([p for p in partitions if p.partition != 1])

    def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        calls.append(("revoke", [p.partition for p in partitions]))
        consumer.unassign()

    reading.views.set(topic, modes_of(4, 2, NONE))
    consumer = reading.consumer()
    consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
    assert read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
    assert held(consumer) == [0]
    reading.views.set(topic, modes_of(4, 4))
    assert read(consumer, 4) == [(2, 2), (3, 0), (3, 1), (3, 2)]
    assert held(consumer) == [0, 2, 3]
    reading.views.set(topic, modes_of(4, 3, NONE))
    await_held(consumer, [0, 2])
    reading.send(topic, 0)
    found = read(consumer, 1)
    if found == [(2, 2)]:  # sent back to its own offset once more; or the record came while that was awaited
        found = read(consumer, 1)
    assert (0, 3) in found
    assert calls == [
        ("assign", [0, 1]),
        ("revoke", [0]),
        ("assign", [0, 2, 3]),
        ("revoke", [0, 2, 3]),
        ("assign", [0, 2]),
    ]


def test_incremental_callbacks_see_what_goes_and_what_comes(reading: Reading) -> None:
    topic = reading.topic(4)
    reading.send(topic, 3, 3)
    calls: list[tuple[str, list[int]]] = []

    def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        calls.append(("assign", [p.partition for p in partitions]))
        consumer.incremental_assign(partitions)

    def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        calls.append(("revoke", [p.partition for p in partitions]))
        consumer.incremental_unassign(partitions)

    consumer = reading.consumer(partition_assignment_strategy="cooperative-sticky")
    consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
    assert read(consumer, 3) == [(3, 0), (3, 1), (3, 2)]
    reading.views.set(topic, modes_of(4, 2, NONE))
    await_held(consumer, range(2))
    reading.views.set(topic, modes_of(4, 3, NONE))
    await_held(consumer, range(3))
    consumer.close()
    assert calls == [("assign", [0, 1, 2, 3]), ("revoke", [2, 3]), ("assign", [2]), ("revoke", [0, 1, 2])]


def test_assignment_that_a_member_changes_itself_leaves_out_nothing_that_it_was_not_shown(reading: Reading) -> None:
    topic = reading.topic(4)
    reading.views.set(topic, modes_of(4, 2, NONE))
    consumer = reading.consumer()
    consumer.subscribe([topic])
    await_held(consumer, range(2))
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert held(consumer) == [0]
    for partition in range(4):
        reading.send(topic, partition)
    reading.views.set(topic, modes_of(4, 4))
    assert read(consumer, 3) == [(0, 0), (2, 0), (3, 0)]


@protocols
def test_an_exception_of_a_callback_is_raised_by_poll_and_what_is_held_is_right(
    reading: Reading, strategy: str
) -> None:
    def fail(_: Consumer, partitions: list[TopicPartition]) -> None:
        raise ValueError(f"{len(partitions)} partitions")

    topic = reading.topic(4)
    consumer = reading.consumer(partition_assignment_strategy=strategy)
    consumer.subscribe([topic], on_assign=fail)
    reading.views.set(topic, modes_of(4, 3, NONE))
    with pytest.raises(ValueError, match="3 partitions"):
        eventually(lambda: consumer.poll(0.1), 60)
    assert held(consumer) == [0, 1, 2]
    reading.views.set(topic, modes_of(4, 4))
    with pytest.raises(ValueError, match="partitions"):
        eventually(lambda: consumer.poll(0.1), 60)
    await_held(consumer, range(4))


def test_partitions_assigned_by_hand_wait_and_go_on_where_they_were(reading: Reading) -> None:
    topic = reading.topic(4)
    for partition in range(4):
        reading.send(topic, partition, 4)
    reading.views.set(topic, modes_of(4, 3, NONE))
    consumer = reading.consumer()
    consumer.assign([TopicPartition(topic, partition, partition) for partition in range(4)])
    assert read(consumer, 4 + 3 + 2) == [(p, o) for p in range(3) for o in range(p, 4)]
    reading.views.set(topic, modes_of(4, [0, 3], NONE))
    assert read(consumer, 1) == [(3, 3)]
    assert held(consumer) == [0, 3]
    reading.send(topic, 1)
    assert consumer.poll(0.5) is None
    reading.views.set(topic, modes_of(4, 4))
    assert read(consumer, 1) == [(1, 4)]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky", "consumer"])
def test_close_commits_nothing_that_was_not_delivered(
    reading: Reading, kafka: Kafka, make_group: Callable[[], str], strategy: str
) -> None:
    """librdkafka stores the offsets of control records that are in its queue when it is closed, and commits those."""
    topic = reading.topic(1)
    conf: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": make_group()}
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    for _ in range(10):
        producer.begin_transaction()
        producer.produce(topic, b"record")
        producer.commit_transaction(30)
    consumer = Consumer({**conf, **settings_of(strategy), "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    first = eventually(lambda: consumer.poll(0.2))  # of what one fetch has brought
    assert first is not None
    assert first.error() is None
    consumer.close()
    with closing(PlainConsumer(conf)) as asked:
        assert committed(asked, topic, 1) == {0: 1}


def test_ctrl_c_inside_consume_is_a_keyboard_interrupt(kafka: Kafka, make_group: Callable[[], str]) -> None:
    program = f"""
import os, signal, threading
from modeaware import Consumer
conf = {{"bootstrap.servers": {kafka.bootstrap_servers!r}, "group.id": {make_group()!r}, "statistics.interval.ms": 100}}
consumer = Consumer(conf)
consumer.poll(0.5)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    while True:
        consumer.consume(10, 1.0)
except KeyboardInterrupt:
    print("interrupted")
consumer.close()
"""
    run = run_program(program)
    assert (run.stdout, run.stderr) == ("interrupted\n", "")
