"""What waits in the endpoint: all of it is counted, and no more of it is kept than its answer needs."""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import tracemalloc
from concurrent.futures import Future
from contextlib import ExitStack

import pytest

from modeaware.endpoint import api_versions
from modeaware.endpoint.limits import Limits
from modeaware.endpoint.metadata import Answers
from modeaware.endpoint.quotas import Quotas, Seldom
from modeaware.endpoint.tickets import Ticket
from modeaware.endpoint.upstream import Upstream
from modeaware.errors import ClusterError
from modeaware.lifecycle.commands import CommandResult
from tests.support.conversation import (
    FakeDesk,
    Talk,
    delete,
    hello,
    ids,
    metadata_answer,
    modes_request,
    old_metadata_request,
    request,
)
from tests.support.endpoint import FakeBroker, FakeController, MakeServer, Peer, relay
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


def test_what_waits_for_a_connection_is_counted(make_server: MakeServer) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as stack:
        address = full.getsockname()
        for filler in [stack.enter_context(socket.socket()) for _ in range(4)]:  # no more are taken up by it
            filler.setblocking(False)
            filler.connect_ex(address)
        upstream = Upstream([address], connect_timeout_s=600)
        server = make_server(upstream=upstream, quotas=Quotas(buffered_bytes=1_000_000))
        peers = [stack.enter_context(Peer(server.advertised)) for _ in range(8)]
        for peer in peers:
            peer.send(LARGE)
        eventually(lambda: len(_open(peers)) <= 4, message="five of 250 000 bytes are more than may be kept")


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


def test_a_session_counts_modes_that_wait_for_the_log() -> None:
    talk = Talk()
    asked = modes_request(2, [f"topic-{number}" for number in range(100)], fresh=True)
    talk.ask(hello(1), asked)
    assert talk.session.held_bytes >= 20 * len(asked)
    talk.resolve(None)
    assert talk.session.held_bytes == 0


def test_a_session_counts_its_own_answers_that_wait() -> None:
    talk = Talk()
    talk.ask(request(10, 1, 1), request(18, 99, 2), request(18, 99, 3))
    held = talk.session.held_bytes
    talk.broker_answers()
    assert held == sum(len(answer) for answer in talk.told[1:]) > 0
    assert talk.session.held_bytes == 0


def test_a_session_that_has_ended_keeps_nothing() -> None:
    talk = Talk()
    talk.ask(request(10, 1, 1), request(18, 99, 2), delete({"orders": 2}, 3), request(10, 1, 4, LARGE))
    assert talk.session.held_bytes > len(LARGE)
    talk.broker_answers(b"")
    assert talk.closed is not None
    assert talk.session.held_bytes == 0


# -- what is kept ----------------------------------------------------------------------------------------------------


def test_requests_for_modes_are_not_kept_while_the_broker_is_silent() -> None:
    names = [f"{number:03x}" for number in range(4_000)]
    talk = Talk()
    talk.ask(hello(1))
    talk.ask(modes_request(2, names))  # what is made once is made
    payloads = [modes_request(number, names) for number in range(3, 13)]
    tracemalloc.start()
    try:
        talk.ask(*payloads)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert talk.session.pending == 12
    sent_bytes = sum(map(len, talk.sent[2:]))
    assert kept_bytes < sent_bytes + 500_000, "decoded, one of them takes 500 000"
    assert ids(talk.all_answered()) == list(range(1, 13))


def test_versions_are_made_once_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, bool]] = []
    rewritten = api_versions.rewritten

    def counted(payload: bytes, version: int, controller_id: str, *, modes: bool) -> bytes:
        made.append((version, modes))
        return rewritten(payload, version, controller_id, modes=modes)

    monkeypatch.setattr(api_versions, "rewritten", counted)
    cache, told = Answers(Limits()), []
    for correlation_id, name, version in ((1, "modeaware", 3), (2, "other", 3), (3, "modeaware", 3), (4, "other", 4)):
        talk = Talk(cache=cache)
        talk.ask(hello(correlation_id, name, version))
        told += talk.all_answered()
    assert made == [(3, True), (3, False), (4, False)]
    assert ids(told) == [1, 2, 3, 4]
    assert told[0][4:] == told[2][4:] != told[1][4:]
    other = FakeDesk()
    other.controller_id = "another"
    talk = Talk(other, cache=cache)
    talk.ask(hello(5))
    assert talk.all_answered()[0][4:] != told[0][4:]


# -- how large something may be --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 99])
def test_a_large_question_about_versions_closes_before_it_is_decoded(version: int) -> None:
    payload = request(18, version, 1, bytes(4_096))
    talk = Talk(sasl=True)
    talk.ask(payload)
    assert talk.closed == f"a request of {len(payload)} bytes; 4096 are taken of this api"
    assert talk.sent == talk.told == []


@pytest.mark.parametrize("old_clients", ["serve", "refuse"])
@pytest.mark.parametrize("version", [1, 9])
def test_old_clients_are_told_whatever_the_broker_tells(version: int, old_clients: str) -> None:
    talk = Talk(FakeDesk(old_clients=old_clients), limits=Limits(response_bytes=300))
    talk.ask(old_metadata_request(1, version, None))
    asked = (1, version) if old_clients == "serve" else (-1, 10)
    talk.broker_answers(metadata_answer(asked[0], {"plain": (0, 100, 0)}, version=asked[1]))
    assert talk.closed is None
    assert len(talk.told[0]) > 300


# -- what is logged --------------------------------------------------------------------------------------------------


def test_failures_that_many_wait_for_are_logged_a_few_times(
    make_server: MakeServer, broker: FakeBroker, controller: FakeController, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server = make_server(broker.address)
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer(server.advertised)) for _ in range(30)]
        for peer in peers:
            peer.send(b"refresh")
        eventually(lambda: len(controller.refreshes) == len(peers))
        for number, future in enumerate(controller.refreshes):
            future.set_exception(ZeroDivisionError("of ours") if number == 29 else ClusterError("the leader is away"))
        for peer in peers:
            peer.receive()
    messages = [record.getMessage() for record in caplog.records if "mode log" in record.getMessage()]
    assert len([each for each in messages if each.endswith("failed: the leader is away")]) == 10
    (bug,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert bug.getMessage().startswith("a reading of the mode log failed unexpectedly: ")
    assert "ZeroDivisionError: of ours" in bug.getMessage()
    assert len(messages) == 11


def test_a_failure_after_the_endpoint_has_stopped_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    loop = asyncio.new_event_loop()
    futures: list[Future[None]] = [Future(), Future()]
    tickets = [
        Ticket(loop, Seldom(loop.time), "a command", future, 60, "late", lambda outcome: None) for future in futures
    ]
    for ticket in tickets:
        ticket.drop()
    loop.close()
    futures[0].set_exception(ClusterError("the brokers are away"))
    futures[1].set_result(None)
    assert [record.getMessage() for record in caplog.records] == ["a command failed: the brokers are away"]
