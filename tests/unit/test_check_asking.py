"""How answers of brokers become verdicts: what the tests with a real Kafka cannot make one say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from modeaware.errors import ClusterError, ErrorCode
from modeaware.librdkafka import KafkaError
from modeaware.reports.rights.asking import Asked, ask
from modeaware.reports.rights.findings import State
from modeaware.reports.rights.needs import Role, Scope, needs
from modeaware.wire.brokers.client import Ask, Brokers

LOG = "__partition_modes"
NOT_SAID = {31}
ALL = set(range(3, 12))


class Answering(Brokers):
    """Answers each kind of request as it was told to; by default everything is there and allowed."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.operations: Any = ALL
        self.error = 0
        self.controller = -1
        self.partitions: list[Any] = [SimpleNamespace(replica_nodes=[1, 2]), SimpleNamespace(replica_nodes=[3])]
        self.asked: list[Any] = []

    def ask_any(self, request: Any) -> tuple[int, Any]:
        topics = [
            SimpleNamespace(
                name=topic.name,
                error_code=self.error,
                partitions=self.partitions,
                authorized_operations=self.operations,
            )
            for topic in request.topics
        ]
        return 7, SimpleNamespace(topics=topics, brokers=[1, 2, 3], controller_id=self.controller)

    def ask_each(self, asks: Any, timeout_s: float | None = None) -> list[Any]:
        (asked,) = asks
        assert isinstance(asked, Ask)
        assert asked.node_id in (7, self.controller)
        self.asked.append(asked.request)
        name = type(asked.request).__name__.removesuffix("Request")
        default = SimpleNamespace(
            error_code=0,
            authorized_operations=ALL,
            groups=[SimpleNamespace(error_code=0)],
            results=[SimpleNamespace(error_code=0)],
            topics=[SimpleNamespace(error_code=0, error_message=None)],
        )
        if asked.node_id == 7 != self.controller >= 0 and name == "CreateTopics":
            moved = SimpleNamespace(error_code=KafkaError.NOT_CONTROLLER, error_message=None)
            return [SimpleNamespace(topics=[moved])]
        return [self.answers.get(name, default)]

    def kinds(self) -> set[str]:
        return {type(request).__name__ for request in self.asked}


def asked_of(brokers: Answering, scope: Scope) -> tuple[dict[str, State], Asked]:
    wanted = needs(scope)
    found = ask(brokers, wanted, scope.mode_log)
    return {str(need): v.state for need, v in zip(wanted, found.verdicts, strict=True)}, found


CONTROLLER = Scope(Role.CONTROLLER, topics=["a"], groups=["g"])


def test_nothing_that_changes_anything_is_asked() -> None:
    brokers = Answering()
    brokers.error, brokers.partitions = KafkaError.UNKNOWN_TOPIC_OR_PART, []
    asked_of(brokers, CONTROLLER)
    harmless = {"DescribeClusterRequest", "OffsetFetchRequest"}
    refused = {"HeartbeatRequest", "AddOffsetsToTxnRequest"}
    assert brokers.kinds() == {*harmless, *refused, "CreateTopicsRequest"}
    by_kind = {type(request).__name__: request for request in brokers.asked}
    assert by_kind["CreateTopicsRequest"].validate_only is True
    assert by_kind["HeartbeatRequest"].member_id.startswith("nobody-")
    assert by_kind["AddOffsetsToTxnRequest"].producer_id == 2**62


def test_brokers_that_do_not_tell_operations_leave_it_unknown() -> None:
    brokers = Answering(DescribeCluster=SimpleNamespace(error_code=0, authorized_operations=NOT_SAID))
    brokers.operations = NOT_SAID
    states, _ = asked_of(brokers, CONTROLLER)
    assert states[f"topic {LOG} READ"] is State.UNKNOWN
    assert states["cluster kafka-cluster DESCRIBE"] is State.UNKNOWN
    assert states["topic * DESCRIBE"] is State.PASS, "it was described"
    assert states[f"topic {LOG} DESCRIBE_CONFIGS"] is State.PASS, "it was tried"
    assert states["group g READ"] is State.PASS


@pytest.mark.parametrize(
    ("request_name", "needs_of_it"),
    [
        ("Heartbeat", {f"group modeaware-controller.{LOG} READ", "group g READ"}),
        ("OffsetFetch", {"group * DESCRIBE"}),
        ("AddOffsetsToTxn", {f"transactional id modeaware-controller.{LOG} WRITE"}),
        ("DescribeCluster", {"cluster kafka-cluster DESCRIBE"}),
    ],
)
def test_what_is_not_answered_is_unknown(request_name: str, needs_of_it: set[str]) -> None:
    error = ClusterError("no answer", code=ErrorCode.REQUEST_TIMED_OUT)
    states, _ = asked_of(Answering(**{request_name: error}), CONTROLLER)
    assert {name for name, state in states.items() if state is State.UNKNOWN} == needs_of_it
    assert State.FAIL not in states.values()


@pytest.mark.parametrize(
    ("code", "state", "why"),
    [
        (0, State.PASS, None),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, State.FAIL, None),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, State.FAIL, None),
        (KafkaError.TOPIC_ALREADY_EXISTS, State.PASS, None),
        (KafkaError.REQUEST_TIMED_OUT, State.UNKNOWN, None),
        (KafkaError.POLICY_VIOLATION, State.PASS, "POLICY_VIOLATION: three replicas at least"),
    ],
)
def test_a_log_that_is_missing_is_tried(code: int, state: State, why: str | None) -> None:
    result = SimpleNamespace(error_code=code, error_message="three replicas at least")
    brokers = Answering(CreateTopics=SimpleNamespace(topics=[result]))
    brokers.error, brokers.partitions = KafkaError.UNKNOWN_TOPIC_OR_PART, []
    states, found = asked_of(brokers, CONTROLLER)
    assert states[f"topic {LOG} CREATE"] is state
    assert found.not_creatable == why
