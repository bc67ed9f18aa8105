"""The codec: the documented layout byte for byte, strict decoding, and kafka-python's own clients left alone."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.metadata import MetadataResponse as KafkaPythonsMetadataResponse
from kafka.protocol.schemas.fields.struct import StructField
from kafka.protocol.schemas.load_json import load_json

from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle.commands import (
    AlterGroupRulesCommand,
    CommandResult,
    CreatePartitionsCommand,
    DeletePartitionsCommand,
)
from modeaware.modelog.group_rules import GroupRule
from modeaware.modes import PartitionMode
from modeaware.wire import codec, messages, schemas
from modeaware.wire.frames import MalformedFrame

RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE


def test_delete_partitions_request_has_the_documented_layout() -> None:
    message = messages.delete_partitions_request({"orders": 4}, delay_ms=5000, immediate_delete=True, timeout_ms=1000)
    assert codec.encode_request(message, 0, 7, "me") == (
        struct.pack(">hhi", 694, 0, 7)
        + struct.pack(">h", 2)
        + b"me\0"  # client id, header's tag buffer
        + struct.pack(">i?q", 1000, True, 5000)
        + b"\x02\x07orders"
        + struct.pack(">i", 4)
        + b"\0\0"  # tag buffers of the topic and of the request
    )


def test_delete_partitions_response_has_the_documented_layout() -> None:
    results = [CommandResult("t", modes=(RW, RO, NONE))]
    assert codec.encode_response(messages.delete_partitions_response(results), 0, 7) == (
        struct.pack(">i", 7)
        + b"\0"  # header's tag buffer
        + struct.pack(">ih", 0, 0)
        + b"\0"  # error_message: null
        + b"\x02\x02t\x03"
        + struct.pack(">ibh", 1, 1, 0)
        + b"\0\0"
        + struct.pack(">ibh", 2, -1, 0)
        + b"\0\0"
        + b"\0\0"  # tag buffers of the topic and of the response
    )


def test_delete_partitions_commands_round_trip() -> None:
    message = messages.delete_partitions_request({"a": 4, "b": 2}, delay_ms=-1, immediate_delete=False, timeout_ms=10)
    header, decoded = codec.decode_request(codec.encode_request(message, 0, 3, "client"))
    assert header == codec.Header(694, 0, 3, "client")
    assert messages.commands_of(decoded) == [DeletePartitionsCommand("a", 4), DeletePartitionsCommand("b", 2)]


@pytest.mark.parametrize("version", range(4))
def test_create_partitions_commands_round_trip_in_every_version(version: int) -> None:
    commands = [CreatePartitionsCommand("a", 6, ((0, 1), (1, 2)), True), CreatePartitionsCommand("b", 3, None, True)]
    message = messages.create_partitions_request(commands, validate_only=True, timeout_ms=10)
    _, decoded = codec.decode_request(codec.encode_request(message, version, 3, "client"))
    assert messages.commands_of(decoded) == commands


def test_results_round_trip_with_a_refusal_beside_a_success() -> None:
    results = [
        CommandResult("good", message="hello", modes=(RW, NONE, RO)),
        CommandResult("bad", ErrorCode.INVALID_PARTITIONS, "at least 1 must stay", (RW, RO)),
    ]
    response = messages.delete_partitions_response(results)
    _, decoded = codec.decode_response(codec.encode_response(response, 0, 1), codec.DELETE_PARTITIONS_KEY, 0)
    answers = messages.results_of(decoded)
    assert answers["good"] == messages.TopicResult("good", {1: NONE, 2: RO}, "hello")
    refusal = answers["bad"]
    assert isinstance(refusal, RequestRefused)
    assert (refusal.code, refusal.topic, str(refusal)) == (
        ErrorCode.INVALID_PARTITIONS,
        "bad",
        "at least 1 must stay",
    )


def test_a_topic_named_twice_is_refused() -> None:
    message = codec.DeletePartitionsRequest(timeout_ms=1, topics=[("a", 1), ("b", 1), ("a", 2)])
    with pytest.raises(RequestRefused, match="a") as caught:
        messages.commands_of(codec.decode_request(codec.encode_request(message, 0, 1, "x"))[1])
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_an_error_of_the_whole_request_is_raised() -> None:
    message = messages.delete_partitions_request({"a": 1}, delay_ms=0, immediate_delete=False, timeout_ms=1)
    response = messages.failed_response(message, RequestRefused("no", code=ErrorCode.REQUEST_TIMED_OUT))
    _, decoded = codec.decode_response(codec.encode_response(response, 0, 1), codec.DELETE_PARTITIONS_KEY, 0)
    with pytest.raises(RequestRefused, match="no") as caught:
        messages.results_of(decoded)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("version", range(5))
def test_api_versions_is_read_in_every_version_and_its_error_as_version_0(version: int) -> None:
    answer = codec.ApiVersionsResponse(error_code=0, api_keys=[(18, 0, 4)], throttle_time_ms=0)
    _, decoded = codec.decode_response(codec.encode_response(answer, version, 1), codec.API_VERSIONS_KEY, version)
    assert [(k.api_key, k.min_version, k.max_version) for k in decoded.api_keys] == [(18, 0, 4)]
    refused = codec.ApiVersionsResponse(error_code=35, api_keys=[(18, 0, 4)])
    _, decoded = codec.decode_response(codec.encode_response(refused, 0, 1), codec.API_VERSIONS_KEY, version)
    assert decoded.error_code == 35


def test_accepted_loss_of_state_is_a_tagged_field_of_its_topic() -> None:
    message = messages.delete_partitions_request(
        {"orders": 4}, delay_ms=0, immediate_delete=False, timeout_ms=1, accept_state_loss={"orders": ["app", "b"]}
    )
    payload = codec.encode_request(message, 0, 7, "me")
    tagged = b"\x03\x04app\x02b"  # compact array of compact strings
    assert payload.endswith(struct.pack(">i", 4) + b"\x01\x00" + bytes([len(tagged)]) + tagged + b"\0")
    assert messages.commands_of(codec.decode_request(payload)[1]) == [
        DeletePartitionsCommand("orders", 4, 0, accept_state_loss=("app", "b"))
    ]


def test_an_evacuation_is_a_tagged_field_of_its_topic() -> None:
    message = messages.delete_partitions_request(
        {"orders": 4, "plain": 1}, delay_ms=0, immediate_delete=False, timeout_ms=1, evacuate={"orders"}
    )
    payload = codec.encode_request(message, 0, 7, "me")
    assert struct.pack(">i", 4) + b"\x01\x01\x01\x01" in payload
    assert payload.endswith(struct.pack(">i", 1) + b"\0\0"), "nothing where there is none"
    assert messages.commands_of(codec.decode_request(payload)[1]) == [
        DeletePartitionsCommand("orders", 4, 0, evacuate=True),
        DeletePartitionsCommand("plain", 1, 0),
    ]


def test_a_peer_from_before_the_tagged_field_understands_the_rest_of_it() -> None:
    schema = load_json("DeletePartitionsRequest", schemas)
    (topics,) = (field for field in schema["fields"] if field["name"] == "Topics")
    topics["fields"] = [field for field in topics["fields"] if "tag" not in field]
    message = messages.delete_partitions_request(
        {"a": 4, "b": 2},
        delay_ms=0,
        immediate_delete=True,
        timeout_ms=1,
        accept_state_loss={"a": ["app"]},
        evacuate={"b"},
    )
    payload = codec.encode_request(message, 0, 7, "")
    header = struct.calcsize(">hhih") + 1
    read = StructField({**schema, "type": "struct"}).decode(
        BytesIO(payload[header:]), version=0, compact=True, tagged=True
    )
    assert [(topic["name"], topic["partitions"]) for topic in read["topics"]] == [("a", 4), ("b", 2)]
    assert (read["immediate_delete"], read["delete_partitions_delay"]) == (True, 0)


def test_what_a_peer_from_before_the_tagged_field_sends_accepts_no_loss() -> None:
    prefix = struct.pack(">hhih", 694, 0, 1, -1) + b"\0" + struct.pack(">i?q", 1, False, -1)
    _, message = codec.decode_request(prefix + b"\x02\x02a" + struct.pack(">i", 4) + b"\0\0")
    assert messages.commands_of(message) == [DeletePartitionsCommand("a", 4)]


def test_tagged_fields_of_a_newer_peer_are_passed_over() -> None:
    prefix = struct.pack(">hhih", 694, 0, 1, -1) + b"\0" + struct.pack(">i?q", 1, False, -1)
    topic = b"\x02\x02a" + struct.pack(">i", 4) + b"\x02" + b"\x00\x03\x02\x02g" + b"\x09\x02??"
    _, message = codec.decode_request(prefix + topic + b"\0")
    assert messages.commands_of(message) == [DeletePartitionsCommand("a", 4, accept_state_loss=("g",))]


@pytest.mark.parametrize("value", [b"\x00", b"\x02\x00"], ids=["array", "string"])
def test_null_in_the_tagged_field_is_malformed(value: bytes) -> None:
    prefix = struct.pack(">hhih", 694, 0, 1, -1) + b"\0" + struct.pack(">i?q", 1, False, -1)
    topic = b"\x02\x02a" + struct.pack(">i", 4) + b"\x01\x00" + bytes([len(value)]) + value
    with pytest.raises(MalformedFrame, match="null"):
        codec.decode_request(prefix + topic + b"\0")


WAIVE = GroupRule("waive", "tmp-*", "orders", "a test of last year", 1000, 2000, uncommitted_only=True, glob=True)
REQUIRE = GroupRule("require", "spark", "o*", "", 1000)
ALTER = AlterGroupRulesCommand((WAIVE, REQUIRE), (("closed", "", "*"), ("waive", "g", "t")))


def test_alter_group_rules_has_the_documented_layout() -> None:
    command = AlterGroupRulesCommand((REQUIRE,), (("closed", "", "*"),))
    message = messages.alter_group_rules_request(command, timeout_ms=1000)
    assert codec.encode_request(message, 0, 7, "me") == (
        struct.pack(">hhi", 695, 0, 7)
        + struct.pack(">h", 2)
        + b"me\0"  # client id, header's tag buffer
        + struct.pack(">i", 1000)
        + b"\x02\x08require\x06spark\x03o*\x01"
        + struct.pack(">qq?", 1000, -1, False)
        + b"\0"  # tag buffer of the rule
        + b"\x02\x07closed\x01\x02*\0"
        + b"\0"
    )
    answer = messages.response_of(message, [CommandResult("", message="hi")])
    assert codec.encode_response(answer, 0, 7) == struct.pack(">i", 7) + b"\0" + struct.pack(">ih", 0, 0) + b"\x03hi\0"


def test_literal_name_with_glob_characters_needs_version_1() -> None:
    literal = replace(WAIVE, group="reports[1]", glob=False)
    for added in (literal, WAIVE, REQUIRE):
        message = messages.alter_group_rules_request(AlterGroupRulesCommand((added,)), timeout_ms=10)
        decoded = codec.decode_request(codec.encode_request(message, 1, 3, "client"))[1]
        assert messages.commands_of(decoded) == [AlterGroupRulesCommand((added,))]
        assert messages.lost_in_version(message, 1) is None
        assert (messages.lost_in_version(message, 0) is not None) is (added is literal)


def test_alter_group_rules_round_trips() -> None:
    payload = codec.encode_request(messages.alter_group_rules_request(ALTER, timeout_ms=10), 0, 3, "client")
    header, message = codec.decode_request(payload)
    assert header == codec.Header(codec.ALTER_GROUP_RULES_KEY, 0, 3, "client")
    assert messages.commands_of(message) == [ALTER]


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (AlterGroupRulesCommand((WAIVE, replace(WAIVE, reason="another"))), "twice in one request: waive tmp-* orders"),
        (AlterGroupRulesCommand(remove=(("waive", "g", "t"),) * 2), "twice in one request: waive g t"),
        (AlterGroupRulesCommand((replace(WAIVE, created_ms=-5),)), "time below 0"),
        (AlterGroupRulesCommand((replace(WAIVE, expires_ms=-5),)), "time below 0"),
    ],
)
def test_rules_that_contradict_themselves_are_refused(command: AlterGroupRulesCommand, complaint: str) -> None:
    payload = codec.encode_request(messages.alter_group_rules_request(command, timeout_ms=10), 0, 3, "client")
    with pytest.raises(RequestRefused, match=re.escape(complaint)) as caught:
        messages.commands_of(codec.decode_request(payload)[1])
    assert caught.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("body", [b"\0\x01\0", b"\x01\0\0", b"\x01\x02\0\x02g\x02t\0\0"], ids=["add", "remove", "kind"])
def test_null_in_a_rule_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedFrame, match="null"):
        codec.decode_request(struct.pack(">hhih", 695, 0, 1, -1) + b"\0" + struct.pack(">i", 1) + body)


def test_an_answer_about_rules_round_trips() -> None:
    request = messages.alter_group_rules_request(ALTER, timeout_ms=1)
    done = messages.response_of(request, [CommandResult("", message="2 rules")])
    refused = messages.response_of(request, [CommandResult("", ErrorCode.INVALID_REQUEST, "no such rule")])
    failed = messages.failed_response(request, RequestRefused("no"))
    _, answer = codec.decode_response(codec.encode_response(done, 0, 1), 695, 0)
    assert messages.results_of(answer) == {"": messages.TopicResult("", message="2 rules")}
    for response, text in ((refused, "no such rule"), (failed, "no")):
        _, answer = codec.decode_response(codec.encode_response(response, 0, 1), 695, 0)
        with pytest.raises(RequestRefused, match=text):
            messages.results_of(answer)


REQUESTS = [
    codec.encode_request(message, 0, 7, "me")
    for message in (
        messages.delete_partitions_request(
            {"orders": 4}, delay_ms=-1, immediate_delete=False, timeout_ms=1, accept_state_loss={"orders": ["app"]}
        ),
        messages.alter_group_rules_request(ALTER, timeout_ms=1),
    )
]
REQUEST = REQUESTS[0]


@pytest.mark.parametrize("request_bytes", REQUESTS, ids=["delete", "rules"])
def test_a_request_cut_short_is_malformed(request_bytes: bytes) -> None:
    for cut in range(len(request_bytes)):
        with pytest.raises(MalformedFrame):
            codec.decode_request(request_bytes[:cut])


def test_an_unknown_tagged_field_cut_short_is_malformed() -> None:
    prefix = struct.pack(">hhih", 694, 0, 1, -1) + b"\0" + struct.pack(">i?q", 1, False, -1)
    with pytest.raises(MalformedFrame, match="20 bytes are announced, 2 are left"):
        codec.decode_request(prefix + b"\x01" + b"\x01\x09\x14??")


def test_bytes_after_the_end_are_malformed() -> None:
    with pytest.raises(MalformedFrame, match="3 bytes too many"):
        codec.decode_request(REQUEST + b"\0\0\0")


def test_an_endless_varint_is_malformed() -> None:
    prefix = struct.pack(">hhih", 694, 0, 1, -1) + b"\0" + struct.pack(">i?q", 1, False, -1)
    with pytest.raises(MalformedFrame):
        codec.decode_request(prefix + b"\xff" * 100_000)


def test_null_where_a_value_must_stand_is_malformed() -> None:
    prefix = struct.pack(">hhih", 694, 0, 1, -1) + b"\0" + struct.pack(">i?q", 1, False, -1)
    for body in (b"\0\0", b"\x02\0" + struct.pack(">i", 1) + b"\0\0"):  # no topics, no name
        with pytest.raises(MalformedFrame, match="null"):
            codec.decode_request(prefix + body)
    without = codec.DeletePartitionsRequest(version=0, topics=None)
    with pytest.raises(MalformedFrame, match="null"):
        messages.commands_of(without)


@pytest.mark.parametrize(
    "header", [codec.Header(3, 9, 1), codec.Header(694, 1, 1), codec.Header(695, 2, 1), codec.Header(37, 9, 1)]
)
def test_what_is_not_spoken_is_named(header: codec.Header) -> None:
    payload = struct.pack(">hhih", header.api_key, header.api_version, 1, -1)
    assert not codec.is_supported(header)
    with pytest.raises(MalformedFrame, match=f"api key {header.api_key} version {header.api_version}"):
        codec.decode_request(payload)


@settings(max_examples=300)
@given(key=st.sampled_from([18, 37, 694, 695]), version=st.integers(0, 4), rest=st.binary(max_size=200))
def test_rubbish_raises_nothing_but_malformed_frame(key: int, version: int, rest: bytes) -> None:
    with suppress(MalformedFrame, RequestRefused):
        _, message = codec.decode_request(struct.pack(">hh", key, version) + rest)
        if key != 18:
            messages.commands_of(message)


def test_our_response_classes_leave_the_process_wide_registry_as_it_was() -> None:
    registry = ResponseClassRegistry._response_class_registry
    for key in (codec.DELETE_PARTITIONS_KEY, codec.ALTER_GROUP_RULES_KEY, codec.UPDATE_METADATA_KEY):
        assert key not in registry
    assert registry[codec.METADATA_KEY].json is KafkaPythonsMetadataResponse.json
    assert registry[codec.METADATA_KEY].json is not codec.MetadataResponse.json
    header = type("H", (), {"request_api_key": codec.CREATE_PARTITIONS_KEY, "request_api_version": 3})
    stock = ResponseClassRegistry.get_response_class(header)
    assert stock.mro()[1] is codec.CreatePartitionsResponse


@pytest.mark.parametrize("first", ["kafka.protocol.metadata", "modeaware.wire.kip694"])
def test_whoever_is_imported_first_kafka_python_decodes_its_own_metadata(first: str) -> None:
    program = (
        f"import {first}, kafka, modeaware.wire.stock, modeaware.wire.kip694\n"
        "from kafka.protocol.metadata import MetadataRequest, MetadataResponse\n"
        "request = MetadataRequest[12]()\n"
        "request.with_header()\n"
        "print(request.header.get_response_class().mro()[1] is MetadataResponse, MetadataResponse.max_version)\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "13"]


def test_a_stock_class_whose_key_we_reuse_is_put_back() -> None:
    from kafka.protocol.api_message import ApiMessage
    from kafka.protocol.metadata import MetadataResponse

    before = ResponseClassRegistry._response_class_registry[3]
    with codec._stock_response_class(3):
        type("MetadataResponse", (ApiMessage,), {})
        assert ResponseClassRegistry._response_class_registry[3] is not before
    assert ResponseClassRegistry._response_class_registry[3] is before
    assert MetadataResponse.API_KEY == 3


def test_without_kafka_python_the_extra_is_named() -> None:
    program = (
        "import sys\n"
        "sys.modules['kafka'] = None\n"
        "from modeaware.errors import ModeAwareError\n"
        "try:\n"
        "    import modeaware.wire.codec\n"
        "except ModeAwareError as error:\n"
        "    print(error)\n"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "install modeaware[controller]" in shown
