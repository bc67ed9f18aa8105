"""Creations at brokers that answer as the test says: codes, versions, plans, and what comes of them."""

from __future__ import annotations

from typing import Any

import pytest

from modeaware import CreationResult, NewPartitions, NewTopic
from modeaware.admin.creation import Creation
from modeaware.errors import ClusterError, CreatedUnderReplicated, ErrorCode, ModeAwareError, RequestRefused
from modeaware.modelog.observed_brokers import ObservedBrokersRecord
from tests.support.fake_brokers import CreatingBrokers


@pytest.fixture
def cluster() -> CreatingBrokers:
    return CreatingBrokers()


def creation(cluster: CreatingBrokers, policy: str = "enabled", timeout_s: float = 10.0, **observed: Any) -> Creation:
    brokers: Any = cluster
    return Creation(brokers, lambda: ObservedBrokersRecord(policy, **observed), timeout_s)


def grown(
    cluster: CreatingBrokers, *arguments: Any, topic: str = "t", validate_only: bool = False, **kwargs: Any
) -> Any:
    new = NewPartitions.increase_to(*arguments, **kwargs)
    return creation(cluster).create_partitions([(topic, new)], validate_only)[topic]


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, RequestRefused),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, RequestRefused),
        (ErrorCode.INVALID_REPLICA_ASSIGNMENT, RequestRefused),
        (ErrorCode.POLICY_VIOLATION, RequestRefused),
        (ErrorCode.REQUEST_TIMED_OUT, ClusterError),
        (ErrorCode.NOT_CONTROLLER, ClusterError),
    ],
)
def test_each_code_is_typed(cluster: CreatingBrokers, number: ErrorCode, error: type[ModeAwareError]) -> None:
    cluster.codes, cluster.message = {"t": number}, "the broker's words"
    answer = grown(cluster, 5)
    assert type(answer) is error
    assert (answer.code, answer.topic) == (number, "t")
    assert "the broker's words" in answer.message


def test_the_result_tells_what_the_cluster_shows(cluster: CreatingBrokers) -> None:
    result = grown(cluster, 3)
    assert result == CreationResult("t", (1, 2), {1: (3,), 2: (3,)})
    with pytest.raises(CreatedUnderReplicated, match=r"1 \(brokers 3\), 2 \(brokers 3\)"):
        result.raise_for_under_replication()
    cluster.down = set()
    assert grown(cluster, 4).under_replicated == {}
    assert not cluster.sent[0].topics[0].assignments, "without a minimum the brokers decide"


def test_a_minimum_is_kept_or_nothing_is_sent(cluster: CreatingBrokers) -> None:
    refused = grown(cluster, 3, min_required_replication_factor=3)
    assert isinstance(refused, RequestRefused)
    assert refused.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert not cluster.sent
    assert grown(cluster, 3, min_required_replication_factor=2).under_replicated == {1: (3,), 2: (3,)}
    assert {ids[2] for ids in cluster.placed["t"][1:]} == {3}


@pytest.mark.parametrize("minimum", [2, 3])
def test_a_minimum_waits_until_the_topic_is_shown(cluster: CreatingBrokers, minimum: int) -> None:
    cluster.hidden = 2
    answer = grown(cluster, 2, min_required_replication_factor=minimum)
    assert isinstance(answer, CreationResult if minimum == 2 else RequestRefused)
    sent = [request for request in cluster.sent if not request.validate_only]
    assert [len(request.topics[0].assignments) for request in sent] == ([1] if minimum == 2 else [])


def test_a_topic_with_the_brokers_numbers(cluster: CreatingBrokers) -> None:
    new = NewTopic("new", config={"retention.ms": "1000"}, min_required_replication_factor=2)
    assert creation(cluster).create_topics([new])["new"] == CreationResult("new", (0, 1), {0: (3,), 1: (3,)})
    asked, sent = cluster.sent
    assert (asked.validate_only, sent.validate_only) == (True, False)
    (topic,) = sent.topics
    assert (topic.num_partitions, topic.replication_factor, topic.configs[0].name) == (-1, -1, "retention.ms")


def test_assignments_of_ones_own_are_checked(cluster: CreatingBrokers) -> None:
    assert isinstance(grown(cluster, 2, [[3, 1, 2]], min_required_replication_factor=3), RequestRefused)
    assert grown(cluster, 2, [[3, 1, 2]], min_required_replication_factor=2).under_replicated == {1: (3,)}
    new = NewTopic("new", replica_assignment=[[1, 3]], min_required_replication_factor=1)
    assert creation(cluster).create_topics([new])["new"] == CreationResult("new", (0,), {0: (3,)})


def test_only_the_mode_log_knows_the_dead_of_older_brokers(cluster: CreatingBrokers) -> None:
    cluster.old = True
    new = NewTopic("new", 1, 3, min_required_replication_factor=2)
    forgetful = creation(cluster).create_topics([new])["new"]
    assert isinstance(forgetful, RequestRefused)
    assert "only 2 known brokers" in forgetful.message
    remembering = creation(cluster, brokers={1: "a", 3: "c"}).create_topics([new])["new"]
    assert remembering == CreationResult("new", (0,), {0: (3,)})


def test_nothing_grows_while_its_replicas_are_moved(cluster: CreatingBrokers) -> None:
    cluster.placed["u"] = [(1, 2)]
    cluster.moving = {"t"}
    answers = creation(cluster).create_partitions([(name, NewPartitions.increase_to(2)) for name in ("t", "u")])
    assert isinstance(answers["t"], RequestRefused)
    assert answers["t"].code is ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert [topic.name for request in cluster.sent for topic in request.topics] == ["u"]
