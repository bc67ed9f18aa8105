"""The endpoint's server with real sockets: what is carried where, to which broker, how it ends, and hostile peers."""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any
from unittest.mock import Mock

import pytest

from modeaware.endpoint import server as server_module
from modeaware.endpoint import transport as transport_module
from modeaware.endpoint.facade import Action
from modeaware.endpoint.limits import EndpointLimits, RateLimitedLogger
from modeaware.endpoint.server import THREAD_NAME, Server
from modeaware.endpoint.transport import Link, Upstream
from modeaware.errors import ClusterError, ConfigError
from tests.support.endpoint import FakeBroker, FakeSession, MakeServer, Peer, StubController, announce, free_port
from tests.support.waiting import eventually


@pytest.fixture
def server(make_server: MakeServer, broker: FakeBroker) -> Server:
    return make_server(broker.address)


def test_a_command_that_takes_too_long_is_told_so_and_not_taken_back(
    server: Server, controller: StubController
) -> None:
    with Peer(server.advertised) as peer:
        answer = peer.ask(b"submit 20")
        assert b"REQUEST_TIMED_OUT" in answer
        assert b"may still be carried out" in answer
        assert not controller.open[0].cancelled()
        controller.open[0].set_exception(ClusterError("late"))  # nobody waits for it any more, and nothing breaks
        assert peer.ask(b"here") == b"here"


def test_command_that_the_controller_drops_or_fails_on_is_an_error_and_the_connection_stays(
    server: Server, controller: StubController, caplog: pytest.LogCaptureFixture
) -> None:
    controller.silent = True
    with Peer(server.advertised) as peer:
        for number, (end, told) in enumerate(
            [
                (lambda future: future.cancel(), b"dropped the request"),
                (lambda future: future.set_exception(ValueError("oops")), b"the controller failed: ValueError: oops"),
            ]
        ):
            peer.send(b"submit 60000")
            eventually(lambda number=number: len(controller.open) > number)
            end(controller.open[number])
            assert told in peer.receive()
        assert peer.ask(b"here") == b"here"
    assert "failed unexpectedly: ValueError: oops" in caplog.text


def test_where_no_broker_answers_clients_are_closed_and_the_log_says_it_once(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    server = make_server(("127.0.0.1", port))
    for _ in range(5):
        with Peer(server.advertised) as peer:
            peer.send(b"x")
            assert peer.closed()
    (message,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
    assert f"no broker accepts a connection (127.0.0.1:{port}: " in message


def test_a_broker_that_hangs_up_ends_its_client_after_the_answers(server: Server, broker: FakeBroker) -> None:
    broker.hang_up = True
    broker.answer = lambda payload: payload * 500_000
    with Peer(server.advertised) as peer, Peer(server.advertised) as other:
        assert other.ask(b"here") == b"here"
        assert peer.ask(b"last") == b"last" * 500_000
        assert peer.closed()
        assert other.ask(b"here") == b"here"


def test_a_bug_ends_one_connection_and_quotes_nothing(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with Peer(server.advertised) as peer, Peer(server.advertised) as other:
        peer.send(b"bug password")
        assert peer.closed()
        assert other.ask(b"x") == b"re: x"
    (found,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "a bug, ValueError" in found.getMessage()
    assert "from_client" in found.getMessage()
    assert "password" not in caplog.text


def test_stop_closes_everything_and_says_what_was_answered(
    server: Server, broker: FakeBroker, controller: StubController
) -> None:
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer(server.advertised)) for _ in range(3)]
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
    assert not [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]
    eventually(lambda: broker.open == 0)
    controller.open[1].set_result([])  # too late for anybody
    with pytest.raises(OSError, match="refused"):
        Peer(server.advertised)


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

    def forbidden(what: int, to: tuple[int, int]) -> None:
        raise OSError("sandbox")

    monkeypatch.setattr(server_module.resource, "setrlimit", forbidden)
    assert server_module.affordable(10_000) < 500
    assert "cannot have more than 1024 files open: sandbox" in caplog.text
    assert EndpointLimits().connections_per_peer < EndpointLimits().connections


def test_lines_that_were_left_out_of_the_log_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    times = iter((0.0, 1.0, 2.0, 31.0))
    log = RateLimitedLogger(lambda: next(times), lines=1)
    for _ in range(4):
        log.log(logging.WARNING, "refused", "refused a peer")
    assert caplog.messages == ["refused a peer", "refused: 2 more", "refused a peer"]
    with pytest.raises(ConfigError, match="cannot listen on 'nowhere'"):
        server_module.resolve("nowhere")


@pytest.fixture
def brokers() -> Iterator[list[FakeBroker]]:
    """The first is as a process that is stopped: the system still takes connections for it."""
    brokers = [FakeBroker() for _ in range(3)]
    brokers[0].answer = lambda payload: None
    yield brokers
    for broker in brokers:
        broker.close()


@pytest.fixture
def server_of_three(make_server: MakeServer, brokers: list[FakeBroker]) -> Server:
    return make_server(*(broker.address for broker in brokers))


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


def test_a_frozen_broker_costs_a_client_one_attempt(server_of_three: Server, brokers: list[FakeBroker]) -> None:
    _gives_up(server_of_three, brokers[0])
    for _ in range(6):
        assert _asks(server_of_three) == b"re: x"
    assert [broker.accepted for broker in brokers] == [1, 3, 3]


def test_one_client_at_a_time_finds_out_whether_it_is_back(
    server_of_three: Server, brokers: list[FakeBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, frozen = server_of_three, brokers[0]
    with monkeypatch.context() as brief:
        brief.setattr(transport_module, "DOUBT_S", 0.0)
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


@pytest.mark.parametrize("failure", [OSError(errno.EMFILE, "Too many open files"), ValueError("a bug")])
def test_what_fails_at_the_start_is_raised_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise failure

    port = free_port()
    nothing: Any = None  # no client gets as far as to ask
    server = Server(f"127.0.0.1:{port}", nothing, nothing, nothing, Upstream([("127.0.0.1", 1)]))
    monkeypatch.setattr(server_module, "ConnectionSlots", fail)
    with pytest.raises(ConfigError, match=re.escape(str(failure))) as raised:
        server.start()
    assert raised.value.__cause__ is failure
    with pytest.raises(OSError, match="refused"):
        Peer(("127.0.0.1", port))
    server.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]


@pytest.mark.parametrize("family", [None, "v4"])
def test_broker_is_reached_though_the_first_address_of_its_name_is_dead(
    monkeypatch: pytest.MonkeyPatch, broker: FakeBroker, family: str | None
) -> None:
    host, port = broker.address
    asked: list[int] = []

    async def addresses(_: object, name: str, at: int, *, family: int, **__: object) -> list[Any]:
        asked.append(family)
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (each, port)) for each in (dead, host)]

    async def connect() -> None:
        monkeypatch.setattr(type(asyncio.get_running_loop()), "getaddrinfo", addresses)
        upstream = Upstream.from_conf({"bootstrap.servers": f"kafka:{port}", "broker.address.family": family})
        link = await upstream.connect(lambda tls, opened: Link(Mock(), memoryview(bytearray(1)), 1, tls, opened))
        link.abort()

    dead = "127.0.0.3"  # connections wait in a queue that is full
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind((dead, port))
        listening.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((dead, port))
        asyncio.run(connect())
    assert asked == [socket.AF_INET if family else socket.AF_UNSPEC]


# Slow and hostile peers: each is closed, and no other notices


SOON_S = 0.5


@pytest.fixture
def hasty(make_server: MakeServer, broker: FakeBroker) -> Server:
    return make_server(broker.address, limits=EndpointLimits(drain_s=SOON_S, linger_s=SOON_S))


@pytest.fixture
def witness(hasty: Server) -> Iterator[Peer]:
    """Another client, served before and after."""
    with Peer(hasty.advertised) as witness:
        assert witness.ask(b"before") == b"re: before"
        yield witness
        assert witness.ask(b"after") == b"re: after"


RUBBISH = {
    "negative length": announce(-1),
    "one byte too many": announce(EndpointLimits().request_bytes + 1),
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


@pytest.mark.parametrize("rubbish", RUBBISH.values(), ids=RUBBISH)
def test_rubbish_closes_its_connection(
    hasty: Server, witness: Peer, rubbish: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with Peer(hasty.advertised) as peer:
        peer.socket.sendall(rubbish)
        assert peer.closed()
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "closed the connection of 127.0.0.1:" in warning
    assert "bytes was announced" in warning


@pytest.mark.parametrize(("begun", "drop"), [(b"\0\0", b""), (announce(100_000), b"x")])
def test_who_drips_bytes_is_closed_after_the_idle_time(
    make_server: MakeServer, broker: FakeBroker, begun: bytes, drop: bytes
) -> None:
    server = make_server(broker.address, limits=EndpointLimits(idle_s=SOON_S))
    with Peer(server.advertised) as fresh, Peer(server.advertised) as known:
        assert known.ask(b"here") == b"here"
        for peer in (fresh, known):
            peer.socket.sendall(begun)
            peer.socket.settimeout(0.01)
            eventually(lambda peer=peer: _closed_after(peer, drop), interval_s=0.0)


def _closed_after(peer: Peer, drop: bytes) -> bool:
    try:
        peer.socket.sendall(drop)
        while peer.socket.recv(100):
            pass
        return True
    except TimeoutError:
        return False
    except OSError:  # by a reset
        return True


def test_the_idle_time_stands_still_while_the_controller_works(
    make_server: MakeServer, broker: FakeBroker, controller: StubController
) -> None:
    server = make_server(broker.address, limits=EndpointLimits(idle_s=SOON_S))
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
    hasty: Server, broker: FakeBroker, witness: Peer
) -> None:
    size, count = 1_000_000, 90
    broker.answer = lambda payload: bytes(size) if payload.startswith(b"big") else b"re: " + payload
    with Peer(hasty.advertised) as peer:
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        peer.send(*[b"big"] * count)
        eventually(lambda: broker.open == 1, message="only the witness's is left")
    assert broker.sent_bytes < size * count / 2, "what the client does not take stays at the broker"


def test_connections_beyond_the_limit_are_closed(
    make_server: MakeServer, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server(broker.address, limits=EndpointLimits(connections=3, connections_per_peer=2))
    here, there = "127.0.0.1", "127.0.0.2"
    with Peer(server.advertised, source=here) as one, Peer(server.advertised, source=here) as two:
        assert [one.ask(b"1"), two.ask(b"2")] == [b"re: 1", b"re: 2"]
        with Peer(server.advertised, source=here) as of_one_address:
            assert of_one_address.closed()
        with Peer(server.advertised, source=there) as three:
            assert three.ask(b"3") == b"re: 3"
            with Peer(server.advertised, source=there) as of_all:
                assert of_all.closed()
        assert [one.ask(b"1"), two.ask(b"2")] == [b"re: 1", b"re: 2"]
    assert "2 connections from 127.0.0.1 are open" in caplog.text
    assert "3 connections are open, the limit" in caplog.text
    eventually(lambda: _served(server), message="places are given back")


def _with_sasl(broker: FakeBroker) -> Upstream:
    return Upstream([broker.address], "SASL_PLAINTEXT")


def test_users_that_are_not_authenticated_keep_no_slots(make_server: MakeServer, broker: FakeBroker) -> None:
    server = make_server(upstream=_with_sasl(broker), limits=EndpointLimits(connections=2))
    with ExitStack() as stack:
        strangers = [stack.enter_context(Peer(server.advertised)) for _ in range(2)]
        assert [each.ask(b"stranger") for each in strangers] == [b"stranger"] * 2
        users = [stack.enter_context(Peer(server.advertised)) for _ in range(2)]
        assert [each.ask(b"login") for each in users] == [b"login"] * 2
        assert all(each.closed() for each in strangers)
        with Peer(server.advertised) as other:
            assert other.closed()
        assert [each.ask(b"x") for each in users] == [b"re: x"] * 2


def test_requests_do_not_extend_the_time_to_authenticate(make_server: MakeServer, broker: FakeBroker) -> None:
    server = make_server(upstream=_with_sasl(broker), limits=EndpointLimits(establish_s=SOON_S))
    with Peer(server.advertised) as user, Peer(server.advertised) as stranger:
        assert user.ask(b"login") == b"login"
        hello = struct.pack(">i", len(b"stranger")) + b"stranger"
        stranger.socket.settimeout(0.01)
        eventually(lambda: _closed_after(stranger, hello), interval_s=0.05)
        assert user.ask(b"stranger") == b"stranger", "to authenticate again takes nothing away"
        assert user.ask(b"here") == b"here"


def test_a_small_request_does_not_wait_for_all_of_another_connections(
    make_server: MakeServer, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[bytes] = []
    from_client = FakeSession.from_client

    def slow(session: FakeSession, payload: bytes) -> list[Action]:
        handled.append(payload[:4])
        end_s = time.thread_time() + 0.02 * payload.startswith(b"here ")
        while time.thread_time() < end_s:
            pass
        return from_client(session, payload)

    monkeypatch.setattr(FakeSession, "from_client", slow)
    server = make_server(broker.address)
    with Peer(server.advertised) as hostile, Peer(server.advertised) as operator:
        hostile.send(*[b"here " + bytes(500)] * 100)
        eventually(lambda: handled, interval_s=0.001)
        assert operator.ask(b"x") == b"re: x"
        assert handled.index(b"x") < 90


def _served(server: Server) -> bool:
    with suppress(ConnectionResetError):
        return _asks(server) == b"re: x"
    return False


def test_who_holds_most_goes_when_all_hold_too_much(
    make_server: MakeServer, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server(broker.address, limits=EndpointLimits(buffered_bytes=1_200_000))
    with Peer(server.advertised) as greedy, Peer(server.advertised) as modest, Peer(server.advertised) as other:
        assert modest.ask(b"x") == b"re: x"
        greedy.socket.sendall(announce(1_000_000) + bytes(900_000))
        other.socket.sendall(announce(1_000_000) + bytes(400_000))
        assert greedy.closed()
        other.socket.sendall(bytes(600_000))
        assert len(other.receive()) == 1_000_004
        assert modest.ask(b"y") == b"re: y"
    assert "and this one holds most of them" in caplog.text
