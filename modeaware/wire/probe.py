"""Requests for the capabilities of a client's bootstrap servers; no call blocks longer than the caller allows.

Each server has a thread, which makes one connection (TLS as in the client, no SASL), sends ApiVersions and ends. The
caller collects the answers with :meth:`Round.step`, between its other work. A thread may live longer than its
:class:`Round`, until the operating system has resolved a host name.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from modeaware.errors import ConfigError, ModeSourceError
from modeaware.wire import capabilities
from modeaware.wire.capabilities import Capabilities
from modeaware.wire.frames import FrameReader, MalformedFrame, frame
from modeaware.wire.security import (
    DEFAULT_PORT,
    address_family,
    security_protocol,
    servers,
    split_address,
    ssl_context,
)

if TYPE_CHECKING:
    import ssl

THREAD_NAME = "modeaware-probe"
TIMEOUT_S = 3.0
"""How long a server may take, from the connection to the response."""
MAX_BYTES = 262_144
_RECEIVE_BYTES = 16_384
_CORRELATION_IDS = count(1)


class Round:
    """One request to each of a client's bootstrap servers, in parallel. For one thread.

    Attributes:
        offers: server -> its capabilities, in the order of the responses.
        failures: server -> why it gave no usable response.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        self.offers: dict[str, Capabilities] = {}
        self.failures: dict[str, str] = {}
        self._deadline_s = time.monotonic() + TIMEOUT_S
        self._asking: dict[str, _Probe] = {}
        self._ended: queue.SimpleQueue[_Probe] = queue.SimpleQueue()
        try:
            context = ssl_context(conf) if security_protocol(conf).endswith("SSL") else None
            family = address_family(conf)
            for server in servers(conf):
                self._asking[server] = _Probe(server, family, context, self._deadline_s, self._ended)
        except ConfigError as error:
            self.failures["the configuration"] = str(error)
        for probe in list(self._asking.values()):
            try:
                probe.start()
            except RuntimeError as error:  # no more threads can be started
                self._take(probe, error)

    @property
    def done(self) -> bool:
        """Whether all servers have responded or failed."""
        return not self._asking

    def step(self, wait_s: float = 0.0) -> None:
        """Take the responses that have arrived. If there is none, wait up to ``wait_s`` for one."""
        with suppress(queue.Empty):
            while self._asking:
                probe = self._ended.get(timeout=wait_s) if wait_s > 0 else self._ended.get_nowait()
                wait_s = 0.0
                self._take(probe, probe.result)
        if time.monotonic() > self._deadline_s:
            for probe in list(self._asking.values()):
                self._take(probe, TimeoutError())

    def _take(self, probe: _Probe, result: Capabilities | Exception) -> None:
        if self._asking.pop(probe.server, None) is None:
            return
        if isinstance(result, Capabilities):
            self.offers[probe.server] = result
        elif isinstance(result, TimeoutError) and result.errno is None:
            self.failures[probe.server] = f"no answer within {TIMEOUT_S:g} s"
        else:
            self.failures[probe.server] = str(result) or type(result).__name__

    def failure(self) -> ModeSourceError | None:
        """Return the error to report if no server has answered, else None."""
        if self.offers or not self.failures:
            return None
        reasons = "; ".join(f"{server}: {why}" for server, why in sorted(self.failures.items()))
        return ModeSourceError(
            f"modes over the wire: no bootstrap server reports whether it supports KIP-694 ({reasons}); retrying. "
            "modeaware.mode.source=log needs no such report"
        )

    def close(self) -> None:
        """Abandon the connections; their threads close them. Idempotent."""
        for probe in self._asking.values():
            probe.cancel()
        self._asking.clear()


@dataclass(eq=False)
class _Probe:
    """One server's request, in a thread of its own. Once ``result`` is set, the probe puts itself into ``ended``."""

    server: str
    _family: int
    _context: ssl.SSLContext | None
    _deadline_s: float
    _ended: queue.SimpleQueue[_Probe]
    result: Capabilities | Exception = field(default_factory=EOFError)
    _socket: socket.socket | None = None

    def start(self) -> None:
        threading.Thread(target=self._run, name=THREAD_NAME, daemon=True).start()

    def _run(self) -> None:
        try:
            self.result = self._ask()
        except (OSError, ValueError, MalformedFrame, EOFError) as error:  # or SSLError, which is an OSError
            self.result = error
        self._ended.put(self)

    def cancel(self) -> None:
        made = self._socket
        if made is not None:
            with suppress(OSError):
                made.shutdown(socket.SHUT_RDWR)

    def _ask(self) -> Capabilities:
        host, port = split_address(self.server, DEFAULT_PORT)
        with self._connect(host, port) as plain:
            plain.settimeout(self._left_s())
            if self._context is None:
                return self._talk(plain)
            with self._context.wrap_socket(plain, server_hostname=host) as secured:
                return self._talk(secured)

    def _connect(self, host: str, port: int) -> socket.socket:
        # As bytes: for a str, Python would load its codec for international names, which takes longer than the rest.
        name = host.encode() if host.isascii() else host
        addresses = socket.getaddrinfo(name, port, self._family, socket.SOCK_STREAM)
        failure: OSError = OSError("no address")
        for number, (family, kind, protocol, _, address) in enumerate(addresses):
            self._socket = made = socket.socket(family, kind, protocol)
            made.settimeout(self._left_s() / (len(addresses) - number))  # an equal share for each address to be tried
            try:
                made.connect(address)
                return made
            except OSError as error:
                failure = error
                made.close()
        raise failure

    def _talk(self, made: socket.socket) -> Capabilities:
        from modeaware import __version__

        correlation_id = next(_CORRELATION_IDS)
        made.settimeout(self._left_s())
        made.sendall(frame(capabilities.request(correlation_id, __version__), MAX_BYTES))
        reader = FrameReader(MAX_BYTES)
        while True:
            made.settimeout(self._left_s())
            data = made.recv(_RECEIVE_BYTES)
            if not data:
                raise EOFError("the connection was closed")
            if frames := reader.receive(data):
                return capabilities.read(frames[0], correlation_id)

    def _left_s(self) -> float:
        return max(self._deadline_s - time.monotonic(), 0.001)
