"""What a record says about itself: which writer sent it, under which key, and as its how many-th."""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

VALUE_BYTES = 100
_VALUE = struct.Struct("<4sQ")
_MAGIC = b"mwch"
_topics: dict[int, str] = {}


class Identity(NamedTuple):
    """Which record it is.

    Attributes:
        run: the writer's incarnation, from 1 on; no two in a history share one.
        key: the number of its key.
        sequence: counts a run's records from 0 on.
    """

    run: int
    key: int
    sequence: int

    @property
    def number(self) -> int:
        """The identity in 64 bits, never 0."""
        return self.run << 48 | self.key << 32 | self.sequence

    @classmethod
    def of(cls, number: int) -> Identity:
        return cls(number >> 48, number >> 32 & 0xFFFF, number & 0xFFFFFFFF)

    def __str__(self) -> str:
        return f"record {self.sequence} of run {self.run} (key {self.key})"


def key_bytes(key: int) -> bytes:
    return b"key-%05d" % key


def value_bytes(number: int) -> bytes:
    return _VALUE.pack(_MAGIC, number).ljust(VALUE_BYTES, b".")


def number_of(value: bytes | None, key: bytes | None) -> int:
    """The identity in a record's value.

    Raises:
        ValueError: no writer of a workload wrote it, or its key is not the one it was sent with.
    """
    if value is None or len(value) != VALUE_BYTES or not value.startswith(_MAGIC):
        raise ValueError(f"not a record of a workload: {value!r}")
    _, number = _VALUE.unpack_from(value)
    if key != key_bytes(number >> 32 & 0xFFFF):
        raise ValueError(f"{Identity.of(number)} came with the key {key!r}")
    return int(number)


def log_of(topic: str, partition: int) -> int:
    """The log of a topic's partition as a number, the same in every process."""
    checksum = zlib.crc32(topic.encode())
    _topics.setdefault(checksum, topic)
    return checksum << 16 | partition


def is_of(log: int, topic: str) -> bool:
    """Whether it is a log of the topic."""
    return log >> 16 == zlib.crc32(topic.encode())


def partition_of(log: int) -> int:
    return log & 0xFFFF


def log_name(log: int) -> str:
    """The log for people; topics that this process has not heard of are shown as numbers."""
    return f"{_topics.get(log >> 16, log >> 16)}-{partition_of(log)}"
