"""How connections of the endpoint end where their peers, or the controller, do what is rare; and rare ApiVersions."""

from __future__ import annotations

import socket
import threading

from modeaware.endpoint.server import THREAD_NAME
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
