"""The codec: the documented layout byte for byte, strict decoding, and kafka-python's own clients left alone."""

from __future__ import annotations

import struct
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.api_header import ResponseClassRegistry

from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle.commands import CommandResult, CreatePartitionsCommand, DeletePartitionsCommand
from modeaware.modes import PartitionMode
from modeaware.wire import codec, messages
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


REQUEST = codec.encode_request(
    messages.delete_partitions_request({"orders": 4}, delay_ms=-1, immediate_delete=False, timeout_ms=1), 0, 7, "me"
)


@pytest.mark.parametrize("cut", range(len(REQUEST)))
def test_a_request_cut_short_is_malformed(cut: int) -> None:
    with pytest.raises(MalformedFrame):
        codec.decode_request(REQUEST[:cut])


def test_bytes_after_the_end_are_malformed() -> None:
    with pytest.raises(MalformedFrame, match="3 bytes too many"):
        codec.decode_request(REQUEST + b"\0\0\0")


def test_an_endless_varint_is_malformed() -> None:
    prefix = struct.pack(">hhih", 694, 0, 1, -1) + b"\0" + struct.pack(">i?q", 1, False, -1)
    with pytest.raises(MalformedFrame):
        codec.decode_request(prefix + b"\xff" * 100_000)


def test_null_where_a_value_must_stand_is_malformed() -> None:
    prefix = struct.pack(">hhih", 694, 0, 1, -1) + b"\0" + struct.pack(">i?q", 1, False, -1)
    _, no_topics = codec.decode_request(prefix + b"\0\0")
    _, no_name = codec.decode_request(prefix + b"\x02\0" + struct.pack(">i", 1) + b"\0\0")
    for message in (no_topics, no_name):
        with pytest.raises(MalformedFrame, match="null"):
            messages.commands_of(message)


@pytest.mark.parametrize("header", [codec.Header(3, 9, 1), codec.Header(694, 1, 1), codec.Header(37, 9, 1)])
def test_what_is_not_spoken_is_named(header: codec.Header) -> None:
    payload = struct.pack(">hhih", header.api_key, header.api_version, 1, -1)
    assert not codec.is_supported(header)
    with pytest.raises(MalformedFrame, match=f"api key {header.api_key} version {header.api_version}"):
        codec.decode_request(payload)


@settings(max_examples=300)
@given(key=st.sampled_from([18, 37, 694]), version=st.integers(0, 4), rest=st.binary(max_size=200))
def test_rubbish_raises_nothing_but_malformed_frame(key: int, version: int, rest: bytes) -> None:
    with suppress(MalformedFrame, RequestRefused):
        _, message = codec.decode_request(struct.pack(">hh", key, version) + rest)
        if key != 18:
            messages.commands_of(message)


def test_our_response_classes_leave_the_process_wide_registry_as_it_was() -> None:
    assert codec.DELETE_PARTITIONS_KEY not in ResponseClassRegistry._response_class_registry
    header = type("H", (), {"request_api_key": codec.CREATE_PARTITIONS_KEY, "request_api_version": 3})
    stock = ResponseClassRegistry.get_response_class(header)
    assert stock.mro()[1] is codec.CreatePartitionsResponse


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
    assert "pip install 'modeaware[controller]'" in shown
