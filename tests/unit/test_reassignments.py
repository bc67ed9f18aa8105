"""Reassignments: what is asked of the brokers, and what becomes of their answers."""

from __future__ import annotations

from typing import Any

import pytest

from modeaware.admin.reassignments import (
    OPTION_NOT_SUPPORTED,
    PartitionKey,
    PartitionReassignment,
    Seen,
    alter_reassignments,
    expectation_failures,
)
from modeaware.errors import ClusterError, ErrorCode, ModeAwareError, ReplicasChanged, RequestRefused
from tests.support.fake_brokers import FakeCluster

REPLICAS = {("t", 0): (1, 2), ("t", 1): (2, 3), ("u", 0): (1,)}
MOVING = PartitionReassignment((2, 3, 1), (3,), (1,))


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(dict(REPLICAS))


def codes(answers: dict[Any, ModeAwareError | None]) -> dict[Any, ErrorCode | None]:
    return {key: None if error is None else error.code for key, error in answers.items()}


def test_one_request_for_all(cluster: FakeCluster) -> None:
    cluster.refuse = {("t", 1): ErrorCode.INVALID_REPLICATION_FACTOR}
    wanted = {("u", 0): (2,), ("t", 1): (1, 2, 3), ("t", 0): None}
    answers = alter_reassignments(cluster, wanted, allow_replication_factor_change=False)
    assert cluster.altered == [(False, wanted)]
    assert codes(answers) == {("u", 0): None, ("t", 0): None, ("t", 1): ErrorCode.INVALID_REPLICATION_FACTOR}
    error = answers["t", 1]
    assert isinstance(error, RequestRefused)
    assert (error.topic, error.partition) == ("t", 1)
    assert "t-1 to [1, 2, 3]" in str(error)


def test_request_that_is_refused_or_timed_out_is_so_for_each_partition(cluster: FakeCluster) -> None:
    for code, error in ((ErrorCode.NOT_CONTROLLER, ModeAwareError), (ErrorCode.REQUEST_TIMED_OUT, ClusterError)):
        cluster.refuse_all = code
        answers = alter_reassignments(cluster, {("t", 0): (2, 3), ("t", 1): None})
        assert codes(answers) == {("t", 0): code, ("t", 1): code}
        assert all(isinstance(answer, error) for answer in answers.values())


def test_brokers_without_the_option_are_named_it_and_cancel_all_the_same(cluster: FakeCluster) -> None:
    cluster.option = False
    answers = alter_reassignments(cluster, {("t", 0): (2, 3), ("t", 1): None}, allow_replication_factor_change=False)
    assert codes(answers) == {("t", 0): ErrorCode.UNSUPPORTED_VERSION, ("t", 1): None}
    assert str(answers["t", 0]) == OPTION_NOT_SUPPORTED
    assert isinstance(answers["t", 0], RequestRefused)
    assert cluster.altered == [(True, {("t", 1): None})]


@pytest.mark.parametrize("in_progress", [[{("t", 0): MOVING}, {}], [{}, {("t", 0): MOVING}]], ids=["ends", "begins"])
def test_what_moves_while_it_is_looked_at_is_not_settled(
    cluster: FakeCluster, in_progress: list[dict[Any, PartitionReassignment]]
) -> None:
    """KIP-860's first example: the full set is read, and the reassignment is over when the controller is asked."""
    cluster.replicas["t", 0] = MOVING.replicas
    cluster.in_progress = in_progress
    answers = alter_reassignments(cluster, {("t", 0): (1, 2, 3)}, expected_replicas={("t", 0): MOVING.replicas})
    assert isinstance(answers["t", 0], ReplicasChanged)
    assert cluster.altered == []


KEY = ("t", 0)
SAME: Seen = {KEY: (1, 2)}


@pytest.mark.parametrize(
    ("seen", "in_progress", "wanted"),
    [
        ({1: SAME, 2: SAME}, set(), None),
        ({1: SAME, 2: SAME}, {KEY}, "in progress"),
        ({1: SAME, 2: {}}, set(), "broker 2 does not have it"),
        ({1: SAME, 2: None, 3: {KEY: (3,)}}, set(), r"broker 3 has \[3\]"),
    ],
)
def test_replicas_that_changed(
    seen: dict[int, Seen | None], in_progress: set[PartitionKey], wanted: str | None
) -> None:
    failures = expectation_failures({KEY: (1, 2)}, seen, in_progress)
    if wanted is None:
        assert failures == {}
        return
    with pytest.raises(ReplicasChanged, match=wanted) as raised:
        raise failures[KEY]
    assert (raised.value.topic, raised.value.partition) == KEY


@pytest.mark.parametrize(
    ("seen", "code", "told"),
    [
        ({1: {}, 2: {}}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no broker has it"),
        ({1: SAME, 2: None}, ErrorCode.REQUEST_TIMED_OUT, "broker 2 did not answer"),
        ({1: None}, ErrorCode.REQUEST_TIMED_OUT, "broker 1 did not answer"),
        ({}, ErrorCode.REQUEST_TIMED_OUT, "broker none did not answer"),
    ],
)
def test_replicas_that_cannot_be_compared_are_refused(seen: dict[int, Seen | None], code: ErrorCode, told: str) -> None:
    error = expectation_failures({KEY: (1, 2)}, seen, set())[KEY]
    assert type(error) is RequestRefused
    assert error.code is code
    assert told in str(error)
