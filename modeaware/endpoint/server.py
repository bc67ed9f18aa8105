"""The endpoint's server: one thread for all connections; the addresses that it binds and advertises."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import resource
import socket
import ssl
import threading
from concurrent.futures import Future
from typing import NamedTuple

from modeaware.callouts import get_logger
from modeaware.endpoint.connection import Connection, RefreshViews, Shared, SubmitCommands
from modeaware.endpoint.facade import ControllerView
from modeaware.endpoint.limits import BufferBudget, ConnectionSlots, EndpointLimits, RateLimitedLogger
from modeaware.endpoint.metadata import Answers
from modeaware.endpoint.session import ClientSession
from modeaware.endpoint.transport import Upstream
from modeaware.endpoint.turns import Turns
from modeaware.errors import ConfigError
from modeaware.wire.security import split_address

logger = get_logger(__name__)

THREAD_NAME = "modeaware-endpoint"
_BACKLOG = 512
_OTHER_FILES = 256
"""How many file descriptors are left to the rest of the process, such as librdkafka's connections and logs."""
_STOP_S = 0.5
_ROUNDS_TO_CONNECT = 3
"""Rounds of asyncio's loop from an accepted socket to its connection: the task begins, then ``connection_made``."""


class Target(NamedTuple):
    """An address to bind.

    Attributes:
        loopback: whether only this host reaches the address.
        everywhere: whether the address stands for all interfaces, so that clients cannot connect to it.
    """

    family: socket.AddressFamily
    host: str
    port: int
    loopback: bool
    everywhere: bool


def resolve(listen: str) -> Target:
    """Resolve the address to bind, ``HOST:PORT``; without a host, 127.0.0.1 is meant."""
    try:
        host, port = split_address(listen)
        entries = socket.getaddrinfo(host or "127.0.0.1", port, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot listen on {listen!r}: {error}") from error
    addresses = [ipaddress.ip_address(address[0]) for *_, address in entries]
    family, *_, first = entries[0]
    loopback = all(address.is_loopback for address in addresses)
    return Target(family, str(first[0]), port, loopback, everywhere=addresses[0].is_unspecified)


def _parse_advertised(advertised: str) -> tuple[str, int]:
    try:
        host, port = split_address(advertised)
    except ValueError as error:
        raise ConfigError(f"--advertised-listener: {error}") from error
    if not host or not port:
        raise ConfigError(f"--advertised-listener: {advertised!r} is not HOST:PORT with a host and a port")
    try:
        unspecified = ipaddress.ip_address(host).is_unspecified
    except ValueError:  # a host name
        unspecified = False
    if unspecified:
        raise ConfigError(f"--advertised-listener: clients cannot connect to {host}")
    return host, port


class Server:
    """Relays between clients and brokers, and adds the partition modes (KIP-694); see docs/wire.md.

    The server's thread, ``modeaware-endpoint``, runs an asyncio loop. Each client connection has its own connection to
    a broker, on which only that client authenticates. Whatever a peer sends or fails to send, the server and all other
    connections continue. ``start`` and ``stop`` may be called from any thread.

    Args:
        listen: ``HOST:PORT``. Without a host, 127.0.0.1 is meant; port 0 means any free port.
        controller: the controller's state for sessions; ``controller.advertised`` may be this server's.
        submit: submits commands to the controller, with a time limit in ms. In the server's thread: must not block.
        refresh: starts a read of the mode log to its present end. In the server's thread: must not block.
        upstream: the brokers.
        tls: the endpoint's side of TLS (:func:`modeaware.endpoint.transport.server_context`), or None without TLS.
        limits: see :class:`~modeaware.endpoint.limits.EndpointLimits`.
        advertised: ``HOST:PORT`` to which clients connect, or None if that is where the server listens.

    Raises:
        ConfigError: an address is invalid, or clients cannot connect to it; or users' messages would cross the network
            in the clear, although brokers are reached by TLS.
    """

    def __init__(
        self,
        listen: str,
        controller: ControllerView,
        submit: SubmitCommands,
        refresh: RefreshViews,
        upstream: Upstream,
        tls: ssl.SSLContext | None = None,
        limits: EndpointLimits | None = None,
        advertised: str | None = None,
    ) -> None:
        self._target = resolve(listen)
        self._advertised = _parse_advertised(advertised) if advertised is not None else None
        self._controller = controller
        self._submit = submit
        self._refresh = refresh
        self._upstream = upstream
        self._tls = tls
        self._limits = limits if limits is not None else EndpointLimits()
        self._bound: tuple[str, int] | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._check(listen)

    def _check(self, listen: str) -> None:
        """Refuse an address that clients cannot use, or less security than the brokers require; warn of pitfalls."""
        target, upstream = self._target, self._upstream
        if target.everywhere and self._advertised is None:
            raise ConfigError(
                f"cannot listen on {listen!r} alone: clients need an address they can connect to "
                "(--advertised-listener HOST:PORT)"
            )
        if not target.loopback and upstream.tls and self._tls is None:
            raise ConfigError(
                f"cannot listen on {listen!r} without TLS: brokers are reached by {upstream.security_protocol}, and "
                "users' messages would cross the network in the clear. Give the endpoint a certificate "
                "(--tls-certificate and --tls-key), or listen on a loopback address such as 127.0.0.1:9690"
            )
        if not target.loopback and not upstream.sasl:
            logger.warning(
                "listening on %s, and the brokers do not authenticate users: to brokers, each client that reaches this "
                "address is ANONYMOUS. If ANONYMOUS has the rights, every such client may change partitions",
                listen,
            )
        if self.security_protocol != upstream.security_protocol:
            logger.warning(
                "security.protocol is %s for clients of this endpoint and %s for the brokers. Clients have one setting "
                "for both: admin commands work here, but a client cannot bootstrap here and then connect to a broker",
                self.security_protocol,
                upstream.security_protocol,
            )

    @property
    def address(self) -> str:
        """The bound ``host:port``, once the server is started."""
        return _join(*self._listening())

    @property
    def advertised(self) -> tuple[str, int]:
        """The host and port to which clients connect, once the server is started."""
        return self._advertised if self._advertised is not None else self._listening()

    @property
    def advertised_address(self) -> str:
        return _join(*self.advertised)

    @property
    def loopback(self) -> bool:
        """Whether only this host reaches the server: it is bound to loopback, and no other address is advertised."""
        return self._target.loopback and self._advertised is None

    @property
    def security_protocol(self) -> str:
        """The protocol between clients and the endpoint, as a value of ``security.protocol``."""
        security = "PLAINTEXT" if self._tls is None else "SSL"
        return f"SASL_{security}" if self._upstream.sasl else security

    def start(self) -> None:
        """Bind and serve. Return when connections are accepted."""
        connections = affordable(self._limits.connections)
        target = self._target
        started: Future[None] = Future()
        with contextlib.ExitStack() as opened:  # closes these if no thread takes them over
            try:
                listening = socket.create_server((target.host, target.port), family=target.family, backlog=_BACKLOG)
                opened.callback(listening.close)
                loop = asyncio.SelectorEventLoop()  # made here because it opens files, too
                opened.callback(loop.close)
            except OSError as error:
                raise ConfigError(f"cannot listen on {target.host}:{target.port}: {error}") from error
            host, port, *_ = listening.getsockname()
            self._bound = (str(host), int(port))
            arguments = (loop, listening, connections, started)
            thread = threading.Thread(target=self._run, args=arguments, name=THREAD_NAME, daemon=True)
            thread.start()
            self._thread = thread
            opened.pop_all()
        if failure := started.exception():
            self._thread = None
            thread.join()
            raise ConfigError(f"cannot serve on {_join(*self._bound)}: {failure}") from failure

    def stop(self) -> None:
        """Close every connection, within a second. Complete responses are still sent.

        A request in work gets no response. Idempotent; returns when the server has stopped.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        loop, stopping = self._loop, self._stopping
        assert loop is not None
        assert stopping is not None
        with contextlib.suppress(RuntimeError):  # raised if the loop is closed: then the thread has ended by itself
            loop.call_soon_threadsafe(stopping.set)
        thread.join()

    def _listening(self) -> tuple[str, int]:
        if self._bound is None:
            raise RuntimeError("the endpoint has not been started")
        return self._bound

    def _run(
        self, loop: asyncio.AbstractEventLoop, listening: socket.socket, connections: int, started: Future[None]
    ) -> None:
        # No asyncio.run: at its end it would wait for host name look-ups, which may take minutes.
        try:
            loop.run_until_complete(self._serve(listening, connections, started))
        except Exception as error:
            if started.done():
                raise
            listening.close()
            started.set_exception(error)
        finally:
            loop.close()

    async def _serve(self, listening: socket.socket, connections: int, started: Future[None]) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        limits, answers = self._limits, Answers(self._limits)
        shared = Shared(
            loop,
            lambda: ClientSession(self._controller, limits, self._upstream.sasl, answers),
            self._upstream,
            self._tls,
            limits,
            self._submit,
            self._refresh,
            ConnectionSlots(connections, limits.connections_per_peer),
            BufferBudget(limits.buffered_bytes),
            Turns(loop, by_address=limits.time_by_address),
            RateLimitedLogger(loop.time),
        )
        server = await loop.create_server(lambda: Connection(shared).client, sock=listening, backlog=_BACKLOG)
        started.set_result(None)
        try:
            await self._stopping.wait()
        finally:
            # Sockets that were just accepted must become connections first: otherwise asyncio would leave them open.
            loop.remove_reader(listening)
            for _ in range(_ROUNDS_TO_CONNECT):
                await asyncio.sleep(0)
            server.close()
            await _close_all(shared)


async def _close_all(shared: Shared) -> None:
    """Wait a moment for peers to accept sent data; then close the remaining connections."""
    deadline_s = shared.loop.time() + _STOP_S
    for connection in list(shared.connections):
        connection.stop()
    while shared.connections and shared.loop.time() < deadline_s:
        await asyncio.sleep(0.005)
    for connection in list(shared.connections):
        connection.abort()
    for task in (others := asyncio.all_tasks() - {asyncio.current_task()}):
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0)  # sockets are closed in the loop's next round


def affordable(connections: int) -> int:
    """Return how many connections the process's file descriptors allow: each needs two. Raise their limit if needed."""
    wanted = 2 * connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft = raised
    except (OSError, ValueError) as error:  # some systems and sandboxes allow less than the hard limit
        logger.warning("cannot have more than %d files open: %s", soft, error)
    if soft >= wanted:
        return connections
    fewer = max(1, (soft - _OTHER_FILES) // 2)
    logger.warning(
        "the endpoint takes %d connections, not %d: this process may have no more than %d files open; raise the "
        "limit (ulimit -n)",
        fewer,
        connections,
        soft,
    )
    return fewer


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
