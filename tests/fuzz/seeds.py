"""Conversations to begin with: good ones of sessions, and the golden frames of every message."""

from __future__ import annotations

import json
from collections.abc import Iterator

from modeaware.wire import codec
from tests.fuzz.events import Event, Kind, build, parse
from tests.fuzz.play import SECRET, SPOKEN
from tests.support.conversation import (
    ALTER_AND_DELETE,
    broker_versions,
    create,
    delete,
    hello,
    metadata_answer,
    modes_request,
    old_metadata_request,
    request,
    rules,
)
from tests.support.source_tree import ROOT

TOPICS = {"orders": (0, 3, ALTER_AND_DELETE), "plain": (0, 2, 256), "t": (29, 0, 0), "größer": (0, 2, ALTER_AND_DELETE)}
FRAMES = ROOT / "tests" / "data" / "wire-frames.jsonl"
GOOD = Event(Kind.GOOD)
_SASL = 1


def seeds() -> list[bytes]:
    """All of them."""
    return [*_of_sessions(), *_of_decoders()]


def spare() -> list[Event]:
    """Events that are good wherever they are put."""
    return [event for data in _of_decoders() for event in parse(data)[1]]


def _of_sessions() -> Iterator[bytes]:
    begun = [_client(hello(1)), _broker(broker_versions(3, 0))]
    modes = [
        modes_request(2),
        modes_request(3, ["orders", "plain", "t"]),
        modes_request(4, ["größer"], include_topic_authorized_operations=True),
        modes_request(5, modes_only=True),
    ]
    answer = _broker(metadata_answer(0, TOPICS, version=codec.METADATA_WITH_IDS))
    for setting in (16, 20, 24, 26):
        yield build(setting, [*begun, *(event for each in modes for event in (_client(each), answer))])
        yield build(setting, [*begun, *map(_client, modes), *[answer] * len(modes)])
        fresh = [_client(modes_request(6, modes_only=True, fresh=True)), Event(Kind.RESOLVED), answer]
        yield build(setting, [*begun, *fresh, *fresh])
    changes = (
        delete({"orders": 2}),
        delete({"orders": 2, "hidden": 1, "plain": 1}),
        delete({"x" * 300: 1}),
        rules("orders"),
        rules("*", remove=("orders",)),
        *(create({"plain": 9, "orders": 6}, version) for version in range(4)),
    )
    said_before = _broker(metadata_answer(0, TOPICS))
    granted = _broker(metadata_answer(0, TOPICS, cluster=ALTER_AND_DELETE))
    for number, asked in enumerate(changes):
        done = [_client(asked), granted, Event(Kind.RESOLVED, 0), _client(asked), Event(Kind.GOOD, number)]
        yield build(16, [*begun, *done, Event(Kind.RESOLVED, number + 1), _client(asked), said_before])
        yield build(20, [*begun, *done, Event(Kind.DESK, number), _client(asked), said_before])
    for version in range(10):
        everything: list[str] | None = None if version else []
        old = [_client(old_metadata_request(7, version, topics)) for topics in (["orders", "t"], everything)]
        for setting in (2, 10, 18) if version else (0, 2):
            newest = codec.METADATA_WITH_IDS if setting & 2 else version
            told = _broker(metadata_answer(0, TOPICS, version=newest))
            yield build(setting, [old[0], told, *old, told, told, old[1], Event(Kind.GOOD, version)])
    for version in range(6):
        said = _broker(broker_versions(min(version, 4), 0))
        known = [_client(hello(8, name, min(version, 4))) for name in ("librdkafka", "modeaware")]
        yield build(0, [known[0], said, known[1], said, _client(request(18, version, 9)), said])
    yield from _with_sasl()


def _with_sasl() -> Iterator[bytes]:
    for version in range(3):
        handshake = [_client(request(17, 1, 1, b"\0\5PLAIN")), Event(Kind.BROKER, 0, b"\0\0\0\0\0\1\0\5PLAIN")]
        token = len(SECRET).to_bytes(4, "big") + SECRET if version < 2 else b"\0" + bytes([len(SECRET) + 1]) + SECRET
        success = Event(Kind.BROKER, 0, b"\0\0\xff\xff\0\0\0\0" if version < 2 else b"\0\0\0\0\1\0")
        exchange = [*handshake, *[_client(request(36, version, 2, token)), success] * 2]
        first = [_client(hello(0)), GOOD]
        asked = [_client(modes_request(3, ["orders"])), GOOD, _client(delete({"orders": 2})), GOOD]
        yield build(_SASL, [*first, *exchange, *asked, Event(Kind.RESOLVED), *exchange, *asked])
        yield build(_SASL, [*first, *exchange, *handshake[:1], *asked, *handshake[1:], GOOD])
    through = [request(10, 4, 1, b"\0\2g\0"), request(16, 4, 2), request(19, 7, 3, b"\0\1\0"), request(0, 9, 4)]
    yield build(0, [event for payload in through for event in (_client(payload), GOOD)])
    framed = b"".join(len(payload).to_bytes(4, "big") + payload for payload in (hello(1), modes_request(2, ["t"])))
    yield build(0, [Event(Kind.BYTES, 7, framed), GOOD, GOOD, Event(Kind.BYTES, 3, framed)])


def _of_decoders() -> Iterator[bytes]:
    """The frames that the codec's golden tests decode: every message in every version."""
    every: list[Event] = []
    for line in FRAMES.read_text(encoding="utf-8").splitlines():
        golden = json.loads(line)
        payload = bytes.fromhex(golden["hex"])
        match golden["kind"]:
            case "request":
                every.append(Event(Kind.DECODE, 0, payload))
            case "response":
                number = SPOKEN.index((golden["key"], golden["version"]))
                every.append(Event(Kind.DECODE, 1, bytes([number]) + payload))
    for start in range(0, 2 * len(every), 4):  # each twice, since frames that are passed on are not decoded
        yield build(16, [every[(start + number) % len(every)] for number in range(8)])


def _client(payload: bytes) -> Event:
    return Event(Kind.CLIENT, 0, payload)


def _broker(answer: bytes) -> Event:
    """Behind the answer's correlation id, which is the request's."""
    return Event(Kind.BROKER, 0, answer[4:])
