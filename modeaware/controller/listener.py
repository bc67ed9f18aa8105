"""The controller's listener: admin commands as Kafka frames (ApiVersions, DeletePartitions, CreatePartitions,
AlterGroupRules).

There is no authentication yet, so it listens on the loopback interface only.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import ipaddress
import logging
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from modeaware.errors import ClusterError, ConfigError, ErrorCode, ModeAwareError
from modeaware.lifecycle.commands import Command, CommandResult
from modeaware.wire import codec, messages
from modeaware.wire.client import identity, split_address
from modeaware.wire.frames import MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES, FrameReader, MalformedFrame, frame

logger = logging.getLogger(__name__)

Submit = Callable[[Sequence[Command], int], "concurrent.futures.Future[list[CommandResult]]"]
_MAX_TIMEOUT_MS = 600_000
_RECEIVE_BYTES = 65_536


@dataclass(frozen=True)
class ListenerLimits:
    """What one peer, or all of them, may take.

    Attributes:
        connections: how many may be open at once; one more is closed at once.
        request_bytes: the largest request.
        idle_s: how long a connection may go without completing a request, as Kafka's ``connections.max.idle.ms``;
            and how long a peer may take to accept an answer.
    """

    connections: int = 100
    request_bytes: int = MAX_REQUEST_BYTES
    idle_s: float = 600.0


class Listener:
    """Serves admin commands from one thread of its own.

    One request of a connection is in work at a time; the next is read when it is answered, so answers are in order and
    a peer that sends faster has to wait. Who sends rubbish is disconnected; nothing a peer sends stops the listener.

    Args:
        listen: ``HOST:PORT``; port 0 takes a free one. The host must be a loopback address (empty: 127.0.0.1).
        submit: hands commands to the controller, with the time in ms they may take; called in the listener's thread,
            must not block.
        controller_id: who this is, for clients to check.
        limits: see :class:`ListenerLimits`.

    Raises:
        ConfigError: ``listen`` is not ``HOST:PORT``, or not a loopback address.
    """

    def __init__(self, listen: str, submit: Submit, controller_id: str, limits: ListenerLimits | None = None) -> None:
        self._target = _loopback(listen)
        self._submit = submit
        self._controller_id = controller_id
        self._limits = limits if limits is not None else ListenerLimits()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._address: str | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._stopping: asyncio.Event | None = None

    @property
    def address(self) -> str:
        """``host:port`` it really listens on, once started."""
        if self._address is None:
            raise RuntimeError("the listener has not been started")
        return self._address

    def start(self) -> None:
        """Bind and serve. Returns when connections are taken.

        Raises:
            ConfigError: the address cannot be bound.
        """
        family, host, port = self._target
        try:
            server = socket.create_server((host, port), family=family)
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}:{port}: {error}") from error
        bound = server.getsockname()
        self._address = f"[{bound[0]}]:{bound[1]}" if family == socket.AF_INET6 else f"{bound[0]}:{bound[1]}"
        started = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(server, started)), name="modeaware-listener", daemon=True
        )
        self._thread.start()
        started.wait()

    def stop(self) -> None:
        """Close every connection; requests in work stay unanswered. Idempotent; returns when it has stopped."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        assert self._loop is not None
        assert self._stopping is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        thread.join()

    async def _serve(self, sock: socket.socket, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        server = await asyncio.start_server(self._accept, sock=sock, limit=_RECEIVE_BYTES)
        started.set()
        try:
            await self._stopping.wait()
        finally:
            server.close()
            for task in list(self._connections):
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= self._limits.connections:
            logger.warning("closed a connection: %d are open, as many as are taken", len(self._connections))
            writer.transport.abort()
            return
        self._connections.add(task)
        peer = "{}:{}".format(*writer.get_extra_info("peername", ("?", "?"))[:2])
        try:
            await self._converse(reader, writer)
        except ModeAwareError as error:
            logger.warning("closed the connection of %s: %s", peer, error)
        except TimeoutError:
            logger.info("closed the connection of %s: idle for too long", peer)
        except OSError as error:
            logger.info("lost the connection of %s: %s", peer, error)
        except asyncio.CancelledError:
            logger.debug("closed the connection of %s: the listener stops", peer)
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameReader(self._limits.request_bytes)
        while True:
            # The idle time runs from one whole request to the next, so a peer cannot hold a place by dripping bytes.
            async with asyncio.timeout(self._limits.idle_s):
                payloads: list[bytes] = []
                while not payloads:
                    data = await reader.read(_RECEIVE_BYTES)
                    if not data:
                        return
                    payloads = frames.receive(data)
            for payload in payloads:
                answer = frame(await self._answer(payload), MAX_RESPONSE_BYTES)
                writer.write(answer)
                async with asyncio.timeout(self._limits.idle_s):
                    await writer.drain()

    async def _answer(self, payload: bytes) -> bytes:
        header = codec.peek_header(payload)
        if header.api_key == codec.API_VERSIONS_KEY:
            supported = codec.is_supported(header)
            version = codec.decode_request(payload)[0].api_version if supported else 0
            return codec.encode_response(_api_versions(supported, self._controller_id), version, header.correlation_id)
        header, request = codec.decode_request(payload)
        logger.info("%s asks: %s", header.client_id or "a client without a name", request)
        try:
            response = await self._carry_out(request)
        except MalformedFrame:
            raise
        except ModeAwareError as error:
            response = messages.failed_response(request, error)
        return codec.encode_response(response, header.api_version, header.correlation_id)

    async def _carry_out(self, request: Any) -> Any:
        commands = messages.commands_of(request)
        timeout_ms = min(max(request.timeout_ms, 0), _MAX_TIMEOUT_MS)
        results = await _within(self._submit(commands, timeout_ms), timeout_ms) if commands else []
        return messages.response_of(request, results)


async def _within(submitted: concurrent.futures.Future[list[CommandResult]], timeout_ms: int) -> list[CommandResult]:
    """The controller's answer, unless it takes too long. The command is not taken back then."""
    future = asyncio.wrap_future(submitted)
    future.add_done_callback(_note_failure)
    done, _ = await asyncio.wait({future}, timeout=timeout_ms / 1000)
    if not done:
        raise ClusterError(
            f"not done within {timeout_ms} ms; it may still be carried out: look at the topic before trying again",
            code=ErrorCode.REQUEST_TIMED_OUT,
        )
    failure = future.exception()
    if failure is None:
        return future.result()
    if isinstance(failure, ModeAwareError):
        raise failure
    raise ClusterError(
        f"the controller failed: {type(failure).__name__}: {failure}", code=ErrorCode.UNKNOWN_SERVER_ERROR
    ) from failure


def _note_failure(future: asyncio.Future[list[CommandResult]]) -> None:
    if not future.cancelled() and (failure := future.exception()) is not None:
        level = logging.INFO if isinstance(failure, ModeAwareError) else logging.ERROR
        logger.log(level, "a command failed: %s", failure, exc_info=failure if level == logging.ERROR else None)


def _api_versions(supported: bool, controller_id: str) -> Any:
    """What is spoken here. Asked in a version that is not, Kafka answers in version 0 and says which are (KIP-511)."""
    return codec.ApiVersionsResponse(
        error_code=int(ErrorCode.NONE if supported else ErrorCode.UNSUPPORTED_VERSION),
        api_keys=[(key, lowest, highest) for key, (lowest, highest) in sorted(codec.SUPPORTED_VERSIONS.items())],
        throttle_time_ms=0,
        supported_features=[(identity(controller_id), 1, 1)],
    )


def _loopback(listen: str) -> tuple[socket.AddressFamily, str, int]:
    """Resolve ``listen`` and see that every address it stands for is on the loopback interface."""
    try:
        host, port = split_address(listen)
        found = socket.getaddrinfo(host or "127.0.0.1", port, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot listen on {listen!r}: {error}") from error
    if not all(ipaddress.ip_address(target[0]).is_loopback for *_, target in found):
        raise ConfigError(
            f"cannot listen on {listen!r}: the listener does not authenticate its clients yet, so it takes loopback "
            "addresses only (such as 127.0.0.1:9690). Run the CLI on the controller's host"
        )
    family, *_, target = found[0]
    return family, str(target[0]), port
