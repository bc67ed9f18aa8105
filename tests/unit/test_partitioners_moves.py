"""Minimal movement, and what share of the keys other numbers of partitions move."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioners import (
    MinimalMovement,
    expected_share_moved,
    jump,
    least_share_moved,
    murmur2,
    named,
    share_moved,
    share_moved_of,
)
from tests.support.partitioning import C_HASHES
from tests.support.random_keys import random_keys

COUNTS = st.integers(1, 500)


@pytest.fixture(scope="module")
def keys() -> list[bytes]:
    return random_keys(100_000, 48, shortest=16, longest=32).listed()


# Of the paper's authors' and others' tests of the same function.
@pytest.mark.parametrize(
    ("state", "count", "index"),
    [(1, 1, 0), (42, 57, 43), (0xDEAD10CC, 1, 0), (0xDEAD10CC, 666, 361), (256, 1024, 520)],
)
def test_jump_is_the_papers(state: int, count: int, index: int) -> None:
    assert jump(state, count) == index


@given(key=st.binary(max_size=40), old=COUNTS, new=COUNTS)
def test_a_key_moves_from_retired_or_to_new_partitions_only(key: bytes, old: int, new: int) -> None:
    topic = MinimalMovement().for_topic("t")
    before, after = topic.partition(key, old), topic.partition(key, new)
    assert before < old
    assert after < new
    assert before == after or before >= new or after >= old


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
def test_the_expected_share_is_what_many_keys_show(keys: list[bytes], name: str, old: int, new: int) -> None:
    index = named(name, hashes=C_HASHES).for_topic("t").partition
    assert expected_share_moved(named(name), old, new) == pytest.approx(share_moved_of(keys, index, old, new), abs=0.01)


def test_the_share_of_given_keys_counts_each_as_often_as_it_comes() -> None:
    given_keys = [b"a", b"b", b"b", b"c"]
    moved = [murmur2(key, 48) != murmur2(key, 13) for key in given_keys]
    assert share_moved_of(given_keys, murmur2, 48, 13) == sum(moved) / 4
    with pytest.raises(ValueError, match="at least one key"):
        share_moved_of([], murmur2, 48, 13)
