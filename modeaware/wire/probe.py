"""Asking servers whether they speak KIP-694's Metadata, without ever waiting longer than one is told to.

The sockets do not block: whoever probes has something better to do, and calls :meth:`Round.step` in between. A server's
name is resolved in a thread of its own, which lives as long as the operating system takes for it.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.errors import ConfigError, ModeSourceError
from modeaware.wire import api_versions
from modeaware.wire.api_versions import Offer
from modeaware.wire.client_tls import DEFAULT_PORT, security_protocol, servers, split_address, ssl_context
from modeaware.wire.frames import FrameReader, MalformedFrame, frame

if TYPE_CHECKING:
    import ssl

THREAD_NAME = "modeaware-names"
TIMEOUT_S = 3.0
"""How long a server has, from the connection to the answer."""
MAX_BYTES = 262_144
_RECEIVE_BYTES = 16_384
_FAMILIES = {"v4": socket.AF_INET, "v6": socket.AF_INET6}
_CORRELATION_IDS = count(1)
T = TypeVar("T")
_Addresses = Sequence[tuple[Any, ...]]
Steps = Generator[int, None, T]
"""Yields the events (``select.POLLIN``, ``POLLOUT``) it waits for."""


class Round:
    """One question to each of a client's bootstrap servers, side by side. For one thread; no SASL is needed for it.

    Attributes:
        offers: what servers said, in the order in which they did.
        failures: server -> why it said nothing that can be used.

    Args:
        conf: the client's librdkafka settings. ``bootstrap.servers``, ``broker.address.family``,
            ``security.protocol`` and those of TLS count.
    """

    def __init__(self, conf: Mapping[str, Any], clock: Clock = SYSTEM_CLOCK) -> None:
        self.offers: dict[str, Offer] = {}
        self.failures: dict[str, str] = {}
        self._clock = clock
        self._asking: dict[str, _Probe] = {}
        try:
            context = ssl_context(conf) if security_protocol(conf).endswith("SSL") else None
            deadline_s = clock.monotonic_s() + TIMEOUT_S
            family = _FAMILIES.get(str(conf.get("broker.address.family")).lower(), socket.AF_UNSPEC)
            self._asking = {server: _Probe(server, family, context, deadline_s) for server in servers(conf)}
        except ConfigError as error:
            self.failures["the configuration"] = str(error)

    @property
    def done(self) -> bool:
        """Whether nobody is waited for any more."""
        return not self._asking

    def step(self, wait_s: float = 0.0) -> None:
        """Go as far as it goes, and wait for the servers no longer than ``wait_s`` in all."""
        poller = select.poll()
        waiting = [probe for probe in self._asking.values() if probe.events and probe.socket is not None]
        for probe in waiting:
            assert probe.socket is not None
            poller.register(probe.socket, probe.events)
        awake = {number for number, _ in poller.poll(int(wait_s * 1000))} if waiting else set()
        now_s = self._clock.monotonic_s()
        for server, probe in list(self._asking.items()):
            started = probe.socket is not None
            if not started or probe.socket.fileno() in awake or now_s > probe.patient_until_s:  # type: ignore[union-attr] # started
                self._advance(server, probe, now_s)

    def _advance(self, server: str, probe: _Probe, now_s: float) -> None:
        try:
            offer = probe.advance(now_s)
        except (OSError, ValueError, MalformedFrame, EOFError) as error:  # an SSLError is an OSError
            self.failures[server] = str(error) or type(error).__name__
        else:
            if offer is None:
                return
            self.offers[server] = offer
        probe.close()
        del self._asking[server]

    def failure(self) -> ModeSourceError | None:
        """What to report when nobody has answered; None when somebody has."""
        if self.offers or not self.failures:
            return None
        reasons = "; ".join(f"{server}: {why}" for server, why in sorted(self.failures.items()))
        return ModeSourceError(
            "modes over the wire: no bootstrap server says whether it speaks KIP-694 "
            f"({reasons}). It is asked again; modeaware.mode.source=log does without"
        )

    def close(self) -> None:
        """Let the connections go. Idempotent."""
        for probe in self._asking.values():
            probe.close()
        self._asking.clear()


class _Probe:
    """One server's turn: ``events`` says what the socket is waited for, and ``patient_until_s`` until when."""

    def __init__(self, server: str, family: int, context: ssl.SSLContext | None, deadline_s: float) -> None:
        self.patient_until_s = deadline_s
        self.socket: socket.socket | None = None
        self.events = 0
        self._deadline_s = deadline_s
        self._now_s = 0.0
        self._steps = self._talk(server, family, context)

    def advance(self, now_s: float) -> Offer | None:
        """Go on; None while there is more to wait for.

        Raises:
            OSError, ValueError, EOFError, MalformedFrame: there is no answer.
        """
        self._now_s = now_s
        if now_s > self._deadline_s:
            raise TimeoutError(f"no answer within {TIMEOUT_S:g} s")
        try:
            self.events = next(self._steps)
        except StopIteration as stop:
            offer: Offer = stop.value
            return offer
        return None

    def close(self) -> None:
        self._steps.close()
        if self.socket is not None:
            with suppress(OSError):
                self.socket.close()

    def _talk(self, server: str, family: int, context: ssl.SSLContext | None) -> Steps[Offer]:
        host, port = split_address(server, DEFAULT_PORT)
        addresses = yield from self._resolve(host, port, family)
        yield from self._connect(addresses)
        if context is not None:
            assert self.socket is not None
            secured = context.wrap_socket(self.socket, server_hostname=host, do_handshake_on_connect=False)
            self.socket = secured
            yield from _when_possible(secured.do_handshake)
        made = self.socket
        assert made is not None
        correlation_id = next(_CORRELATION_IDS)
        rest = frame(api_versions.request(correlation_id, _software_version()), MAX_BYTES)
        while rest:
            sent = yield from _when_possible(partial(made.send, rest), select.POLLOUT)
            rest = rest[sent:]
        reader = FrameReader(MAX_BYTES)
        while True:
            data = yield from _when_possible(lambda: made.recv(_RECEIVE_BYTES))
            if not data:
                raise EOFError("the connection was closed")
            if frames := reader.receive(data):
                return api_versions.read(frames[0], correlation_id)

    def _resolve(self, host: str, port: int, family: int) -> Steps[_Addresses]:
        # Bytes: for a str, Python loads its codec for international names, which takes longer than all the rest.
        look_up = partial(
            socket.getaddrinfo, host.encode() if host.isascii() else host, port, family, socket.SOCK_STREAM
        )
        with suppress(socket.gaierror):  # it is a name
            return look_up(flags=socket.AI_NUMERICHOST)
        self.socket, there = socket.socketpair()
        found: list[_Addresses | Exception] = []
        try:
            threading.Thread(target=_look_up, args=(look_up, found, there), name=THREAD_NAME, daemon=True).start()
        except RuntimeError as error:
            there.close()
            raise OSError(f"{host} is not looked up: {error}") from error
        yield select.POLLIN
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]

    def _connect(self, addresses: _Addresses) -> Steps[None]:
        refusal = 0
        for number, (family, kind, protocol, _, address) in enumerate(addresses):
            if self.socket is not None:
                self.socket.close()
            self.socket = socket.socket(family, kind, protocol)
            self.socket.setblocking(False)
            refusal = self.socket.connect_ex(address)
            if refusal in (errno.EINPROGRESS, errno.EAGAIN):
                # Those that come after it, too, have a share of what is left.
                self.patient_until_s = self._now_s + (self._deadline_s - self._now_s) / (len(addresses) - number)
                yield select.POLLOUT
                settled = _is_writable(self.socket)
                refusal = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if settled else errno.ETIMEDOUT
            if not refusal:
                self.patient_until_s = self._deadline_s
                return
        raise OSError(refusal, os.strerror(refusal) if refusal else "no address")


def _when_possible(action: Callable[[], T], event: int = select.POLLIN) -> Steps[T]:
    while True:
        try:
            return action()
        except BlockingIOError:
            yield event
        except OSError as error:
            # ssl's own two; without importing it where there is no TLS.
            if type(error).__name__ not in ("SSLWantReadError", "SSLWantWriteError"):
                raise
            yield select.POLLIN if type(error).__name__ == "SSLWantReadError" else select.POLLOUT


def _look_up(look_up: Callable[[], _Addresses], found: list[_Addresses | Exception], done: socket.socket) -> None:
    """Closes ``done`` at its end, which is how the other one of the pair hears of it."""
    with done:
        try:
            found.append(look_up())
        except (OSError, ValueError) as error:
            found.append(error)


def _is_writable(made: socket.socket) -> bool:
    poller = select.poll()
    poller.register(made, select.POLLOUT)
    return bool(poller.poll(0))


def _software_version() -> str:
    from modeaware import __version__

    return __version__
