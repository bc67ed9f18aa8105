"""DeletePartitions, CreatePartitions and AlterGroupRules: who may, and what they are answered."""

from __future__ import annotations

from typing import Any

import pytest

from modeaware.endpoint.authorise import AclOperation, granted
from modeaware.errors import ClusterError, ControllerFenced, ControllerUnavailable, ErrorCode, ModeSourceError
from modeaware.lifecycle.commands import (
    CommandResult,
    DeletePartitionsCommand,
)
from modeaware.wire import codec, stock
from tests.support.conversation import (
    ALTER_AND_DELETE,
    NONE,
    NOT_SAID,
    RW,
    FakeBroker,
    FakeDesk,
    Talk,
    create,
    delete,
    metadata_answer,
    rules,
)

ALTER, DELETE = 1 << 7, 1 << 6


def answered(talk: Talk, api_key: int = 694, version: int = 0) -> Any:
    assert talk.closed is None
    return codec.decode_response(talk.told[-1], api_key, version)[1]


def topic_code(talk: Talk) -> int:
    (topic,) = answered(talk).responses
    return int(topic.partitions[0].error_code)


def test_who_has_both_rights_may_delete() -> None:
    talk = Talk()
    talk.ask(delete({"orders": 2}))
    talk.broker_answers()
    (submit,) = talk.submitted
    assert submit.commands == (DeletePartitionsCommand("orders", 2, delay_ms=0),)
    assert submit.timeout_ms == 5_000
    talk.resolve([CommandResult("orders", modes=(RW, RW, NONE))])
    (topic,) = answered(talk).responses
    assert [(p.partition_index, p.status_code, p.error_code) for p in topic.partitions] == [(2, NONE, 0)]


@pytest.mark.parametrize("bits", [0, ALTER, DELETE, ~(ALTER | DELETE) & 0x7FFF_FFFF, NOT_SAID, -1])
def test_who_lacks_one_may_not_and_nothing_is_submitted(bits: int) -> None:
    talk = Talk(broker=FakeBroker(rights={"orders": bits}))
    talk.ask(delete({"orders": 2}))
    talk.all_answered()
    assert talk.submitted == []
    assert topic_code(talk) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "ALTER and DELETE" in answered(talk).responses[0].partitions[0].error_message


@pytest.mark.parametrize(("bits", "may"), [(ALTER, True), (DELETE, False), (0, False), (NOT_SAID, False)])
@pytest.mark.parametrize("version", range(4))
def test_creating_needs_alter(version: int, bits: int, may: bool) -> None:
    talk = Talk(broker=FakeBroker(rights={"orders": bits}))
    talk.ask(create({"orders": 9}, version))
    talk.all_answered()
    assert bool(talk.submitted) is may
    if may:
        talk.resolve([CommandResult("orders")])
    (result,) = answered(talk, 37, version).results
    assert result.error_code == (0 if may else ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def test_topic_without_a_leader_is_retriable() -> None:
    talk = Talk()
    talk.ask(delete({"orders": 2}))
    talk.broker_answers(metadata_answer(-1, {"orders": (5, 3, ALTER_AND_DELETE)}))
    assert talk.submitted == []
    assert topic_code(talk) == ErrorCode.LEADER_NOT_AVAILABLE


def test_only_what_is_allowed_is_submitted_and_answers_keep_the_requests_order() -> None:
    talk = Talk(broker=FakeBroker(rights={"b": ALTER_AND_DELETE, "c": 0, "d": ALTER_AND_DELETE}))
    talk.ask(delete({"a": 1, "b": 2, "c": 3, "d": 4}))
    talk.all_answered()
    assert [command.topic for command in talk.submitted[0].commands] == ["b", "d"]
    talk.resolve([CommandResult("b", modes=(RW, NONE)), CommandResult("d", ErrorCode.INVALID_PARTITIONS, "too many")])
    told = [(topic.name, topic.partitions[0].error_code) for topic in answered(talk).responses]
    assert told == [("a", 3), ("b", 0), ("c", 29), ("d", ErrorCode.INVALID_PARTITIONS)]


def test_a_standby_submits_nothing_and_one_that_lost_the_claim_meanwhile_neither() -> None:
    desk = FakeDesk()
    talk = Talk(desk)
    talk.ask(create({"orders": 9}))
    desk.active = False
    talk.all_answered()
    assert talk.submitted == []
    (result,) = answered(talk, 37, 3).results
    assert result.error_code == ErrorCode.NOT_CONTROLLER
    assert "active.example:9691" in result.error_message


def test_starting_controller_that_has_not_read_the_log_is_not_the_controller() -> None:
    """A closed connection would leave the client in doubt about a request that went nowhere."""
    desk = FakeDesk(active=False)
    talk = Talk(desk)
    talk.ask(delete({"orders": 2}))
    desk.failure = ModeSourceError("the mode log has not been read yet")
    talk.broker_answers()
    assert answered(talk, 694, 0).error_code == ErrorCode.NOT_CONTROLLER
    assert talk.submitted == []


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (ControllerUnavailable("it stops"), ErrorCode.NOT_CONTROLLER),
        (ClusterError("too late", code=ErrorCode.REQUEST_TIMED_OUT), ErrorCode.REQUEST_TIMED_OUT),
        (ControllerFenced("replaced in the middle"), ErrorCode.REQUEST_TIMED_OUT),  # never "nothing was done"
        (ClusterError("no code"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (RuntimeError("secret"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (None, ErrorCode.UNKNOWN_SERVER_ERROR),
        ([], ErrorCode.UNKNOWN_SERVER_ERROR),
        ([CommandResult("orders")] * 2, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_controller_that_fails_is_an_error_of_the_request(outcome: Any, code: ErrorCode) -> None:
    for payload, api_key, version in (
        (delete({"orders": 2}), 694, 0),
        (create({"orders": 9}, 0), 37, 0),
        (rules("orders"), 695, 0),
    ):
        talk = Talk()
        talk.ask(payload)
        talk.broker_answers()
        talk.resolve(outcome)
        answer = answered(talk, api_key, version)
        told = answer.results[0] if api_key == 37 else answer
        assert told.error_code == code
        assert "secret" not in str(told)


# -- rules about groups ----------------------------------------------------------------------------------------------


def test_a_rule_for_one_topic_needs_alter_on_it() -> None:
    for bits, may in ((ALTER, True), (DELETE, False), (NOT_SAID, False)):
        talk = Talk(broker=FakeBroker(rights={"orders": bits, "plain": ALTER}))
        talk.ask(rules("plain", remove=("orders",)))
        talk.all_answered()
        assert bool(talk.submitted) is may
        if not may:
            assert answered(talk, 695).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    "payload", [rules("*"), rules("orders", "or?ers"), rules("orders", remove=("[o]rders",)), rules()]
)
@pytest.mark.parametrize(("cluster", "may"), [(ALTER, True), (0, False), (DELETE, False), (NOT_SAID, False)])
def test_a_rule_for_many_topics_needs_alter_on_the_cluster(payload: bytes, cluster: int, may: bool) -> None:
    talk = Talk(broker=FakeBroker(cluster=cluster))
    talk.ask(payload)
    talk.all_answered()
    assert stock.decode_request(talk.sent[0])[1].include_cluster_authorized_operations
    assert bool(talk.submitted) is may
    if not may:
        assert answered(talk, 695).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("code", "name", "copies"),
    [(29, "orders", 1), (-1, "orders", 1), (72, "orders", 1), (0, "Orders", 1), (0, "orders", 2)],
)
def test_topic_that_the_broker_does_not_plainly_grant_is_refused(code: int, name: str, copies: int) -> None:
    """An error, no mention, or two mentions of the topic."""
    talk = Talk()
    talk.ask(delete({"orders": 2}))
    _, message = stock.decode_response(metadata_answer(-1, {name: (code, 3, ALTER_AND_DELETE)}), 3, 9)
    message.topics = message.topics * copies
    talk.broker_answers(stock.encode_response(message, 9, -1))
    assert talk.submitted == []
    assert topic_code(talk) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_each_operation_has_its_bit() -> None:
    assert granted(1 << 6 | 1 << 7) == {AclOperation.DELETE, AclOperation.ALTER}
    assert granted(0) == frozenset()
    for operation in AclOperation:
        assert granted(1 << operation) == {operation}


@pytest.mark.parametrize("bitfield", [None, -(2**31), -1, -(2**31) | 1 << 7, 1 << 0, 1 << 1, 1 << 2, 1 << 20])
def test_what_is_no_plain_grant_grants_nothing(bitfield: int | None) -> None:
    assert granted(bitfield) == frozenset()
