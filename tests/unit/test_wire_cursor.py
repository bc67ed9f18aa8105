"""Reading by hand: what is announced and is not there is an error, and nothing else."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from modeaware.wire.cursor import Cursor
from modeaware.wire.frames import MalformedFrame

_INT32 = struct.Struct(">i")


@pytest.mark.parametrize(
    ("read", "data", "value"),
    [
        (lambda cursor: cursor.take(2), b"ab", b"ab"),
        (lambda cursor: cursor.unpack(_INT32), b"\0\0\1\0", (256,)),
        (Cursor.varint, b"\x80\x01", 128),
        (Cursor.varint, b"\xff\xff\xff\xff\x0f", 2**32 - 1),
        (Cursor.string, b"\0", None),
        (Cursor.string, b"\1", ""),
        (Cursor.string, b"\3\xc3\xa9", "é"),
        (Cursor.skip_plain_string, b"\xff\xff", None),
        (Cursor.skip_tags, b"\2\0\1x\5\0", None),
        (Cursor.end, b"", None),
    ],
)
def test_what_is_there_is_read_and_no_more(read: Callable[[Cursor], Any], data: bytes, value: Any) -> None:
    cursor = Cursor(data + b"the rest" if read is not Cursor.end else data)
    assert read(cursor) == value
    assert cursor.at == len(data)
    for length in range(len(data)):
        with pytest.raises(MalformedFrame):
            read(Cursor(data[:length]))
