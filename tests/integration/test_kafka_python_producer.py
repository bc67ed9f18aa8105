"""modeaware.kafka_python.KafkaProducer on a real Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import murmur2
from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.partitioner import StickyPartitioner

from modeaware.errors import ModeSourceError, PartitionRetired
from modeaware.kafka_python import FirstViewPending, FirstViewTimeout, KafkaProducer, RetiredPartitionError
from modeaware.local import Kafka
from modeaware.modes import PartitionMode
from modeaware.views import registry
from tests.conftest import MakeTopic
from tests.support.fake_views import FakeViews, modes_of
from tests.support.plain import drain_topic

MakeProducer = Callable[..., KafkaProducer]
KEYS = [b"key-%d" % number for number in range(60)]


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
    keys = [*KEYS, b""]
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


def test_a_retired_partition_is_refused_before_anything_is_queued(
    make_producer: MakeProducer, fake_views: FakeViews, make_topic: MakeTopic, kafka: Kafka
) -> None:
    topic = make_topic(6)
    producer = make_producer()
    fake_views.set(topic, modes_of(6, 4))
    with pytest.raises(RetiredPartitionError, match=r"partition 5 .* is ReadOnly") as refused:
        producer.send(topic, b"v", partition=5)
    assert all(isinstance(refused.value, kind) for kind in (PartitionRetired, KafkaError, ValueError))
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
    views = FakeViews(ready=False)
    monkeypatch.setattr(registry, "acquire", lambda conf, config: views)
    topic = make_topic(6)
    views.set(topic, modes_of(6, 1))
    blocked = make_producer(modeaware_view_timeout_ms=100)
    with pytest.raises(FirstViewPending, match="nothing was queued") as pending:
        blocked.send(topic, b"v")
    assert all(isinstance(pending.value, kind) for kind in (KafkaTimeoutError, BufferError, ModeSourceError))
    strict = make_producer(modeaware_view_timeout_ms=100, modeaware_on_unknown="error")
    with pytest.raises(FirstViewTimeout):
        strict.send(topic, b"v")
    free = make_producer(modeaware_view_timeout_ms=100, modeaware_on_unknown="writable")
    assert free.send(topic, b"v", partition=5).get(30).partition == 5
    views.set_ready()
    assert blocked.send(topic, b"v").get(30).partition == 0
    with pytest.raises(RetiredPartitionError):
        free.send(topic, b"v", partition=5)
