"""Nothing is put into a SASL exchange, and nobody gets anything before it has ended."""

from __future__ import annotations

import struct

import pytest

from modeaware.wire import codec, stock
from tests.support.conversation import Talk, delete, hello, ids, modes_request, request

HANDSHAKE = request(17, 1, 1, b"\0\5PLAIN")
PASSWORD = b"alice\0secret"


def authenticate(correlation_id: int, version: int = 1) -> bytes:
    return request(36, version, correlation_id, PASSWORD)


def sasl_answer(correlation_id: int, error: int = 0, version: int = 1) -> bytes:
    tags = b"\0" if version >= 2 else b""
    return struct.pack(">i", correlation_id) + tags + struct.pack(">h", error) + b"token"


def authenticated(version: int = 1) -> Talk:
    talk = Talk(sasl=True)
    talk.ask(HANDSHAKE)
    talk.broker_answers(talk.broker.answer())
    talk.ask(authenticate(2, version))
    talk.broker.asked.clear()
    talk.broker_answers(sasl_answer(2, 0, version))
    return talk


def test_before_authentication_only_a_greeting_and_a_handshake_pass() -> None:
    for payload in (
        request(10, 1, 1),
        modes_request(1),
        delete({"orders": 2}, 1),
        authenticate(1),
        request(3, 9, 1),
    ):
        talk = Talk(sasl=True)
        talk.ask(hello(0))
        talk.all_answered()
        talk.ask(payload)
        assert talk.closed == "a request before authentication"
        assert len(talk.sent) == 1


def test_sasl_frames_pass_as_they_are_and_are_not_kept() -> None:
    talk = Talk(sasl=True)
    talk.ask(HANDSHAKE, authenticate(2))
    assert talk.sent == [HANDSHAKE, authenticate(2)]
    assert PASSWORD not in repr(vars(talk.session)).encode()
    talk.broker_answers()
    talk.broker.asked.clear()
    talk.broker_answers(sasl_answer(2))
    assert talk.told[1] == sasl_answer(2)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_after_success_everything_goes(version: int) -> None:
    talk = authenticated(version)
    talk.ask(delete({"orders": 2}, 3))
    talk.broker_answers()
    assert len(talk.submitted) == 1


@pytest.mark.parametrize("behind", [modes_request(5), delete({"orders": 2}, 5), request(10, 1, 5), hello(5)])
def test_nothing_is_sent_behind_a_sasl_frame_that_has_no_answer(behind: bytes) -> None:
    talk = Talk(sasl=True)
    talk.ask(hello(0))
    talk.all_answered()
    talk.ask(HANDSHAKE, authenticate(2), behind)
    assert talk.sent[1:] == [HANDSHAKE, authenticate(2)]
    talk.broker_answers()
    assert talk.sent[1:] == [HANDSHAKE, authenticate(2)]
    talk.broker.asked.clear()
    talk.broker_answers(sasl_answer(2))
    assert len(talk.sent) == 4


@pytest.mark.parametrize("behind", [modes_request(5), delete({"orders": 2}, 5), request(10, 1, 5), hello(5)])
@pytest.mark.parametrize("version", [1, 2])
def test_a_failed_exchange_ends_with_the_next_request(behind: bytes, version: int) -> None:
    talk = Talk(sasl=True)
    talk.ask(hello(0))
    talk.all_answered()
    talk.ask(HANDSHAKE, authenticate(2, version), behind)
    talk.broker_answers()
    talk.broker.asked.clear()
    talk.broker_answers(sasl_answer(2, 58, version))
    assert ids(talk.told) == [0, 1, 2]  # the client is told of the failure
    assert talk.closed == "a request before authentication has ended"
    assert len(talk.sent) == 3


def test_a_change_before_a_second_exchange_is_asked_about_before_it() -> None:
    """KIP-368, pipelined: the question goes in the change's place, and the new exchange waits for its end."""
    talk = authenticated()
    talk.ask(delete({"orders": 2}, 3), request(17, 1, 4), authenticate(5), modes_request(6))
    keys = [codec.peek_header(payload).api_key for payload in talk.sent[2:]]
    assert keys == [stock.METADATA_KEY]
    talk.broker_answers()
    assert len(talk.sent) == 3
    talk.resolve([])
    assert [codec.peek_header(payload).api_key for payload in talk.sent[3:]] == [17, 36]
