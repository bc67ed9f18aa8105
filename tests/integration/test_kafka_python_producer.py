"""modeaware.kafka_python.KafkaProducer on a real Kafka."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import murmur2
from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.partitioner import StickyPartitioner

from modeaware.errors import ModeSourceError, PartitionRetired
from modeaware.kafka_python import FirstViewPending, FirstViewTimeout, KafkaProducer, RetiredPartitionError
from modeaware.kafka_python.errors import HeldKeyError
from modeaware.local import Kafka
from modeaware.modes import PartitionMode
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.fake_views import FakeViews, modes_of
from tests.support.plain import drain_topic
from tests.support.waiting import eventually

MakeProducer = Callable[..., KafkaProducer]


@pytest.fixture
def make_producer(kafka: Kafka) -> Iterator[MakeProducer]:
    made: list[KafkaProducer] = []

    def make(**settings: Any) -> KafkaProducer:
        made.append(KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, **settings))
        return made[-1]

    yield make
    for producer in made:
        producer.close()


def partitions_of(sent: list[Any]) -> list[int]:
    return [future.get(30).partition for future in sent]


def test_keyed_records_go_to_the_writable_partition_that_their_hash_names(
    make_producer: MakeProducer, fake_views: FakeViews, make_topic: MakeTopic, kafka: Kafka
) -> None:
    topic = make_topic(12)
    writable = (0, 1, 2, 3, 5)
    fake_views.set(topic, modes_of(12, writable))
    keys = [b"key-%d" % number for number in range(200)] + [b""]
    producer = make_producer(linger_ms=5)
    partitions_of([producer.send(topic, b"v", key) for key in keys])
    landed = {message.key(): message.partition() for message in drain_topic(kafka.bootstrap_servers, topic)}
    assert landed == {key: writable[murmur2(key, len(writable))] for key in keys}
    assert producer.modeaware_stats()["state"] == "routed"
    fake_views.set(topic, modes_of(12, 12))
    assert partitions_of([producer.send(topic, b"v", key) for key in keys]) == [murmur2(key, 12) for key in keys]
    assert producer.modeaware_stats()["state"] == "direct"


@pytest.mark.parametrize("sticky", [False, True])
def test_records_without_a_key_go_to_writable_partitions_only(
    make_producer: MakeProducer, fake_views: FakeViews, make_topic: MakeTopic, sticky: bool
) -> None:
    topic = make_topic(6)
    producer = make_producer(**({"partitioner": StickyPartitioner()} if sticky else {}))
    partitions_of([producer.send(topic, b"v") for _ in range(20)])  # it may stick to any of them
    fake_views.set(topic, modes_of(6, 3))
    assert set(partitions_of([producer.send(topic, b"v") for _ in range(100)])) <= {0, 1, 2}


KEYS = [b"key-%d" % number for number in range(60)]


def test_hold_keeps_back_keys_that_move_until_their_partition_is_handed_over(
    make_producer: MakeProducer, fake_views: FakeViews, make_topic: MakeTopic
) -> None:
    topic = make_topic(12)
    producer = make_producer(modeaware_on_resize="hold")
    fake_views.set(topic, modes_of(12, 5), previous_count=12)
    for key in KEYS:
        if murmur2(key, 12) == murmur2(key, 5):
            producer.send(topic, b"v", key)
            continue
        with pytest.raises(HeldKeyError, match=f"read partition {murmur2(key, 12)}:") as caught:
            producer.send(topic, b"v", key)
        assert isinstance(caught.value, KafkaTimeoutError)
        assert isinstance(caught.value, BufferError)
    fake_views.set(topic, modes_of(12, 5))
    assert partitions_of([producer.send(topic, b"v", key) for key in KEYS]) == [murmur2(key, 5) for key in KEYS]


def test_a_retired_partition_is_refused_before_anything_is_queued(
    make_producer: MakeProducer, fake_views: FakeViews, make_topic: MakeTopic, kafka: Kafka
) -> None:
    class Stubborn(StickyPartitioner):  # type: ignore[misc,unused-ignore]  # untyped
        def partition(self, *args: Any) -> int:
            return 5

    topic = make_topic(6)
    producer = make_producer()
    fake_views.set(topic, modes_of(6, 4))
    for kind in (PartitionRetired, KafkaError, ValueError):
        with pytest.raises(kind, match=r"partition 5 .* is ReadOnly"):
            producer.send(topic, b"v", partition=5)
    with pytest.raises(ValueError, match="Unrecognized partition 99"):
        producer.send(topic, b"v", partition=99)
    with pytest.raises(RetiredPartitionError) as refused:
        make_producer(partitioner=Stubborn()).send(topic, b"v", b"k")
    assert (refused.value.topic, refused.value.partition) == (topic, 5)
    assert producer.send(topic, b"v", partition=3).get(30).partition == 3
    fake_views.set(topic, (PartitionMode.READ_ONLY,) * 6)
    with pytest.raises(RetiredPartitionError, match=r"no partition .* takes records"):
        producer.send(topic, b"v", b"k")
    producer.flush(30)
    assert [message.partition() for message in drain_topic(kafka.bootstrap_servers, topic)] == [3]


def test_the_first_send_waits_for_the_first_view(
    make_producer: MakeProducer, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    from modeaware.views import registry

    views = FakeViews(ready=False)
    monkeypatch.setattr(registry, "acquire", lambda conf, config: views)
    topic = make_topic(6)
    views.set(topic, modes_of(6, 1))
    blocked = make_producer(modeaware_view_timeout_ms=100)
    for kind in (FirstViewPending, KafkaTimeoutError, BufferError, ModeSourceError):
        with pytest.raises(kind, match="nothing was queued"):
            blocked.send(topic, b"v")
    strict = make_producer(modeaware_view_timeout_ms=100, modeaware_on_unknown="error")
    with pytest.raises(FirstViewTimeout) as error:
        strict.send(topic, b"v")
    assert isinstance(error.value, KafkaError)
    assert not isinstance(error.value, KafkaTimeoutError)
    free = make_producer(modeaware_view_timeout_ms=100, modeaware_on_unknown="writable")
    assert free.send(topic, b"v", partition=5).get(30).partition == 5
    waiting = make_producer(modeaware_view_timeout_ms=30_000)
    assert waiting.modeaware_stats()["state"] == "waiting"
    timer = threading.Timer(0.2, views.set_ready)
    timer.start()
    assert waiting.send(topic, b"v").get(30).partition == 0
    timer.join()
    assert blocked.send(topic, b"v").get(30).partition == 0
    with pytest.raises(RetiredPartitionError):
        free.send(topic, b"v", partition=5)


def test_it_follows_a_live_shrink_and_the_undo(
    make_producer: MakeProducer, served: Controlled, make_topic: MakeTopic
) -> None:
    topic = make_topic(6)
    producer = make_producer(modeaware_mode_log_topic=served.log)
    assert partitions_of([producer.send(topic, b"v", b"%d" % n) for n in range(50)]) == [
        murmur2(b"%d" % n, 6) for n in range(50)
    ]
    served.shrink(topic, 4, delay_ms=600_000)
    eventually(lambda: producer.modeaware_stats()["routed_topics"] == 1)
    assert partitions_of([producer.send(topic, b"v", b"%d" % n) for n in range(50)]) == [
        murmur2(b"%d" % n, 4) for n in range(50)
    ]
    with pytest.raises(RetiredPartitionError):
        producer.send(topic, b"v", partition=5)
    served.grow(topic, 6)
    eventually(lambda: producer.modeaware_stats()["routed_topics"] == 0)
    assert producer.send(topic, b"v", partition=5).get(30).partition == 5
