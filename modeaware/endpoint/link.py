"""One TCP connection as frames, with or without TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Protocol

from modeaware.endpoint.tls import TlsStream
from modeaware.wire.frames import FrameReader, MalformedFrame, frame

RECEIVE_BYTES = 65_536
_LARGEST_BYTES = 2**31 - 1  # what is sent here was bounded when it was received or made
_KEEPALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
"""A peer whose host is gone is noticed after two minutes."""


class LinkOwner(Protocol):
    """Who is told of what happens to a link. Called in the loop's thread."""

    def link_made(self, link: Link) -> None:
        """It is connected; TLS may still be in its handshake. Not told of a link that has a future for that."""

    def link_frames(self, link: Link, frames: list[bytes]) -> None:
        """Bytes have come, and with them these whole frames, maybe none."""

    def link_failed(self, link: Link, error: MalformedFrame | ssl.SSLError) -> None:
        """The peer sent what is no frame or no TLS; nothing more is read. The owner has to close it."""

    def link_full(self, link: Link, full: bool) -> None:
        """The peer does not take what is sent to it as fast as it comes, or takes it again."""

    def link_eof(self, link: Link) -> None:
        """The peer sends no more. The owner has to close it."""

    def link_lost(self, link: Link, error: Exception | None) -> None:
        """It is closed, by whomever; the last call."""


class Link(asyncio.BufferedProtocol):
    """Frames over one connection. All in the loop's thread.

    Args:
        owner: is told.
        room: where bytes are received; one for all links of a loop, since nothing stays in it.
        max_bytes: the largest frame the peer may send.
        tls: this side's TLS; None for none.
        opened: set when the link is ready, or to why it will not be. While it is not set, the owner is told nothing.
    """

    __slots__ = (
        "_buffered",
        "_closing",
        "_frames",
        "_opened",
        "_owner",
        "_room",
        "_tls",
        "_transport",
        "judge",
        "peer",
    )

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
        """Told once whether the peer has sent a frame: when its first one comes, or when the link ends without."""

    @property
    def held_bytes(self) -> int:
        """Bytes kept for this link: of a frame that is not complete, and of those the peer has not taken."""
        unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return self._buffered + unsent

    @property
    def ready(self) -> bool:
        """Whether frames can be sent."""
        return self._transport is not None and not self._closing and (self._tls is None or self._tls.ready)

    def send(self, payload: bytes) -> None:
        """Send a frame; nothing when the link is closing."""
        if self._transport is None or self._closing:
            return
        data = frame(payload, _LARGEST_BYTES)
        if self._tls is None:
            self._transport.write(data)
        else:
            for record in self._tls.encrypt(data):
                self._transport.write(record)

    def read(self, wanted: bool) -> None:
        """Go on reading, or stop."""
        if self._transport is None or self._closing:
            return
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def close(self) -> None:
        """Close it once the peer has taken what was sent. It may never do so: see :meth:`abort`."""
        if self._transport is None or self._closing:
            return
        if self._tls is not None and (words := self._tls.last_words()):
            self._transport.write(words)
        self._closing = True
        self._transport.close()

    def abort(self) -> None:
        """Close it now."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        if peer:  # none when it is gone already
            self.peer = (str(peer[0]), int(peer[1]))
        _keep_alive(transport.get_extra_info("socket"))
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
        if self._opened is not None:
            opened, self._opened = self._opened, None
            if not opened.done():
                opened.set_exception(exc or ConnectionResetError("the connection was closed before it could be used"))
            return
        self._owner.link_lost(self, exc)

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


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):  # not on every system
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
