"""Creations at brokers that answer as the test says: codes, versions, plans, and what comes of them."""

from __future__ import annotations

from typing import Any

import pytest

from modeaware import CreationResult, NewPartitions, NewTopic
from modeaware.admin.creation import Creation
from modeaware.admin.creation_requests import answer_error
from modeaware.cluster.registered import registered_brokers
from modeaware.errors import ClusterError, CreatedUnderReplicated, ErrorCode, ModeAwareError, RequestRefused
from modeaware.modelog.observed_brokers import ObservedBrokersRecord
from tests.support.creating_brokers import CreatingBrokers


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
        (ErrorCode.INVALID_TOPIC_EXCEPTION, RequestRefused),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, RequestRefused),
        (ErrorCode.UNSUPPORTED_VERSION, RequestRefused),
        (ErrorCode.INVALID_PARTITIONS, RequestRefused),
        (ErrorCode.INVALID_REPLICATION_FACTOR, RequestRefused),
        (ErrorCode.INVALID_REPLICA_ASSIGNMENT, RequestRefused),
        (ErrorCode.INVALID_REQUEST, RequestRefused),
        (ErrorCode.POLICY_VIOLATION, RequestRefused),
        (ErrorCode.REASSIGNMENT_IN_PROGRESS, RequestRefused),
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, RequestRefused),
        (ErrorCode.REQUEST_TIMED_OUT, ClusterError),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ClusterError),
        (ErrorCode.NOT_CONTROLLER, ClusterError),
    ],
)
def test_each_code_is_typed(cluster: CreatingBrokers, number: ErrorCode, error: type[ModeAwareError]) -> None:
    cluster.codes, cluster.message = {"t": number}, "the broker's words"
    answer = grown(cluster, 5)
    assert type(answer) is error
    assert (answer.code, answer.topic) == (number, "t")
    assert "the broker's words" in answer.message


def test_a_code_without_a_name_here_is_a_refusal_all_the_same() -> None:
    error = answer_error("do it", 87, None, "t")
    assert isinstance(error, RequestRefused)
    assert (error.code, "INVALID_RECORD" in error.message) == (ErrorCode.UNKNOWN_SERVER_ERROR, True)
    assert answer_error("do it", 0, None) is None


def test_a_cluster_too_old_for_it(cluster: CreatingBrokers) -> None:
    cluster.old = {"CreatePartitionsRequest"}
    answer = grown(cluster, 5)
    assert isinstance(answer, RequestRefused)
    assert (answer.code, "too old" in answer.message) == (ErrorCode.UNSUPPORTED_VERSION, True)


def test_no_answer_is_no_refusal(cluster: CreatingBrokers) -> None:
    cluster.silent = {1, 2}
    answer = grown(cluster, 5)
    assert type(answer) is ClusterError
    assert "may have been done" in answer.message


def test_with_zookeeper_the_controller_is_a_broker(cluster: CreatingBrokers) -> None:
    cluster.controller = 2
    assert isinstance(grown(cluster, 3), CreationResult)
    assert [node for node, name in cluster.asked if name == "CreatePartitionsRequest"] == [1, 2]


def test_the_result_tells_what_the_cluster_shows(cluster: CreatingBrokers) -> None:
    result = grown(cluster, 3)
    assert result == CreationResult("t", (1, 2), {1: (3,), 2: (3,)})
    with pytest.raises(CreatedUnderReplicated, match=r"1 \(brokers 3\), 2 \(brokers 3\)"):
        result.raise_for_under_replication()
    cluster.down = set()
    assert grown(cluster, 4).under_replicated == {}
    assert not cluster.sent[0].topics[0].assignments, "without a minimum the brokers decide"


def test_partitions_that_no_broker_shows(cluster: CreatingBrokers) -> None:
    cluster.shown = False
    answers = creation(cluster, timeout_s=0.0).create_partitions([("t", NewPartitions.increase_to(2))])
    assert isinstance(answers["t"], ClusterError)
    assert "were created" in str(answers["t"])


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


def test_a_topic_that_nobody_shows_is_not_grown_by_chance(cluster: CreatingBrokers) -> None:
    cluster.hidden = 1_000
    growth = [("t", NewPartitions.increase_to(2, min_required_replication_factor=2))]
    answer = creation(cluster, timeout_s=0.3).create_partitions(growth)["t"]
    assert isinstance(answer, ClusterError)
    assert answer.code is ErrorCode.REQUEST_TIMED_OUT
    assert all(request.validate_only for request in cluster.sent)


def test_one_that_is_refused_keeps_no_other_back(cluster: CreatingBrokers) -> None:
    cluster.placed["u"] = [(1, 2)]
    wanted = [
        ("t", NewPartitions.increase_to(2, min_required_replication_factor=3)),
        ("u", NewPartitions.increase_to(2, min_required_replication_factor=2)),
        ("absent", NewPartitions.increase_to(2, min_required_replication_factor=1)),
    ]
    cluster.codes = {"absent": 3}
    answers = creation(cluster).create_partitions(wanted)
    assert isinstance(answers["t"], RequestRefused)
    assert answers["u"] == CreationResult("u", (1,))
    assert isinstance(answers["absent"], RequestRefused)
    assert answers["absent"].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_nothing_grows_while_its_replicas_are_moved(cluster: CreatingBrokers) -> None:
    cluster.placed["u"] = [(1, 2)]
    cluster.moving = {"t"}
    answers = creation(cluster).create_partitions([(name, NewPartitions.increase_to(2)) for name in ("t", "u")])
    assert isinstance(answers["t"], RequestRefused)
    assert answers["t"].code is ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert [topic.name for request in cluster.sent for topic in request.topics] == ["u"]


@pytest.mark.parametrize("hidden", ["too old", "not authorized"])
def test_what_is_moved_need_not_be_known(cluster: CreatingBrokers, hidden: str) -> None:
    if hidden == "too old":
        cluster.old = {"ListPartitionReassignmentsRequest"}
    cluster.moving = {"t", hidden}
    assert grown(cluster, 2) == CreationResult("t", (1,), {1: (3,)})


def test_validate_only_tells_what_would_come_of_it(cluster: CreatingBrokers) -> None:
    told = grown(cluster, 2, min_required_replication_factor=2, validate_only=True)
    assert told == CreationResult("t", (1,), {1: (3,)}, validate_only=True)
    told.raise_for_under_replication()
    assert "can be created under-replicated" in told.describe()
    assert cluster.placed == {"t": [(1, 2, 3)]}


def test_a_topic_with_the_brokers_numbers(cluster: CreatingBrokers) -> None:
    new = NewTopic("new", config={"retention.ms": "1000"}, min_required_replication_factor=2)
    assert creation(cluster).create_topics([new])["new"] == CreationResult("new", (0, 1), {0: (3,), 1: (3,)})
    asked, sent = cluster.sent
    assert (asked.validate_only, sent.validate_only) == (True, False)
    (topic,) = sent.topics
    assert (topic.num_partitions, topic.replication_factor, topic.configs[0].name) == (-1, -1, "retention.ms")


def test_a_topic_that_cannot_be(cluster: CreatingBrokers) -> None:
    for count, factor in ((0, 1), (1, 0)):
        new = NewTopic("new", count, factor, min_required_replication_factor=1)
        assert isinstance(creation(cluster).create_topics([new])["new"], RequestRefused)
    cluster.codes = {"t": ErrorCode.TOPIC_ALREADY_EXISTS}
    answer = creation(cluster).create_topics([NewTopic("t", 1, 1, min_required_replication_factor=1)])["t"]
    assert isinstance(answer, RequestRefused)
    assert answer.code is ErrorCode.TOPIC_ALREADY_EXISTS


def test_assignments_of_ones_own_are_checked(cluster: CreatingBrokers) -> None:
    assert isinstance(grown(cluster, 2, [[3, 1, 2]], min_required_replication_factor=3), RequestRefused)
    assert grown(cluster, 2, [[3, 1, 2]], min_required_replication_factor=2).under_replicated == {1: (3,)}
    new = NewTopic("new", replica_assignment=[[1, 3]], min_required_replication_factor=1)
    assert creation(cluster).create_topics([new])["new"] == CreationResult("new", (0,), {0: (3,)})


def test_only_the_mode_log_knows_the_dead_of_older_brokers(cluster: CreatingBrokers) -> None:
    cluster.old = {"DescribeClusterRequest"}
    new = NewTopic("new", 1, 3, min_required_replication_factor=2)
    forgetful = creation(cluster).create_topics([new])["new"]
    assert isinstance(forgetful, RequestRefused)
    assert "only 2 known brokers" in forgetful.message
    remembering = creation(cluster, brokers={1: "a", 3: "c"}).create_topics([new])["new"]
    assert remembering == CreationResult("new", (0,), {0: (3,)})


def test_an_unregistered_broker_is_none_though_the_log_has_it(cluster: CreatingBrokers) -> None:
    new = NewTopic("new", 1, 4, min_required_replication_factor=2)
    answer = creation(cluster, brokers={1: "a", 9: "z"}).create_topics([new])["new"]
    assert isinstance(answer, RequestRefused)
    assert "only 3 known brokers" in answer.message


def test_live_brokers_alone_without_the_newer_request(cluster: CreatingBrokers) -> None:
    brokers: Any = cluster
    assert registered_brokers(brokers).complete
    cluster.old = {"DescribeClusterRequest"}
    found = registered_brokers(brokers)
    assert (sorted(found.brokers), found.complete) == ([1, 2], False)


@pytest.mark.parametrize("bad", [True, "2", 1.5])
def test_a_minimum_is_a_number(bad: Any) -> None:
    with pytest.raises(TypeError, match="must be an int"):
        NewTopic("t", 1, 1, min_required_replication_factor=bad)
    with pytest.raises(ValueError, match="1 or more"):
        NewPartitions("t", 2, min_required_replication_factor=0)


def test_a_line_for_people() -> None:
    many = CreationResult("t", tuple(range(8)), dict.fromkeys(range(8), (2, 3)))
    assert many.describe().endswith("4 (brokers 2, 3) and 3 more")
    assert CreationResult("t", (0,)).describe() == "topic 't': created"
