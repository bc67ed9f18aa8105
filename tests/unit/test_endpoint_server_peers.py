"""Slow and hostile peers of the endpoint's server: each is closed, and no other notices."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator

import pytest

from modeaware.endpoint.limits import Limits
from modeaware.endpoint.quotas import Quotas
from modeaware.endpoint.server import Server
from tests.support.endpoint import FakeBroker, MakeServer, Peer, StubController, announce
from tests.support.waiting import eventually

SOON_S = 0.5


@pytest.fixture
def server(make_server: MakeServer, broker: FakeBroker) -> Server:
    return make_server(broker.address, quotas=Quotas(drain_s=SOON_S, linger_s=SOON_S))


@pytest.fixture
def witness(server: Server) -> Iterator[Peer]:
    """Another client, served before and after."""
    with Peer(server.advertised) as witness:
        assert witness.ask(b"before") == b"re: before"
        yield witness
        assert witness.ask(b"after") == b"re: after"


RUBBISH = {
    "negative length": announce(-1),
    "one byte too many": announce(Limits().request_bytes + 1),
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


@pytest.mark.parametrize("rubbish", RUBBISH.values(), ids=RUBBISH)
def test_rubbish_closes_its_connection(
    server: Server, witness: Peer, rubbish: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with Peer(server.advertised) as peer:
        peer.socket.sendall(rubbish)
        assert peer.closed()
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "closed the connection of 127.0.0.1:" in warning
    assert "bytes was announced" in warning


@pytest.mark.parametrize(("begun", "drop"), [(b"\0\0", b""), (announce(100_000), b"x")])
def test_who_drips_bytes_is_closed_after_the_idle_time(
    make_server: MakeServer, broker: FakeBroker, begun: bytes, drop: bytes
) -> None:
    server = make_server(broker.address, limits=Limits(idle_s=SOON_S))
    with Peer(server.advertised) as fresh, Peer(server.advertised) as known:
        assert known.ask(b"here") == b"here"
        for peer in (fresh, known):
            peer.socket.sendall(begun)
            peer.socket.settimeout(0.01)
            eventually(lambda peer=peer: _closed_after(peer, drop), interval_s=0.0)


def _closed_after(peer: Peer, drop: bytes) -> bool:
    try:
        peer.socket.sendall(drop)
        return not peer.socket.recv(100)
    except TimeoutError:
        return False
    except OSError:  # by a reset
        return True


def test_the_idle_time_stands_still_while_the_controller_works(
    make_server: MakeServer, broker: FakeBroker, controller: StubController
) -> None:
    server = make_server(broker.address, limits=Limits(idle_s=SOON_S))
    with Peer(server.advertised) as waits, Peer(server.advertised) as rests:
        waits.send(b"submit 20000")
        assert rests.ask(b"here") == b"here"
        for _ in range(3):
            with Peer(server.advertised) as other:
                assert other.closed()  # its idle time has passed meanwhile
        controller.open[0].set_result([])
        assert waits.receive() == b"1 []"
        assert waits.closed()


def test_who_reads_no_answers_is_closed_and_its_broker_is_not_emptied(
    server: Server, broker: FakeBroker, witness: Peer
) -> None:
    size, count = 1_000_000, 90
    broker.answer = lambda payload: bytes(size) if payload.startswith(b"big") else b"re: " + payload
    with Peer(server.advertised) as peer:
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        peer.send(*[b"big"] * count)
        eventually(lambda: broker.open == 1, message="only the witness's is left")
    assert broker.sent_bytes < size * count / 2, "what the client does not take stays at the broker"


def test_connections_beyond_the_limit_are_closed(
    make_server: MakeServer, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server(broker.address, limits=Limits(connections=3), quotas=Quotas(connections_per_peer=2))
    here, there = "127.0.0.1", "127.0.0.2"
    with Peer(server.advertised, source=here) as one, Peer(server.advertised, source=here) as two:
        assert [one.ask(b"1"), two.ask(b"2")] == [b"re: 1", b"re: 2"]
        with Peer(server.advertised, source=here) as of_one_address:
            assert of_one_address.closed()
        with Peer(server.advertised, source=there) as three, Peer(server.advertised, source=there) as of_all:
            assert three.ask(b"3") == b"re: 3"
            assert of_all.closed()
        assert [one.ask(b"1"), two.ask(b"2")] == [b"re: 1", b"re: 2"]
    assert "2 of 127.0.0.1 are open" in caplog.text
    assert "3 are open, as many as are taken" in caplog.text
    eventually(lambda: _served(server), message="places are given back")


def _served(server: Server) -> bool:
    with Peer(server.advertised) as peer:
        peer.send(b"x")
        try:
            return bool(peer.socket.recv(100))
        except ConnectionResetError:
            return False


def test_who_holds_most_goes_when_all_hold_too_much(
    make_server: MakeServer, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server(broker.address, quotas=Quotas(buffered_bytes=1_200_000))
    with Peer(server.advertised) as greedy, Peer(server.advertised) as modest, Peer(server.advertised) as other:
        assert modest.ask(b"x") == b"re: x"
        greedy.socket.sendall(announce(1_000_000) + bytes(900_000))
        other.socket.sendall(announce(1_000_000) + bytes(400_000))
        assert greedy.closed()
        other.socket.sendall(bytes(600_000))
        assert len(other.receive()) == 1_000_004
        assert modest.ask(b"y") == b"re: y"
    assert "holds most" in caplog.text
