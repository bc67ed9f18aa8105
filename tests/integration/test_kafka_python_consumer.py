"""One modeaware.kafka_python.KafkaConsumer on a real Kafka: what it reads, from where, and what it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from modeaware.kafka_python import FirstViewTimeout, KafkaConsumer
from modeaware.local import Kafka
from modeaware.modes import PartitionMode
from modeaware.views import registry
from tests.conftest import MakeTopic
from tests.support.fake_views import FakeViews, modes_of
from tests.support.kafka_python_group import FAST
from tests.support.waiting import eventually

NONE = PartitionMode.NONE
COOPERATIVE = {"partition_assignment_strategy": [CooperativeStickyAssignor]}
MakeConsumer = Callable[..., KafkaConsumer]
Send = Callable[..., None]


@pytest.fixture
def consumer_of(
    kafka: Kafka, fake_views: FakeViews, make_group: Callable[[], str]
) -> Iterator[Callable[..., KafkaConsumer]]:
    """Makes consumers of one group of their own, with the fake views."""
    made: list[KafkaConsumer] = []
    group = make_group()

    def make(*topics: str, **settings: Any) -> KafkaConsumer:
        conf = {"bootstrap_servers": kafka.bootstrap_servers, "group_id": group, **FAST, **settings}
        made.append(KafkaConsumer(*topics, **conf))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


def read(consumer: KafkaConsumer, count: int) -> list[tuple[int, int]]:
    """The next ``count`` records: partition and offset, sorted."""
    got: list[tuple[int, int]] = []

    def enough() -> bool:
        for records in consumer.poll(100).values():
            got.extend((record.partition, record.offset) for record in records)
        return len(got) >= count

    eventually(enough, message=f"{count} records")
    assert len(got) == count
    return sorted(got)


def await_held(consumer: KafkaConsumer, partitions: Iterable[int]) -> None:
    want = sorted(partitions)

    def held() -> bool:
        assert consumer.poll(50) == {}
        return (
            sorted(p.partition for p in consumer.assignment()) == want
            and consumer._subscription.has_all_fetch_positions()
        )

    eventually(held)


def committed(consumer: KafkaConsumer, topic: str, count: int) -> dict[int, int]:
    found = {p: consumer.committed(TopicPartition(topic, p)) for p in range(count)}
    return {p: offset for p, offset in found.items() if offset is not None}


@pytest.mark.parametrize("more", [{}, COOPERATIVE], ids=["range", "cooperative"])
def test_a_partition_is_released_and_taken_up_where_reading_stopped(
    consumer_of: MakeConsumer, fake_views: FakeViews, make_topic: MakeTopic, send: Send, more: dict[str, Any]
) -> None:
    topic = make_topic(4)
    consumer = consumer_of(topic, enable_auto_commit=False, **more)
    await_held(consumer, range(4))
    send(topic, 0, 3)
    send(topic, 3, 5)
    assert len(read(consumer, 8)) == 8
    fake_views.set(topic, modes_of(4, 3, NONE))
    await_held(consumer, range(3))
    send(topic, 0, 1)
    send(topic, 3, 2)  # stragglers
    assert read(consumer, 1) == [(0, 3)]
    assert consumer.modeaware_stats()["hidden"] == 1
    assert consumer.paused() == set()
    consumer.commit()
    assert committed(consumer, topic, 4) == {0: 4, 1: 0, 2: 0, 3: 5}
    fake_views.set(topic, modes_of(4, 3))
    assert read(consumer, 2) == [(3, 5), (3, 6)]
    assert sorted(p.partition for p in consumer.assignment()) == [0, 1, 2, 3]


def test_a_latest_group_skips_nothing_of_what_comes_back_or_is_new(
    consumer_of: MakeConsumer, fake_views: FakeViews, make_topic: MakeTopic, send: Send
) -> None:
    topic = make_topic(3)
    for partition in range(3):
        send(topic, partition, 5)
    fake_views.set(topic, modes_of(3, 1, NONE), resume_offsets={1: 3, 2: 4}, reclaimed=[2])
    consumer = consumer_of(topic, auto_offset_reset="latest")
    await_held(consumer, [0])
    assert consumer.position(TopicPartition(topic, 0)) == 5
    send(topic, 1, 1)
    fake_views.set(topic, modes_of(3, 3))
    assert read(consumer, 4) == [(1, 3), (1, 4), (1, 5), (2, 4)]
    send(topic, 0, 1)
    assert read(consumer, 1) == [(0, 5)]


def test_pauses_and_seeks_of_the_application_are_kept_apart(
    consumer_of: MakeConsumer, fake_views: FakeViews, make_topic: MakeTopic, send: Send
) -> None:
    topic = make_topic(3)
    zero, two = TopicPartition(topic, 0), TopicPartition(topic, 2)
    consumer = consumer_of(**COOPERATIVE)
    consumer.subscribe([topic])
    await_held(consumer, range(3))
    consumer.pause(zero, two)
    fake_views.set(topic, modes_of(3, 2, NONE))
    await_held(consumer, range(2))
    assert consumer.paused() == {zero}
    consumer.resume(two)
    for partition in (0, 2):
        send(topic, partition, 1)
    consumer.seek_to_beginning()
    assert consumer.poll(500) == {}, "one is paused, one hidden"
    fake_views.set(topic, modes_of(3, 3))
    assert read(consumer, 1) == [(2, 0)]
    assert consumer.paused() == {zero}
    consumer.resume(zero)
    assert read(consumer, 1) == [(0, 0)]


def test_a_resumed_partition_goes_on_with_what_was_fetched_before_it_was_paused(
    consumer_of: MakeConsumer, make_topic: MakeTopic, send: Send
) -> None:
    topic = make_topic(2)
    zero = TopicPartition(topic, 0)
    consumer = consumer_of(topic, max_poll_records=10)
    await_held(consumer, range(2))
    send(topic, 0, 15)
    assert read(consumer, 10) == [(0, offset) for offset in range(10)]
    consumer.pause(zero)
    send(topic, 1, 1)
    assert read(consumer, 1) == [(1, 0)], "the other partition is in line now"
    consumer.resume(zero)
    assert read(consumer, 5) == [(0, offset) for offset in range(10, 15)]


def test_nothing_is_read_before_the_first_view(
    consumer_of: MakeConsumer, make_topic: MakeTopic, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = FakeViews(ready=False)
    monkeypatch.setattr(registry, "acquire", lambda conf, config: views)
    topic = make_topic(2)
    send(topic, 0, 1)
    send(topic, 1, 1)
    consumer = consumer_of(topic, modeaware_view_timeout_ms=100)
    assert consumer.poll(500) == {}
    assert consumer.modeaware_stats()["state"] == "waiting"
    assert consumer.assignment() == set()
    strict = consumer_of(topic, modeaware_view_timeout_ms=100, modeaware_on_unknown="error", group_id=None)
    with pytest.raises(FirstViewTimeout):
        strict.poll(1000)
    free = consumer_of(topic, modeaware_view_timeout_ms=100, modeaware_on_unknown="writable", group_id=None)
    assert len(read(free, 2)) == 2
    views.set(topic, modes_of(2, 1, NONE))
    views.set_ready()
    assert read(consumer, 1) == [(0, 0)]
