"""The endpoint's server with real sockets: what is carried where, to which broker, and how it ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from modeaware.endpoint import server as server_module
from modeaware.endpoint import upstream as upstream_module
from modeaware.endpoint.limits import Limits
from modeaware.endpoint.quotas import Quotas
from modeaware.endpoint.server import THREAD_NAME, Server
from modeaware.errors import ClusterError
from tests.support.endpoint import COMMAND, FakeBroker, MakeServer, Peer, StubController, free_port
from tests.support.waiting import eventually


@pytest.fixture
def server(make_server: MakeServer, broker: FakeBroker) -> Server:
    return make_server(broker.address, limits=Limits(pipeline=3))


def _connect(server: Server) -> Peer:
    return Peer(server.advertised)


def test_requests_reach_a_broker_and_answers_come_back_in_order(server: Server, broker: FakeBroker) -> None:
    with _connect(server) as one, _connect(server) as other:
        one.send(*(b"%d" % number for number in range(50)))
        assert other.ask(b"hello") == b"re: hello"
        assert [one.receive() for _ in range(50)] == [b"re: %d" % number for number in range(50)]
        assert (broker.accepted, broker.open) == (2, 2), "each client has a connection of its own"
    eventually(lambda: broker.open == 0, message="it is closed with its client")


def test_commands_reach_the_controller_and_its_answer_comes_back(server: Server, controller: StubController) -> None:
    with _connect(server) as peer:
        peer.send(b"submit 5000")
        eventually(lambda: controller.open)
        controller.open[0].set_result([])
        assert peer.receive() == b"1 []"
    assert controller.submitted == [([COMMAND], 5000)]


def test_a_command_that_takes_too_long_is_told_so_and_not_taken_back(
    server: Server, controller: StubController
) -> None:
    with _connect(server) as peer:
        answer = peer.ask(b"submit 20")
        assert b"REQUEST_TIMED_OUT" in answer
        assert b"may still be carried out" in answer
        assert not controller.open[0].cancelled()
        controller.open[0].set_exception(ClusterError("late"))  # nobody waits for it any more, and nothing breaks
        assert peer.ask(b"here") == b"here"


def test_where_no_broker_answers_clients_are_closed_and_the_log_says_it_once(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    server = make_server(("127.0.0.1", port))
    for _ in range(5):
        with _connect(server) as peer:
            peer.send(b"x")
            assert peer.closed()
    messages = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
    assert len(messages) == 1
    assert f"no broker takes a connection (127.0.0.1:{port}: " in messages[0]


def test_a_broker_that_hangs_up_ends_its_client_after_the_answers(server: Server, broker: FakeBroker) -> None:
    broker.hang_up = True
    broker.answer = lambda payload: payload * 500_000
    with _connect(server) as peer, _connect(server) as other:
        assert other.ask(b"here") == b"here"
        assert peer.ask(b"last") == b"last" * 500_000
        assert peer.closed()
        assert other.ask(b"here") == b"here"


def test_a_bug_ends_one_connection_and_quotes_nothing(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with _connect(server) as peer, _connect(server) as other:
        peer.send(b"bug password")
        assert peer.closed()
        assert other.ask(b"x") == b"re: x"
    (found,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "a bug, ValueError" in found.getMessage()
    assert "from_client" in found.getMessage()
    assert "password" not in caplog.text


def test_stop_closes_everything_and_says_what_was_answered(
    make_server: MakeServer, broker: FakeBroker, controller: StubController
) -> None:
    server = make_server(broker.address)
    silent = FakeBroker()
    silent.answer = lambda payload: None
    peers = [_connect(server) for _ in range(3)]
    try:
        assert peers[0].ask(b"x") == b"re: x"
        peers[1].send(b"submit 60000")
        peers[2].send(b"submit 60000")
        eventually(lambda: len(controller.open) == 2)
        controller.open[0].set_result([])
        server.stop()
        server.stop()
        told = [peer.socket.recv(100) for peer in peers[1:]]
        assert sorted(told) == [b"", b"\0\0\0\x041 []"]
        assert all(peer.closed() for peer in peers)
    finally:
        silent.close()
        for peer in peers:
            peer.socket.close()
    assert not [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]
    eventually(lambda: broker.open == 0)
    controller.open[1].set_result([])  # too late for anybody
    with pytest.raises(OSError, match="refused"):
        Peer(server.advertised)


def test_large_frames_pass_both_ways(server: Server, broker: FakeBroker) -> None:
    request = bytes(1_000_000)
    broker.answer = lambda payload: payload * 8
    with _connect(server) as peer:
        assert peer.ask(request) == request * 8


def test_fewer_connections_are_taken_where_files_are_few(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(server_module.resource, "getrlimit", lambda what: (1024, 1256))
    monkeypatch.setattr(server_module.resource, "setrlimit", lambda what, to: set_to.append(to))
    assert server_module.affordable(10_000) == 500
    assert set_to == [(1256, 1256)]
    assert "takes 500 connections, not 10000" in caplog.text
    assert server_module.affordable(300) == 300
    assert Quotas().connections_per_peer < Limits().connections


@pytest.fixture
def brokers() -> Iterator[list[FakeBroker]]:
    brokers = [FakeBroker() for _ in range(3)]
    yield brokers
    for broker in brokers:
        broker.close()


def _freeze(broker: FakeBroker) -> None:
    """As a process that is stopped: the system still takes connections for it."""
    broker.answer = lambda payload: None


def _asks(server: Server) -> bytes:
    with Peer(server.advertised) as peer:
        return peer.ask(b"x")


def _gives_up(server: Server, frozen: FakeBroker) -> None:
    """A client that comes to the frozen broker and leaves after a while."""
    known = len(frozen.received)
    with Peer(server.advertised) as peer:
        peer.send(b"x")
        eventually(lambda: len(frozen.received) > known)
    eventually(lambda: frozen.open == 0)


def test_a_frozen_broker_costs_a_client_one_attempt(make_server: MakeServer, brokers: list[FakeBroker]) -> None:
    frozen = brokers[0]
    _freeze(frozen)
    server = make_server(*(broker.address for broker in brokers))
    _gives_up(server, frozen)
    for _ in range(6):
        assert _asks(server) == b"re: x"
    assert [broker.accepted for broker in brokers] == [1, 3, 3]


def test_one_client_at_a_time_finds_out_whether_it_is_back(
    make_server: MakeServer, brokers: list[FakeBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = brokers[0]
    _freeze(frozen)
    server = make_server(*(broker.address for broker in brokers))
    with monkeypatch.context() as brief:
        brief.setattr(upstream_module, "DOUBT_S", 0.0)
        _gives_up(server, frozen)
        assert [_asks(server), _asks(server)] == [b"re: x"] * 2
    with Peer(server.advertised) as patient:
        patient.send(b"x")
        eventually(lambda: frozen.accepted == 2)
        for _ in range(6):
            assert _asks(server) == b"re: x"
        assert frozen.accepted == 2
        frozen.answer = lambda payload: b"back: " + payload
        assert patient.ask(b"y") == b"back: y"
        assert sorted(_asks(server) for _ in range(3)) == [b"back: x", b"re: x", b"re: x"]
