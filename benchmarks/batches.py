"""Batches of one record, right ones and those that a leader may refuse."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping

from modeaware.wire.fence_probe import probe_batch

# isort: split
from kafka.record.util import calc_crc32c

HOUR_MS = 3_600_000
_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH_END, _CRC_AT, _CRC_END = 12, 17, 21


def batch(value: bytes, **fields: int) -> bytes:
    """A batch of one record (magic 2) with a right CRC, or as ``fields`` have it."""
    body = b"\0\0\0\x01" + _varint(len(value)) + value + b"\0"
    body = _varint(len(body)) + body
    now_ms = fields.get("timestamp", int(time.time() * 1000))
    header = _HEADER.pack(
        fields.get("base_offset", 0),
        _HEADER.size - _LENGTH_END + len(body),
        -1,
        fields.get("magic", 2),
        0,
        fields.get("attributes", 0),
        0,
        now_ms,
        now_ms,
        fields.get("producer_id", -1),
        fields.get("producer_epoch", -1),
        fields.get("sequence", -1),
        fields.get("count", 1),
    )
    made = bytearray(header + body)
    struct.pack_into(">I", made, _CRC_AT, calc_crc32c(bytes(made[_CRC_END:])))
    return bytes(made)


def _corrupted(made: bytes) -> bytes:
    return made[:_CRC_AT] + bytes([made[_CRC_AT] ^ 1]) + made[_CRC_AT + 1 :]


def _varint(value: int) -> bytes:
    """A length below 64."""
    return bytes([value << 1])


VALUE = b"x" * 40
PROBE = "wrong CRC and control bit (the probe)"
CANDIDATES: Mapping[str, Callable[[], bytes]] = {
    PROBE: probe_batch,
    "wrong CRC, 78 bytes": lambda: _corrupted(batch(b"x" * 10)),
    "timestamp in 10 years": lambda: batch(VALUE, timestamp=int(time.time() * 1000) + 87_600 * HOUR_MS),
    "control bit": lambda: batch(VALUE, attributes=0x20),
    "count of 0": lambda: batch(VALUE, count=0),
    "base offset of 1": lambda: batch(VALUE, base_offset=1),
    "magic of 1": lambda: batch(VALUE, magic=1),
    "producer id without sequence": lambda: batch(VALUE, producer_id=1 << 40, producer_epoch=0),
    "sequence 7 of an unknown producer": lambda: batch(VALUE, producer_id=1 << 41, producer_epoch=0, sequence=7),
}
