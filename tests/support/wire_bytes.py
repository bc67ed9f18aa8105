"""Bytes of Kafka's protocol put together by hand, in the words of its protocol guide. Knows nothing of the codec."""
# ruff: noqa: N802 - the names are the protocol guide's

from __future__ import annotations

import struct
from typing import Self


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
