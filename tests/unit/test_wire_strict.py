"""Frames that a stranger made up: refused before anything is made for what they announce."""

from __future__ import annotations

import struct
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modeaware.errors import RequestRefused
from modeaware.wire import codec, messages
from modeaware.wire.codec import METADATA_LIMITS
from modeaware.wire.frames import MAX_CHANGE_BYTES, MAX_REQUEST_BYTES, Cursor, MalformedFrame


def varint(value: int) -> bytes:
    """An UNSIGNED_VARINT; of a COMPACT_ARRAY or COMPACT_STRING it is the length and 1."""
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


SPOKEN = [(key, version) for key, (low, high) in codec.VERSIONS.items() for version in range(low, high + 1)]
COMMANDS = (
    codec.CREATE_PARTITIONS_KEY,
    codec.DELETE_PARTITIONS_KEY,
    codec.ALTER_GROUP_RULES_KEY,
    codec.REPLACE_TOPICS_KEY,
)
MOST = 2**31 - 1
ALLOWED_BYTES = 50_000
"""For the error itself. A single list of the elements that are announced would take 17 GB."""
ALLOWED_CALLS = 200
"""Some microseconds. A loop over the elements that are announced would take minutes."""


# Metadata requests up to their topics: versions 1, and 9 with compact arrays and tagged fields
PLAIN = struct.pack(">hhih2s", 3, 1, 7, 2, b"me")
COMPACT = struct.pack(">hhih3s", 3, 9, 7, 2, b"me\0")
TO_THE_TAGS = COMPACT + b"\1\0\0\0"

HOSTILE_REQUESTS: dict[str, bytes] = {
    "array of 2^31-1": PLAIN + struct.pack(">i", MOST),
    "array of -2": PLAIN + struct.pack(">i", -2),
    "array of -2^31": PLAIN + struct.pack(">i", -(2**31)),
    "compact array of 2^31-1": COMPACT + varint(2**31),
    "compact array of 2^32-2": COMPACT + varint(2**32 - 1),
    "one element more than there are bytes": COMPACT + varint(8) + b"\1\0" * 6,
    "string of 32767": PLAIN + struct.pack(">ih", 1, 32_767),
    "string of -2": PLAIN + struct.pack(">ih", 1, -2),
    "compact string of 2^31": COMPACT + b"\2" + varint(2**31 + 1) + bytes(9),
    "string above Kafka's limit": COMPACT + b"\2" + varint(32_769) + b"x" * 32_768 + bytes(5),
    "client id of 32767": struct.pack(">hhih", 3, 9, 1, 32_767),
    "client id of -2": struct.pack(">hhih", 3, 9, 1, -2),
    "varint of 100 bytes": COMPACT + b"\xff" * 100,
    "varint of 1 MiB": COMPACT + b"\xff" * MAX_REQUEST_BYTES,
    "varint of 6 bytes": COMPACT + b"\x80\x80\x80\x80\x80\x00",
    "varint above 32 bits": COMPACT + b"\xff\xff\xff\xff\x7f",
    "2^31 tagged fields": TO_THE_TAGS + varint(2**31),
    "tagged field of 2^31": TO_THE_TAGS + b"\1\5" + varint(2**31),
    "2^31 tagged fields in the header": struct.pack(">hhih", 3, 9, 1, -1) + varint(2**31),
    "a tag twice": TO_THE_TAGS + b"\2\5\0\5\0",
    "tags out of order": TO_THE_TAGS + b"\2\5\0\4\0",
    "not UTF-8": COMPACT + b"\2\3\xff\xff" + bytes(5),
}


def grown_bytes(attempt: Callable[[], object]) -> int:
    """The most memory in use during ``attempt``, beyond what was before."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        with suppress(MalformedFrame):
            attempt()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def calls(attempt: Callable[[], object]) -> int:
    """How many calls ``attempt`` makes, of functions in C too: its work, without a clock."""
    made = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        with suppress(MalformedFrame):
            attempt()
    finally:
        sys.setprofile(before)
    return made


@pytest.mark.parametrize("name", HOSTILE_REQUESTS)
def test_a_hostile_request_is_refused_and_nothing_is_made_for_it(name: str) -> None:
    frame = HOSTILE_REQUESTS[name]
    with pytest.raises(MalformedFrame):  # also builds what is built once
        codec.decode_request(frame)
    assert grown_bytes(lambda: codec.decode_request(frame)) < ALLOWED_BYTES
    assert calls(lambda: codec.decode_request(frame)) < ALLOWED_CALLS


def test_an_unknown_tagged_field_is_passed_over_and_not_kept() -> None:
    start = struct.pack(">hhih3s", 3, codec.MODES_VERSION, 7, 2, b"me\0") + bytes(4)
    _, message = codec.decode_request(start + b"\2\1\1\1\x7f\3abc")
    assert (message.modes_only, message.fresh, message.unknown_tags) == (False, True, None)
    assert codec.encode_request(message, codec.MODES_VERSION, 7, "me") == start + b"\1\1\1\1"


@pytest.mark.parametrize(("key", "version"), SPOKEN)
def test_every_cut_of_an_empty_message_is_malformed(key: int, version: int) -> None:
    request, response = (message_class(version=version) for message_class in codec.MESSAGES[key])
    decoders: list[tuple[bytes, Callable[[bytes], object]]] = [
        (codec.encode_request(request, version, 1, "me"), codec.decode_request),
        (codec.encode_response(response, version, 1), lambda payload: codec.decode_response(payload, key, version)),
    ]
    for whole, decode in decoders:
        decode(whole)
        for broken in [whole[:cut] for cut in range(len(whole))] + [whole + b"\0"]:
            with pytest.raises(MalformedFrame):
                decode(broken)


@settings(max_examples=500)
@given(spoken=st.sampled_from(SPOKEN), rest=st.binary(max_size=300))
def test_rubbish_is_malformed_or_a_message_that_can_be_encoded(spoken: tuple[int, int], rest: bytes) -> None:
    key, version = spoken
    with suppress(MalformedFrame):
        header, message = codec.decode_request(struct.pack(">hhi", key, version, 1) + rest)
        codec.encode_request(message, version, 1, header.client_id)
        with suppress(RequestRefused):
            commands = messages.commands_of(message) if key in COMMANDS else []
            assert isinstance(commands, list)
    with suppress(MalformedFrame):
        _, message = codec.decode_response(struct.pack(">i", 1) + rest, key, version)
        codec.encode_response(message, message.version, 1)


@pytest.mark.parametrize(("key", "version"), [(3, 11), (694, 1), (695, 2), (696, 1), (3, -1), (18, 5), (37, 4)])
def test_versions_that_are_not_supported(key: int, version: int) -> None:
    with pytest.raises(MalformedFrame, match="not supported"):
        codec.decode_request(struct.pack(">hhih", key, version, 1, -1) + bytes(20))
    with pytest.raises(MalformedFrame, match="not supported"):
        codec.decode_response(bytes(20), key, version)
    with pytest.raises(ValueError, match="not supported"):
        codec.encode_request(codec.MESSAGES[key][0](), version, 1, "me")


def test_what_is_not_in_the_bytes_is_nobody_elses() -> None:
    """kafka-python gives every message the same empty list as a default: what one adds to it, all would have."""
    features = codec.encode_response(codec.ApiVersionsResponse(error_code=0, api_keys=[]), 3, 1)
    deletion = codec.DeletePartitionsRequest(topics=[codec.DeletePartitionsRequest.DeletePartitionsTopic(name="t")])
    topics = codec.encode_request(deletion, 0, 1, "me")
    for _ in range(2):
        message = codec.decode_response(features, codec.API_VERSIONS_KEY, 3)[1]
        assert message.supported_features == []
        message.supported_features.append(("partition.mode", 1, 1))
        (topic,) = codec.decode_request(topics)[1].topics
        assert topic.accept_state_loss == []
        topic.accept_state_loss.append("app")


def test_small_elements_are_counted_because_they_are_large_in_memory() -> None:
    count = METADATA_LIMITS.objects // 2  # a topic and its name
    most = COMPACT + varint(count + 1) + b"\1\0" * count + b"\0\0\0\0"
    assert len(codec.decode_request(most)[1].topics) == count
    more = COMPACT + varint(count + 2) + b"\1\0" * (count + 1) + b"\0\0\0\0"
    with pytest.raises(MalformedFrame, match="2 objects more than one message may have"):
        codec.decode_request(more)
    assert grown_bytes(lambda: codec.decode_request(more)) < ALLOWED_BYTES


CREATE = struct.pack(">hhih3s", 37, 2, 7, 2, b"me\0") + varint(2) + b"\2t\0\0\0\5"
"""CreatePartitions 2 for one topic, up to its assignments."""


def test_a_command_with_32_400_empty_assignments_is_refused_before_one_of_them_is_read() -> None:
    hostile = CREATE + varint(32_401) + b"\1\0" * 32_400 + b"\0" + bytes(6)
    assert len(hostile) < MAX_CHANGE_BYTES
    with pytest.raises(MalformedFrame, match="objects more than"):  # also builds what is built once
        codec.decode_request(hostile)
    assert calls(lambda: codec.decode_request(hostile)) < ALLOWED_CALLS


def test_replicas_of_new_partitions_are_bounded_by_the_length_alone() -> None:
    partitions = 2_000
    assignment = b"\4" + struct.pack(">iii", 1, 2, 3) + b"\0"
    payload = CREATE + varint(partitions + 1) + assignment * partitions + b"\0" + struct.pack(">i", 9) + b"\0\0"
    _, message = codec.decode_request(payload)
    assert [each.broker_ids for each in message.topics[0].assignments] == [[1, 2, 3]] * partitions


@pytest.mark.parametrize(
    ("read", "data", "value"),
    [
        (lambda cursor: cursor.take(2), b"ab", b"ab"),
        (Cursor.varint, b"\xff\xff\xff\xff\x0f", 2**32 - 1),
        (Cursor.string, b"\0", None),
        (Cursor.string, b"\3\xc3\xa9", "é"),
        (Cursor.skip_plain_string, b"\xff\xff", None),
        (Cursor.skip_tags, b"\2\0\1x\5\0", None),
    ],
)
def test_reading_by_hand_takes_what_is_there_and_no_more(
    read: Callable[[Cursor], Any], data: bytes, value: Any
) -> None:
    cursor = Cursor(data + b"the rest")
    assert (read(cursor), cursor.at) == (value, len(data))
    for length in range(len(data)):
        with pytest.raises(MalformedFrame):
            read(Cursor(data[:length]))
