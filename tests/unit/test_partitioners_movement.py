"""Minimal movement, and what share of the keys other numbers of partitions move."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioners import (
    Hash,
    MinimalMovement,
    expected_share_moved,
    jump,
    least_share_moved,
    murmur2,
    named,
    share_moved,
    share_moved_of,
)
from partitioners.columns import hash_column, partition_column
from partitioners.columns.jumps import jump_column
from tests.support.partitioning import C_HASHES
from tests.support.random_keys import RandomKeys, random_keys

COUNTS = st.integers(1, 500)


@pytest.fixture(scope="module")
def keys() -> RandomKeys:
    return random_keys(1_000_000, 48, shortest=16, longest=32)


# Of the paper's authors' and others' tests of the same function.
@pytest.mark.parametrize(
    ("state", "count", "index"),
    [(1, 1, 0), (42, 57, 43), (0xDEAD10CC, 1, 0), (0xDEAD10CC, 666, 361), (256, 1024, 520)],
)
def test_jump_is_the_papers(state: int, count: int, index: int) -> None:
    assert jump(state, count) == index


def test_48_to_13_moves_no_survivors_key_and_stays_even(keys: RandomKeys) -> None:
    column = keys.arrow()
    before = partition_column(column, 48, "minimal_movement")
    after = partition_column(column, 13, "minimal_movement")
    assert np.count_nonzero((before < 13) & (before != after)) == 0
    for indices, count in ((before, 48), (after, 13)):
        load = np.bincount(indices, minlength=count) * count / len(indices)
        assert load.min() > 0.95
        assert load.max() < 1.05
    # The retired partitions' keys spread evenly too, each partition's own.
    moved = np.bincount(after[before == 47], minlength=13)
    assert moved.min() > 0.8 * moved.mean()


@given(key=st.binary(max_size=40), old=COUNTS, new=COUNTS)
def test_a_key_moves_from_retired_or_to_new_partitions_only(key: bytes, old: int, new: int) -> None:
    topic = MinimalMovement().for_topic("t")
    before, after = topic.partition(key, old), topic.partition(key, new)
    assert before < old
    assert after < new
    assert before == after or before >= new or after >= old


@given(key=st.binary(max_size=40), count=st.integers(1, 2**31 - 1))
def test_murmur2_may_be_in_c(key: bytes, count: int) -> None:
    in_c = MinimalMovement(C_HASHES[Hash.MURMUR2]).for_topic("t")
    assert in_c.partition(key, count) == MinimalMovement().for_topic("t").partition(key, count)


def test_whole_columns_jump_where_single_keys_do() -> None:
    keys = random_keys(5_000, 7, longest=40)
    numbers = hash_column(keys.arrow(), Hash.MURMUR2)
    topic = MinimalMovement(C_HASHES[Hash.MURMUR2]).for_topic("t")
    for count in (2, 3, 13, 48, 499, 500):
        assert jump_column(numbers, count).tolist() == [topic.partition(key, count) for key in keys.listed()]


def test_a_key_is_any_that_is_not_null() -> None:
    topic = named("minimal_movement", randomness=lambda: 0.99).for_topic("t")
    assert topic.requires_consistency(b"")
    assert topic.requires_consistency(b"key")
    assert not topic.requires_consistency(None)
    assert [topic.partition(None, 7) for _ in range(3)] == [6, 6, 6]


@given(old=st.integers(1, 40), new=st.integers(1, 40))
def test_the_share_of_a_remainder_is_exact(old: int, new: int) -> None:
    period = math.lcm(old, new)
    moved = sum(number % old != number % new for number in range(period))
    assert share_moved(old, new) == pytest.approx(moved / period)
    assert share_moved(old, new) >= least_share_moved(old, new) - 1e-12
    if old % new == 0:
        assert share_moved(old, new) == pytest.approx(least_share_moved(old, new))


@pytest.mark.parametrize(("old", "new"), [(48, 13), (48, 12), (13, 48), (7, 7)])
@pytest.mark.parametrize("name", ["murmur2_random", "consistent", "fnv1a", "minimal_movement"])
def test_the_expected_share_is_what_a_million_keys_show(keys: RandomKeys, name: str, old: int, new: int) -> None:
    column = keys.arrow()
    seen = np.mean(partition_column(column, old, name) != partition_column(column, new, name))
    assert expected_share_moved(named(name), old, new) == pytest.approx(seen, abs=0.003)


@pytest.mark.parametrize("name", ["random", "round_robin", "manual"])
def test_what_hashes_no_keys_moves_none(name: str) -> None:
    assert expected_share_moved(named(name), 48, 13) == 0.0


class OnFirstByte:
    """A user's partitioner, with nothing of ours."""

    def for_topic(self, topic: str) -> OnFirstByte:
        return self

    def requires_consistency(self, key: bytes | None) -> bool:
        return bool(key)

    def partition(self, key: bytes | None, count: int) -> int:
        return key[0] * count // 256 if key else 0


class Nowhere(OnFirstByte):
    def requires_consistency(self, key: bytes | None) -> bool:
        return False


def test_any_other_partitioner_is_asked_about_a_sample() -> None:
    exact = sum(byte * 48 // 256 != byte * 12 // 256 for byte in range(256)) / 256
    assert expected_share_moved(OnFirstByte(), 48, 12) == pytest.approx(exact, abs=0.03)
    assert expected_share_moved(OnFirstByte(), 48, 12) == expected_share_moved(OnFirstByte(), 48, 12)
    assert expected_share_moved(Nowhere(), 48, 12) == 0.0


def test_the_share_of_given_keys_counts_each_as_often_as_it_comes() -> None:
    column = [b"a", b"b", b"b", b"c"]
    moved = [murmur2(key, 48) != murmur2(key, 13) for key in column]
    assert share_moved_of(column, murmur2, 48, 13) == sum(moved) / 4
    with pytest.raises(ValueError, match="no keys"):
        share_moved_of([], murmur2, 48, 13)


@pytest.mark.parametrize("share", [share_moved, least_share_moved])
@pytest.mark.parametrize(("old", "new"), [(0, 4), (4, 0)])
def test_shares_of_nothing_are_refused(share: object, old: int, new: int) -> None:
    assert callable(share)
    with pytest.raises(ValueError, match="must be positive"):
        share(old, new)


def test_hash_and_jump_see_the_same_column() -> None:
    column = [None, b"", b"k"]
    assert hash_column(column, Hash.MURMUR2)[0] == hash_column(column, Hash.MURMUR2)[1]
    assert partition_column(column, 9, "minimal_movement", null_partitions=8)[0] == 8
