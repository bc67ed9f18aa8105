"""What a broker's bit field grants. Doubt means nothing."""

from __future__ import annotations

import pytest

from modeaware.endpoint.authorise import AclOperation, granted


def test_each_operation_has_its_bit() -> None:
    assert granted(1 << 6 | 1 << 7) == {AclOperation.DELETE, AclOperation.ALTER}
    assert granted(0) == frozenset()
    for operation in AclOperation:
        assert granted(1 << operation) == {operation}


@pytest.mark.parametrize("bitfield", [None, -(2**31), -1, -(2**31) | 1 << 7, 1 << 0, 1 << 1, 1 << 2, 1 << 20])
def test_what_is_no_plain_grant_grants_nothing(bitfield: int | None) -> None:
    assert granted(bitfield) == frozenset()
