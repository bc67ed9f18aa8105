"""Our clients of kafka-python without a broker: where a consumer starts, and what meets a record on its way."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import murmur2
from kafka.partitioner import DefaultPartitioner
from kafka.structs import TopicPartition

from modeaware.kafka_python import HeldKeyError, KafkaConsumer, KafkaProducer, RetiredPartitionError
from modeaware.kafka_python._starts import Starts, start_offset
from modeaware.modes import PartitionMode
from modeaware.topic_view import TopicView
from tests.support.fake_views import FakeViews, modes_of
from tests.support.kafka_python_offline import OFFLINE, TOPIC, Made
from tests.support.waiting import eventually

# kafka-python leaves a socket open that has not connected when its client is closed.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    yield
    gc.collect()  # those sockets, while their warnings are ignored


def test_a_consumer_that_is_dropped_gives_its_views_back(views: FakeViews) -> None:
    consumer = KafkaConsumer(TOPIC, **OFFLINE, group_id="g")
    assert views.listener_count == 1
    consumer.pause()
    net, coordinator = consumer._net, consumer._coordinator
    del consumer
    gc.collect()
    eventually(lambda: views.closed and views.listener_count == 0)
    coordinator.close(autocommit=False, timeout_ms=0)  # kafka-python leaves its thread running
    net.close()


VIEW = TopicView("t", "id", (1, 3), modes_of(2, 1), {1: 50})


RECLAIMED = TopicView("t", "id", (1, 3), modes_of(2, 1, PartitionMode.NONE), {1: 50}, frozenset({1}))


@pytest.mark.parametrize(
    ("view", "committed", "resume", "named", "log_start", "start"),
    [
        (VIEW, 7, 50, None, None, 7),  # the group's commit
        (VIEW, 7, None, None, 9, 9),  # but not below the log start, or the reset would skip to the end
        (VIEW, None, 50, 90, None, 50),  # came back, or is new: latest skips nothing
        (VIEW, None, 50, 30, None, 30),  # truncated, or another topic
        (VIEW, None, 50, 90, 60, 60),
        (VIEW, None, None, 90, None, 90),  # what the reset names
        (VIEW, None, None, None, None, None),
        (RECLAIMED, 7, None, None, None, 50),  # nothing below is there
        (RECLAIMED, 70, None, None, None, 70),
        (RECLAIMED, 7, None, None, 9, 9),  # the brokers' word goes before the view's: it is of the live topic
        (RECLAIMED, None, None, 0, None, 0),  # which is theirs, too
    ],
)
def test_start_offset(
    view: TopicView,
    committed: int | None,
    resume: int | None,
    named: int | None,
    log_start: int | None,
    start: int | None,
) -> None:
    assert start_offset(view, 1, committed, resume, named, log_start) == start


def test_resume_offsets_outlive_the_view_that_told_them_for_one_assignment() -> None:
    views = {"t": VIEW}
    starts = Starts(lambda topic: views[topic], "latest")
    starts.remember(VIEW, TopicPartition)
    starts.remember(TopicView("t", "id", (1, 4), modes_of(2, 1), {1: 60}), TopicPartition)
    views["t"] = TopicView("t", "id", (1, 5), modes_of(2, 2))
    one = TopicPartition("t", 1)

    class Stock:
        def fetch_committed(self, partitions: object, timeout_ms: object) -> dict[TopicPartition, object]:
            return {}

        def beginning_offsets(self, partitions: set[TopicPartition], timeout_ms: object) -> dict[TopicPartition, int]:
            return dict.fromkeys(partitions, 0)

        def end_offsets(self, partitions: set[TopicPartition], timeout_ms: object) -> dict[TopicPartition, int]:
            return dict.fromkeys(partitions, 99)

    assert starts.find([one], Stock(), None, group=True).starts == {one: 50}, "the oldest"
    assert starts.find([one], Stock(), None, group=True).starts == {one: 99}
    starts.remember(TopicView("t", "other", (1, 6), modes_of(2, 1), {1: 70}), TopicPartition)
    assert starts.find([one], Stock(), None, group=True).starts == {one: 99}, "of another topic with the name"
    starts.remember(TopicView("t", "other", (1, 6), modes_of(2, 1), {1: 70}), TopicPartition)
    views["t"] = TopicView.unlisted("t")
    assert starts.find([one], Stock(), None, group=True).starts == {one: 99}, "of a topic id that is gone"
    starts.remember(TopicView("t", "other", (1, 6), modes_of(2, 1), {1: 70}), TopicPartition)
    views["t"] = TopicView("t", "other", (1, 7), modes_of(2, 2))
    starts.remember(TopicView("t", "other", (1, 6), modes_of(2, 1), {1: 70}), TopicPartition)
    assert starts.find([one], Stock(), None, group=True).starts == {one: 70}
    assert Starts(lambda topic: VIEW, "earliest").find([one], Stock(), None, group=False).starts == {one: 0}
    assert Starts(lambda topic: VIEW, "none").find([one], Stock(), None, group=True).starts == {}


# The producer


# kafka-python leaves a socket open that has not connected when its client is closed.
KEYS = [b"key-%d" % number for number in range(60)]


def test_a_pick_that_a_shrink_overtakes_is_made_again(views: FakeViews) -> None:
    class Slow(DefaultPartitioner):  # type: ignore[misc,unused-ignore]  # untyped
        """The modes change between its pick and the queue."""

        def partition(self, *args: Any) -> int:
            picked = super().partition(*args)
            if views.view(TOPIC).all_writable:
                views.set(TOPIC, modes_of(21, 5))
            return int(picked)

    moved = next(key for key in KEYS if murmur2(key, 21) >= 5)
    made = Made(KafkaProducer, partitioner=Slow(), modeaware_on_resize="ignore")
    made.producer.send(TOPIC, b"v", moved)
    assert made.queued() == [murmur2(moved, 5)]
    with pytest.raises(RetiredPartitionError):
        made.producer.send(TOPIC, b"v", moved, partition=murmur2(moved, 21))
    assert len(made.queued()) == 1
    made.producer.close()


@pytest.mark.filterwarnings("default::modeaware.errors.ResizeWarning")
def test_a_moved_key_waits_for_the_producers_own_batches(views: FakeViews) -> None:
    first, second = (next(key for key in KEYS if murmur2(key, 21) == old) for old in (7, 8))
    made = Made(KafkaProducer, modeaware_on_resize="hold")
    made.producer._accumulator = made.stock_queue
    views.set(TOPIC, modes_of(21, 21))
    for key in (first, second):
        made.producer.send(TOPIC, b"before", key)
    views.set(TOPIC, modes_of(21, 5), previous_count=21)
    views.set(TOPIC, modes_of(21, 5))
    for key in (first, second):
        with pytest.raises(HeldKeyError, match=f"for partition {murmur2(key, 21)} are still queued"):
            made.producer.send(TOPIC, b"after", key)
    made.out(murmur2(first, 21))
    made.producer.send(TOPIC, b"after", first)
    with pytest.raises(HeldKeyError):
        made.producer.send(TOPIC, b"after", second)
    made.out(murmur2(second, 21))
    made.producer.send(TOPIC, b"after", second)
    made.producer._accumulator = made.queue
    made.producer.close()


def test_a_producer_that_is_dropped_gives_its_views_back(views: FakeViews) -> None:
    producer = KafkaProducer(**OFFLINE)
    assert views.listener_count == 1
    del producer
    gc.collect()
    eventually(lambda: views.closed and views.listener_count == 0)
