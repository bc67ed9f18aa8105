"""Scalar, vectorised and wrapped forms, and librdkafka's C functions: one result. For Java's see
tests/integration/test_partitioners_java.py; for more keys, tests/support/every_count.py."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioners import NUMBERS, Hash
from partitioners.columns import hash_column
from tests.support.hash_forms import SCALAR, VECTORISED, WRAPPED, pure
from tests.support.partitioning import C_HASHES, HIGHEST
from tests.support.random_keys import million_keys

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
