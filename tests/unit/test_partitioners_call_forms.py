"""Partitioners as plain kafka-python and aiokafka call them."""

from __future__ import annotations

import pytest
from kafka.partitioner import DefaultPartitioner

from partitioners import NAMES, Manual, ManualPartitionRequired, Sticky, UniformSticky, load, named
from partitioners.call_forms import for_aiokafka, for_kafka_python
from tests.support.partitioning import Dice, Metadata, Ticks

PICKING = [name for name in NAMES if name != "manual"]


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
def test_a_partition_is_an_element_and_not_an_index(name: str) -> None:
    for key in (None, b"key"):
        assert for_aiokafka(named(name))(key, [100], [100]) == 100


def test_sizes_reach_a_partitioner_that_follows_them() -> None:
    cluster = Metadata(range(4))
    form = for_kafka_python(UniformSticky(batch_size=100, randomness=Dice()))
    assert [form.partition("t", None, None, "v", b"x" * 50, cluster) for _ in range(5)] == [0, 0, 1, 1, 2]
    assert form.partition("t", None, None, None, None, cluster) == 2  # a tombstone has no size


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


def test_manual_and_users_own_have_the_forms_too() -> None:
    with pytest.raises(ManualPartitionRequired):
        for_kafka_python(Manual()).partition("t", None, b"k", None, b"v", Metadata([0]))
    own = load("partitioners:murmur2")
    default = for_aiokafka(named("murmur2"))
    assert for_aiokafka(own)(b"key", [3, 4, 5], []) == default(b"key", [3, 4, 5], [])
