"""Which broker a client of the endpoint comes to: each in turn, and those last that hang or cannot be reached."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from modeaware.endpoint import upstream as upstream_module
from modeaware.endpoint.server import Server
from tests.support.endpoint import FakeBroker, MakeServer, Peer
from tests.support.waiting import eventually


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
