"""Reassignments: what is asked of the brokers, and what becomes of their answers."""

from __future__ import annotations

from typing import Any

import pytest

from modeaware.admin.reassignments import OPTION_NOT_SUPPORTED, alter_reassignments
from modeaware.errors import ClusterError, ErrorCode, ModeAwareError, RequestRefused
from tests.support.fake_brokers import FakeCluster

REPLICAS = {("t", 0): (1, 2), ("t", 1): (2, 3), ("u", 0): (1,)}


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
