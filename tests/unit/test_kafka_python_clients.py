"""Our clients of kafka-python without a broker: where a consumer starts, and what meets a record on its way."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import murmur2
from kafka import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.errors import KafkaTimeoutError, TopicAuthorizationFailedError
from kafka.future import Future
from kafka.partitioner import DefaultPartitioner
from kafka.structs import TopicPartition

from modeaware.clients.starts import Start, Starts
from modeaware.errors import ConfigError
from modeaware.kafka_python import KafkaConsumer, KafkaProducer, RetiredPartitionError
from modeaware.kafka_python import consumer as consumer_module
from modeaware.kafka_python import producer as producer_module
from modeaware.kafka_python.assignors import ReadableRangeAssignor, aware_strategy
from modeaware.kafka_python.offsets import KafkaPythonOffsets
from modeaware.modes import PartitionMode
from modeaware.topic_view import TopicView
from tests.support.fake_views import FakeViews, modes_of, switch
from tests.support.kafka_python_offline import OFFLINE, TOPIC, Made
from tests.support.waiting import eventually


def new_consumer(views: FakeViews) -> KafkaConsumer:
    consumer = KafkaConsumer(TOPIC, **OFFLINE, group_id="g")
    consumer.pause()
    return consumer


def used_consumer(views: FakeViews) -> KafkaConsumer:
    views.set(TOPIC, modes_of(4, 2, PartitionMode.NONE))
    consumer = KafkaConsumer(**OFFLINE, group_id="g")
    consumer.subscribe([TOPIC], listener=Mock(spec=ConsumerRebalanceListener))
    consumer.poll(0)
    switch(views, TOPIC, "t-v2")
    consumer.poll(0)
    return consumer


@pytest.mark.usefixtures("without_garbage_collection")
@pytest.mark.parametrize("make", [new_consumer, used_consumer])
def test_a_consumer_that_is_dropped_ends_at_once_and_gives_its_views_back(
    make: Callable[[FakeViews], KafkaConsumer], views: FakeViews
) -> None:
    consumer = make(views)
    assert views.listener_count == 1
    net, coordinator, ended = consumer._net, consumer._coordinator, weakref.ref(consumer)
    del consumer
    assert ended() is None
    eventually(lambda: views.closed and views.listener_count == 0)
    coordinator.close(autocommit=False, timeout_ms=0)  # kafka-python leaves its thread running
    net.close()


def test_consumer_without_a_reset_policy_can_be_made_as_in_kafka_python(views: FakeViews) -> None:
    consumer = KafkaConsumer(TOPIC, **OFFLINE, group_id="g", auto_offset_reset=None)
    assert not consumer._starts.earliest
    assert not consumer._starts.latest
    consumer.close()


def test_constructor_that_raises_releases_the_views(views: FakeViews, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def failing(parts: Any, *args: Any, **kwargs: Any) -> None:
        made.append(parts)
        raise MemoryError

    monkeypatch.setattr(consumer_module, "Membership", failing)
    with pytest.raises(MemoryError):
        KafkaConsumer(TOPIC, **OFFLINE, group_id="g")
    assert views.closed
    made[0].net.close()  # kafka-python leaves its thread running


def test_the_client_id_shows_a_mode_aware_client_unless_the_application_sets_one(views: FakeViews) -> None:
    for own, shown in ({}, "modeaware"), ({"client_id": "billing-1"}, "billing-1"):
        consumer, producer = KafkaConsumer(**OFFLINE, **own), KafkaProducer(**OFFLINE, **own)
        assert consumer.config["client_id"] == producer.config["client_id"] == shown
        consumer.close()
        producer.close(timeout=0)


def test_consumer_reads_what_it_is_assigned_but_for_partitions_of_mode_none(
    views: FakeViews, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = KafkaConsumer(**OFFLINE)
    views.set(TOPIC, modes_of(4, 2, PartitionMode.NONE))
    consumer.assign([TopicPartition(TOPIC, partition) for partition in range(4)])
    assert consumer.assignment() == {TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)}
    assert consumer.paused() == set()
    assert f"{TOPIC}: partitions 2-3 are in mode None" in caplog.text
    consumer.unsubscribe()
    with pytest.raises(TypeError, match="listener"):
        consumer.subscribe([TOPIC], listener=42)
    consumer.close()


def test_missing_right_to_an_earlier_topic_is_no_answer_and_silence_is_asked_again() -> None:
    """Where a group is on a topic that the consumer does not read."""
    parts = Mock()
    offsets = KafkaPythonOffsets(parts, 10)
    parts.coordinator.fetch_committed_offsets.side_effect = TopicAuthorizationFailedError()
    assert offsets.committed_elsewhere([("a", 0)]) == {}
    parts.coordinator.fetch_committed_offsets.side_effect = KafkaTimeoutError()
    with pytest.raises(KafkaTimeoutError):
        offsets.committed_elsewhere([("a", 0)])


def test_member_claims_nothing_of_topics_that_it_reads_no_more(views: FakeViews) -> None:
    """kafka-python refuses an assignment in which a leader of another library gives it that back, again and again."""
    (assignor,) = aware_strategy([CooperativeStickyAssignor], views.view)
    assert assignor.metadata({"t-v2"}).owned_partitions == []
    assignor.member_assignment = [TopicPartition("t", 1), TopicPartition("t-v2", 0), TopicPartition("t-v2", 2)]
    (owned,) = assignor.metadata({"t-v2"}).owned_partitions
    assert (owned.topic, owned.partitions) == ("t-v2", [0, 2])
    assert [each.topic for each in assignor.metadata({"t", "t-v2"}).owned_partitions] == ["t", "t-v2"]


def test_assignors_of_the_application_are_kept(views: FakeViews) -> None:
    ours, theirs = aware_strategy([ReadableRangeAssignor, Mock], views.view)
    assert isinstance(ours, ReadableRangeAssignor)
    assert theirs is Mock


# Two partitions of a group without commits; their logs begin at 0 and end at 99.
OFFSETS: Any = SimpleNamespace(
    committed=dict.fromkeys,
    log_starts=lambda keys: dict.fromkeys(keys, 0),
    log_ends=lambda keys: dict.fromkeys(keys, 99),
)


def test_resume_offsets_outlive_the_view_that_named_them_for_one_assignment() -> None:
    views, one = FakeViews(), TopicPartition("t", 1)
    starts = Starts(views, "latest")

    def follow(epoch: int, writable: int, resume: dict[int, int]) -> None:
        views.put(TopicView("t", "id", (1, epoch), modes_of(2, writable), resume))
        starts.remember(views.view("t"))

    def start() -> int | None:
        return starts.find([one], OFFSETS, ask_again=True).starts[one].offset

    follow(3, 1, {1: 50})
    follow(4, 1, {1: 60})
    follow(5, 2, {})
    assert start() == 50, "the oldest"
    assert start() == 99
    starts.remember(TopicView("t", "other", (1, 6), modes_of(2, 1), {1: 70}))
    assert start() == 99, "of another topic with the name"
    assert Starts(views, "earliest").find([one], OFFSETS, group=False).starts == {one: Start(0)}
    assert Starts(views, "none").find([one], OFFSETS).starts == {one: Start(None)}


KEYS = [b"key-%d" % number for number in range(60)]


def test_partition_is_chosen_again_if_a_shrink_overtakes_the_choice(views: FakeViews) -> None:
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


def test_partitioners_of_older_forms_and_by_name_see_the_writable_partitions(views: FakeViews) -> None:
    class Old:
        def partition(self, topic: str, key: bytes, cluster: Any) -> int:
            assert len(cluster.partitions_for_topic("u")) == len(cluster.available_partitions_for_topic("u")) == 21
            return int(max(cluster.partitions_for_topic(topic)))

    views.set(TOPIC, modes_of(21, 5))
    made, named = Made(KafkaProducer, partitioner=Old()), Made(KafkaProducer, partitioner="murmur2_random")
    with pytest.warns(DeprecationWarning, match="does not implement"):
        made.producer.send(TOPIC, b"v", b"k")
    named.producer.send(TOPIC, b"v", b"k")
    assert (made.queued(), named.queued()) == ([4], [murmur2(b"k", 5)])
    made.producer.close()
    named.producer.close()


def test_producer_whose_settings_were_rejected_can_be_closed() -> None:
    producer = KafkaProducer.__new__(KafkaProducer)
    with pytest.raises(ConfigError, match="did you mean"):
        producer.__init__(modeaware_on_unknow="block")
    producer.close()
    assert producer.modeaware_stats()["state"] == "waiting"


def test_new_topic_of_a_rename_back_is_added_and_requested_in_kafka_pythons_thread(
    views: FakeViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This thread iterates over the topics, and would end with an error if they changed meanwhile."""
    monkeypatch.setattr(producer_module, "METADATA_WAIT_S", 10.0)
    producer = KafkaProducer(**OFFLINE)
    metadata: Any = producer._metadata
    calls: list[tuple[str, int]] = []

    def add_topic(topic: str) -> None:
        calls.append((topic, threading.get_ident()))

    def request_update() -> Future:
        calls.append(("update", threading.get_ident()))
        return Future().success(metadata)

    monkeypatch.setattr(metadata, "add_topic", add_topic)
    monkeypatch.setattr(metadata, "request_update", request_update)
    producer_module._renew_metadata(metadata, TOPIC)
    assert [name for name, _ in calls] == [TOPIC, "update"]
    assert threading.get_ident() not in {thread for _, thread in calls}
    producer.close(timeout=0)


def new_producer(views: FakeViews) -> KafkaProducer:
    return KafkaProducer(**OFFLINE)


def used_producer(views: FakeViews) -> KafkaProducer:
    producer = Made(KafkaProducer).producer
    producer.send(TOPIC, b"v", b"k")
    views.set(TOPIC, modes_of(21, 5))
    producer.send(TOPIC, b"v", b"k")
    return producer


@pytest.mark.usefixtures("without_garbage_collection")
@pytest.mark.parametrize("make", [new_producer, used_producer])
def test_a_producer_that_is_dropped_ends_at_once_and_gives_its_views_back(
    make: Callable[[FakeViews], KafkaProducer], views: FakeViews
) -> None:
    producer = make(views)
    assert views.listener_count == 1
    ended = weakref.ref(producer)
    del producer
    assert ended() is None
    eventually(lambda: views.closed and views.listener_count == 0)
