"""The codec: the documented layout byte for byte, strict decoding, and kafka-python's own clients left alone."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle.commands import (
    AlterGroupRulesCommand,
    CreatePartitionsCommand,
)
from modeaware.modelog.group_rules import GroupRule
from modeaware.modes import PartitionMode
from modeaware.wire import codec, messages
from modeaware.wire.frames import MalformedFrame

RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE


@pytest.mark.parametrize("version", range(4))
def test_create_partitions_commands_round_trip_in_every_version(version: int) -> None:
    commands = [CreatePartitionsCommand("a", 6, ((0, 1), (1, 2)), True), CreatePartitionsCommand("b", 3, None, True)]
    message = messages.create_partitions_request(commands, validate_only=True, timeout_ms=10)
    _, decoded = codec.decode_request(codec.encode_request(message, version, 3, "client"))
    assert messages.commands_of(decoded) == commands


def test_a_topic_named_twice_is_refused() -> None:
    message = codec.DeletePartitionsRequest(timeout_ms=1, topics=[("a", 1), ("b", 1), ("a", 2)])
    with pytest.raises(RequestRefused, match="a") as caught:
        messages.commands_of(codec.decode_request(codec.encode_request(message, 0, 1, "x"))[1])
    assert caught.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("value", [b"\x00", b"\x02\x00"], ids=["array", "string"])
def test_null_in_the_tagged_field_is_malformed(value: bytes) -> None:
    prefix = struct.pack(">hhih", 694, 0, 1, -1) + b"\0" + struct.pack(">i?q", 1, False, -1)
    topic = b"\x02\x02a" + struct.pack(">i", 4) + b"\x01\x00" + bytes([len(value)]) + value
    with pytest.raises(MalformedFrame, match="null"):
        codec.decode_request(prefix + topic + b"\0")


WAIVE = GroupRule("waive", "tmp-*", "orders", "a test of last year", 1000, 2000, uncommitted_only=True, glob=True)
REQUIRE = GroupRule("require", "spark", "o*", "", 1000)
ALTER = AlterGroupRulesCommand((WAIVE, REQUIRE), (("closed", "", "*"), ("waive", "g", "t")))


def test_literal_name_with_glob_characters_needs_version_1() -> None:
    literal = replace(WAIVE, group="reports[1]", glob=False)
    for added in (literal, WAIVE, REQUIRE):
        message = messages.alter_group_rules_request(AlterGroupRulesCommand((added,)), timeout_ms=10)
        decoded = codec.decode_request(codec.encode_request(message, 1, 3, "client"))[1]
        assert messages.commands_of(decoded) == [AlterGroupRulesCommand((added,))]
        assert messages.lost_in_version(message, 1) is None
        assert (messages.lost_in_version(message, 0) is not None) is (added is literal)


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


REQUESTS = [
    codec.encode_request(message, 0, 7, "me")
    for message in (
        messages.delete_partitions_request(
            {"orders": 4}, delay_ms=-1, immediate_delete=False, timeout_ms=1, accept_state_loss={"orders": ["app"]}
        ),
        messages.alter_group_rules_request(ALTER, timeout_ms=1),
    )
]


@pytest.mark.parametrize("request_bytes", REQUESTS, ids=["delete", "rules"])
def test_a_request_cut_short_is_malformed(request_bytes: bytes) -> None:
    for cut in range(len(request_bytes)):
        with pytest.raises(MalformedFrame):
            codec.decode_request(request_bytes[:cut])


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
