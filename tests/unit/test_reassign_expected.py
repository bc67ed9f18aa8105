"""Compare-and-set: when replicas are certain to be the expected ones."""

from __future__ import annotations

import pytest

from modeaware.admin.expected_replicas import Seen, expectation_failures
from modeaware.errors import ErrorCode, ReplicasChanged, RequestRefused

KEY = ("t", 0)
SAME: Seen = {KEY: (1, 2)}


@pytest.mark.parametrize(
    ("seen", "in_progress", "wanted"),
    [
        ({1: SAME, 2: SAME}, set(), None),
        ({1: SAME, 2: SAME}, {KEY}, "in progress"),
        ({1: SAME, 2: {}}, set(), "broker 2 does not know it"),
        ({1: None, 2: {KEY: (3,)}}, set(), r"broker 2 says \[3\]"),
    ],
)
def test_replicas_that_changed(
    seen: dict[int, Seen | None], in_progress: set[tuple[str, int]], wanted: str | None
) -> None:
    failures = expectation_failures({KEY: (1, 2)}, seen, in_progress)
    if wanted is None:
        assert failures == {}
        return
    with pytest.raises(ReplicasChanged, match=wanted) as raised:
        raise failures[KEY]
    assert (raised.value.topic, raised.value.partition) == KEY


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        ({1: {}, 2: {}}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({1: SAME, 2: None}, ErrorCode.REQUEST_TIMED_OUT),
        ({1: None}, ErrorCode.REQUEST_TIMED_OUT),
        ({}, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_what_is_not_known(seen: dict[int, Seen | None], code: ErrorCode) -> None:
    error = expectation_failures({KEY: (1, 2)}, seen, set())[KEY]
    assert type(error) is RequestRefused
    assert error.code is code
