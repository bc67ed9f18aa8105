"""Frames that a stranger made up: refused before anything is made for what they announce."""

from __future__ import annotations

import struct
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

# ruff: noqa: N802 - the names are the protocol guide's
from typing import Any, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modeaware.errors import RequestRefused
from modeaware.wire import codec, messages
from modeaware.wire.codec import REQUEST_LIMITS
from modeaware.wire.frames import MAX_REQUEST_BYTES, Cursor, MalformedFrame


class Wire:
    """``Wire().INT32(7).COMPACT_STRING("a").made``: one call per line of a layout, in its order."""

    def __init__(self) -> None:
        self.made = b""

    def INT8(self, value: int) -> Self:
        return self._add(struct.pack(">b", value))

    def INT16(self, value: int) -> Self:
        return self._add(struct.pack(">h", value))

    def INT32(self, value: int) -> Self:
        return self._add(struct.pack(">i", value))

    def UNSIGNED_VARINT(self, value: int) -> Self:
        groups = []
        while value > 0x7F:
            groups.append(value & 0x7F | 0x80)
            value >>= 7
        return self._add(bytes([*groups, value]))

    def STRING(self, value: str | None) -> Self:
        if value is None:
            return self.INT16(-1)
        return self.INT16(len(value.encode()))._add(value.encode())

    def COMPACT_STRING(self, value: str | None) -> Self:
        if value is None:
            return self.UNSIGNED_VARINT(0)
        return self.UNSIGNED_VARINT(len(value.encode()) + 1)._add(value.encode())

    def ARRAY(self, length: int | None) -> Self:
        """Its length; the elements are the calls that follow."""
        return self.INT32(-1 if length is None else length)

    def COMPACT_ARRAY(self, length: int | None) -> Self:
        """Its length; the elements are the calls that follow."""
        return self.UNSIGNED_VARINT(0 if length is None else length + 1)

    def TAG_BUFFER(self, **tags: Wire) -> Self:
        """``TAG_BUFFER(_0=Wire().INT64(5))``."""
        self.UNSIGNED_VARINT(len(tags))
        for name, value in tags.items():
            self.UNSIGNED_VARINT(int(name[1:])).UNSIGNED_VARINT(len(value.made))._add(value.made)
        return self

    def _add(self, data: bytes) -> Self:
        self.made += data
        return self


def request_header(api_key: int, version: int, *, flexible: bool, client_id: str | None = "me") -> Wire:
    """RequestHeader version 2 (flexible) or 1, correlation id 7, and what is added to it."""
    wire = Wire().INT16(api_key).INT16(version).INT32(7).STRING(client_id)
    return wire.TAG_BUFFER() if flexible else wire


SPOKEN = [(key, version) for key, (low, high) in codec.VERSIONS.items() for version in range(low, high + 1)]
COMMANDS = (codec.CREATE_PARTITIONS_KEY, codec.DELETE_PARTITIONS_KEY, codec.ALTER_GROUP_RULES_KEY)
MOST = 2**31 - 1
ALLOWED_BYTES = 50_000
"""For the error itself. A single list of the elements that are announced would take 17 GB."""
ALLOWED_CALLS = 200
"""Some microseconds. A loop over the elements that are announced would take minutes."""


def compact_request() -> Wire:
    return request_header(3, 9, flexible=True)


def plain_request() -> Wire:
    return request_header(3, 1, flexible=False)


def varint_of_all(value: int) -> bytes:
    return Wire().UNSIGNED_VARINT(value).made


HOSTILE_REQUESTS: dict[str, bytes] = {
    "array of 2^31-1": plain_request().INT32(MOST).made,
    "array of -2": plain_request().INT32(-2).made,
    "array of -2^31": plain_request().INT32(-(2**31)).made,
    "compact array of 2^31-1": compact_request().made + varint_of_all(2**31),
    "compact array of 2^32-2": compact_request().made + varint_of_all(2**32 - 1),
    "one element more than there are bytes": compact_request().COMPACT_ARRAY(7).made + b"\1\0" * 6,
    "string of 32767": plain_request().ARRAY(1).INT16(32_767).made,
    "string of -2": plain_request().ARRAY(1).INT16(-2).made,
    "compact string of 2^31": compact_request().COMPACT_ARRAY(1).made + varint_of_all(2**31 + 1) + bytes(9),
    "string above Kafka's limit": compact_request().COMPACT_ARRAY(1).COMPACT_STRING("x" * 32_768).made + bytes(5),
    "client id of 32767": struct.pack(">hhih", 3, 9, 1, 32_767),
    "client id of -2": struct.pack(">hhih", 3, 9, 1, -2),
    "varint of 100 bytes": compact_request().made + b"\xff" * 100,
    "varint of 1 MiB": compact_request().made + b"\xff" * MAX_REQUEST_BYTES,
    "varint of 6 bytes": compact_request().made + b"\x80\x80\x80\x80\x80\x00",
    "varint above 32 bits": compact_request().made + b"\xff\xff\xff\xff\x7f",
    "2^31 tagged fields": compact_request().COMPACT_ARRAY(0).INT8(0).INT8(0).INT8(0).made + varint_of_all(2**31),
    "tagged field of 2^31": compact_request().COMPACT_ARRAY(0).INT8(0).INT8(0).INT8(0).made
    + b"\1\5"
    + varint_of_all(2**31),
    "2^31 tagged fields in the header": struct.pack(">hhih", 3, 9, 1, -1) + varint_of_all(2**31),
    "a tag twice": compact_request().COMPACT_ARRAY(0).INT8(0).INT8(0).INT8(0).made + b"\2\5\0\5\0",
    "tags out of order": compact_request().COMPACT_ARRAY(0).INT8(0).INT8(0).INT8(0).made + b"\2\5\0\4\0",
    "not UTF-8": compact_request().COMPACT_ARRAY(1).made + b"\3\xff\xff" + bytes(5),
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
    start = request_header(3, 10, flexible=True).COMPACT_ARRAY(None).INT8(0).INT8(0).INT8(0).made
    _, message = codec.decode_request(start + b"\2\1\1\1\x7f\3abc")
    assert (message.modes_only, message.fresh, message.unknown_tags) == (False, True, None)
    assert codec.encode_request(message, codec.MODES_VERSION, 7, "me") == start + b"\1\1\1\1"


@pytest.mark.parametrize(("key", "version"), SPOKEN)
def test_every_cut_of_an_empty_message_is_malformed(key: int, version: int) -> None:
    for which in (0, 1):
        message_class = codec.MESSAGES[key][which]
        message = message_class(version=version)
        if which == 0:
            whole, decode = codec.encode_request(message, version, 1, "me"), codec.decode_request
        else:
            whole = codec.encode_response(message, version, 1)

            def decode(payload: bytes) -> Any:
                return codec.decode_response(payload, key, version)

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


@pytest.mark.parametrize(("key", "version"), [(3, 11), (694, 1), (3, -1), (18, 5), (37, 4)])
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
    count = REQUEST_LIMITS.elements
    most = compact_request().COMPACT_ARRAY(count).made + b"\1\0" * count + b"\0\0\0\0"
    assert len(codec.decode_request(most)[1].topics) == count
    more = compact_request().COMPACT_ARRAY(count + 1).made + b"\1\0" * (count + 1) + b"\0\0\0\0"
    with pytest.raises(MalformedFrame, match="1 elements more than one message may have"):
        codec.decode_request(more)
    assert grown_bytes(lambda: codec.decode_request(more)) < ALLOWED_BYTES


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
