"""The largest requests that an endpoint takes, of as many small things as fit: what they cost it at most."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from modeaware.endpoint.api_versions import Awareness
from modeaware.endpoint.facade import Submit, ToUpstream
from modeaware.endpoint.limits import EndpointLimits
from modeaware.endpoint.session import ClientSession
from modeaware.wire import codec
from modeaware.wire.frames import MalformedFrame
from tests.fuzz.play import Player, traced
from tests.fuzz.tally import Finding
from tests.support.conversation import (
    ALTER_AND_DELETE,
    FakeDesk,
    create,
    decoded_question,
    delete,
    hello,
    metadata_answer,
    modes_request,
    rules,
)

MOST_PEAK_BYTES = 134_217_728
"""Of one request with all that is made for it."""


def frames() -> Iterator[bytes]:
    """Requests just within the limits of :class:`EndpointLimits`."""
    limits = EndpointLimits()
    of_topics: list[tuple[int, Callable[[list[str]], bytes]]] = [
        (limits.change_bytes, lambda names: delete(dict.fromkeys(names, 1))),
        (limits.change_bytes, lambda names: create(dict.fromkeys(names, 9))),
        (limits.change_bytes, lambda names: create(dict.fromkeys(names, 9), version=1)),
        (limits.change_bytes, lambda names: rules(*names)),
        (limits.change_bytes, lambda names: rules(remove=tuple(names))),
        (limits.modes_bytes, lambda names: modes_request(1, names)),
    ]
    for most_bytes, make in of_topics:
        yield _largest(most_bytes, make)
    begun = hello(1)[:-1]
    fields = (limits.versions_bytes - len(begun) - 2) // 3
    tagged = b"".join(_varint(number) + b"\0" for number in range(fields))
    yield begun + _varint(fields) + tagged  # ApiVersions with tagged fields that are not known
    yield hello(1, "x" * (limits.versions_bytes - len(hello(1, "", version=3)) - 2), version=3)


def play(player: Player, *, measure_memory: bool = True) -> None:
    """
    Args:
        measure_memory: what each takes, too, which costs ten times as much.

    Raises:
        Exception: a finding, as in :meth:`Player.play`.
    """

    def measured(call: Callable[..., Any], payload: bytes) -> Any:
        result, peak_bytes = traced(call, payload)
        if peak_bytes > MOST_PEAK_BYTES:
            raise Finding(f"a frame of {len(payload)} bytes took {peak_bytes} bytes of memory")
        return result

    for payload in frames():
        answer = _converse(player.timed, payload, None)
        if measure_memory:
            _converse(measured, payload, answer)


def _converse(hand_on: Callable[..., Any], payload: bytes, answer: bytes | None) -> bytes | None:
    """The broker's answer; where it has been made already, it is not made again."""
    session = ClientSession(FakeDesk(), EndpointLimits(), False)
    session._client = Awareness(reads=True, follows=True)  # as after ApiVersions
    for action in hand_on(session.from_client, payload):
        if isinstance(action, ToUpstream) and codec.peek_header(action.payload).api_key == codec.METADATA_KEY:
            if answer is None:
                header, asked = decoded_question(action.payload)
                topics = {topic.name: (0, 1, ALTER_AND_DELETE) for topic in asked.topics}
                answer = metadata_answer(-1, topics, version=header.api_version, cluster=ALTER_AND_DELETE)
            for last in hand_on(session.from_upstream, answer):
                if isinstance(last, Submit):
                    session.resolved(last.ticket, OSError("the worst there is"))
    return answer


def _largest(most_bytes: int, make: Callable[[list[str]], bytes]) -> bytes:
    names = [f"{number:04x}" for number in range(65_536)]
    each = 1 + (len(make(names[:1_100])) - len(make(names[:100]))) // 1_000
    count = (most_bytes - 500) // each
    while not _is_decoded(make(names[:count])):
        count = count * 19 // 20
    return make(names[:count])


def _is_decoded(payload: bytes) -> bool:
    try:
        codec.decode_request(payload)
    except MalformedFrame:  # of too many objects
        return False
    return True


def _varint(value: int) -> bytes:
    made = b""
    while value > 127:
        made += bytes([value & 127 | 128])
        value >>= 7
    return made + bytes([value])
