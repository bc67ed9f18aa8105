"""Commands and frames: what round trips, what is refused, and kafka-python's own clients left alone."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle.commands import AlterGroupRulesCommand, CreatePartitionsCommand, ReplaceTopicCommand
from modeaware.modelog.group_rules import GroupRule
from modeaware.wire import codec, messages
from modeaware.wire.frames import FrameReader, MalformedFrame, frame


@pytest.mark.parametrize("version", range(4))
def test_create_partitions_commands_round_trip_in_every_version(version: int) -> None:
    commands = [CreatePartitionsCommand("a", 6, ((0, 1), (1, 2)), True), CreatePartitionsCommand("b", 3, None, True)]
    message = messages.create_partitions_request(commands, validate_only=True, timeout_ms=10)
    _, decoded = codec.decode_request(codec.encode_request(message, version, 3, "client"))
    assert messages.commands_of(decoded) == commands


def test_replace_topics_commands_round_trip() -> None:
    full = ReplaceTopicCommand("a", "a2", 6, 2, {"x": "y"}, 5, "none", True, ("g",), True, True, True, True)
    forgotten = [ReplaceTopicCommand(name, "a2", 1, validate_only=True, forget=True) for name in "cd"]
    commands = [full, ReplaceTopicCommand("b", "b2", 3, validate_only=True), *forgotten]
    message = messages.replace_topics_request(commands, validate_only=True, timeout_ms=10)
    _, decoded = codec.decode_request(codec.encode_request(message, 0, 3, "client"))
    assert messages.commands_of(decoded) == commands


@pytest.mark.parametrize("value", [b"\x00", b"\x02\x00"], ids=["array", "string"])
def test_null_in_the_tagged_field_is_malformed(value: bytes) -> None:
    prefix = struct.pack(">hhih", 694, 0, 1, -1) + b"\0" + struct.pack(">i?q", 1, False, -1)
    topic = b"\x02\x02a" + struct.pack(">i", 4) + b"\x01\x00" + bytes([len(value)]) + value
    with pytest.raises(MalformedFrame, match="null"):
        codec.decode_request(prefix + topic + b"\0")


WAIVE = GroupRule("waive", "tmp-*", "orders", "a test of last year", 1000, 2000, uncommitted_only=True, glob=True)
REQUIRE = GroupRule("require", "spark", "o*", "", 1000)


def test_globs_and_literal_names_round_trip() -> None:
    for added in (replace(WAIVE, group="reports[1]", glob=False), WAIVE, REQUIRE):
        decoded = codec.decode_request(codec.encode_request(altering(added), 0, 3, "client"))[1]
        assert messages.commands_of(decoded) == [AlterGroupRulesCommand((added,))]


def replacing(*names: tuple[str, str]) -> Any:
    commands = [ReplaceTopicCommand(topic, new_topic, 1) for topic, new_topic in names]
    return messages.replace_topics_request(commands, validate_only=False, timeout_ms=10)


def altering(*add: GroupRule, remove: tuple[tuple[str, str, str], ...] = ()) -> Any:
    return messages.alter_group_rules_request(AlterGroupRulesCommand(add, remove), timeout_ms=10)


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (codec.DeletePartitionsRequest(timeout_ms=1, topics=[("a", 1), ("b", 1), ("a", 2)]), "twice in one request: a"),
        (replacing(("a", "a2"), ("a", "a3")), "topics named twice in one request: a"),
        (replacing(("a", "c"), ("b", "c")), "new topics named twice in one request: c"),
        (altering(WAIVE, replace(WAIVE, reason="another")), "twice in one request: waive tmp-* orders"),
        (altering(remove=(("waive", "g", "t"),) * 2), "twice in one request: waive g t"),
        (altering(replace(WAIVE, created_ms=-5)), "negative time"),
        (altering(replace(WAIVE, expires_ms=-5)), "negative time"),
    ],
)
def test_request_that_contradicts_itself_is_refused(message: Any, complaint: str) -> None:
    payload = codec.encode_request(message, 0, 3, "client")
    with pytest.raises(RequestRefused, match=re.escape(complaint)) as caught:
        messages.commands_of(codec.decode_request(payload)[1])
    assert caught.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("first", ["kafka.protocol.metadata", "modeaware.wire.codec"])
def test_whoever_is_imported_first_kafka_python_decodes_its_own_metadata(first: str) -> None:
    program = (
        f"import {first}, kafka, modeaware.wire.codec, modeaware.wire.codec\n"
        "from kafka.protocol.metadata import MetadataRequest, MetadataResponse\n"
        "request = MetadataRequest[12]()\n"
        "request.with_header()\n"
        "print(request.header.get_response_class().mro()[1] is MetadataResponse, MetadataResponse.max_version)\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "13"]


# Framing


@given(
    payloads=st.lists(st.binary(max_size=40), max_size=6),
    cuts=st.lists(st.integers(min_value=1, max_value=30), min_size=1, max_size=10),
)
def test_any_cut_of_the_stream_gives_the_same_frames(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(frame(payload, 40) for payload in payloads)
    reader = FrameReader(40)
    received = []
    position = turn = 0
    while position < len(stream):
        cut = cuts[turn % len(cuts)]
        received += reader.receive(stream[position : position + cut])
        position, turn = position + cut, turn + 1
    assert received == payloads


@pytest.mark.parametrize("length", [-1, -(2**31), 101, 2**31 - 1])
def test_a_length_out_of_bounds_is_refused_before_the_frame_comes(length: int) -> None:
    reader = FrameReader(100)
    with pytest.raises(MalformedFrame, match=str(length)):
        reader.receive(struct.pack(">i", length))


def test_a_message_above_the_limit_is_not_sent() -> None:
    with pytest.raises(RequestRefused) as caught:
        frame(b"x" * 101, 100)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
