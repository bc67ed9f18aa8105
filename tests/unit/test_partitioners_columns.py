"""Columns of keys: what they may be, what nulls and empty keys become, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from partitioners import LIBRDKAFKA_NAMES, NAMES, NUMBERS, Hash, named
from partitioners.columns import hash_column, partition_column

KEYS = ["", "a", "ab", "abc", "abcd", "N14228", "Zürich", None, "x" * 31, "y" * 5000, "", "ключ"]
AS_BYTES = [None if key is None else key.encode() for key in KEYS]
LONE = [None, b"", b"k", None, b"", b"key"]


def scalar(which: Hash, keys: list[bytes | None] = AS_BYTES) -> list[int]:
    return [NUMBERS[which](key or b"") for key in keys]


@pytest.mark.parametrize("which", list(Hash))
@pytest.mark.parametrize(
    "column",
    [
        KEYS,
        AS_BYTES,
        np.array(KEYS, object),
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
    assert found.tolist() == scalar(which)[len(KEYS) - len(column) :]


@pytest.mark.parametrize("name", sorted(LIBRDKAFKA_NAMES | {"sticky", "uniform_sticky", "minimal_movement"}))
def test_what_is_hashed_goes_where_the_scalar_form_puts_it(name: str) -> None:
    topic = named(name).for_topic("t")
    indices = partition_column(LONE, 48, name, null_partitions=[40, 41, 42, 43, 44, 45])
    assert indices.dtype == np.int32
    for row, key in enumerate(LONE):
        expected = topic.partition(key, 48) if topic.requires_consistency(key) else 40 + row
        assert indices[row] == expected


@pytest.mark.parametrize("given", [6, -1, [0, 6, 1], 1.5, [0.0, 1.0, 2.0], True])
def test_null_partitions_out_of_range_are_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="null_partitions must be integers from 0 to 5"):
        partition_column([None, None, b"key"], 6, "murmur2_random", null_partitions=given)


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
        (pa.array([1, 2]), "binary or string in Arrow, not int64"),
    ],
)
def test_what_is_no_column_of_keys_is_refused(column: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        hash_column(column, Hash.MURMUR2)
