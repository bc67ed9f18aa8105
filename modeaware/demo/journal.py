"""The journals the demo's processes write, one line an event, and how the audit reads them back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from modeaware.demo.setting import ID_HEADER
from modeaware.errors import ModeAwareError
from modeaware.librdkafka import Message


class Ack(NamedTuple):
    """One acknowledged record.

    ``epoch_before`` is a lower and ``epoch_after`` an upper bound of the mode epoch under which its partition was
    chosen, both taken around the ``produce()`` call; ``size`` is key and value in bytes; ``at_ms`` the time of the
    acknowledgement (monotonic, ms).
    """

    id: str
    partition: int
    offset: int
    epoch_before: int
    epoch_after: int
    size: int
    at_ms: int

    def line(self) -> str:
        return " ".join(map(str, self)) + "\n"

    @classmethod
    def parse(cls, line: str) -> Ack:
        record_id, *numbers = line.split()
        return cls(record_id, *map(int, numbers))


class Delivery(NamedTuple):
    """One record as a consumer of the group was given it."""

    id: str
    partition: int
    offset: int

    def line(self) -> str:
        return " ".join(map(str, self)) + "\n"

    @classmethod
    def parse(cls, line: str) -> Delivery:
        record_id, *numbers = line.split()
        return cls(record_id, *map(int, numbers))


def record_id_of(message: Message) -> str:
    """The id a demo producer gave the record.

    Raises:
        ModeAwareError: it has none: somebody else wrote to the topic.
    """
    record_id = dict(message.headers() or []).get(ID_HEADER)
    if not isinstance(record_id, bytes):
        raise ModeAwareError(f"{message.topic()}-{message.partition()}: offset {message.offset()} is not of this demo")
    return record_id.decode("ascii")


def position_of(message: Message) -> tuple[int, int]:
    """The record's partition and offset.

    Raises:
        ModeAwareError: it has none: it did not come from, or get to, a broker.
    """
    partition, offset = message.partition(), message.offset()
    if partition is None or offset is None:
        raise ModeAwareError(f"a record of {message.topic()} without partition and offset")
    return partition, offset


def read_acks(path: Path) -> Iterator[Ack]:
    """The acknowledgements in the order they came in."""
    with path.open(encoding="ascii") as lines:
        yield from map(Ack.parse, lines)


def read_deliveries(path: Path) -> Iterator[Delivery]:
    """The deliveries in the order they came in."""
    with path.open(encoding="ascii") as lines:
        yield from map(Delivery.parse, lines)
