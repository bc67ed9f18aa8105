"""How connections of the endpoint end where their peers, or the controller, do what is rare; and rare ApiVersions."""

from __future__ import annotations

import logging
import socket
import struct
import threading
from typing import cast

import pytest

from modeaware.endpoint import api_versions
from modeaware.endpoint.link import Link, LinkOwner
from modeaware.endpoint.server import THREAD_NAME
from modeaware.endpoint.upstream import Upstream
from modeaware.wire import stock
from tests.support.conversation import broker_versions
from tests.support.endpoint import FakeBroker, FakeController, MakeServer, Peer
from tests.support.waiting import eventually

BIG = 8_000_000


def _small_window(peer: Peer) -> None:
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)


def test_a_command_that_the_controller_drops_is_told(
    make_server: MakeServer, broker: FakeBroker, controller: FakeController
) -> None:
    with Peer(make_server(broker.address).advertised) as peer:
        peer.send(b"submit 20000")
        eventually(lambda: len(controller.open) == 1)
        assert controller.open[0].cancel()
        assert b"the controller has dropped it" in peer.receive()


def test_stop_does_not_wait_for_who_takes_nothing(make_server: MakeServer, broker: FakeBroker) -> None:
    broker.answer = lambda payload: bytes(BIG)
    server = make_server(broker.address)
    with Peer(server.advertised) as peer:
        _small_window(peer)
        peer.send(b"x")
        eventually(lambda: broker.sent_bytes > BIG / 2)
        server.stop()
        assert peer.closed()
    assert not [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]


def test_a_client_that_resets_its_connection_is_noted(
    make_server: MakeServer, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with Peer(make_server(broker.address).advertised) as peer:
        assert peer.ask(b"x") == b"re: x"
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    eventually(lambda: broker.open == 0)
    eventually(lambda: "lost the connection of 127.0.0.1:" in caplog.text)


def test_a_bug_on_the_way_to_a_broker_ends_one_connection(
    make_server: MakeServer, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server(broker.address)

    what = "of whatever kind"  # elsewhere: a traceback quotes the line that raises

    async def broken(*_: object) -> Link:
        raise ValueError(what)

    with Peer(server.advertised) as known, Peer(server.advertised) as peer:
        assert known.ask(b"x") == b"re: x"
        monkeypatch.setattr(Upstream, "_connect_to", broken)
        peer.send(b"y")
        assert peer.closed()
        assert known.ask(b"z") == b"re: z"
    (message,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert "a bug, ValueError" in message
    assert what not in message


@pytest.mark.parametrize("version", range(5))
def test_what_a_broker_does_not_offer_is_not_offered_for_it(version: int) -> None:
    """But for what the endpoint does itself."""
    answer = broker_versions(version, 7, {18: (0, 4), 19: (0, 7), 75: (0, 0)})
    correlation_id, told = stock.decode_response(
        api_versions.rewritten(answer, version, "c1", modes=True), stock.API_VERSIONS_KEY, version
    )
    assert correlation_id == 7
    assert {each.api_key for each in told.api_keys} == {18, 19, *api_versions.OURS}


def test_a_broker_without_finalised_features_gets_none() -> None:
    message = stock.ApiVersionsResponse(error_code=0, api_keys=[(18, 0, 4)])
    answer = stock.encode_response(message, 3, 7)
    told = stock.decode_response(api_versions.rewritten(answer, 3, "c1", modes=True), stock.API_VERSIONS_KEY, 3)[1]
    assert not told.finalized_features
    assert told.finalized_features_epoch == -1
    assert {each.name for each in told.supported_features} == {"partition.mode", "modeaware.controller.c1"}


class _Owner:
    """Is told nothing in these tests."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"{name} was told")


def test_a_link_that_is_not_connected_carries_nothing() -> None:
    link = Link(cast(LinkOwner, _Owner()), memoryview(bytearray(100)), 100, None)
    link.send(b"x")
    link.read(True)
    link.close()
    assert (link.ready, link.held_bytes) == (False, 0)


def test_a_link_that_is_closed_takes_nothing() -> None:
    room = memoryview(bytearray(b"\0\0\0\1x"))
    link = Link(cast(LinkOwner, _Owner()), room, 100, None)
    link.abort()
    link.buffer_updated(5)
    assert link.held_bytes == 0
