"""A conversation as bytes: one of settings, and then events; and how such bytes are changed without losing that form.

An event is a byte for its kind and argument, two for the length of its payload, and the payload. Any bytes are a
conversation: what is cut short is taken as it is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

MOST_EVENTS = 40


class Kind(IntEnum):
    """What happens; the byte of an event modulo 8. What its argument means stands in :mod:`tests.fuzz.play`.

    CLIENT: the client sends a frame with this payload.
    GOOD: the broker gives a good answer to the oldest request that has none.
    BROKER: the broker answers the oldest request with its correlation id and, behind that, this payload.
    STRAY: the broker sends a frame with this payload.
    RESOLVED: the controller has done what was requested.
    DESK: the controller's state changes.
    BYTES: the client sends these bytes, whatever they are.
    DECODE: a decoder of the codec gets this payload.
    """

    CLIENT = 0
    GOOD = 1
    BROKER = 2
    STRAY = 3
    RESOLVED = 4
    DESK = 5
    BYTES = 6
    DECODE = 7


class Event(NamedTuple):
    kind: Kind
    argument: int = 0
    payload: bytes = b""


def build(setting: int, events: Iterable[Event]) -> bytes:
    """The bytes of a conversation."""
    parts = [bytes([setting & 255])]
    for kind, argument, payload in events:
        parts += [bytes([kind | (argument & 31) << 3]), len(payload).to_bytes(2, "big"), payload]
    return b"".join(parts)


def parse(data: bytes) -> tuple[int, list[Event]]:
    """The reverse of :func:`build`; of ``MOST_EVENTS`` at most."""
    events: list[Event] = []
    at = 1
    while at < len(data) and len(events) < MOST_EVENTS:
        start = at + 3
        end = start + int.from_bytes(data[at + 1 : start], "big")
        events.append(Event(Kind(data[at] & 7), data[at] >> 3, data[start:end]))
        at = end
    return (data[0] if data else 0), events


ChangeBytes = Callable[[bytes], bytes]
"""Changes some bytes by chance."""
_HEADER_BYTES = 8  # api key, version and correlation id


def mutated(
    data: bytes, most_bytes: int, choices: random.Random, change_bytes: ChangeBytes, spare: Sequence[Event]
) -> bytes:
    """``data`` with something changed in one of its events; mostly behind the header of a frame, which stays good.

    Now and then one of ``spare`` is put in, so that conversations do not become rubbish alone in the long run.
    """
    setting, events = parse(data)
    if not events or choices.random() < 0.02:
        return change_bytes(data)[:most_bytes]
    at = choices.randrange(len(events))
    kind, argument, payload = events[at]
    match choices.randrange(20):
        case 0:
            setting ^= 1 << choices.randrange(5)
        case 1:
            events[at] = Event(kind, choices.randrange(32), payload)
        case 2:
            del events[at]
        case 3:
            events.insert(choices.randrange(len(events) + 1), events[at])
        case 4:
            other = choices.randrange(len(events))
            events[at], events[other] = events[other], events[at]
        case 5:
            events[at] = Event(Kind(choices.randrange(8)), argument, payload)
        case 6:
            events[at] = Event(kind, argument, change_bytes(payload))
        case 7 | 8:
            events.insert(choices.randrange(len(events) + 1), choices.choice(spare))
        case 9 if payload:
            start = choices.randrange(len(payload))
            repeated = payload[start : start + choices.randrange(1, 40)]
            events[at] = Event(kind, argument, payload[:start] + repeated * choices.randrange(2, 60) + payload[start:])
        case _:
            kept = min(_HEADER_BYTES, len(payload))
            events[at] = Event(kind, argument, payload[:kept] + change_bytes(payload[kept:]))
    made = build(setting, (Event(k, a, p[:65_535]) for k, a, p in events))
    return made if len(made) <= most_bytes else data[:most_bytes]


def plainly_changed(choices: random.Random) -> ChangeBytes:
    """Changes bytes without a coverage-guided fuzzer's help."""

    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(choices.randrange(1, 4)):
            at = choices.randrange(len(changed) + 1)
            taken = choices.choice((0, 1, 1, 2, 4))
            made = choices.choice((b"", b"\0", b"\1", b"\x7f", b"\x80", b"\xff", b"\xff\xff", choices.randbytes(taken)))
            changed[at : at + taken] = made
        return bytes(changed)

    return change
