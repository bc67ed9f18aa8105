"""What waits in the endpoint: all of it is counted, and no more of it is kept than its answer needs."""

from __future__ import annotations

import select
from contextlib import ExitStack

import pytest

from modeaware.endpoint.quotas import Quotas
from modeaware.lifecycle.commands import CommandResult
from tests.support.conversation import (
    Talk,
    delete,
    request,
)
from tests.support.endpoint import FakeBroker, Peer, relay
from tests.support.waiting import eventually

LARGE = bytes(250_000)


def _open(peers: list[Peer]) -> list[Peer]:
    """Those that the endpoint has not closed. Nobody is answered in these tests."""
    closed = select.select([peer.socket for peer in peers], [], [], 0)[0]
    return [peer for peer in peers if peer.socket not in closed]


# -- what is counted -------------------------------------------------------------------------------------------------


def test_what_waits_for_an_authentication_is_counted(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker.answer = lambda payload: None
    conf = {
        "bootstrap.servers": "{}:{}".format(*broker.address),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "p",
    }
    quotas = Quotas(buffered_bytes=2_000_000)
    with relay(conf, quotas=quotas) as server, ExitStack() as stack:
        peers = [stack.enter_context(Peer(server.advertised)) for _ in range(12)]
        for peer in peers:
            peer.send(request(17, 1, 1, b"\0\5PLAIN"), *(request(10, 1, n, LARGE) for n in range(2, 5)))
        eventually(lambda: len(_open(peers)) <= 2, message="three of 750 000 bytes are more than may be kept")
    assert "and it holds most of them" in caplog.text
    assert all(len(payload) < 100 for payload in broker.received), "it was all kept"


def test_a_session_counts_what_waits_and_lets_it_go() -> None:
    talk = Talk()
    talk.ask(delete({"orders": 2}, 1))
    of_the_change = talk.session.held_bytes
    assert of_the_change >= 30 * len(delete({"orders": 2}, 1)), "what is decoded takes more than its bytes"
    talk.ask(request(10, 1, 2, LARGE), request(10, 1, 3, LARGE))
    assert talk.session.held_bytes - of_the_change > 2 * len(LARGE)
    talk.broker_answers()
    assert talk.session.held_bytes - of_the_change > 2 * len(LARGE), "the controller works for it"
    talk.resolve([CommandResult("orders")])
    assert talk.session.held_bytes == 0


def test_a_session_that_has_ended_keeps_nothing() -> None:
    talk = Talk()
    talk.ask(request(10, 1, 1), request(18, 99, 2), delete({"orders": 2}, 3), request(10, 1, 4, LARGE))
    assert talk.session.held_bytes > len(LARGE)
    talk.broker_answers(b"")
    assert talk.closed is not None
    assert talk.session.held_bytes == 0


# -- what is kept ----------------------------------------------------------------------------------------------------


# -- how large something may be --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 99])
def test_a_large_question_about_versions_closes_before_it_is_decoded(version: int) -> None:
    payload = request(18, version, 1, bytes(4_096))
    talk = Talk(sasl=True)
    talk.ask(payload)
    assert talk.closed == f"a request of {len(payload)} bytes; 4096 are taken of this api"
    assert talk.sent == talk.told == []


# -- what is logged --------------------------------------------------------------------------------------------------
