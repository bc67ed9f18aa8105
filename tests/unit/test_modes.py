from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeaware.modes import (
    MODE_TRANSITIONS,
    REPLICA_TRANSITIONS,
    PartitionMode,
    ReplicaState,
    to_ranges,
)

RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE


@pytest.mark.parametrize(
    ("mode", "code", "label", "writable", "readable"),
    [(RW, 0, "ReadWrite", True, True), (RO, 1, "ReadOnly", False, True), (NONE, -1, "None", False, False)],
)
def test_the_modes_are_those_of_kip_694(
    mode: PartitionMode, code: int, label: str, writable: bool, readable: bool
) -> None:
    assert (int(mode), mode.label, mode.writable, mode.readable) == (code, label, writable, readable)
    assert PartitionMode(code) is mode


def test_nothing_goes_from_read_write_to_none_directly() -> None:
    assert set(MODE_TRANSITIONS) == set(PartitionMode)
    assert NONE not in MODE_TRANSITIONS[RW]
    assert all(mode not in targets for mode, targets in MODE_TRANSITIONS.items())


def test_a_replica_is_deleted_only_after_its_deletion_started() -> None:
    assert set(REPLICA_TRANSITIONS) == set(ReplicaState)
    before = {state for state, targets in REPLICA_TRANSITIONS.items() if ReplicaState.DELETION_SUCCESSFUL in targets}
    assert before == {ReplicaState.DELETION_STARTED}


@given(st.lists(st.sampled_from(PartitionMode)))
def test_ranges_hold_every_partition_once(modes: list[PartitionMode]) -> None:
    ranges = to_ranges(modes)
    assert [mode for first, last, mode in ranges for _ in range(first, last + 1)] == modes
    assert all(left[1] + 1 == right[0] and left[2] is not right[2] for left, right in pairwise(ranges))
