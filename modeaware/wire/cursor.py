"""Reading bytes of Kafka's protocol by hand, from one end to the other, without a schema and without a codec."""

from __future__ import annotations

import struct

from modeaware.wire.frames import MalformedFrame

_INT16 = struct.Struct(">h")


class Cursor:
    """Where reading is in some bytes. Every length is checked against what is left before anything is read for it.

    Each method raises MalformedFrame, and nothing else, where the bytes are not what it reads. Whoever looks into
    ``body`` himself, for speed, has to mind its end and to move ``at`` on.
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
        """An unsigned one."""
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
        """The length of a compact array that is not null, whose elements have that many bytes at least."""
        count, left = self.varint() - 1, len(self.body) - self.at
        if count < 0 or count * least_bytes > left:
            raise MalformedFrame(f"{count} elements are announced, {left} bytes are left")
        return count

    def string(self) -> str | None:
        """A compact one."""
        length = self.varint() - 1
        if length < 0:
            return None
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise MalformedFrame("a string that is no text") from error

    def skip_plain_string(self) -> None:
        """One of a version that is not flexible."""
        (length,) = self.unpack(_INT16)
        self.take(max(length, 0))

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())

    def end(self) -> None:
        if left := len(self.body) - self.at:
            raise MalformedFrame(f"{left} bytes too many")
