"""Hashes, rules and sticking: pure Python, held against librdkafka's C, Java's and kafka-python's."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner import DefaultPartitioner

from partitioners import (
    NAMES,
    PURE_HASHES,
    RULES,
    BatchAware,
    FunctionPartitioner,
    Hash,
    LoadAware,
    Manual,
    ManualPartitionRequired,
    RoundRobin,
    Sticky,
    TopicPartitioner,
    UniformSticky,
    load,
    named,
    wants_batches,
    wants_load,
)
from partitioners.call_forms import for_kafka_python
from partitioners.spreading import draw
from tests.support.partitioning import C_HASHES, Dice, Metadata, Ticks

COUNTS = st.integers(min_value=1, max_value=100_000)


@pytest.mark.parametrize("which", list(Hash))
@given(key=st.binary(max_size=64), count=COUNTS)
def test_the_hashes_in_python_equal_those_in_c(which: Hash, key: bytes, count: int) -> None:
    assert PURE_HASHES[which](key, count) == C_HASHES[which](key, count)


@pytest.mark.parametrize("which", list(Hash))
@given(key=st.binary(max_size=32), small=st.integers(1, 64), factor=st.integers(1, 64))
def test_a_dividing_target_moves_the_retired_partitions_keys_only(
    which: Hash, key: bytes, small: int, factor: int
) -> None:
    before = PURE_HASHES[which](key, small * factor)
    after = PURE_HASHES[which](key, small)
    assert after == before % small
    assert after == before or before >= small


@pytest.mark.parametrize(
    ("name", "null", "empty", "other"),
    [
        ("random", "sticky", "random", "random"),
        ("consistent", "hashed", "hashed", "hashed"),
        ("consistent_random", "sticky", "sticky", "hashed"),
        ("murmur2", "hashed", "hashed", "hashed"),
        ("murmur2_random", "sticky", "hashed", "hashed"),
        ("fnv1a", "hashed", "hashed", "hashed"),
        ("fnv1a_random", "sticky", "hashed", "hashed"),
    ],
)
def test_the_rules_are_librdkafkas(name: str, null: str, empty: str, other: str) -> None:
    rule = RULES[name]

    def said(key: bytes | None) -> str:
        return "hashed" if rule.is_hashed(key) else "sticky" if rule.is_sticky(key) else "random"

    assert (said(None), said(b""), said(b"key")) == (null, empty, other)
    topic = named(name).for_topic("t")
    assert topic.requires_consistency(None) == (null == "hashed")
    assert topic.requires_consistency(b"key") == (other == "hashed")


def test_a_record_without_key_sticks_for_the_linger_and_no_longer() -> None:
    clock, dice = Ticks(), Dice()
    topic = named("murmur2_random", linger_s=0.01, clock=clock, randomness=dice).for_topic("t")
    assert [topic.partition(None, 4) for _ in range(3)] == [0, 0, 0]
    clock.now_s += 0.01
    assert topic.partition(None, 4) == 0  # librdkafka moves on after the time, not at it
    clock.now_s += 0.001
    assert [topic.partition(None, 4) for _ in range(3)] == [1, 1, 1]
    assert dice.rolled == 2


def test_round_robin_goes_around_from_a_random_candidate_for_each_topic() -> None:
    partitioner = RoundRobin(randomness=Dice(3 / (1 << 30), 0.0))
    first, second = partitioner.for_topic("a"), partitioner.for_topic("b")
    assert [first.partition(b"same key", 5) for _ in range(7)] == [3, 4, 0, 1, 2, 3, 4]
    assert [second.partition(None, 5) for _ in range(3)] == [0, 1, 2]


def test_sticky_stays_until_its_batch_ends_and_then_goes_elsewhere() -> None:
    topic = Sticky(clock=Ticks(), randomness=Dice(0.5, 0.5, 0.0)).for_topic("t")
    assert isinstance(topic, BatchAware)
    assert [topic.partition(None, 4) for _ in range(100)] == [2] * 100
    topic.on_new_batch(2)
    assert topic.partition(None, 4) == 1  # 0.5 of the three others: 0, 1, 3
    topic.on_new_batch(2)  # another thread's, late
    assert topic.partition(None, 4) == 1
    topic.on_new_batch(1)
    assert topic.partition(None, 4) == 0


def test_uniform_sticky_moves_on_after_its_bytes() -> None:
    topic = UniformSticky(batch_size=100, randomness=Dice()).for_topic("t")
    assert isinstance(topic, LoadAware)
    assert not isinstance(topic, BatchAware)
    picks = [topic.partition_by_load(None, 4, 40) for _ in range(9)]
    assert picks == [0, 0, 0, 1, 1, 1, 2, 2, 2]  # 80 bytes are less than 100: the third record fills the batch
    assert topic.partition_by_load(b"key", 4, 40) == topic.partition(b"key", 4)
    with pytest.raises(ValueError, match="load has 2 entries for 4 candidates"):
        topic.partition_by_load(None, 4, 40, [0, 1])
    with pytest.raises(ValueError, match="at least 1 byte"):
        UniformSticky(batch_size=0)


# Kafka's own example (BuiltInPartitioner): queues 0, 3, 1 give the running sums 4, 5, 8.
@pytest.mark.parametrize(("number", "index"), [(0, 0), (1, 0), (2, 0), (3, 0), (4, 1), (5, 2), (6, 2), (7, 2)])
def test_a_draw_by_load_is_javas(number: int, index: int) -> None:
    assert draw(3, [0, 3, 1], number / 8) == index


def test_a_slow_broker_gets_less_by_the_length_of_its_queue() -> None:
    topic = UniformSticky(batch_size=1).for_topic("t")
    picks = Counter(topic.partition_by_load(None, 3, 1, [0, 9, 5]) for _ in range(16_000))
    # Weights 10, 1, 5 of 16: 10 000, 1000 and 5000, each with six standard deviations around it.
    assert 9630 < picks[0] < 10_370
    assert 815 < picks[1] < 1185
    assert 4645 < picks[2] < 5355


# As plain kafka-python calls them


@pytest.mark.parametrize("key", [b"", b"N14228", b"\xff" * 40])
@pytest.mark.parametrize("cluster", [Metadata(range(12)), Metadata(range(12), [3]), Metadata([2, 5, 9], [])])
def test_keys_go_where_kafka_pythons_default_puts_them(key: bytes, cluster: Metadata) -> None:
    form = for_kafka_python(named("murmur2_random"))
    cluster.topics = lambda: {"t"}
    theirs = DefaultPartitioner().partition("t", None, key, None, None, cluster)
    assert form.partition("t", None, key, None, None, cluster) == theirs
    assert form.partition("t", key, cluster) == theirs
    assert form(key, sorted(cluster.partitions), list(cluster.available)) == theirs


@pytest.mark.parametrize("name", [name for name in NAMES if name != "manual"])
def test_records_without_key_keep_to_available_partitions(name: str) -> None:
    form = for_kafka_python(named(name, linger_s=0))
    hashed = named(name).for_topic("t").requires_consistency(None)
    cluster = Metadata([0, 1, 4, 6, 7], [6, 4])
    allowed = cluster.partitions if hashed else cluster.available
    for _ in range(50):
        assert form.partition("t", None, None, None, b"v", cluster) in allowed
        assert form.partition("t", None, cluster) in allowed
        assert form(None, [0, 1, 4, 6, 7], [6, 4]) in allowed


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


def test_full_batch_makes_round_robin_skip_no_partition() -> None:
    form, cluster = for_kafka_python(RoundRobin(randomness=Dice(0.0))), Metadata(range(3))
    assert [form.partition("t", None, None, None, b"v", cluster) for _ in range(2)] == [0, 1]
    form.on_new_batch("t", cluster, 1)
    assert [form.partition("t", None, None, None, b"v", cluster) for _ in range(2)] == [1, 2]
    with pytest.raises(ValueError, match="t: not in the cluster's metadata"):
        form.partition("t", None, None, None, b"v", Metadata([]))


def test_partition_is_an_element_and_not_an_index() -> None:
    for key in (None, b"key"):
        assert for_kafka_python(named("murmur2"))(key, [100], [100]) == 100
    with pytest.raises(ManualPartitionRequired):
        for_kafka_python(Manual()).partition("t", None, b"k", None, b"v", Metadata([0]))


# Users' own, by the name of a class or a function

MODULE = __name__


class Own:
    """A user's, with nothing of ours."""

    def for_topic(self, topic: str) -> Own:
        return self

    def requires_consistency(self, key: bytes | None) -> bool:
        return key is not None

    def partition(self, key: bytes | None, count: int) -> int:
        return len(key or b"") % count


class Demanding(Own):
    def __init__(self, secret: str) -> None:
        self.secret = secret


def last(key: bytes | None, count: int) -> int:
    return count - 1


nested = SimpleNamespace(inner=Own, too_high=lambda key, count: count, not_a_number=lambda key, count: None)


def test_a_class_is_instantiated() -> None:
    assert type(load(f"{MODULE}:Own")) is Own
    assert type(load(f"{MODULE}:nested.inner")) is Own
    assert type(load("partitioners:Manual")) is Manual


def test_a_function_is_asked_about_every_record() -> None:
    partitioner = load(f"{MODULE}:last")
    assert type(partitioner) is FunctionPartitioner
    topic = partitioner.for_topic("t")
    assert topic.requires_consistency(b"key")
    assert topic.requires_consistency(None)
    assert [topic.partition(key, 12) for key in (b"key", b"", None)] == [11, 11, 11]


@pytest.mark.parametrize("name", ["nested.too_high", "nested.not_a_number"])
def test_a_function_that_gives_no_index_is_named(name: str) -> None:
    topic = load(f"{MODULE}:{name}").for_topic("t")
    with pytest.raises(ValueError, match=f"'{MODULE}:{name}' returned .*, which is not an index below 12"):
        topic.partition(b"key", 12)


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("Own", ValueError, "write 'package.module:name'"),
        ("no_such_module_at_all:Own", ValueError, "import of no_such_module_at_all failed"),
        (f"{MODULE}:Absent", ValueError, "has no attribute 'Absent'"),
        (f"{MODULE}:Demanding", TypeError, "cannot be made without arguments: .*secret"),
        (f"{MODULE}:MODULE", TypeError, "no method for_topic"),
    ],
)
def test_what_is_no_partitioner_is_refused(name: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        load(name)
    with pytest.raises(ValueError, match=r"unknown partitioner 'unknown'; known: random, .*"):
        named("unknown")


def test_a_partitioner_that_serves_its_own_topics_alone_is_asked_for_nothing_else() -> None:
    class OfOrders:
        def for_topic(self, topic: str) -> TopicPartitioner:
            return {"orders": UniformSticky().for_topic("orders")}[topic]

    assert not wants_load(OfOrders())
    assert not wants_batches(OfOrders())
