"""Conversations to begin with: frames as the codec makes them, of every message in every version."""

from __future__ import annotations

from collections.abc import Iterator

from modeaware.endpoint.splice import Additions, Node, with_modes
from modeaware.topic_view import TopicView
from modeaware.wire import codec, stock
from tests.fuzz.events import Event, Kind, build, parse
from tests.fuzz.play import SECRET, SPOKEN, VIEWS
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

TOPICS = {"orders": (0, 3, ALTER_AND_DELETE), "plain": (0, 2, 256), "t": (29, 0, 0), "größer": (0, 2, ALTER_AND_DELETE)}
_SASL = 1


def seeds() -> list[bytes]:
    """All of them."""
    return [*_of_sessions(), *_of_decoders()]


def spare() -> list[Event]:
    """Events that are good wherever they are put."""
    return [event for data in _of_decoders() for event in parse(data)[1]]


def _of_sessions() -> Iterator[bytes]:
    begun = [_client(hello(1)), Event(Kind.BROKER, 0, broker_versions(3, 0)[4:])]
    modes = [
        modes_request(2),
        modes_request(3, ["orders", "plain", "t"]),
        modes_request(4, ["größer"], include_topic_authorized_operations=True),
        modes_request(5, modes_only=True),
    ]
    answer = Event(Kind.BROKER, 0, metadata_answer(0, TOPICS, version=stock.METADATA_WITH_IDS)[4:])
    for setting in (16, 20, 24, 26):
        yield build(setting, [*begun, *(event for asked in modes for event in (_client(asked), answer))])
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
    said_before = Event(Kind.BROKER, 0, metadata_answer(0, TOPICS)[4:])
    granted = Event(Kind.BROKER, 0, metadata_answer(0, TOPICS, cluster=ALTER_AND_DELETE)[4:])
    for number, asked in enumerate(changes):
        done = [_client(asked), granted, Event(Kind.RESOLVED, 0), _client(asked), Event(Kind.GOOD, number)]
        yield build(16, [*begun, *done, Event(Kind.RESOLVED, number + 1), _client(asked), said_before])
        yield build(20, [*begun, *done, Event(Kind.DESK, number), _client(asked), said_before])
    for version in range(10):
        old = [
            _client(old_metadata_request(7, version, topics))
            for topics in (["orders", "t"], [] if not version else None)
        ]
        for setting in (2, 10, 18) if version else (0, 2):
            asked = stock.METADATA_WITH_IDS if setting & 2 else version
            told = Event(Kind.BROKER, 0, metadata_answer(0, TOPICS, version=asked)[4:])
            yield build(setting, [old[0], told, *old, told, told, old[1], Event(Kind.GOOD, version)])
    for version in range(6):
        said = Event(Kind.BROKER, 0, broker_versions(min(version, 4), 0)[4:])
        known = [_client(hello(8, name, min(version, 4))) for name in ("librdkafka", "modeaware")]
        yield build(0, [known[0], said, known[1], said, _client(request(18, version, 9)), said])
    yield from _with_sasl()


def _with_sasl() -> Iterator[bytes]:
    for version in range(3):
        handshake = [_client(request(17, 1, 1, b"\0\5PLAIN")), Event(Kind.BROKER, 0, b"\0\0\0\0\0\1\0\5PLAIN")]
        token = len(SECRET).to_bytes(4, "big") + SECRET if version < 2 else b"\0" + bytes([len(SECRET) + 1]) + SECRET
        success = Event(Kind.BROKER, 0, b"\0\0\xff\xff\0\0\0\0" if version < 2 else b"\0\0\0\0\1\0")
        exchange = [*handshake, *[_client(request(36, version, 2, token)), success] * 2]
        first = [_client(hello(0)), Event(Kind.GOOD)]
        asked = [
            _client(modes_request(3, ["orders"])),
            Event(Kind.GOOD),
            _client(delete({"orders": 2})),
            Event(Kind.GOOD),
        ]
        yield build(_SASL, [*first, *exchange, *asked, Event(Kind.RESOLVED), *exchange, *asked])
        yield build(_SASL, [*first, *exchange, *handshake[:1], *asked, *handshake[1:], Event(Kind.GOOD)])
    through = [request(10, 4, 1, b"\0\2g\0"), request(16, 4, 2), request(19, 7, 3, b"\0\1\0"), request(0, 9, 4)]
    yield build(0, [event for payload in through for event in (_client(payload), Event(Kind.GOOD))])
    framed = b"".join(len(payload).to_bytes(4, "big") + payload for payload in (hello(1), modes_request(2, ["t"])))
    yield build(0, [Event(Kind.BYTES, 7, framed), Event(Kind.GOOD), Event(Kind.GOOD), Event(Kind.BYTES, 3, framed)])


def _of_decoders() -> Iterator[bytes]:
    requests = [Event(Kind.DECODE, 0, payload) for payload in _requests()]
    answers = [
        Event(Kind.DECODE, 1, bytes([SPOKEN.index((key, version))]) + payload) for key, version, payload in _responses()
    ]
    every = [*requests, *answers]
    for start in range(0, 2 * len(every), 4):  # each twice, since frames that are passed on are not decoded
        yield build(16, [every[(start + number) % len(every)] for number in range(8)])


def _client(payload: bytes) -> Event:
    return Event(Kind.CLIENT, 0, payload)


def _requests() -> Iterator[bytes]:
    yield from (stock.encode_request(stock.ApiVersionsRequest(), version, 1, "c") for version in range(3))
    yield from (hello(1, version=version) for version in (3, 4))
    yield from (old_metadata_request(1, version, ["orders", "plain"]) for version in range(10))
    yield modes_request(1, ["orders"], fresh=True)
    yield modes_request(1, modes_only=True)
    yield delete({"orders": 2, "plain": 1})
    yield from (create({"orders": 8, "plain": 9}, version) for version in range(4))
    yield rules("orders", "*", remove=("plain",))


def _responses() -> Iterator[tuple[int, int, bytes]]:
    for version in range(5):
        yield stock.API_VERSIONS_KEY, version, broker_versions(version, 1)
    for version in range(10):
        yield stock.METADATA_KEY, version, metadata_answer(1, TOPICS, version=version)
    added = Additions(Node(694, "h", 9), "c1", False)
    unlisted = TopicView.unlisted
    modes = with_modes(metadata_answer(1, TOPICS), lambda name: VIEWS.get(name) or unlisted(name), added)
    yield stock.METADATA_KEY, 10, b"\0\0\0\1\0" + modes
    topic = codec.CreatePartitionsResponse.CreatePartitionsTopicResult
    for version in range(4):
        created = codec.CreatePartitionsResponse(results=[topic(name="t", error_code=37, error_message="why")])
        yield codec.CREATE_PARTITIONS_KEY, version, codec.encode_response(created, version, 1)
    yield codec.DELETE_PARTITIONS_KEY, 0, codec.encode_response(codec.DeletePartitionsResponse(error_code=0), 0, 1)
    rules_answer = codec.AlterGroupRulesResponse(error_code=29, error_message="no")
    yield codec.ALTER_GROUP_RULES_KEY, 0, codec.encode_response(rules_answer, 0, 1)
