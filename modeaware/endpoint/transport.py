"""The asyncio transport: frames over TCP with or without TLS, and connections to the brokers.

TLS is done here without IO, ciphertext in and plaintext out, in pieces no larger than one TLS record. asyncio's own TLS
would keep a buffer of 256 KiB for every connection: half a gigabyte for a thousand clients, each with a connection to a
broker. Everything runs in the loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from modeaware.errors import ClusterError, ConfigError, ErrorCode
from modeaware.wire import security
from modeaware.wire.frames import FrameReader, MalformedFrame, frame
from modeaware.wire.security import DEFAULT_PORT, split_address

RECEIVE_BYTES = 65_536
_LARGEST_BYTES = 2**31 - 1  # no further limit for data to send: its size was checked when it was received or made
_KEEPALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
"""With these values, a peer whose host is gone is detected after two minutes."""
RECORD_BYTES = 16_384
"""The most plaintext in one TLS record (RFC 8446, section 5.1)."""
CONNECT_TIMEOUT_S = 5.0
NEXT_ADDRESS_S = 0.25
"""The time after which the next address of a server is tried in parallel (RFC 8305)."""
DOUBT_S = 60.0
"""How long a server is tried after all others, if it accepted no connection, or accepted one but sent nothing."""


# TLS


def server_context(certificate: str | Path, key: str | Path | None = None) -> ssl.SSLContext:
    """Return the endpoint's side of TLS 1.2 and later. It requests no client certificate.

    Raises:
        ConfigError: a file cannot be read, is no PEM or needs a password; or the key is not that of the certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0  # no session tickets: a returning client makes a full handshake, and no state is kept
    try:
        # If no password were given, OpenSSL would prompt for one, and block. With the empty one it raises an error.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        files = f"{certificate} and {key}" if key else str(certificate)
        raise ConfigError(
            f"the endpoint's certificate cannot be used ({files}): {error}. Pass two PEM files: the certificate "
            "with its chain, and its private key without a password"
        ) from error
    return context


class TlsStream:
    """One side of one TLS connection. Not thread-safe."""

    def __init__(self, context: ssl.SSLContext, server_hostname: str | None = None) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_hostname is None, server_hostname=server_hostname
        )
        self.ready = False
        """Whether the handshake is complete. Before that, nothing can be encrypted."""

    def start(self) -> bytes:
        """Return the first bytes to send: a client's ClientHello; for a server, none."""
        self._shake_hands()
        return self._outgoing.read()

    def receive(self, ciphertext: memoryview) -> tuple[bytes, bytes]:
        """Take bytes from the peer; return the plaintext that is now complete, and the bytes to send."""
        plaintext = bytearray()
        while ciphertext:  # piece by piece: OpenSSL's buffers never shrink again
            self._incoming.write(ciphertext[:RECORD_BYTES])
            ciphertext = ciphertext[RECORD_BYTES:]
            if self.ready or self._shake_hands():
                # After a closing alert (SSLZeroReturnError) the connection ends anyway.
                with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                    while data := self._tls.read(RECORD_BYTES):
                        plaintext += data
        return bytes(plaintext), self._outgoing.read()

    def encrypt(self, plaintext: bytes) -> Iterator[bytes]:
        """Yield ``plaintext`` as TLS records. Call it only once the stream is ready."""
        rest = memoryview(plaintext)
        while rest:
            written = self._tls.write(rest[:RECORD_BYTES])
            rest = rest[written:]
            yield self._outgoing.read()

    def closing_bytes(self) -> bytes:
        """Return the TLS alert to send before the connection is closed: the closing alert, or an error's alert."""
        if self.ready:
            # Do not wait for the peer's own closing alert: after a failure it does not come.
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
        return self._outgoing.read()

    def _shake_hands(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self.ready = True
        return True


# One connection


class LinkOwner(Protocol):
    """The events of a link."""

    def link_made(self, link: Link) -> None:
        """The link is connected; its TLS handshake may be unfinished. Not called for a link made with a future."""

    def link_frames(self, link: Link, frames: list[bytes]) -> None:
        """Bytes have arrived, and have completed these frames, possibly none."""

    def link_failed(self, link: Link, error: MalformedFrame | ssl.SSLError) -> None:
        """The peer sent an invalid frame or invalid TLS; reading has stopped. The owner has to close the link."""

    def link_full(self, link: Link, full: bool) -> None:
        """If ``full``, the peer accepts data more slowly than data is sent; otherwise it has caught up."""

    def link_eof(self, link: Link) -> None:
        """The peer sends no more. The owner has to close the link."""

    def link_lost(self, link: Link, error: Exception | None) -> None:
        """The link was closed, by either side. No further method is called."""


class Link(asyncio.BufferedProtocol):
    """Frames over one connection."""

    def __init__(
        self,
        owner: LinkOwner,
        room: memoryview,
        max_bytes: int,
        tls: TlsStream | None,
        opened: asyncio.Future[None] | None = None,
    ) -> None:
        self._owner = owner
        self._room = room
        self._tls = tls
        self._opened = opened
        self._frames = FrameReader(max_bytes)
        self._transport: asyncio.Transport | None = None
        self._closing = False
        self._buffered = 0
        self.peer: tuple[str, int] = ("?", 0)
        """Address and port at the other end."""
        self.judge: Callable[[bool], None] | None = None
        """Called once: with True at the peer's first frame, or with False if the link ends without a frame."""

    @property
    def held_bytes(self) -> int:
        """Return how many bytes are kept for this link: an incomplete frame, and data not accepted by the peer yet."""
        unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return self._buffered + unsent

    def send(self, payload: bytes) -> None:
        """Send a frame; send nothing if the link is closing."""
        if self._transport is None or self._closing:
            return
        data = frame(payload, _LARGEST_BYTES)
        if self._tls is None:
            self._transport.write(data)
        else:
            for record in self._tls.encrypt(data):
                self._transport.write(record)

    def read(self, wanted: bool) -> None:
        if self._transport is None or self._closing:
            return
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def close(self) -> None:
        """Close the link once the peer has accepted all sent data. If it may never do so, use :meth:`abort`."""
        if self._transport is None or self._closing:
            return
        if self._tls is not None and (words := self._tls.closing_bytes()):
            self._transport.write(words)
        self._closing = True
        self._transport.close()

    def abort(self) -> None:
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        if peer:  # None if the peer is already gone
            self.peer = (str(peer[0]), int(peer[1]))
        connection: socket.socket = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if hasattr(socket, name):  # not on every system
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        if self._opened is None:
            self._owner.link_made(self)
        if self._tls is None:
            self._now_ready()
        elif hello := self._tls.start():
            transport.write(hello)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing:
            return
        try:
            frames = self._received(self._room[:nbytes])
        except (MalformedFrame, ssl.SSLError) as error:
            self._fail(error)
            return
        if frames:
            self._judge(True)
        if self._opened is None:
            self._owner.link_frames(self, frames)

    def eof_received(self) -> bool:
        if self._opened is not None:
            return False  # the transport closes itself
        self._owner.link_eof(self)
        return True

    def pause_writing(self) -> None:
        self._owner.link_full(self, True)

    def resume_writing(self) -> None:
        self._owner.link_full(self, False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._transport = None
        self._judge(False)
        if self._opened is None:
            self._owner.link_lost(self, exc)
            return
        opened, self._opened = self._opened, None
        if not opened.done():
            opened.set_exception(exc or ConnectionResetError("the connection was closed before it could be used"))

    def _received(self, data: memoryview) -> list[bytes]:
        if self._tls is None:
            plaintext = bytes(data)
        else:
            was_ready = self._tls.ready
            plaintext, answer = self._tls.receive(data)
            if answer and self._transport is not None:
                self._transport.write(answer)
            if self._tls.ready and not was_ready:
                self._now_ready()
        frames = self._frames.receive(plaintext)
        self._buffered += len(plaintext) - sum(len(payload) + 4 for payload in frames)
        return frames

    def _judge(self, answered: bool) -> None:
        judge, self.judge = self.judge, None
        if judge is not None:
            judge(answered)

    def _now_ready(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None and not opened.done():
            opened.set_result(None)

    def _fail(self, error: MalformedFrame | ssl.SSLError) -> None:
        if self._opened is None:
            self._owner.link_failed(self, error)
            return
        if not self._opened.done():
            self._opened.set_exception(error)
        self.abort()


# Connections to the brokers


class NoBroker(ClusterError):
    """None of the bootstrap servers accepts a connection."""

    default_code = ErrorCode.REQUEST_TIMED_OUT


class Upstream:
    """Opens connections to the brokers, one for each client, to each bootstrap server in turn. For one loop.

    Decides which brokers are used and how they are reached, but not as which user: each client authenticates itself.

    A server is *doubted* if it accepted no connection, or if a connection ended before the server sent a frame: a
    hanging process still accepts connections. A doubted server is tried after all others, until it has sent a frame.
    But once in every :data:`DOUBT_S`, one client tries the doubted server in its turn. If the server sends no frame,
    that client's next connection reaches another server.
    """

    def __init__(
        self,
        servers: Sequence[tuple[str, int]],
        security_protocol: str = "PLAINTEXT",
        context: ssl.SSLContext | None = None,
        family: int = socket.AF_UNSPEC,
    ) -> None:
        self.servers = tuple(servers)
        self.security_protocol = security_protocol
        self._family = family
        self._context = context
        self._next = 0
        self._doubted_until_s: dict[int, float] = {}

    @classmethod
    def from_conf(cls, conf: Mapping[str, Any]) -> Upstream:
        """Take ``bootstrap.servers``, ``broker.address.family``, ``security.protocol`` and the settings of TLS from
        librdkafka's settings, but neither the controller's own certificate nor its credentials.
        """
        protocol = security.security_protocol(conf)
        if protocol == "SSL":
            raise ConfigError(
                "security.protocol: with SSL alone, brokers identify users by client certificates, and the endpoint "
                "has no user's certificate. Reach the brokers by SASL_SSL, or run the controller without an endpoint "
                "(--listen none)"
            )
        try:  # as in librdkafka, the port may be missing
            servers = [split_address(server, DEFAULT_PORT) for server in security.servers(conf)]
        except ValueError as error:
            raise ConfigError(f"bootstrap.servers: {error}") from error
        anonymous = {name: value for name, value in conf.items() if not name.startswith(("ssl.certificate", "ssl.key"))}
        context = security.ssl_context(anonymous) if protocol == "SASL_SSL" else None
        return cls(servers, protocol, context, security.address_family(conf))

    @property
    def sasl(self) -> bool:
        return self.security_protocol.startswith("SASL")

    @property
    def tls(self) -> bool:
        return self._context is not None

    async def connect(self, make_link: Callable[[TlsStream | None, asyncio.Future[None]], Link]) -> Link:
        """Return a link to the first server that accepts a connection: they are tried in turn, doubted servers last."""
        reasons = []
        for at in self._order():
            host, port = self.servers[at]
            self._next = (at + 1) % len(self.servers)
            if at in self._doubted_until_s:
                self._judge(at, False)  # while this client tries the doubted server, others do not
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    return await self._connect_to(at, make_link)
            except TimeoutError:
                reasons.append(f"{host}:{port}: no connection within {CONNECT_TIMEOUT_S:g} s")
            except OSError as error:  # or SSLError, which is an OSError
                reasons.append(f"{host}:{port}: {error}")
            self._judge(at, False)
        raise NoBroker(f"no broker accepts a connection ({'; '.join(reasons)})")

    def _order(self) -> list[int]:
        count, now_s = len(self.servers), asyncio.get_running_loop().time()
        in_turn = [(self._next + number) % count for number in range(count)]
        return sorted(in_turn, key=lambda at: now_s < self._doubted_until_s.get(at, now_s))

    def _judge(self, at: int, answered: bool) -> None:
        if answered:
            self._doubted_until_s.pop(at, None)
        else:
            self._doubted_until_s[at] = asyncio.get_running_loop().time() + DOUBT_S

    async def _connect_to(self, at: int, make_link: Callable[[TlsStream | None, asyncio.Future[None]], Link]) -> Link:
        host, port = self.servers[at]
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[None] = loop.create_future()
        tls = TlsStream(self._context, host) if self._context is not None else None

        def new_link() -> Link:
            link = make_link(tls, opened)
            link.judge = functools.partial(self._judge, at)
            return link

        # A name may have several addresses, and the first may be dead.
        _, link = await loop.create_connection(
            new_link, host, port, family=self._family, happy_eyeballs_delay=NEXT_ADDRESS_S
        )
        try:
            await opened
        except BaseException:
            link.abort()
            raise
        return link
