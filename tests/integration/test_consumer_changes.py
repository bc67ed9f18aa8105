"""One consumer, on a real Kafka, while modes change: where it reads on, and what is committed."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_INVALID, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from modeaware.local import Kafka
from modeaware.modes import PartitionMode
from tests.support.fake_views import modes_of
from tests.support.fetching import Fetching
from tests.support.group import Reading, await_held, committed, held, read
from tests.support.offline import is_librdkafkas_own
from tests.support.waiting import eventually

NONE = PartitionMode.NONE
protocols = pytest.mark.parametrize("strategy", ["range,roundrobin", "cooperative-sticky"])


@protocols
def test_positions_commits_and_the_own_poll_of_a_manual_committer_survive(reading: Reading, strategy: str) -> None:
    topic = reading.topic(4)
    consumer = reading.consumer(enable_auto_commit=False, partition_assignment_strategy=strategy)
    consumer.subscribe([topic])
    await_held(consumer, range(4))
    for partition in (0, 3):
        reading.send(topic, partition, 5)
    assert len(read(consumer, 10)) == 10
    reading.views.set(topic, modes_of(4, 3, NONE))
    await_held(consumer, range(3))
    assert consumer.poll.__self__ is consumer
    assert is_librdkafkas_own(consumer.poll)
    positions = consumer.position([TopicPartition(topic, partition) for partition in range(3)])
    assert [p.offset for p in positions] == [5, OFFSET_INVALID, OFFSET_INVALID]
    assert committed(consumer, topic, 4) == {}, "nobody asked for a commit"
    consumer.commit(asynchronous=False)
    assert committed(consumer, topic, 4) == {0: 5, 3: 5}
    reading.send(topic, 0, 2)
    reading.send(topic, 3, 2)  # stragglers
    assert read(consumer, 2) == [(0, 5), (0, 6)]
    reading.views.set(topic, modes_of(4, 4))
    assert read(consumer, 2) == [(3, 5), (3, 6)]


def test_the_start_of_idle_sealed_partitions_is_committed(reading: Reading) -> None:
    topic = reading.topic(4)
    reading.send(topic, 0)
    reading.send(topic, 3, 7)
    reading.views.set(topic, modes_of(4, 3), resume_offsets={3: 7})
    consumer = reading.consumer(enable_auto_commit=False, auto_offset_reset="latest")
    consumer.subscribe([topic])
    await_held(consumer, range(4))

    def polls_until(offsets: dict[int, int]) -> bool:
        assert consumer.poll(0) is None
        return committed(consumer, topic, 4) == offsets

    eventually(lambda: polls_until({3: 7}), message="sealed from the start")
    reading.views.set(topic, modes_of(4, 1), resume_offsets={1: 0, 2: 0, 3: 7})
    eventually(lambda: polls_until({1: 0, 2: 0, 3: 7}), message="and when they are sealed")


@protocols
@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_what_was_fetched_and_not_delivered_is_not_skipped(reading: Reading, strategy: str, reset: str) -> None:
    topic = reading.topic(2)
    fetching = Fetching()
    consumer = reading.consumer(fetching.conf, auto_offset_reset=reset, partition_assignment_strategy=strategy)
    consumer.subscribe([topic])
    await_held(consumer, range(2))
    fetching.await_fetched(topic, range(2), poll=lambda: consumer.poll(0.1))
    reading.send(topic, 1, 5)
    fetched = TopicPartition(topic, 1)
    eventually(lambda: consumer.get_watermark_offsets(fetched, cached=True)[1] == 5)
    reading.views.set(topic, modes_of(2, 1, NONE))
    assert consumer.poll(0.3) is None
    assert held(consumer) == [0]
    reading.views.set(topic, modes_of(2, 2))
    assert read(consumer, 5) == [(1, offset) for offset in range(5)]
    reading.send(topic, 1, 5)
    eventually(lambda: consumer.get_watermark_offsets(fetched, cached=True)[1] == 10)
    reading.views.set(topic, modes_of(2, 1, NONE))
    assert consumer.poll(0.3) is None
    reading.views.set(topic, modes_of(2, 2))
    assert read(consumer, 5) == [(1, offset) for offset in range(5, 10)]


@pytest.mark.parametrize("held_before", [True, False])
def test_a_reclaimed_partition_comes_back_at_its_resume_offset(
    reading: Reading, kafka: Kafka, held_before: bool
) -> None:
    topic = reading.topic(2)
    reading.send(topic, 1, 5)
    consumer = reading.consumer(auto_offset_reset="latest")
    if held_before:
        consumer.subscribe([topic])
        await_held(consumer, range(2))
        consumer.pause([TopicPartition(topic, 1)])
        consumer.seek(TopicPartition(topic, 1, 2))
    reading.views.set(topic, modes_of(2, 1, NONE), resume_offsets={1: 5})
    if not held_before:
        consumer.subscribe([topic])
    await_held(consumer, range(1))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, 1, 5)]).values():
        future.result(30)
    reading.views.set(topic, modes_of(2, 1, NONE), resume_offsets={1: 5}, reclaimed={1})
    reading.send(topic, 1, 2)
    reading.views.set(topic, modes_of(2, 2))  # an undo leaves nothing of the shrink in the record
    if held_before:
        await_held(consumer, range(2))
        consumer.resume([TopicPartition(topic, 1)])
    # auto.offset.reset would have skipped them: what lay at the old place is gone.
    assert read(consumer, 2) == [(1, 5), (1, 6)]


def test_a_latest_group_reads_a_new_partition_from_the_start(reading: Reading, kafka: Kafka) -> None:
    topic = reading.topic(2)
    consumer = reading.consumer(auto_offset_reset="latest", topic_metadata_refresh_interval_ms=500)
    consumer.subscribe([topic])
    await_held(consumer, range(2))
    reading.views.set(topic, modes_of(3, 2), resume_offsets={2: 0})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    reading.views.set(topic, modes_of(3, 3))  # opened before this consumer has even heard of the partition
    reading.send(topic, 2, 3)
    assert read(consumer, 3) == [(2, 0), (2, 1), (2, 2)]
