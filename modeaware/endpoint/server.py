"""The endpoint's server: one thread, any number of connections."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
import threading
from concurrent.futures import Future

from modeaware.endpoint import address
from modeaware.endpoint.connection import Connection
from modeaware.endpoint.desk import Desk
from modeaware.endpoint.limits import Limits
from modeaware.endpoint.metadata import Answers
from modeaware.endpoint.quotas import Held, Places, Quotas, Seldom
from modeaware.endpoint.services import RefreshViews, Services, SubmitCommands
from modeaware.endpoint.session import Session
from modeaware.endpoint.upstream import Upstream
from modeaware.errors import ConfigError

logger = logging.getLogger(__name__)

THREAD_NAME = "modeaware-endpoint"
_BACKLOG = 512
_OTHER_FILES = 256
"""File descriptors that the rest of the process needs: librdkafka's connections, logs."""
_STOP_S = 0.5
_ROUNDS_TO_CONNECT = 3
"""Of asyncio's loop, from an accepted socket to its connection: a task that begins, and ``connection_made``."""


class Server:
    """Relays between clients and brokers, with the partition modes (KIP-694) in between; see docs/wire.md.

    Its thread, ``modeaware-endpoint``, runs an asyncio loop; each client connection has one to a broker, on which that
    client authenticates itself, or nobody does. Nothing a peer sends, or does not send, stops the server or another
    connection. ``start`` and ``stop`` may be called from any thread.

    Args:
        listen: ``HOST:PORT``; no host: 127.0.0.1; port 0: a free one.
        desk: what sessions ask of the controller. Its ``advertised`` may be this server's.
        submit: hands commands to the controller, with the time in ms they may take; called in the server's thread, must
            not block.
        refresh: has the mode log read to where it ends now; called as ``submit``.
        upstream: the brokers.
        tls: this side's certificate (:func:`modeaware.endpoint.tls.server_context`); None: no TLS.
        limits: see :class:`~modeaware.endpoint.limits.Limits`.
        advertised: ``HOST:PORT`` that clients are to connect to; None: where it listens.
        quotas: see :class:`~modeaware.endpoint.quotas.Quotas`.

    Raises:
        ConfigError: an address that is none; or listening there would open what the brokers keep shut: users'
            messages in the clear on the network where brokers are reached by TLS.
    """

    def __init__(
        self,
        listen: str,
        desk: Desk,
        submit: SubmitCommands,
        refresh: RefreshViews,
        upstream: Upstream,
        tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
        advertised: str | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        self._target = address.resolve(listen)
        self._told = address.advertised_address(advertised) if advertised is not None else None
        address.check(listen, self._target, advertised, tls is not None, upstream)
        self._desk = desk
        self._submit = submit
        self._refresh = refresh
        self._upstream = upstream
        self._tls = tls
        self._limits = limits if limits is not None else Limits()
        self._quotas = quotas if quotas is not None else Quotas()
        self._bound: tuple[str, int] | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    @property
    def address(self) -> str:
        """``host:port`` it really listens on, once started."""
        return _join(*self._listening())

    @property
    def advertised(self) -> tuple[str, int]:
        """Host and port that clients are told, once started."""
        return self._told if self._told is not None else self._listening()

    @property
    def advertised_address(self) -> str:
        """The same as ``host:port``."""
        return _join(*self.advertised)

    @property
    def loopback(self) -> bool:
        """Whether only this host reaches it (and nothing else is advertised)."""
        return self._target.loopback and self._told is None

    @property
    def security_protocol(self) -> str:
        """What clients speak to it, in the words of ``security.protocol``."""
        return address.security_protocol(self._tls is not None, self._upstream)

    def start(self) -> None:
        """Bind and serve. Returns when connections are taken.

        Raises:
            ConfigError: the address cannot be bound, or the process may not open what serving takes; nothing listens.
        """
        connections = affordable(self._limits.connections)
        target = self._target
        started: Future[None] = Future()
        with contextlib.ExitStack() as opened:  # closed again if there is no thread that does so
            try:
                listening = socket.create_server((target.host, target.port), family=target.family, backlog=_BACKLOG)
                opened.callback(listening.close)
                loop = asyncio.SelectorEventLoop()  # here: it opens files, too
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
        """Close every connection, within a second; what is answered is sent, what is in work stays unanswered.

        Idempotent; returns when it has stopped.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        loop, stopping = self._loop, self._stopping
        assert loop is not None
        assert stopping is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed: the thread has ended by itself
            loop.call_soon_threadsafe(stopping.set)
        thread.join()

    def _listening(self) -> tuple[str, int]:
        if self._bound is None:
            raise RuntimeError("the endpoint has not been started")
        return self._bound

    def _run(
        self,
        loop: asyncio.AbstractEventLoop,
        listening: socket.socket,
        connections: int,
        started: Future[None],
    ) -> None:
        # No asyncio.run: at its end it would wait for look-ups of host names, which may take minutes.
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
        services = self._services(loop, connections)
        server = await loop.create_server(lambda: Connection(services).client, sock=listening, backlog=_BACKLOG)
        started.set_result(None)
        try:
            await self._stopping.wait()
        finally:
            # Those that were accepted in this round become connections first: asyncio forgets them otherwise, open.
            loop.remove_reader(listening)
            for _ in range(_ROUNDS_TO_CONNECT):
                await asyncio.sleep(0)
            server.close()
            await _close_all(services)

    def _services(self, loop: asyncio.AbstractEventLoop, connections: int) -> Services:
        limits, answers = self._limits, Answers(self._limits)
        return Services(
            loop,
            lambda: Session(self._desk, limits, self._upstream.sasl, answers),
            self._upstream,
            self._tls,
            limits,
            self._quotas,
            self._submit,
            self._refresh,
            Held(self._quotas.buffered_bytes),
            Places(connections, self._quotas.connections_per_peer),
            Seldom(loop.time),
        )


async def _close_all(services: Services) -> None:
    """Let peers take what they were sent, for a moment; then close what is left."""
    deadline_s = services.loop.time() + _STOP_S
    for connection in list(services.connections):
        connection.stop()
    while services.connections and services.loop.time() < deadline_s:
        await asyncio.sleep(0.005)
    for connection in list(services.connections):
        connection.abort()
    for task in (others := asyncio.all_tasks() - {asyncio.current_task()}):
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0)  # sockets are closed in the loop's next round


def affordable(connections: int) -> int:
    """How many connections there are file descriptors for. Each needs two.

    Raises the process's own limit as far as that is allowed, and takes fewer where it is not.
    """
    wanted = 2 * connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, raised), hard))
        except (OSError, ValueError) as error:  # some systems and sandboxes allow less than the hard limit says
            logger.warning("cannot have more than %d files open: %s", soft, error)
        else:
            soft = max(soft, raised)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    fewer = max(1, (soft - _OTHER_FILES) // 2)
    logger.warning(
        "takes %d connections, not %d: this process may have no more than %d files open", fewer, connections, soft
    )
    return fewer


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
