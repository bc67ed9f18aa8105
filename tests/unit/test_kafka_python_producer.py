"""modeaware.kafka_python.KafkaProducer without a broker: what a change of modes meets on the way to the queue."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import murmur2
from kafka.partitioner import DefaultPartitioner

from modeaware.kafka_python import HeldKeyError, KafkaProducer, RetiredPartitionError
from tests.support.fake_views import FakeViews, modes_of
from tests.support.kafka_python_offline import OFFLINE, TOPIC, Made
from tests.support.waiting import eventually

# kafka-python leaves a socket open that has not connected when its client is closed.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
KEYS = [b"key-%d" % number for number in range(60)]


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    yield
    gc.collect()  # those sockets, while their warnings are ignored


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
