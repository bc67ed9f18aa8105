"""What kafka-python promises of the classes that ours stand in for: each test runs on its classes and on ours.

The behaviours are those that kafka-python's own tests hold. No broker is needed.
"""

from __future__ import annotations

import gc
import inspect
import threading
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import kafka
import pytest
from kafka.errors import IllegalStateError, KafkaConfigurationError, KafkaTimeoutError
from kafka.partitioner import Partitioner, StickyPartitioner
from kafka.structs import OffsetAndMetadata, TopicPartition

from modeaware.kafka_python import KafkaConsumer, KafkaProducer
from modeaware.views import registry
from tests.support.fake_views import FakeViews, modes_of
from tests.support.kafka_python_offline import OFFLINE, TOPIC, Made

ZERO, ONE = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
producers = pytest.mark.parametrize("kind", [kafka.KafkaProducer, KafkaProducer], ids=["kafka-python", "ours"])
consumers = pytest.mark.parametrize("kind", [kafka.KafkaConsumer, KafkaConsumer], ids=["kafka-python", "ours"])


@pytest.fixture(autouse=True, params=["nothing retired", "a partition retired"])
def views(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FakeViews:
    """The second one makes ours choose and deal by the modes; the partition is one that the tests do not use."""
    made = FakeViews()
    if request.param == "a partition retired":
        made.set(TOPIC, modes_of(21, 20))
    monkeypatch.setattr(registry, "acquire", lambda conf, config: made)
    return made


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    yield
    gc.collect()  # those sockets, while their warnings are ignored


def names_and_defaults(method: Any) -> list[tuple[str, Any, Any]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()]


@pytest.mark.parametrize(
    ("theirs", "ours"), [(kafka.KafkaProducer, KafkaProducer), (kafka.KafkaConsumer, KafkaConsumer)]
)
def test_every_method_has_its_signature(theirs: type, ours: type) -> None:
    methods = [name for name, _ in inspect.getmembers(theirs, callable) if not name.startswith("_")]
    assert "close" in methods
    for name in (*methods, "__init__", "__enter__", "__exit__", "_partition"):
        if hasattr(theirs, name):
            assert names_and_defaults(getattr(ours, name)) == names_and_defaults(getattr(theirs, name)), name


@producers
def test_a_producer_ends_its_thread_on_close_and_with(kind: Any) -> None:
    before = set(threading.enumerate())  # those of earlier tests may still end
    with kind(**OFFLINE) as producer:
        assert len(set(threading.enumerate()) - before) == 1
    assert set(threading.enumerate()) <= before
    producer.close()
    with pytest.raises(IllegalStateError, match="already closed"):
        producer.send(TOPIC, b"v")


@producers
def test_a_flush_that_times_out_leaves_the_producer_open_and_errbacks_are_called_in_the_end(
    kind: Any, views: FakeViews
) -> None:
    producer = kind(**OFFLINE, enable_idempotence=False)
    producer._metadata.topics = lambda: {TOPIC}
    producer._metadata.partitions_for_topic = lambda topic: set(range(21))
    failed: list[BaseException] = []
    producer.send(TOPIC, b"v", partition=0).add_errback(failed.append)
    for stop in (producer.flush, producer.close):
        with pytest.raises(KafkaTimeoutError):
            stop(timeout=0.05)
    assert not producer._closed
    assert not views.closed, "it goes on, so it has to follow the modes"
    producer.send(TOPIC, b"v", partition=0)
    producer._sender.force_close()
    producer._sender.join(10)
    assert failed
    producer.close()
    assert views.closed is (kind is KafkaProducer)


@producers
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # of producers that were never made
def test_what_a_producer_and_its_send_refuse(kind: Any) -> None:
    with pytest.raises(ValueError, match="Unrecognized configs"):
        kind(**OFFLINE, unheard_of=1)
    with pytest.raises(KafkaConfigurationError):
        kind(**OFFLINE, acks=1, enable_idempotence=True)
    gc.collect()
    made = Made(kind)
    for message, arguments in {
        "Need at least one": {},
        "headers must be": {"value": b"v", "headers": ()},
        "All headers items": {"value": b"v", "headers": [("a", "b")]},
        "serialized key": {"value": b"v", "key": 5},
        "serialized value": {"value": "v"},
        "partition must be >= 0": {"value": b"v", "partition": -1},
        "Unrecognized partition 99": {"value": b"v", "partition": 99},
    }.items():
        with pytest.raises((ValueError, TypeError), match=message):
            made.producer.send(TOPIC, **arguments)
    assert made.queued() == []
    made.producer.close()


@producers
def test_a_partitioner_is_given_the_record_and_an_explicit_partition_goes_around_it(kind: Any) -> None:
    partitioner = MagicMock(spec=StickyPartitioner)
    partitioner.partition.return_value = 1
    made = Made(kind, partitioner=partitioner, key_serializer=None)
    made.producer.send(TOPIC, b"v", b"k")
    (call,) = partitioner.partition.call_args_list
    assert call.args[:5] == (TOPIC, b"k", b"k", b"v", b"v")
    assert set(call.args[5].partitions_for_topic(TOPIC)) >= set(range(20))
    assert call.args[5].topics() == {TOPIC}
    made.producer.send(TOPIC, b"v", b"k", partition=2)
    made.producer.send(TOPIC, b"v", partition=3)
    assert partitioner.partition.call_count == 1
    assert made.queued() == [1, 2, 3]
    assert not partitioner.on_new_batch.called
    assert isinstance(made.producer.config["partitioner"], Partitioner)
    made.producer.close()


@consumers
def test_what_a_consumer_refuses_to_be_made_with(kind: Any) -> None:
    for settings in (
        {"unheard_of": 1},
        {"fetch_max_wait_ms": 50_000, "request_timeout_ms": 40_000},
        {"request_timeout_ms": 50_000, "connections_max_idle_ms": 40_000},
        {"group_instance_id": "static"},
    ):
        with pytest.raises(KafkaConfigurationError):
            kind(**OFFLINE, **settings)


@consumers
def test_subscription_and_assignment_exclude_each_other(kind: Any) -> None:
    with kind(TOPIC, **OFFLINE) as consumer:
        consumer.subscription().add("another")
        assert consumer.subscription() == {TOPIC}
        with pytest.raises(IllegalStateError):
            consumer.assign([ZERO])
        consumer.unsubscribe()
        assert consumer.subscription() is None
        consumer.assign([ZERO])
        with pytest.raises(IllegalStateError):
            consumer.subscribe(topics=[TOPIC])
        assert consumer.assignment() == {ZERO}
        consumer.assign([])
        assert consumer.assignment() == set()
        for wrong, kinds in (({}, ValueError), ({"topics": TOPIC}, TypeError), ({"topics": ["a b"]}, ValueError)):
            with pytest.raises(kinds):
                consumer.subscribe(**wrong)
    consumer.close()
    with pytest.raises(IllegalStateError, match="closed"):
        consumer.poll()


@consumers
def test_pauses_last_as_long_as_the_assignment(kind: Any) -> None:
    with kind(**OFFLINE) as consumer:
        consumer.assign([ZERO, ONE])
        consumer.pause(ZERO)
        consumer.assign([ZERO])
        assert consumer.paused() == {ZERO}
        consumer.resume(ZERO)
        assert consumer.paused() == set()
        consumer.pause(ZERO)
        consumer.unsubscribe()
        assert consumer.paused() == set()
        consumer.assign([ZERO])
        assert consumer.paused() == set(), "given anew"
        for call in (consumer.pause, consumer.resume):
            with pytest.raises(TypeError, match="TopicPartition namedtuples"):
                call(TOPIC)
            with pytest.raises(KeyError):
                call(ONE)


@consumers
def test_positions_are_what_was_sought(kind: Any) -> None:
    with kind(**OFFLINE) as consumer:
        with pytest.raises(IllegalStateError, match="not assigned"):
            consumer.position(ZERO)
        with pytest.raises(ValueError, match="No partitions are currently assigned"):
            consumer.seek_to_beginning()
        consumer.assign([ZERO])
        consumer.seek(ZERO, 7)
        assert consumer.position(ZERO, timeout_ms=0) == 7
        assert consumer._subscription.all_consumed_offsets() == {ZERO: OffsetAndMetadata(7, "", -1)}
        for wrong in (
            lambda: consumer.seek(ZERO, -1),
            lambda: consumer.seek(ONE, 1),
            lambda: consumer.seek_to_end(ONE),
        ):
            with pytest.raises(ValueError, match=r"Offset must be|Unassigned"):
                wrong()
        consumer.seek_to_end()
        assert consumer._subscription.is_offset_reset_needed(ZERO)
