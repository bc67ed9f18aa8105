"""Framing of Kafka's protocol without IO: bytes in, whole frames out.

A frame is a 4-byte length and that many bytes.
"""

from __future__ import annotations

import struct

from modeaware.errors import ErrorCode, ModeAwareError, RequestRefused

MAX_REQUEST_BYTES = 1_048_576
"""The largest request: room for thousands of topics."""
MAX_RESPONSE_BYTES = 16_777_216
"""The largest response: room for a million retired partitions."""

_LENGTH = struct.Struct(">i")


class MalformedFrame(ModeAwareError):
    """The peer sent bytes that are no message of Kafka's protocol, or not one that is spoken here."""

    default_code = ErrorCode.INVALID_REQUEST


class FrameReader:
    """Cuts a byte stream into frames. Not safe to share between threads.

    Holds less than one frame and one received chunk; a length is checked before anything is kept for it.

    Args:
        max_bytes: the largest frame accepted, without its length.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    @property
    def in_frame(self) -> bool:
        """Whether a frame has begun and is not complete."""
        return bool(self._buffer)

    def receive(self, data: bytes) -> list[bytes]:
        """Take bytes as they came from the peer; return the frames (without their lengths) that are complete now.

        Raises:
            MalformedFrame: a length is negative or above the limit. The stream cannot be read any further.
        """
        self._buffer += data
        frames = []
        position = 0
        while (end := self._frame_end(position)) is not None:
            frames.append(bytes(self._buffer[position + _LENGTH.size : end]))
            position = end
        del self._buffer[:position]
        return frames

    def _frame_end(self, position: int) -> int | None:
        if len(self._buffer) - position < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer, position)
        if not 0 <= length <= self._max_bytes:
            raise MalformedFrame(f"a frame of {length} bytes was announced; 0 to {self._max_bytes} are taken")
        end = position + _LENGTH.size + int(length)
        return end if end <= len(self._buffer) else None


def frame(payload: bytes, max_bytes: int) -> bytes:
    """``payload`` with its length in front.

    Raises:
        RequestRefused: it is larger than ``max_bytes``, and was not sent for that.
    """
    if len(payload) > max_bytes:
        raise RequestRefused(
            f"a message of {len(payload)} bytes is above the limit of {max_bytes}: name fewer topics in one request",
            code=ErrorCode.MESSAGE_TOO_LARGE,
        )
    return _LENGTH.pack(len(payload)) + payload
