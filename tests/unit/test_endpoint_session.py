"""One connection's conversation: greeting, what passes, what is rejected, who may change what, and what is held."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest

from modeaware.endpoint.changes import AclOperation, granted
from modeaware.endpoint.facade import ActiveController
from modeaware.endpoint.limits import EndpointLimits
from modeaware.errors import ClusterError, ControllerFenced, ControllerUnavailable, ErrorCode, ModeSourceError
from modeaware.lifecycle.commands import AlterGroupRulesCommand, CommandResult, ReplaceTopicCommand
from modeaware.modelog.group_rules import CLOSED, REQUIRE, WAIVE, GroupRule
from modeaware.wire import codec
from tests.support.conversation import (
    ALTER_AND_DELETE,
    NONE,
    NOT_SAID,
    RW,
    FakeBroker,
    FakeDesk,
    Talk,
    altering,
    broker_versions,
    create,
    decoded_question,
    delete,
    hello,
    ids,
    metadata_answer,
    modes_request,
    old_metadata_request,
    pass_through_answer,
    replacing,
    request,
    rules,
)


@pytest.mark.parametrize(
    ("api_key", "version", "why"),
    [
        (0, 9, "Produce"),
        (78, 1, "ShareFetch"),
        (75, 0, "DescribeTopicPartitions"),
        (17, 0, "SaslHandshake version 0"),
        (3, 10, "Metadata version 10"),
        (3, -1, "Metadata version -1"),
        (37, 4, "api key 37 version 4"),
        (695, -1, "api key 695 version -1"),
    ],
)
def test_what_is_not_taken_closes_and_reaches_nobody(api_key: int, version: int, why: str) -> None:
    talk = Talk()
    talk.ask(request(api_key, version, 1, b"secret"))
    assert talk.closed.startswith(why)
    assert "secret" not in talk.closed
    assert talk.sent == talk.told == []


@pytest.mark.parametrize("answer", [b"", b"\0\0", b"\0\0\0\2", b"\0\0\0\2 and more"])
def test_a_broker_that_answers_something_else_closes(answer: bytes) -> None:
    talk = Talk()
    talk.ask(request(10, 1, 1), request(10, 1, 2))
    talk.broker_answers(answer)
    assert talk.closed == "responses from the broker out of order"
    assert talk.told == []


def test_fresh_modes_are_asked_once_the_log_has_been_read() -> None:
    desk = FakeDesk(known={})
    talk = Talk(desk)
    talk.ask(hello(1), modes_request(2, modes_only=True, fresh=True), request(10, 1, 3))
    assert len(talk.refreshes) == 1
    assert talk.session.pending == 3
    talk.broker_answers()
    assert not talk.broker.asked
    desk.known = {"orders": FakeDesk().known["orders"]}
    talk.resolve(None)
    _, asked = decoded_question(talk.sent[1])
    assert [topic.name for topic in asked.topics] == ["orders"]
    assert ids(talk.all_answered()) == [1, 2, 3]


def test_a_log_that_cannot_be_read_now_gives_no_old_modes_for_fresh_ones() -> None:
    talk = Talk()
    talk.ask(hello(1), modes_request(2, fresh=True))
    talk.broker_answers()
    talk.resolve(ModeSourceError("the log's leader is away: secret"))
    assert talk.closed == "a Metadata request with Fresh needs the end of the mode log, which cannot be read now"
    assert ids(talk.told) == [1]


def test_requests_beyond_the_pipeline_close() -> None:
    talk = Talk(limits=EndpointLimits(pipeline=3))
    talk.ask(*(request(10, 1, n) for n in range(3)))
    assert not talk.session.wants_more
    talk.broker_answers()
    assert talk.session.wants_more
    talk.ask(request(10, 1, 4), request(10, 1, 5))
    assert talk.closed == "too many requests at once"


@pytest.mark.parametrize(
    ("payload", "limit"),
    [
        (delete({f"topic-{n}": 1 for n in range(50)}, 2), 400),
        (modes_request(2, ["x" * 200] * 3), 400),
        (request(18, 3, 2, bytes(4_096)), 4_096),
        (request(18, 99, 2, bytes(4_096)), 4_096),
    ],
)
def test_what_is_decoded_here_is_bounded(payload: bytes, limit: int) -> None:
    talk = Talk(limits=EndpointLimits(change_bytes=400, modes_bytes=400))
    talk.ask(hello(1), payload)
    assert talk.closed == f"a request of {len(payload)} bytes; the limit of this api is {limit}"
    assert (len(talk.sent), talk.told) == (1, [])


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({}, "other at active.example:9691"),
        ({"claimed": ActiveController("other")}, "has stopped"),
        ({"claimed": None}, "no active controller is known"),
        # One that starts. A closed connection would leave the client in doubt about a request that went nowhere.
        ({"failure": ModeSourceError("the mode log has not been read yet")}, "no active controller is known"),
    ],
)
def test_a_change_is_sent_on_by_one_that_is_not_active_when_the_broker_has_answered(
    known: dict[str, Any], words: str
) -> None:
    talk = Talk(FakeDesk(**known))
    talk.ask(delete({"orders": 2}))
    talk.desk.active = False
    talk.broker_answers()
    assert answered(talk).error_code == ErrorCode.NOT_CONTROLLER
    assert words in answered(talk).error_message
    assert talk.submitted == []


@pytest.mark.parametrize("active", [True, False])
def test_librdkafka_sees_no_node_that_brokers_do_not_name(active: bool) -> None:
    """A request to a node fails in librdkafka once an answer of a broker does not name that node."""
    talk = Talk(FakeDesk(active=active))
    talk.ask(hello(1, "any", software_version="2.16.1-rdkafka-2.16.0"), old_metadata_request(2, 9, ["orders"]))
    talk.broker_answers()
    answer = talk.broker.answer()
    talk.broker_answers(answer)
    assert talk.told[-1] == answer


def test_a_session_counts_what_waits_and_lets_it_go() -> None:
    talk, large = Talk(), bytes(250_000)
    talk.ask(delete({"orders": 2}, 1))
    of_the_change = talk.session.held_bytes
    assert of_the_change >= 30 * len(delete({"orders": 2}, 1)), "what is decoded takes more than its bytes"
    talk.ask(request(10, 1, 2, large), request(10, 1, 3, large))
    assert talk.session.held_bytes - of_the_change > 2 * len(large)
    talk.broker_answers()
    assert talk.session.held_bytes - of_the_change > 2 * len(large), "the controller works for it"
    talk.resolve([CommandResult("orders")])
    assert talk.session.held_bytes == 0


# The first frames: ApiVersions, and a SASL exchange into which nothing is put


def versions(name: str, version: int) -> Any:
    talk = Talk()
    talk.ask(hello(9, name, version))
    talk.broker_answers(broker_versions(version, 9))
    correlation_id, answer = codec.decode_response(talk.told[0], 18, version)
    assert correlation_id == 9
    return answer


def spans(answer: Any) -> dict[int, tuple[int, int]]:
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


@pytest.mark.parametrize("version", range(5))
def test_what_the_endpoint_takes_is_what_it_offers(version: int) -> None:
    answer = versions("librdkafka", version)
    assert spans(answer) == {
        0: (0, 13),
        1: (4, 18),
        3: (0, 9),
        17: (1, 1),
        18: (0, 4),
        36: (0, 2),
        37: (0, 3),
        694: (0, 0),
        695: (0, 0),
        696: (0, 0),
    }
    assert answer.throttle_time_ms == (5 if version else 0)


@pytest.mark.parametrize(("version", "highest"), [(0, 9), (2, 9), (3, 10), (4, 10)])
def test_who_names_itself_is_offered_modes(version: int, highest: int) -> None:
    assert spans(versions("modeaware", version))[3] == (0, highest)


@pytest.mark.parametrize("version", [3, 4])
def test_features_are_the_brokers_and_ours(version: int) -> None:
    answer = versions("librdkafka", version)
    told = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
    assert told == {"metadata.version": (1, 29), "partition.mode": (1, 1), "modeaware.controller.c1": (1, 1)}
    assert answer.finalized_features_epoch == 77
    assert [(f.name, f.min_version_level, f.max_version_level) for f in answer.finalized_features] == [
        ("metadata.version", 29, 29)
    ]


@pytest.mark.parametrize("version", [5, 99, -1])
def test_a_version_that_is_not_known_is_told_which_are(version: int) -> None:
    talk = Talk()
    payload = hello(9)
    talk.ask(payload[:2] + version.to_bytes(2, "big", signed=True) + payload[4:])
    assert talk.sent == []
    correlation_id, answer = codec.decode_response(talk.told[0], 18, 3)
    assert (correlation_id, answer.error_code) == (9, ErrorCode.UNSUPPORTED_VERSION)
    assert spans(answer) == {18: (0, 4)}


HANDSHAKE = request(17, 1, 1, b"\0\5PLAIN")
PASSWORD = b"alice\0secret"


def authenticate(correlation_id: int, version: int = 1) -> bytes:
    return request(36, version, correlation_id, PASSWORD)


def authenticated(version: int = 1) -> Talk:
    talk = Talk(sasl=True)
    talk.ask(HANDSHAKE, authenticate(2, version))
    talk.all_answered()
    return talk


def test_before_authentication_only_a_greeting_and_a_handshake_pass() -> None:
    for payload in (request(10, 1, 1), modes_request(1), delete({"orders": 2}), authenticate(1), request(3, 9, 1)):
        talk = Talk(sasl=True)
        talk.ask(hello(0))
        talk.all_answered()
        talk.ask(payload)
        assert talk.closed == "a request before authentication"
        assert len(talk.sent) == 1


def test_sasl_frames_pass_as_they_are_and_are_not_kept() -> None:
    talk = Talk(sasl=True)
    talk.ask(HANDSHAKE, authenticate(2))
    assert talk.sent == [HANDSHAKE, authenticate(2)]
    assert PASSWORD not in repr(vars(talk.session)).encode()
    assert talk.all_answered() == [pass_through_answer(HANDSHAKE), pass_through_answer(authenticate(2))]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_after_success_everything_goes(version: int) -> None:
    talk = authenticated(version)
    talk.ask(delete({"orders": 2}, 3))
    talk.broker_answers()
    assert len(talk.submitted) == 1


def test_a_user_is_authenticated_once_the_broker_has_answered_another_request() -> None:
    talk = Talk(sasl=True)
    talk.ask(hello(0))
    talk.all_answered()
    assert not talk.session.authenticated
    talk.ask(HANDSHAKE, authenticate(2))
    talk.all_answered()
    assert not talk.session.authenticated, "the mechanism may need one more round"
    talk.ask(request(10, 1, 5))
    talk.all_answered()
    assert talk.session.authenticated
    assert Talk().session.authenticated


@pytest.mark.parametrize("behind", [modes_request(5), delete({"orders": 2}, 5), request(10, 1, 5), hello(5)])
@pytest.mark.parametrize("version", [1, 2])
def test_a_failed_exchange_ends_with_the_next_request(behind: bytes, version: int) -> None:
    talk = Talk(sasl=True)
    talk.ask(hello(0))
    talk.all_answered()
    talk.ask(HANDSHAKE, authenticate(2, version), behind)
    talk.broker_answers()
    tags = b"\0" if version >= 2 else b""
    talk.broker_answers(b"\0\0\0\2" + tags + struct.pack(">h", 58))
    assert ids(talk.told) == [0, 1, 2]  # the client is told of the failure
    assert talk.closed == "a request before authentication has ended"
    assert len(talk.sent) == 3


def test_a_change_before_a_second_exchange_is_asked_about_before_it() -> None:
    """KIP-368, pipelined: the question goes in the change's place, and the new exchange waits for its end."""
    talk = authenticated()
    talk.ask(delete({"orders": 2}, 3), request(17, 1, 4), authenticate(5), modes_request(6))
    keys = [codec.peek_header(payload).api_key for payload in talk.sent[2:]]
    assert keys == [codec.METADATA_KEY]
    talk.broker_answers()
    assert len(talk.sent) == 3
    talk.resolve([])
    assert [codec.peek_header(payload).api_key for payload in talk.sent[3:]] == [17, 36]


# Changes: who may, and what they are answered


ALTER, DELETE = 1 << 7, 1 << 6


def decided(payload: bytes, broker: FakeBroker | None = None) -> Talk:
    """A talk in which the broker has told what its user may do."""
    talk = Talk(broker=broker)
    talk.ask(payload)
    talk.all_answered()
    return talk


def answered(talk: Talk, api_key: int = 694, version: int = 0) -> Any:
    assert talk.closed is None
    return codec.decode_response(talk.told[-1], api_key, version)[1]


def topic_code(talk: Talk) -> int:
    (topic,) = answered(talk).responses
    return int(topic.partitions[0].error_code)


@pytest.mark.parametrize("bits", [0, ALTER, DELETE, ~(ALTER | DELETE) & 0x7FFF_FFFF, NOT_SAID, -1])
def test_who_lacks_one_may_not_and_nothing_is_submitted(bits: int) -> None:
    talk = decided(delete({"orders": 2}), FakeBroker(rights={"orders": bits}))
    assert talk.submitted == []
    assert topic_code(talk) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "ALTER and DELETE" in answered(talk).responses[0].partitions[0].error_message


@pytest.mark.parametrize(("bits", "may"), [(ALTER, True), (DELETE, False), (0, False), (NOT_SAID, False)])
def test_a_shrink_that_deletes_nothing_needs_alter_alone(bits: int, may: bool) -> None:
    talk = decided(delete({"orders": 2}, delay_ms=None), FakeBroker(rights={"orders": bits}))
    assert bool(talk.submitted) is may
    if not may:
        assert "this needs ALTER on the topic" in answered(talk).responses[0].partitions[0].error_message


@pytest.mark.parametrize(("delay_ms", "immediate"), [(0, False), (60_000, False), (-1, True), (-2, False)])
def test_a_shrink_that_may_delete_records_needs_delete(delay_ms: int, immediate: bool) -> None:
    payload = delete({"orders": 2}, delay_ms=delay_ms, immediate_delete=immediate)
    assert decided(payload, FakeBroker(rights={"orders": ALTER})).submitted == []
    assert len(decided(payload, FakeBroker(rights={"orders": ALTER_AND_DELETE})).submitted) == 1


@pytest.mark.parametrize(("bits", "may"), [(ALTER, True), (DELETE, False), (0, False), (NOT_SAID, False)])
@pytest.mark.parametrize("version", range(4))
def test_creating_needs_alter(version: int, bits: int, may: bool) -> None:
    talk = decided(create({"orders": 9}, version), FakeBroker(rights={"orders": bits}))
    assert bool(talk.submitted) is may
    if may:
        talk.resolve([CommandResult("orders")])
    (result,) = answered(talk, 37, version).results
    assert result.error_code == (0 if may else ErrorCode.TOPIC_AUTHORIZATION_FAILED)


@pytest.mark.parametrize(
    ("api_key", "payload"),
    [
        (694, delete({f"t{n}": 1 for n in range(1025)})),
        (695, rules(*(f"t{n}" for n in range(683)))),
    ],
)
def test_a_change_with_too_many_parts_is_answered_and_its_connection_stays(api_key: int, payload: bytes) -> None:
    talk = decided(payload)
    response = answered(talk, api_key)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert "name fewer topics or rules in one request" in response.error_message
    assert talk.submitted == []


def test_only_what_is_allowed_is_submitted_and_answers_keep_the_requests_order() -> None:
    rights = {"b": ALTER_AND_DELETE, "c": 0, "d": ALTER_AND_DELETE}
    talk = decided(delete({"a": 1, "b": 2, "c": 3, "d": 4}), FakeBroker(rights=rights))
    assert [command.topic for command in talk.submitted[0].commands] == ["b", "d"]
    talk.resolve([CommandResult("b", modes=(RW, NONE)), CommandResult("d", ErrorCode.INVALID_PARTITIONS, "too many")])
    told = [(topic.name, topic.partitions[0].error_code) for topic in answered(talk).responses]
    assert told == [("a", 3), ("b", 0), ("c", 29), ("d", ErrorCode.INVALID_PARTITIONS)]


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
    for payload, api_key in ((delete({"orders": 2}), 694), (create({"orders": 9}, 0), 37), (rules("orders"), 695)):
        talk = decided(payload)
        talk.resolve(outcome)
        answer = answered(talk, api_key)
        told = answer.results[0] if api_key == 37 else answer
        assert told.error_code == code
        assert "secret" not in str(told)


# -- replacing topics ------------------------------------------------------------------------------------------------

TO_REPLACE = ALTER_AND_DELETE | 1 << AclOperation.ALTER_CONFIGS
COMMAND = ReplaceTopicCommand("orders", "orders-v2", 4, 3, {"retention.ms": "5"}, accept_state_loss=("app",))


def test_replacement_is_validated_by_the_broker_and_submitted() -> None:
    talk = decided(replacing(COMMAND), FakeBroker(rights={"orders": TO_REPLACE}))
    assert [codec.peek_header(payload).api_key for payload in talk.sent] == [3, 19]
    assert (talk.submitted[0].commands, talk.submitted[0].timeout_ms) == ((COMMAND,), 5_000)
    talk.resolve([CommandResult("orders", message="done")])
    (result,) = answered(talk, 696).responses
    assert (result.name, result.error_code, result.error_message) == ("orders", 0, "done")


@pytest.mark.parametrize("missing", [AclOperation.ALTER, AclOperation.DELETE, AclOperation.ALTER_CONFIGS])
def test_replacement_without_one_of_the_rights_on_the_topic_is_refused(missing: AclOperation) -> None:
    talk = decided(replacing(COMMAND), FakeBroker(rights={"orders": TO_REPLACE & ~(1 << missing)}))
    (result,) = answered(talk, 696).responses
    assert (talk.submitted, result.error_code) == ([], ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert "ALTER and ALTER_CONFIGS and DELETE on the topic" in result.error_message


@pytest.mark.parametrize(
    ("code", "told", "words"),
    [
        (29, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "CREATE on the topic orders-v2 or on the cluster"),
        (38, ErrorCode.INVALID_REPLICATION_FACTOR, "refuses to create the new topic orders-v2: error 38"),
        (40, ErrorCode.INVALID_CONFIG, "error 40"),
        (77, ErrorCode.INVALID_REQUEST, "error 77"),
    ],
)
def test_new_topic_that_the_broker_would_not_create_is_refused(code: int, told: ErrorCode, words: str) -> None:
    broker = FakeBroker(rights={"orders": TO_REPLACE, "plain": TO_REPLACE}, creations={"orders-v2": code})
    talk = decided(replacing(COMMAND, ReplaceTopicCommand("plain", "plain-v2", 4)), broker)
    assert [command.topic for command in talk.submitted[0].commands] == ["plain"]
    talk.resolve([CommandResult("plain")])
    refused, done = answered(talk, 696).responses
    assert (refused.name, refused.error_code, done.name, done.error_code) == ("orders", told, "plain", 0)
    assert words in refused.error_message
    assert "nothing was changed" in refused.error_message


def test_repeated_replacement_is_submitted_though_the_new_topic_exists_and_an_undo_creates_none() -> None:
    broker = FakeBroker(rights={"orders": TO_REPLACE}, creations={"orders-v2": 36})
    assert decided(replacing(COMMAND), broker).submitted
    undo = decided(replacing(replace(COMMAND, undo=True)), broker)
    assert [codec.peek_header(payload).api_key for payload in undo.sent] == [3]
    assert undo.submitted


def test_alias_is_forgotten_by_rights_on_the_topic_it_points_to() -> None:
    forget = replace(COMMAND, configs={}, replication_factor=-1, accept_state_loss=(), forget=True)
    talk = decided(replacing(forget), FakeBroker(rights={"orders-v2": ALTER | DELETE}))
    assert [codec.peek_header(payload).api_key for payload in talk.sent] == [3], "nothing is created"
    assert talk.submitted[0].commands == (forget,)
    talk = decided(replacing(forget), FakeBroker(rights={"orders-v2": ALTER}))
    (result,) = answered(talk, 696).responses
    assert (talk.submitted, result.name) == ([], "orders")
    assert result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(("cluster", "may"), [(ALTER, True), (DELETE, False), (NOT_SAID, False)])
def test_alias_whose_topic_was_deleted_is_forgotten_by_alter_on_the_cluster(cluster: int, may: bool) -> None:
    forget = replace(COMMAND, configs={}, replication_factor=-1, accept_state_loss=(), forget=True)
    talk = decided(replacing(forget), FakeBroker(missing=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, cluster=cluster))
    assert bool(talk.submitted) is may
    if not may:
        (result,) = answered(talk, 696).responses
        assert (result.name, result.error_code) == ("orders", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    hidden = decided(replacing(forget), FakeBroker(missing=ErrorCode.TOPIC_AUTHORIZATION_FAILED, cluster=cluster))
    assert bool(hidden.submitted) is may, "whether it is there is not for every user to know"


def test_new_topics_are_validated_in_as_many_requests_as_brokers_take() -> None:
    """KRaft refuses all topics of a larger one."""
    names = [f"t{n}" for n in range(200)]
    broker = FakeBroker(rights=dict.fromkeys(names, TO_REPLACE), creations={"t7-v2": 38, "t199-v2": 38})
    talk = decided(replacing(*(ReplaceTopicCommand(name, f"{name}-v2", 50) for name in names)), broker)
    assert [codec.peek_header(payload).api_key for payload in talk.sent] == [3, 19, 19, 19]
    assert [command.topic for command in talk.submitted[0].commands] == [n for n in names if n not in ("t7", "t199")]


def test_new_topic_that_the_response_leaves_out_is_refused() -> None:
    talk = Talk(broker=FakeBroker(rights={"orders": TO_REPLACE}))
    talk.ask(replacing(COMMAND))
    talk.broker_answers()
    (question,) = talk.broker.asked
    talk.broker_answers(struct.pack(">iBiBB", codec.peek_header(question).correlation_id, 0, 0, 1, 0))
    assert talk.submitted == []
    assert answered(talk, 696).responses[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


# -- rules about groups ----------------------------------------------------------------------------------------------


EACH = [ALTER | DELETE, ALTER, DELETE, 0, NOT_SAID]


@pytest.mark.parametrize(
    ("rule", "needed"),
    [
        (GroupRule(REQUIRE, "g", "orders", "", 1), ALTER),
        (GroupRule(REQUIRE, "g", "orders", "", 1, expires_ms=2), ALTER | DELETE),  # may replace one without an end
        (GroupRule(WAIVE, "g", "orders", "why", 1), ALTER | DELETE),
        (GroupRule(WAIVE, "g", "orders", "why", 1, uncommitted_only=True), ALTER | DELETE),
        (GroupRule(CLOSED, "", "orders", "why", 1), ALTER | DELETE),
    ],
)
@pytest.mark.parametrize("bits", EACH)
def test_a_rule_that_may_give_up_records_needs_delete_on_its_topic(rule: GroupRule, needed: int, bits: int) -> None:
    talk = decided(altering(AlterGroupRulesCommand(add=(rule,))), FakeBroker(rights={"orders": bits}))
    may = bits > 0 and bits & needed == needed
    assert bool(talk.submitted) is may
    if not may:
        assert answered(talk, 695).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert ("ALTER and DELETE" in answered(talk, 695).error_message) is (needed != ALTER)


@pytest.mark.parametrize(("kind", "needed"), [(REQUIRE, ALTER | DELETE), (WAIVE, ALTER), (CLOSED, ALTER)])
@pytest.mark.parametrize("bits", EACH)
def test_a_requirement_is_removed_with_the_right_to_delete_its_topic_and_other_rules_without(
    kind: str, needed: int, bits: int
) -> None:
    command = AlterGroupRulesCommand(remove=((kind, "" if kind == CLOSED else "g", "orders"),))
    talk = decided(altering(command), FakeBroker(rights={"orders": bits}))
    assert bool(talk.submitted) is (bits > 0 and bits & needed == needed)


@pytest.mark.parametrize(
    "payload", [rules("*"), rules("orders", "or?ers"), rules("orders", remove=("[o]rders",)), rules()]
)
@pytest.mark.parametrize(("cluster", "may"), [(ALTER, True), (0, False), (DELETE, False), (NOT_SAID, False)])
def test_a_rule_for_many_topics_needs_alter_on_the_cluster(payload: bytes, cluster: int, may: bool) -> None:
    talk = decided(payload, FakeBroker(cluster=cluster))
    assert codec.decode_request(talk.sent[0])[1].include_cluster_authorized_operations
    assert bool(talk.submitted) is may
    if not may:
        assert answered(talk, 695).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("code", "name", "copies", "told"),
    [
        (29, "orders", 1, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (-1, "orders", 1, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (72, "orders", 1, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (0, "Orders", 1, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (0, "orders", 2, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (5, "orders", 1, ErrorCode.LEADER_NOT_AVAILABLE),  # which can be tried again
    ],
)
def test_topic_that_the_broker_does_not_plainly_grant_is_refused(
    code: int, name: str, copies: int, told: ErrorCode
) -> None:
    """An error, no mention, or two mentions of the topic."""
    talk = Talk()
    talk.ask(delete({"orders": 2}))
    _, message = codec.decode_response(metadata_answer(-1, {name: (code, 3, ALTER_AND_DELETE)}), 3, 9)
    message.topics = message.topics * copies
    talk.broker_answers(codec.encode_response(message, 9, -1))
    assert talk.submitted == []
    assert topic_code(talk) == told


def test_request_that_is_wrong_for_every_user_is_refused_as_such() -> None:
    assert answered(decided(rules(remove=("orders", "orders"))), 695).error_code == ErrorCode.INVALID_REQUEST
    talk = decided(delete({"a" * 1_000: 2}))
    assert topic_code(talk) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert talk.submitted == []


def test_each_operation_has_its_bit() -> None:
    assert granted(1 << 6 | 1 << 7) == {AclOperation.DELETE, AclOperation.ALTER}
    for operation in AclOperation:
        assert granted(1 << operation) == {operation}


@pytest.mark.parametrize("bitfield", [0, -(2**31), -1, -(2**31) | 1 << 7, 1 << 0, 1 << 1, 1 << 2, 1 << 20])
def test_what_is_no_plain_grant_grants_nothing(bitfield: int) -> None:
    assert granted(bitfield) == frozenset()
