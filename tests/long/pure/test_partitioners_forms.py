"""Scalar, vectorised and wrapped forms, and librdkafka's C functions: one result. For Java's see
tests/long/pure/test_partitioners_java.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioners import NUMBERS, PURE_HASHES, Hash, named
from partitioners.call_forms import for_aiokafka, for_kafka_python
from partitioners.columns import hash_column
from tests.support.partitioning import C_HASHES, HIGHEST, Metadata
from tests.support.random_keys import million_keys

Form = Callable[[Hash, Sequence[bytes], Sequence[int]], list[int]]
"""A form of a hash, keys and one number of partitions for each to the keys' partitions."""
NAMES = {Hash.CRC32: "consistent", Hash.MURMUR2: "murmur2", Hash.FNV1A: "fnv1a"}
"""The partitioners that hash every record."""
SAMPLE = 20_000


def scalar(function_of: Callable[[Hash], Callable[[bytes, int], int]]) -> Form:
    return lambda which, keys, counts: list(map(function_of(which), keys, counts))


def by_number(which: Hash) -> Callable[[bytes, int], int]:
    return lambda key, count: NUMBERS[which](key) % count


def by_kafka_python(which: Hash) -> Callable[[bytes, int], int]:
    form = for_kafka_python(named(NAMES[which], hashes=C_HASHES))
    return lambda key, count: form.partition("t", "any", key, "any", b"value", metadata(count))


def by_older_kafka_python(which: Hash) -> Callable[[bytes, int], int]:
    form = for_kafka_python(named(NAMES[which], hashes=C_HASHES))
    return lambda key, count: form.partition("t", key, metadata(count))


def by_aiokafka(which: Hash) -> Callable[[bytes, int], int]:
    form = for_aiokafka(named(NAMES[which], hashes=C_HASHES))
    return lambda key, count: form(key, list(range(count)), [])


@cache
def metadata(count: int) -> Metadata:
    return Metadata(range(count))


def column(made: Callable[[Sequence[bytes]], Any]) -> Form:
    """The vectorised form over the column that ``made`` makes of keys."""

    def vectorised(which: Hash, keys: Sequence[bytes], counts: Sequence[int]) -> list[int]:
        found = hash_column(made(keys), which)
        indices: list[int] = (found.astype(np.int64) % np.asarray(counts, np.int64)).tolist()
        return indices

    return vectorised


def sliced(keys: Sequence[bytes]) -> Any:
    """An Arrow array that begins and ends within its buffers."""
    return pa.array([b"x" * 7, *keys, b"y"], pa.binary())[1:-1]


def chunked(keys: Sequence[bytes]) -> Any:
    """In three chunks, one of them empty, each with buffers of its own."""
    half = len(keys) // 2
    return pa.chunked_array([pa.array(part, pa.large_binary()) for part in (keys[:half], [], keys[half:])])


WRAPPED: Mapping[str, Form] = {
    "kafka-python": scalar(by_kafka_python),
    "older kafka-python": scalar(by_older_kafka_python),
    "aiokafka": scalar(by_aiokafka),
}
FORMS: Mapping[str, Form] = {
    **WRAPPED,
    "pure": scalar(lambda which: PURE_HASHES[which]),
    "numbers": scalar(by_number),
    "librdkafka": scalar(lambda which: C_HASHES[which]),
    "seam": scalar(lambda which: named(NAMES[which]).for_topic("t").partition),
    "list": column(list),
    "tuple": column(tuple),
    "objects": column(lambda keys: np.array([*keys, None], object)[:-1]),
    "Arrow": column(lambda keys: pa.array(keys, pa.binary())),
    "sliced Arrow": column(sliced),
    "chunked Arrow": column(chunked),
    "dictionary": column(lambda keys: pa.array(keys, pa.binary()).dictionary_encode()),
}


@pytest.mark.parametrize("which", list(Hash))
@given(keys=st.lists(st.binary(max_size=80), max_size=20), count=st.integers(1, 500))
def test_all_forms_agree(which: Hash, keys: list[bytes], count: int) -> None:
    counts = [(count + row) % 500 + 1 for row in range(len(keys))]
    expected = FORMS["pure"](which, keys, counts)
    for name, form in FORMS.items():
        assert form(which, keys, counts) == expected, name


@pytest.mark.parametrize("which", list(Hash))
def test_a_million_keys_are_librdkafkas(which: Hash) -> None:
    keys = million_keys()
    numbers = hash_column(keys.arrow(), which)
    listed, counts = keys.listed(), keys.own_counts()
    number = len(listed)
    own = np.fromiter(map(C_HASHES[which], listed, counts.tolist()), np.int64, number)
    np.testing.assert_array_equal(numbers % counts, own)
    whole = np.fromiter(map(C_HASHES[which], listed, [HIGHEST] * number), np.int64, number)
    np.testing.assert_array_equal(numbers % np.int64(HIGHEST), whole)


@pytest.mark.parametrize("which", list(Hash))
def test_many_keys_in_python_are_the_vectorised_ones(which: Hash) -> None:
    keys = million_keys()
    expected = hash_column(keys.arrow()[:SAMPLE], which)
    assert list(map(NUMBERS[which], keys.listed(SAMPLE))) == expected.tolist()


@pytest.mark.parametrize("form", WRAPPED)
@pytest.mark.parametrize("which", list(Hash))
def test_many_keys_in_wrapped_forms_are_the_vectorised_ones(which: Hash, form: str) -> None:
    keys = million_keys()
    sample, counts = keys.listed(SAMPLE), keys.own_counts()[:SAMPLE]
    expected = hash_column(keys.arrow()[:SAMPLE], which) % counts
    assert WRAPPED[form](which, sample, counts.tolist()) == expected.tolist()
