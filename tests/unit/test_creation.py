"""Creations at brokers that answer as the test says: codes, versions, plans, and what comes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient as StockAdminClient
from confluent_kafka.admin import NewTopic as StockNewTopic

from modeaware import AdminClient, CreationResult, NewPartitions, NewTopic
from modeaware.admin.creation import Creation
from modeaware.admin.new_topics import minimum_of
from modeaware.errors import ClusterError, ErrorCode, ModeSourceError, NotAuthorized, RecordError, RequestRefused
from modeaware.modelog.records import OBSERVED_BROKERS_KEY, ObservedBrokersRecord
from modeaware.wire.retries import Deadline
from tests.support.fake_brokers import CreatingBrokers
from tests.support.fake_views import FakeViews, switch
from tests.support.modelog import fold


@pytest.fixture
def cluster() -> CreatingBrokers:
    return CreatingBrokers()


def creation(cluster: CreatingBrokers, policy: str = "enabled", timeout_s: float = 10.0, **observed: Any) -> Creation:
    brokers: Any = cluster
    return Creation(brokers, lambda: ObservedBrokersRecord(policy, **observed), Deadline(timeout_s))


def grown(
    cluster: CreatingBrokers, *arguments: Any, topic: str = "t", validate_only: bool = False, **kwargs: Any
) -> Any:
    new = NewPartitions.increase_to(*arguments, **kwargs)
    return creation(cluster).create_partitions({topic: new}, validate_only)[topic]


def test_a_minimum_is_kept_or_nothing_is_sent(cluster: CreatingBrokers) -> None:
    refused = grown(cluster, 3, min_required_replication_factor=3)
    assert isinstance(refused, RequestRefused)
    assert refused.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert not cluster.sent
    assert grown(cluster, 3, min_required_replication_factor=2).under_replicated == {1: (3,), 2: (3,)}
    assert {ids[2] for ids in cluster.placed["t"][1:]} == {3}


@pytest.mark.parametrize("minimum", [2, 3])
def test_a_minimum_waits_until_the_topic_is_shown(cluster: CreatingBrokers, minimum: int) -> None:
    cluster.unseen = 2
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
    cluster.old = {"DescribeClusterRequest"}
    new = NewTopic("new", 1, 3, min_required_replication_factor=2)
    forgetful = creation(cluster).create_topics([new])["new"]
    assert isinstance(forgetful, RequestRefused)
    assert "only 2 known brokers" in forgetful.message
    remembering = creation(cluster, brokers={1: "a", 3: "c"}).create_topics([new])["new"]
    assert remembering == CreationResult("new", (0,), {0: (3,)})


def test_nothing_grows_while_its_replicas_are_moved(cluster: CreatingBrokers) -> None:
    cluster.placed["u"] = [(1, 2)]
    cluster.moving = {"t"}
    answers = creation(cluster).create_partitions({name: NewPartitions.increase_to(2) for name in ("t", "u")})
    assert isinstance(answers["t"], RequestRefused)
    assert answers["t"].code is ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert [topic.name for request in cluster.sent for topic in request.topics] == ["u"]


@pytest.mark.parametrize(
    ("code", "error", "told"),
    [
        (ErrorCode.UNSUPPORTED_VERSION, RequestRefused, "cannot create partitions: broker 1"),
        (ErrorCode.REQUEST_TIMED_OUT, ClusterError, "the outcome is unknown"),
    ],
)
def test_growth_without_an_answer_fails_for_each_topic(
    cluster: CreatingBrokers, monkeypatch: pytest.MonkeyPatch, code: ErrorCode, error: type[Exception], told: str
) -> None:
    monkeypatch.setattr(cluster, "on_create_partitions", lambda *_: ClusterError("broker 1", code=code))
    refused = grown(cluster, 3)
    assert (type(refused), refused.code) == (error, code)
    assert told in refused.message


@pytest.mark.parametrize(
    ("answer", "grows"),
    [
        ({"error_code": 31, "error_message": None, "topics": []}, True),  # this user may not list them
        (ClusterError("before Kafka 2.4", code=ErrorCode.UNSUPPORTED_VERSION), True),
        (ClusterError("no answer", code=ErrorCode.REQUEST_TIMED_OUT), False),
    ],
)
def test_growth_needs_no_list_of_reassignments_but_an_answer(
    cluster: CreatingBrokers, monkeypatch: pytest.MonkeyPatch, answer: Any, grows: bool
) -> None:
    monkeypatch.setattr(cluster, "on_list_partition_reassignments", lambda *_: answer)
    if grows:
        assert grown(cluster, 2).partitions == (1,)
    else:
        assert str(grown(cluster, 2)) == str(answer)


def test_each_topic_that_cannot_be_created_has_its_error(cluster: CreatingBrokers) -> None:
    cluster.codes = {"held": ErrorCode.TOPIC_ALREADY_EXISTS, "late": ErrorCode.REQUEST_TIMED_OUT}
    wanted = [NewTopic(name, 1, 2, min_required_replication_factor=1) for name in ("held", "late", "made")]
    answers = creation(cluster).create_topics([*wanted, NewTopic("none", 0, 2, min_required_replication_factor=1)])
    found = {topic: getattr(answer, "code", None) for topic, answer in answers.items()}
    assert found == {**cluster.codes, "made": None, "none": ErrorCode.INVALID_PARTITIONS}
    assert isinstance(answers["late"], ClusterError)
    assert answers["made"].describe() == "topic 'made': created"


def test_a_topic_that_is_not_shown_in_time_is_an_error(cluster: CreatingBrokers) -> None:
    cluster.unseen, growth = 99, NewPartitions.increase_to(2)
    unseen = creation(cluster, timeout_s=0.0).create_partitions({"t": growth})["t"]
    assert isinstance(unseen, ClusterError)
    assert "nothing was created" in unseen.message
    new = NewTopic("new", 1, 2, min_required_replication_factor=1)
    unseen = creation(cluster, timeout_s=0.0).create_topics([new])["new"]
    assert isinstance(unseen, ClusterError)
    assert "the new partitions were created" in unseen.message
    cluster.codes = {"absent": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert isinstance(grown(cluster, 2, topic="absent"), RequestRefused)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bytes]]:
    """What the mode log holds."""
    enabled = ObservedBrokersRecord("enabled", {1: "a", 2: "b", 3: "c"}, 1, 0)
    records = [(OBSERVED_BROKERS_KEY, enabled.to_json())]
    monkeypatch.setattr("modeaware.confluent.controller_calls.read_mode_log", lambda *arguments: fold(records))
    return records


@pytest.fixture
def views() -> FakeViews:
    return FakeViews()


@pytest.fixture
def admin(
    monkeypatch: pytest.MonkeyPatch, cluster: CreatingBrokers, log: object, views: FakeViews
) -> Iterator[AdminClient]:
    cluster.placed = {"t": [(1, 2, 3)]}
    monkeypatch.setattr("modeaware.wire.brokers.Brokers", lambda conf: cluster)
    monkeypatch.setattr("modeaware.views.registry.acquire", lambda conf, config: views)
    with AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}) as admin:
        yield admin


def test_topics_are_stock_but_for_those_with_a_minimum(admin: AdminClient, monkeypatch: pytest.MonkeyPatch) -> None:
    stock: list[str] = []

    def create(self: object, new: list[Any], **kwargs: Any) -> dict[str, Future[None]]:
        stock.extend(one.topic for one in new)
        return {one.topic: done() for one in new}

    monkeypatch.setattr(StockAdminClient, "create_topics", create)
    mine = NewTopic("mine", 1, 3, min_required_replication_factor=2)
    futures = admin.create_topics([StockNewTopic("plain", 2, 1), NewTopic("ours", 2, 1), mine])
    assert futures["mine"].result(10) == CreationResult("mine", (0,), {0: (3,)})
    assert futures["plain"].result(10) is futures["ours"].result(10) is None
    assert stock == ["plain", "ours"]


def done() -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None)
    return future


@pytest.mark.parametrize("state", [{}, {"released": True}, {"released": True, "gone": True}])
def test_the_name_of_a_replaced_topic_exists(
    admin: AdminClient, views: FakeViews, monkeypatch: pytest.MonkeyPatch, state: dict[str, Any]
) -> None:
    """An application that creates its topics at start ("ensure my topic exists") must not bring the old one back."""
    stock: list[tuple[str, dict[str, Any]]] = []

    def create(self: object, new: list[Any], **kwargs: Any) -> dict[str, Future[None]]:
        stock.extend((one.topic, kwargs) for one in new)
        return {one.topic: done() for one in new}

    monkeypatch.setattr(StockAdminClient, "create_topics", create)
    switch(views, "orders", "orders-v2", **state)
    switch(views, "orders-v2", "orders-v3", gone=True)
    for again in (StockNewTopic("orders", 12, 1), NewTopic("orders", 12, 1, min_required_replication_factor=1)):
        wanted = [again, StockNewTopic("new", 2, 1)]
        futures = admin.create_topics(wanted, validate_only=True)
        error: Any = futures["orders"].exception(10)
        code = error.args[0].code() if isinstance(error, KafkaException) else error.code
        assert isinstance(error, RequestRefused) == (minimum_of(again) is not None)
        assert code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert "TOPIC_ALREADY_EXISTS" in str(error) or isinstance(error, RequestRefused), "frameworks look for it"
        assert "was replaced by 'orders-v3'" in str(error)
        assert "modeaware alias forget orders" in str(error)
        assert futures["new"].result(10) is None
    assert stock == [("new", {"validate_only": True})] * 2


def test_nothing_is_created_while_the_mode_log_cannot_be_read(
    admin: AdminClient, views: FakeViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StockAdminClient, "create_topics", lambda *_, **__: pytest.fail("it may be an alias"))
    views.failure = NotAuthorized("not yours to read")
    with pytest.raises(KafkaException, match="not yours"):
        admin.create_topics([StockNewTopic("orders", 12, 1)])["orders"].result(10)


ONE = {"min_required_replication_factor": 1}
T0 = ("t", 0)


def reassigning(wanted: Any) -> Callable[[AdminClient], Any]:
    return lambda admin: admin.alter_partition_reassignments(wanted)


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda admin: admin.create_partitions({"t": 4}), TypeError, "expected NewPartitions, not 4"),
        (lambda admin: admin.create_partitions({}, timeout=1), TypeError, "unknown arguments: timeout"),
        (lambda admin: admin.create_partitions([NewPartitions("t", 2, **ONE)] * 2), RequestRefused, "named twice"),
        (lambda admin: admin.create_partitions([]), ValueError, "(?i)at least one|empty|expected"),
        (lambda admin: admin.create_topics([NewTopic("n", 1, 1, [[1]], **ONE)]), ValueError, "mutually exclusive"),
        (lambda admin: admin.create_topics([NewTopic("n", 2, -1, [[1]], **ONE)]), ValueError, "both must be equal"),
        (lambda admin: admin.create_topics([NewTopic("n", 1, 1, [[1]])]), ValueError, "mutually exclusive"),
        (lambda admin: NewTopic("n", min_required_replication_factor=0), ValueError, "1 or more, not 0"),
        (lambda admin: NewTopic("n", min_required_replication_factor=True), TypeError, "an int, not True"),
        (reassigning({"t": [1]}), TypeError, "expected a TopicPartition or"),
        (reassigning({T0: 1}), TypeError, "a sequence of broker ids, not 1"),
        (reassigning({T0: ["1"]}), TypeError, "broker ids are ints"),
        (reassigning({T0: [1], TopicPartition(*T0): [2]}), ValueError, "t-0 is named twice"),
        (lambda admin: admin.alter_group_rules([7]), TypeError, "expected a GroupRule, not 7"),
        (lambda admin: admin.alter_group_rules(remove=["waive"]), TypeError, "expected .kind, group, topic. of a rule"),
    ],
)
def test_a_bad_argument_is_refused_at_once(
    admin: AdminClient, cluster: CreatingBrokers, call: Any, error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        call(admin)
    assert cluster.sent == []


def test_a_policy_that_cannot_be_read_creates_nothing(
    admin: AdminClient, cluster: CreatingBrokers, log: list[tuple[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    growth = {"t": NewPartitions.increase_to(2, min_required_replication_factor=2)}
    log.append((OBSERVED_BROKERS_KEY, b"rubbish"))
    with pytest.raises(RecordError, match=r"cannot be read \(malformed"):
        admin.create_partitions(growth)["t"].result(10)

    def denied(*arguments: object) -> None:
        raise NotAuthorized("no READ on the mode log")

    monkeypatch.setattr("modeaware.confluent.controller_calls.read_mode_log", denied)
    with pytest.raises(ModeSourceError, match="no READ"):
        admin.create_partitions(growth)["t"].result(10)
    assert admin.create_partitions({"t": NewPartitions.increase_to(2)})["t"].result(10).partitions == (1,)
    assert len(cluster.sent) == 1
    monkeypatch.setattr(cluster, "on_metadata", lambda *_: ClusterError("no answer"))
    with pytest.raises(ClusterError, match="no answer"):
        admin.create_partitions(growth)["t"].result(10)
