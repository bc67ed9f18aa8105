"""Columns of keys: what they may be, what nulls and empty keys become, and what is refused."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from partitioners import LIBRDKAFKA_NAMES, NAMES, NUMBERS, RULES, Hash, ManualPartitionRequired, named
from partitioners.columns import hash_column, partition_column
from partitioners.columns.blocks import LONGEST_BYTES
from partitioners.columns.jumps import jump_column

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
        tuple(AS_BYTES),
        [bytearray(key) if key else key for key in AS_BYTES],
        [memoryview(key) if key else key for key in AS_BYTES],
        np.array(KEYS, object),
        np.array(AS_BYTES, object)[::1],
        pa.array(KEYS),
        pa.array(KEYS, pa.large_string()),
        pa.array(KEYS, pa.string_view()),
        pa.array(AS_BYTES),
        pa.array(AS_BYTES, pa.large_binary()),
        pa.array(AS_BYTES, pa.binary_view()),
        pa.array(KEYS).dictionary_encode(),
        pa.array(["0", *KEYS, "1"])[1:-1],
        pa.chunked_array([KEYS[:3], [], KEYS[3:]], pa.string()),
        pa.chunked_array([pa.array(KEYS)])[2:].cast(pa.binary()),
    ],
    ids=lambda column: f"{type(column).__name__} {getattr(column, 'type', getattr(column, 'dtype', ''))}",
)
def test_every_kind_of_column(column: Any, which: Hash) -> None:
    found = hash_column(column, which)
    assert found.dtype == np.uint32
    assert found.tolist() == scalar(which)[-len(column) :]


@pytest.mark.parametrize("which", list(Hash))
def test_numpys_bytes_of_one_width(which: Hash) -> None:
    keys = [b"abcdef", b"a", b"", b"a\0b", b"xyz"]
    assert hash_column(np.array(keys), which).tolist() == scalar(which, [*keys])
    assert hash_column(np.array(keys * 2)[::3], which).tolist() == scalar(which, (keys * 2)[::3])
    assert hash_column(np.array([b"ends\0"]), which).tolist() == scalar(which, [b"ends"])  # NumPy's rule


@pytest.mark.parametrize("which", list(Hash))
def test_arrows_bytes_of_one_width(which: Hash) -> None:
    keys = [b"abcd", None, b"\0\0\0\0", b"wxyz"]
    assert hash_column(pa.array(keys, pa.binary(4))[1:], which).tolist() == scalar(which, keys[1:])


@pytest.mark.parametrize("which", list(Hash))
@pytest.mark.parametrize(
    "column",
    [
        [],
        np.array([], object),
        np.array([], "S5"),
        pa.array([], pa.binary()),
        pa.array([b"a"])[1:],
        pa.chunked_array([], pa.string()),
        pa.nulls(0),
    ],
)
def test_a_column_without_rows(column: Any, which: Hash) -> None:
    assert hash_column(column, which).tolist() == []
    assert partition_column(column, 7).tolist() == []


def test_a_column_of_nulls_alone() -> None:
    for column in ([None] * 3, pa.nulls(3), pa.array([None] * 3, pa.string()), np.array([None] * 3, object)):
        assert hash_column(column, Hash.MURMUR2).tolist() == scalar(Hash.MURMUR2, [None] * 3)
        assert partition_column(column, 9, "murmur2_random", null_partitions=[3, 4, 5]).tolist() == [3, 4, 5]


@pytest.mark.parametrize("which", list(Hash))
def test_a_null_that_has_bytes_counts_as_an_empty_key(which: Hash) -> None:
    offsets, data = np.array([0, 3, 6, 9, 12], np.int32), b"abcdefghijkl"
    column = pa.Array.from_buffers(
        pa.binary(), 4, [pa.py_buffer(bytes([0b0101])), pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    assert hash_column(column, which).tolist() == scalar(which, [b"abc", None, b"ghi", None])


@pytest.mark.parametrize("which", list(Hash))
def test_more_keys_than_a_block_and_some_of_them_long(which: Hash) -> None:
    keys: list[bytes | None] = [(b"%d" % row) * (row % 7) for row in range(20_000)]
    keys[5] = b"long" * 5000
    keys[19_999] = b"longer" * 5001
    assert hash_column(pa.array(keys), which).tolist() == scalar(which, keys)


@pytest.mark.parametrize("which", list(Hash))
def test_keys_about_as_long_as_a_block_takes(which: Hash) -> None:
    keys: list[bytes | None] = [b"k" * length for length in range(LONGEST_BYTES - 5, LONGEST_BYTES + 6)]
    assert hash_column(keys, which).tolist() == scalar(which, keys)


def test_the_one_number_that_murmur2_in_c_cannot_give() -> None:
    numbers = np.array([2**31 - 1, 0, 2**31 - 2], np.uint32)  # by 2**31 - 1: 0, 0, and itself
    first, second, third = jump_column(numbers, 500).tolist()
    assert first == second == 0 != third


@pytest.mark.parametrize("name", sorted(LIBRDKAFKA_NAMES | {"sticky", "uniform_sticky", "minimal_movement"}))
def test_what_is_hashed_goes_where_the_scalar_form_puts_it(name: str) -> None:
    topic = named(name).for_topic("t")
    indices = partition_column(LONE, 48, name, null_partitions=[40, 41, 42, 43, 44, 45])
    assert indices.dtype == np.int32
    for row, key in enumerate(LONE):
        expected = topic.partition(key, 48) if topic.requires_consistency(key) else 40 + row
        assert indices[row] == expected


@pytest.mark.parametrize("name", ["random", "round_robin", "murmur2_random", "minimal_movement", "uniform_sticky"])
def test_the_others_are_spread_evenly_from_a_random_candidate_on(name: str) -> None:
    column = [None] * 10
    assert partition_column(column, 4, name, randomness=lambda: 0.5).tolist() == [2, 3, 0, 1, 2, 3, 0, 1, 2, 3]


def test_only_rows_that_are_not_hashed_take_a_turn() -> None:
    indices = partition_column(LONE, 6, "consistent_random", randomness=lambda: 0.0)
    assert indices[[0, 1, 3, 4]].tolist() == [0, 1, 2, 3]
    indices = partition_column(LONE, 6, "murmur2_random", randomness=lambda: 0.0)
    assert indices[[0, 3]].tolist() == [0, 1]
    assert indices[1] == indices[4]


def test_one_partition_for_all_nulls() -> None:
    assert partition_column([None, b"", None], 6, "fnv1a_random", null_partitions=5)[[0, 2]].tolist() == [5, 5]


@pytest.mark.parametrize("given", [6, -1, [0, 6, 1], 1.5, [0.0, 1.0, 2.0], True])
def test_null_partitions_out_of_range_are_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="null_partitions must be integers from 0 to 5"):
        partition_column([None, None, b"key"], 6, "murmur2_random", null_partitions=given)


def test_null_partitions_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("has the shape (2,); the column has 3 rows")):
        partition_column([None, None, b"key"], 6, "murmur2_random", null_partitions=[1, 2])


def test_null_partitions_are_read_where_keys_are_not_hashed_only() -> None:
    assert partition_column([None, b"key"], 6, "murmur2_random", null_partitions=[5, -1])[0] == 5


def test_manual_places_no_keys() -> None:
    with pytest.raises(ManualPartitionRequired, match="give null_partitions"):
        partition_column([b"key"], 6, "manual")
    assert partition_column([b"a", b"b"], 6, "manual", null_partitions=[3, 4]).tolist() == [3, 4]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [0, -1, 2**31])
def test_a_count_out_of_range_is_refused(name: str, count: int) -> None:
    with pytest.raises(ValueError, match="the number of candidates must be"):
        partition_column([b"key"], count, name)


@pytest.mark.parametrize("name", ["consistent", "murmur2", "fnv1a", "minimal_movement"])
@pytest.mark.parametrize("count", [1, 2**31 - 1])
def test_the_ends_of_the_range_of_counts(name: str, count: int) -> None:
    keys = [b"%d" % row for row in range(1000)]
    topic = named(name).for_topic("t")
    assert partition_column(keys, count, name).tolist() == [topic.partition(key, count) for key in keys]


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"'murmur3'; there are random, .*minimal_movement"):
        partition_column([b"key"], 6, "murmur3")
    assert set(RULES) < set(NAMES)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("key", "not str"),
        (b"key", "not bytes"),
        (7, "not int"),
        ({"a"}, "not set"),
        ([b"key", 7], "row 1 of a column of keys is bytes, str or None, not int"),
        (np.array([1, 2]), "not 1 of int64"),
        (np.array([[b"a"]]), "not 2 of"),
        (np.array(["text"]), "not 1 of <U4"),
        (np.array([float("nan")], object), "row 0 .*not float"),
        (pa.array([1, 2]), "binary or string in Arrow, not int64"),
        (pa.table({"key": ["a"]}), "not Table"),
    ],
)
def test_what_is_no_column_of_keys_is_refused(column: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        hash_column(column, Hash.MURMUR2)


def test_without_numpy_it_says_what_to_install() -> None:
    program = "import sys\nsys.modules['numpy'] = None\nimport partitioners\nimport partitioners.columns"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "partitioners.columns needs NumPy: install modeaware[columns]" in done.stderr
