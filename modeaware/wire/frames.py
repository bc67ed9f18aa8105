"""Kafka's protocol as bytes, without IO and without schemas: frames, request headers, and fields read one by one.

A frame is a 4-byte length and that many bytes. Every length is checked against a limit, or against the rest of the
bytes, before anything is allocated or read for it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from modeaware.errors import ErrorCode, ModeAwareError, RequestRefused

MAX_REQUEST_BYTES = 1_048_576
"""The largest request, enough for thousands of topics."""
MAX_CHANGE_BYTES = 65_536
"""The largest command for a controller. Our admin client sends a longer command in parts, and also a command about more
than a thousand topics."""
MAX_RESPONSE_BYTES = 16_777_216
"""The largest response, enough for a million retired partitions."""

INT16, INT32 = struct.Struct(">h"), struct.Struct(">i")
_REQUEST_PREFIX = struct.Struct(">hhi")


class MalformedFrame(ModeAwareError):
    """The peer sent bytes that are no message of Kafka's protocol, or no supported message."""

    default_code = ErrorCode.INVALID_REQUEST


class TooManyParts(MalformedFrame):
    """A message has more parts than allowed. The rest of it is not read, so the number of parts may be unknown."""


class FrameReader:
    """Cuts a byte stream into frames. Not thread-safe.

    Keeps less than one frame plus one received chunk.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    def receive(self, data: bytes) -> list[bytes]:
        """Take bytes from the peer; return the frames (without their lengths) that are now complete.

        Raises:
            MalformedFrame: a length is negative or above the limit. The rest of the stream cannot be read.
        """
        self._buffer += data
        frames = []
        position = 0
        while (end := self._frame_end(position)) is not None:
            frames.append(bytes(self._buffer[position + INT32.size : end]))
            position = end
        del self._buffer[:position]
        return frames

    def _frame_end(self, position: int) -> int | None:
        if len(self._buffer) - position < INT32.size:
            return None
        (length,) = INT32.unpack_from(self._buffer, position)
        if not 0 <= length <= self._max_bytes:
            raise MalformedFrame(f"a frame of {length} bytes was announced; the limit is {self._max_bytes}")
        end = position + INT32.size + int(length)
        return end if end <= len(self._buffer) else None


def frame(payload: bytes, max_bytes: int) -> bytes:
    """Return ``payload`` with its length in front.

    Raises:
        RequestRefused: ``payload`` is larger than ``max_bytes``.
    """
    if len(payload) > max_bytes:
        raise RequestRefused(
            f"a message of {len(payload)} bytes is above the limit of {max_bytes}: name fewer topics in one request",
            code=ErrorCode.MESSAGE_TOO_LARGE,
        )
    return INT32.pack(len(payload)) + payload


@dataclass(frozen=True)
class Header:
    """A request's header; the response carries the same ``correlation_id``."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


def peek_header(payload: bytes) -> Header:
    """Return the header fields that every version of every api has; ``client_id`` is not one of them."""
    if len(payload) < _REQUEST_PREFIX.size:
        raise MalformedFrame(f"a frame of {len(payload)} bytes is too short for a request")
    return Header(*_REQUEST_PREFIX.unpack_from(payload))


def varint(value: int) -> bytes:
    """Return ``value`` as an unsigned varint, which :meth:`Cursor.varint` reads."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


class Cursor:
    """A position in some bytes, for reading them field by field.

    Each method raises MalformedFrame, and nothing else, if the bytes do not follow its layout. Code that reads ``body``
    directly, for speed, must check the end itself and advance ``at``.
    """

    __slots__ = ("at", "body")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.at = 0

    def take(self, size: int) -> bytes:
        start, self.at = self.at, self.at + size
        if self.at > len(self.body):
            raise MalformedFrame(f"{size} bytes are announced, {len(self.body) - start} are left")
        return self.body[start : self.at]

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        return layout.unpack(self.take(layout.size))

    def varint(self) -> int:
        """Read an unsigned varint."""
        value = 0
        for shift in range(0, 35, 7):
            if self.at >= len(self.body):
                raise MalformedFrame("a varint is announced, nothing is left")
            byte = self.body[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise MalformedFrame("a varint of more than 5 bytes")

    def count(self, least_bytes: int = 1) -> int:
        """Read the length of a compact array; it is not null, and each element has at least ``least_bytes`` bytes."""
        count, left = self.varint() - 1, len(self.body) - self.at
        if count < 0 or count * least_bytes > left:
            raise MalformedFrame(f"{count} elements are announced, {left} bytes are left")
        return count

    def string(self) -> str | None:
        """Read a compact string."""
        length = self.varint() - 1
        if length < 0:
            return None
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise MalformedFrame("a string that is not UTF-8") from error

    def skip_plain_string(self) -> None:
        """Skip a string of a version that is not flexible."""
        (length,) = self.unpack(INT16)
        self.take(max(length, 0))

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())

    def end(self) -> None:
        if left := len(self.body) - self.at:
            raise MalformedFrame(f"{left} bytes too many")
