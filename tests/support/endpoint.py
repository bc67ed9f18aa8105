"""An endpoint's server without Kafka: a stand-in for its brokers, its sessions and its controller, and a plain peer."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from typing import Any, Self, cast

import pytest

from modeaware.endpoint import server as server_module
from modeaware.endpoint.facade import Action, ControllerView, Outcome, Submit, ToClient, ToUpstream
from modeaware.endpoint.limits import EndpointLimits
from modeaware.endpoint.server import Server
from modeaware.endpoint.transport import Upstream
from modeaware.errors import ModeAwareError
from modeaware.lifecycle.commands import Command, CommandResult, DeletePartitionsCommand
from modeaware.wire.frames import MAX_RESPONSE_BYTES, FrameReader, MalformedFrame, frame
from tests.support import conversation
from tests.support.conversation import RO, RW

TIMEOUT_S = 20.0
COMMAND = DeletePartitionsCommand("orders", 1)


class FakeBroker:
    """Answers each frame with what ``answer`` makes of it, from a thread for each connection.

    Attributes:
        answer: returns None for no answer; an OSError or a MalformedFrame that it raises closes the connection.
        received: all frames.
        open: how many connections are open now; ``accepted``: how many there were.
        sent_bytes: what sockets have taken.
        hang_up: it closes a connection after each answer.
        certificates: those that clients presented, with TLS.
    """

    def __init__(self, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self.address = (host, 0)
        self._tls = tls
        self.answer: Callable[[bytes], bytes | None] = lambda payload: b"re: " + payload
        self.received: list[bytes] = []
        self.certificates: list[bytes | None] = []
        self.accepted = self.open = self.sent_bytes = 0
        self.hang_up = False
        self.start()

    def start(self) -> None:
        """Listen; again on the same port."""
        self._listening = socket.create_server(self.address)
        self.address = (self.address[0], int(self._listening.getsockname()[1]))
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._threads[0].join()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.accepted += 1
            self._connections.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        self.open += 1
        try:
            self._converse(connection)
        except (OSError, MalformedFrame):
            pass  # closed by the other side, or by close(); or TLS where none is spoken
        finally:
            self.open -= 1
            connection.close()

    def _converse(self, connection: socket.socket) -> None:
        if self._tls is not None:
            connection = self._tls.wrap_socket(connection, server_side=True)
            self.certificates.append(connection.getpeercert(binary_form=True))
        with connection:
            frames = FrameReader(MAX_RESPONSE_BYTES)
            while data := connection.recv(65_536):
                for payload in frames.receive(data):
                    self.received.append(payload)
                    if (answer := self.answer(payload)) is not None:
                        self._send(connection, frame(answer, MAX_RESPONSE_BYTES))
                    if self.hang_up:
                        return

    def _send(self, connection: socket.socket, data: bytes) -> None:
        while data:
            sent = connection.send(data[:65_536])
            self.sent_bytes += sent
            data = data[sent:]


class FakeSession:
    """Passes frames on, except for some words.

    ``here...`` is answered here, ``submit`` and ``bug`` are what they say; a ``submit`` is answered with its outcome.
    Where brokers require SASL, the user is authenticated by ``login``, and no longer by ``stranger``.
    """

    def __init__(self, limits: EndpointLimits, sasl: bool = False) -> None:
        self._limits = limits
        self.held_bytes = 0
        self.pending = 0
        self.judging = False
        self.authenticated = not sasl
        self._tickets = 0

    @property
    def wants_more(self) -> bool:
        return self.pending < self._limits.pipeline

    def from_client(self, payload: bytes) -> list[Action]:
        assert self.wants_more
        word = payload.split()[0] if payload.split() else b""
        if word in (b"stranger", b"login"):
            self.authenticated = word == b"login"
        if word in (b"here", b"stranger", b"login"):
            return [ToClient(payload)]
        if word == b"bug":
            raise ValueError(payload.decode())
        self.pending += 1
        if word == b"submit":
            self._tickets += 1
            return [Submit(self._tickets, (COMMAND,), int(payload.split()[1]))]
        return [ToUpstream(payload)]

    def from_upstream(self, payload: bytes) -> list[Action]:
        self.pending -= 1
        return [ToClient(payload)]

    def resolved(self, ticket: int, outcome: Outcome) -> list[Action]:
        self.pending -= 1
        told = f"{outcome.code!r} {outcome}" if isinstance(outcome, ModeAwareError) else repr(outcome)
        return [ToClient(f"{ticket} {told}".encode())]


class StubController:
    """Takes commands as a controller does.

    Attributes:
        answer: makes a command's result: two partitions, one of them retired, unless a test says otherwise.
        silent: commands are left open, in ``open``.
        submitted: what came, with its timeout in ms; ``commands``: the same, one by one.
    """

    def __init__(self) -> None:
        self.answer: Callable[[Command], CommandResult] = lambda command: CommandResult(command.topic, modes=(RW, RO))
        self.silent = False
        self.open: list[Future[list[CommandResult]]] = []
        self.submitted: list[tuple[Sequence[Command], int]] = []

    @property
    def commands(self) -> list[Command]:
        return [command for commands, _ in self.submitted for command in commands]

    def submit(self, commands: Sequence[Command], timeout_ms: int) -> Future[list[CommandResult]]:
        self.submitted.append((list(commands), timeout_ms))
        future: Future[list[CommandResult]] = Future()
        if self.silent:
            self.open.append(future)
        else:
            future.set_result([self.answer(command) for command in commands])
        return future

    def refresh(self) -> Future[None]:
        future: Future[None] = Future()
        future.set_result(None)
        return future


class Peer:
    """A client that sends and receives whole frames, or bytes."""

    def __init__(self, address: tuple[str, int], tls: ssl.SSLContext | None = None, source: str = "127.0.0.1") -> None:
        plain = socket.create_connection(address, TIMEOUT_S, source_address=(source, 0))
        self.socket = tls.wrap_socket(plain, server_hostname=address[0]) if tls is not None else plain
        self._reader = FrameReader(MAX_RESPONSE_BYTES)
        self._frames: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.socket.close()

    def send(self, *payloads: bytes) -> None:
        """All in one write."""
        self.socket.sendall(b"".join(frame(payload, MAX_RESPONSE_BYTES) for payload in payloads))

    def receive(self) -> bytes:
        while not self._frames:
            if not (data := self.socket.recv(65_536)):
                raise ConnectionResetError("closed by the peer")
            self._frames += self._reader.receive(data)
        return self._frames.pop(0)

    def ask(self, payload: bytes) -> bytes:
        self.send(payload)
        return self.receive()

    def closed(self) -> bool:
        """Wait until it is; what had still come is passed over."""
        with suppress(ConnectionResetError):
            while self.socket.recv(65_536):
                pass
        return True


def announce(length: int) -> bytes:
    """The beginning of a frame."""
    return struct.pack(">i", length)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


MakeServer = Callable[..., Server]
"""``make(*broker_addresses, limits=..., tls=..., upstream=...)``: a started server with fake sessions."""


@contextmanager
def servers(monkeypatch: pytest.MonkeyPatch, controller: StubController) -> Iterator[MakeServer]:
    """Makes servers, and stops them at the end."""
    monkeypatch.setattr(server_module, "ClientSession", lambda desk, limits, sasl, cache: FakeSession(limits, sasl))
    monkeypatch.setattr(server_module, "Answers", lambda limits: None)
    started: list[Server] = []

    def make(*brokers: tuple[str, int], **arguments: Any) -> Server:
        upstream = arguments.pop("upstream", None) or Upstream(brokers)
        desk = cast(ControllerView, None)  # fake sessions ask nothing
        started.append(Server("127.0.0.1:0", desk, controller.submit, controller.refresh, upstream, **arguments))
        started[-1].start()
        return started[-1]

    yield make
    for server in started:
        server.stop()


EVERY_RIGHT = 0x7FF8


class _Any(dict[str, int]):
    """The same rights on every topic there might be."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> int:
        return EVERY_RIGHT


def permit(payload: bytes) -> bytes:
    """The answer of a broker that has every topic, to a user who may do everything."""
    return conversation.FakeBroker(_Any(), EVERY_RIGHT, asked=deque([payload])).answer()


@contextmanager
def served(
    controller: StubController, controller_id: str, *, active: bool = True, **arguments: Any
) -> Iterator[Server]:
    """An endpoint before ``controller``; ``arguments`` are the Server's own."""
    broker = FakeBroker()
    broker.answer = permit
    desk = conversation.FakeDesk(active=active, controller_id=controller_id)
    upstream = Upstream([broker.address])
    server = Server("127.0.0.1:0", desk, controller.submit, controller.refresh, upstream, **arguments)
    with closing(broker):
        server.start()
        try:
            yield server
        finally:
            server.stop()
