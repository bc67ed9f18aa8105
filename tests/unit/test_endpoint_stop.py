"""The end of an endpoint's server while clients still dial: it leaves no socket open."""

from __future__ import annotations

import gc
import socket
import threading

from tests.support.endpoint import TIMEOUT_S, free_port, relay


class Dialer(threading.Thread):
    """Connects again and again until nobody listens."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__()
        self._address = address
        self.enough = threading.Event()

    def run(self) -> None:
        connections = []
        try:
            while True:
                connections.append(socket.create_connection(self._address, TIMEOUT_S))
                if len(connections) > 20:
                    self.enough.set()
        except OSError:
            self.enough.set()
        for connection in connections:
            connection.close()


def test_a_connection_that_comes_as_it_stops_is_closed() -> None:
    """One that asyncio has accepted and not yet handed over would be left to the garbage collector, with a warning."""
    for _ in range(8):
        with relay({"bootstrap.servers": f"127.0.0.1:{free_port()}"}) as server:
            host, _, port = server.address.rpartition(":")
            dialer = Dialer((host, int(port)))
            dialer.start()
            assert dialer.enough.wait(TIMEOUT_S)
        dialer.join(TIMEOUT_S)
        gc.collect()
