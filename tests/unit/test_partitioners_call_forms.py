"""Partitioners as plain kafka-python and aiokafka call them."""

from __future__ import annotations

import threading

import pytest
from kafka.partitioner import DefaultPartitioner, StickyPartitioner
from kafka.partitioner import Partitioner as KafkaPartitioner

from partitioners import NAMES, Manual, ManualPartitionRequired, RoundRobin, Sticky, UniformSticky, load, named
from partitioners.call_forms import CallForm, for_aiokafka, for_kafka_python
from tests.support.partitioning import Dice, Metadata, Ticks

PICKING = [name for name in NAMES if name != "manual"]


def test_it_is_kafka_pythons_partitioner() -> None:
    form = for_kafka_python(named("murmur2_random"))
    assert isinstance(form, KafkaPartitioner)
    assert isinstance(form, CallForm)


@pytest.mark.parametrize("key", [b"", b"N14228", b"\xff" * 40])
@pytest.mark.parametrize("cluster", [Metadata(range(12)), Metadata(range(12), [3]), Metadata([2, 5, 9], [])])
def test_keys_go_where_kafka_pythons_default_puts_them(key: bytes, cluster: Metadata) -> None:
    form = for_kafka_python(named("murmur2_random"))
    cluster.topics = lambda: {"t"}
    theirs = DefaultPartitioner().partition("t", None, key, None, None, cluster)
    assert form.partition("t", None, key, None, None, cluster) == theirs
    assert form.partition("t", key, cluster) == theirs
    assert form(key, sorted(cluster.partitions), list(cluster.available)) == theirs


@pytest.mark.parametrize("name", PICKING)
def test_records_without_key_keep_to_available_partitions(name: str) -> None:
    form = for_kafka_python(named(name, linger_s=0))
    hashed = named(name).for_topic("t").requires_consistency(None)
    cluster = Metadata([0, 1, 4, 6, 7], [6, 4])
    allowed = cluster.partitions if hashed else cluster.available
    for _ in range(50):
        assert form.partition("t", None, None, None, b"v", cluster) in allowed
        assert form.partition("t", None, cluster) in allowed
        assert form(None, [0, 1, 4, 6, 7], [6, 4]) in allowed


@pytest.mark.parametrize("name", PICKING)
def test_where_none_is_available_all_are_candidates(name: str) -> None:
    cluster = Metadata([3, 8], [])
    assert for_kafka_python(named(name)).partition("t", None, None, None, b"v", cluster) in {3, 8}
    assert for_aiokafka(named(name))(None, [3, 8], []) in {3, 8}


@pytest.mark.parametrize("name", PICKING)
def test_a_partition_is_an_element_and_not_an_index(name: str) -> None:
    for key in (None, b"key"):
        assert for_aiokafka(named(name))(key, [100], [100]) == 100


@pytest.mark.parametrize("key", [b"a", b"b", b"c", b"d"])
def test_the_order_in_which_partitions_are_listed_does_not_count(key: bytes) -> None:
    form = for_aiokafka(named("murmur2"))
    assert form(key, [8, 1, 16, 3], []) == form(key, [1, 3, 8, 16], [])


def test_an_unknown_topic_is_refused_as_kafka_python_does() -> None:
    with pytest.raises(ValueError, match="topic other is not in the cluster's metadata"):
        for_kafka_python(named()).partition("other", None, b"k", None, b"v", Metadata([0]))


def test_sizes_reach_a_partitioner_that_follows_them() -> None:
    cluster = Metadata(range(4))
    form = for_kafka_python(UniformSticky(batch_size=100, randomness=Dice()))
    assert [form.partition("t", None, None, "v", b"x" * 50, cluster) for _ in range(5)] == [0, 0, 1, 1, 2]
    assert form.partition("t", None, None, None, None, cluster) == 2  # a tombstone has no size


def test_topics_have_a_state_of_their_own() -> None:
    form = for_kafka_python(RoundRobin(randomness=lambda: 0.0))

    class Two(Metadata):
        def partitions_for_topic(self, topic: str) -> set[int]:
            return self.partitions

    cluster = Two(range(4), [])
    cluster.available = set()
    picks = [form.partition(topic, None, None, None, b"v", cluster) for topic in ("a", "a", "b", "a")]
    assert picks == [0, 1, 0, 2]


def test_sticky_moves_on_with_each_batch() -> None:
    cluster = Metadata([1, 3, 5], [1, 3, 5])
    form = for_kafka_python(Sticky(clock=Ticks(), randomness=lambda: 0.0))
    assert [form.partition("t", None, None, None, b"v", cluster) for _ in range(3)] == [1, 1, 1]
    form.on_new_batch("t", cluster, 1)
    assert form.partition("t", None, None, None, b"v", cluster) == 3
    form.on_new_batch("t", cluster, 1)  # late
    assert form.partition("t", None, None, None, b"v", cluster) == 3
    form.on_new_batch("t", cluster, 77)  # gone
    assert form.partition("t", None, None, None, b"v", cluster) == 3


def test_sticky_moves_on_as_often_as_kafka_pythons() -> None:
    cluster = Metadata(range(6))
    cluster.topics = lambda: {"t"}
    for form in (for_kafka_python(Sticky(clock=Ticks())), StickyPartitioner()):
        changes, at = 0, form.partition("t", None, None, None, b"v", cluster)
        for number in range(60):
            if number % 10 == 9:
                form.on_new_batch("t", cluster, at)
            before, at = at, form.partition("t", None, None, None, b"v", cluster)
            changes += before != at
        assert changes == 6


def test_a_new_batch_does_not_make_a_round_robin_skip_a_partition() -> None:
    cluster = Metadata(range(4))
    form = for_kafka_python(RoundRobin(randomness=lambda: 0.0))
    sent = []
    for _ in range(8):  # as kafka-python does where each record begins a batch
        aborted = form.partition("t", None, None, None, b"v", cluster)
        form.on_new_batch("t", cluster, aborted)
        sent.append(form.partition("t", None, None, None, b"v", cluster))
    assert sent == [0, 1, 2, 3, 0, 1, 2, 3]


def test_a_new_batch_concerns_the_thread_the_topic_and_the_next_record_alone() -> None:
    cluster = Metadata(range(4))
    form = for_kafka_python(RoundRobin(randomness=lambda: 0.0))
    assert form.partition("t", None, None, None, b"v", cluster) == 0
    form.on_new_batch("t", cluster, 0)
    elsewhere: list[int] = []
    other = threading.Thread(target=lambda: elsewhere.append(form.partition("t", None, None, None, b"v", cluster)))
    other.start()
    other.join()
    assert elsewhere == [1]
    assert [form.partition("t", None, None, None, b"v", cluster) for _ in range(2)] == [0, 2]
    form.on_new_batch("t", cluster, 9)  # no partition any more
    assert form.partition("t", None, None, None, b"v", cluster) == 3


def test_sticky_without_batches_moves_on_with_time() -> None:
    clock = Ticks()
    form = for_aiokafka(Sticky(linger_s=0.01, clock=clock, randomness=lambda: 0.0))
    assert [form(None, [4, 5, 6], [4, 5, 6]) for _ in range(3)] == [4, 4, 4]
    clock.now_s += 0.011
    assert [form(None, [4, 5, 6], [4, 5, 6]) for _ in range(3)] == [5, 5, 5]
    clock.now_s += 0.011
    assert form(b"key", [4, 5, 6], [4, 5, 6]) in (4, 5, 6)
    assert form(None, [4, 5, 6], [4, 5, 6]) == 4


def test_manual_and_users_own_have_the_forms_too() -> None:
    with pytest.raises(ManualPartitionRequired):
        for_kafka_python(Manual()).partition("t", None, b"k", None, b"v", Metadata([0]))
    own = load("partitioners:murmur2")
    default = for_aiokafka(named("murmur2"))
    assert for_aiokafka(own)(b"key", [3, 4, 5], []) == default(b"key", [3, 4, 5], [])
