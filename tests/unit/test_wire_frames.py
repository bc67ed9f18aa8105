"""Framing: any cut of the stream gives the same frames; lengths are checked before anything is kept."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeaware.errors import ErrorCode, RequestRefused
from modeaware.wire.frames import FrameReader, MalformedFrame, frame


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
    assert not reader.in_frame


@pytest.mark.parametrize("length", [-1, -(2**31), 101, 2**31 - 1])
def test_a_length_out_of_bounds_is_refused_before_the_frame_comes(length: int) -> None:
    reader = FrameReader(100)
    with pytest.raises(MalformedFrame, match=str(length)):
        reader.receive(struct.pack(">i", length))


def test_a_message_above_the_limit_is_not_sent() -> None:
    with pytest.raises(RequestRefused) as caught:
        frame(b"x" * 101, 100)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
