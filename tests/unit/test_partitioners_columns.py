"""Columns of keys: what they may be and where they go; and what share of them other numbers of partitions move."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioners import (
    NAMES,
    NUMBERS,
    Hash,
    ManualPartitionRequired,
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
from tests.support.random_keys import RandomKeys, random_keys

KEYS = ["", "a", "ab", "abc", "abcd", "N14228", "Zürich", None, "x" * 31, "y" * 5000, "", "ключ"]
AS_BYTES = [None if key is None else key.encode() for key in KEYS]
LONE = [None, b"", b"k", None, b"", b"key"]


@pytest.mark.parametrize("which", list(Hash))
@pytest.mark.parametrize(
    "column",
    [
        KEYS,
        AS_BYTES,
        np.array(KEYS, object),
        np.array(AS_BYTES[-4:]),
        list(map(bytearray, AS_BYTES[-4:])),
        pa.array(AS_BYTES, pa.binary_view()),
        pa.array(KEYS, pa.large_string()),
        pa.array(KEYS, pa.string_view()),
        pa.array(AS_BYTES, pa.large_binary()),
        pa.array(KEYS).dictionary_encode(),
        pa.array(["0", *KEYS, "1"])[1:-1],
        pa.chunked_array([pa.array(KEYS)])[2:].cast(pa.binary()),
        [],
        pa.array([b"a"])[1:],
    ],
    ids=lambda column: f"{type(column).__name__} {getattr(column, 'type', getattr(column, 'dtype', ''))}",
)
def test_every_kind_of_column(column: Any, which: Hash) -> None:
    found = hash_column(column, which)
    assert found.dtype == np.uint32
    scalar = [NUMBERS[which](key or b"") for key in AS_BYTES]
    assert found.tolist() == scalar[len(KEYS) - len(column) :]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_hashed_goes_where_the_scalar_form_puts_it(name: str) -> None:
    topic = named(name).for_topic("t")
    indices = partition_column(LONE, 48, name, null_partitions=[40, 41, 42, 43, 44, 45])
    assert indices.dtype == np.int32
    for row, key in enumerate(LONE):
        expected = topic.partition(key, 48) if topic.requires_consistency(key) else 40 + row
        assert indices[row] == expected


@pytest.mark.parametrize("given", [6, -1, [0, 6, 1], 1.5, [0.0, 1.0, 2.0], True, [0, 1]])
def test_null_partitions_out_of_range_are_refused(given: Any) -> None:
    with pytest.raises(ValueError, match=r"null_partitions (must be integers from 0 to 5|has the shape \(2,\))"):
        partition_column([None, None, b"key"], 6, "murmur2_random", null_partitions=given)


def test_rows_that_are_not_hashed_take_turns_unless_the_partitioner_is_manual() -> None:
    column = [None, b"key", None, None]
    placed = partition_column(column, 3, "murmur2_random", randomness=lambda: 0.5)
    assert placed.tolist() == [1, murmur2(b"key", 3), 2, 0]
    with pytest.raises(ManualPartitionRequired, match="give null_partitions"):
        partition_column(column, 3, "manual")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [0, -1, 2**31])
def test_a_count_out_of_range_is_refused(name: str, count: int) -> None:
    with pytest.raises(ValueError, match="the number of candidates must be"):
        partition_column([b"key"], count, name)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("key", "not str"),
        (7, "not int"),
        ([b"key", 7], "row 1 of a column of keys is bytes, str or None, not int"),
        (np.array([[b"key"]]), "a NumPy array of one dimension"),
        (pa.scalar("key"), "an Array or a ChunkedArray of pyarrow, not StringScalar"),
        (pa.array([1, 2]), "binary or string in Arrow, not int64"),
    ],
)
def test_what_is_no_column_of_keys_is_refused(column: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        hash_column(column, Hash.MURMUR2)


# Minimal movement, and what share of the keys other numbers of partitions move

COUNTS = st.integers(1, 500)


@pytest.fixture(scope="module")
def keys() -> RandomKeys:
    return random_keys(100_000, 48, shortest=16, longest=32)


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
def test_the_expected_share_is_what_many_keys_show(keys: RandomKeys, name: str, old: int, new: int) -> None:
    column = keys.arrow()
    seen = np.mean(partition_column(column, old, name) != partition_column(column, new, name))
    assert expected_share_moved(named(name), old, new) == pytest.approx(seen, abs=0.01)


def test_the_share_of_given_keys_counts_each_as_often_as_it_comes() -> None:
    column = [b"a", b"b", b"b", b"c"]
    moved = [murmur2(key, 48) != murmur2(key, 13) for key in column]
    assert share_moved_of(column, murmur2, 48, 13) == sum(moved) / 4
    with pytest.raises(ValueError, match="at least one key"):
        share_moved_of([], murmur2, 48, 13)
