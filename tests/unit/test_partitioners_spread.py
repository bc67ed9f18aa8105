"""Records without a key: round robin, sticky by batches (KIP-480), sticky by bytes and load (KIP-794), manual."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioners import (
    BatchAware,
    LoadAware,
    RoundRobin,
    Sticky,
    UniformSticky,
    murmur2,
    named,
)
from partitioners.uniform_sticky import draw
from tests.support.partitioning import Dice, Ticks

KEYED = ("sticky", "uniform_sticky")


@pytest.mark.parametrize("name", KEYED)
@given(key=st.binary(max_size=32), count=st.integers(1, 500))
def test_keys_are_javas(name: str, key: bytes, count: int) -> None:
    topic = named(name).for_topic("t")
    assert topic.requires_consistency(key)
    assert not topic.requires_consistency(None)
    assert topic.partition(key, count) == murmur2(key, count)


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
