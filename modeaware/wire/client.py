"""A small blocking client for the controller's listener: one connection, one request, one answer."""

from __future__ import annotations

import socket
import time
from contextlib import closing
from functools import cache
from importlib.metadata import version
from itertools import count
from typing import Any

from modeaware.errors import ClusterError, ControllerUnavailable, ErrorCode
from modeaware.modelog.records import ClaimRecord
from modeaware.wire import codec
from modeaware.wire.frames import MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES, FrameReader, MalformedFrame, frame

CLIENT_NAME = "modeaware"
"""The client software name in ApiVersions (KIP-511); also the client id."""
_RECEIVE_BYTES = 65_536


def request(claim: ClaimRecord, message: Any, timeout_s: float) -> Any:
    """Send ``message`` to the controller that made ``claim`` and return its response message.

    Asks for ApiVersions first: whatever else may have taken its port, another cluster's controller too, is never sent a
    command. Blocks for ``timeout_s`` at most. May be called from any thread.

    Raises:
        ControllerUnavailable: nothing was sent: no connection, or whatever listens there is not that controller.
        RequestRefused: the request is too large; nothing was sent.
        ClusterError: the command was sent, and no answer that could be read came back in time; it may
            have been carried out.
    """
    deadline = time.monotonic() + timeout_s
    address = _reachable_address(claim)
    try:
        connection = socket.create_connection(split_address(address), timeout=max(timeout_s, 0.001))
    except (OSError, ValueError) as error:
        raise ControllerUnavailable(f"the controller at {address} cannot be reached: {error}") from error
    with closing(connection):
        exchange = _Exchange(connection, deadline)
        try:
            version = _common_version(exchange, claim, message.API_KEY)
        except (OSError, EOFError, MalformedFrame) as error:
            raise ControllerUnavailable(
                f"what listens at {address} is not the controller {claim.controller_id}: {error}"
            ) from error
        try:
            return exchange.ask(message, version)
        except (OSError, EOFError, MalformedFrame) as error:
            raise ClusterError(
                f"the controller at {address} took the command and gave no answer that could be read ({error}): "
                "look at the topic ('modeaware topics --describe') before trying again",
                code=ErrorCode.REQUEST_TIMED_OUT,
            ) from error


def is_running(claim: ClaimRecord | None, timeout_s: float = 3.0) -> bool:
    """Whether the controller that made ``claim`` answers at its address. Sends no command.

    Raises:
        ControllerUnavailable: that cannot be told from this host.
    """
    if claim is None or claim.address is None:
        return False
    address = _reachable_address(claim)
    try:
        with closing(socket.create_connection(split_address(address), timeout=timeout_s)) as connection:
            exchange = _Exchange(connection, time.monotonic() + timeout_s)
            _common_version(exchange, claim, codec.DELETE_PARTITIONS_KEY)
    except (OSError, ValueError, EOFError, MalformedFrame):
        return False
    return True


def _reachable_address(claim: ClaimRecord) -> str:
    """Where to connect. Listeners are on the loopback interface, so only the controller's own host can."""
    if claim.address is None:
        raise ControllerUnavailable(f"the controller {claim.controller_id} has stopped")
    if claim.host and claim.host != socket.gethostname():
        raise ControllerUnavailable(
            f"the controller {claim.controller_id} runs on host {claim.host} and takes commands there only "
            f"({claim.address}): run the command on that host"
        )
    return claim.address


def identity(controller_id: str) -> str:
    """The feature by which a controller's ApiVersions response says who it is."""
    return f"modeaware.controller.{controller_id}"


def split_address(address: str) -> tuple[str, int]:
    """``host:port`` (``[::1]:9092`` for IPv6) as a pair.

    Raises:
        ValueError: it is not of that form.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"{address!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _common_version(exchange: _Exchange, claim: ClaimRecord, api_key: int) -> int:
    """The highest version of the api that both sides speak, once the other one has said that it made the claim."""
    hello = codec.ApiVersionsRequest(client_software_name=CLIENT_NAME, client_software_version=_client_version())
    answer = exchange.ask(hello, 3)
    if answer.error_code:
        raise MalformedFrame(f"error {answer.error_code} to ApiVersions")
    if identity(claim.controller_id) not in (feature.name for feature in answer.supported_features or ()):
        raise MalformedFrame("it goes by another name")
    lowest, highest = codec.SUPPORTED_VERSIONS[api_key]
    for offered in answer.api_keys or ():
        if offered.api_key == api_key and offered.min_version <= highest and offered.max_version >= lowest:
            return int(min(offered.max_version, highest))
    raise MalformedFrame(f"it does not offer api key {api_key}, as the controller of modeaware does")


@cache
def _client_version() -> str:
    return version("modeaware")


class _Exchange:
    """Requests and their answers over one socket, until a deadline (monotonic seconds)."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._socket = connection
        self._deadline = deadline
        self._reader = FrameReader(MAX_RESPONSE_BYTES)
        self._correlation_ids = count(1)

    def ask(self, message: Any, version: int) -> Any:
        correlation_id = next(self._correlation_ids)
        payload = codec.encode_request(message, version, correlation_id, CLIENT_NAME)
        self._socket.settimeout(self._left_s())
        self._socket.sendall(frame(payload, MAX_REQUEST_BYTES))
        answered, response = codec.decode_response(self._next_frame(), message.API_KEY, version)
        if answered != correlation_id:
            raise MalformedFrame(f"an answer to request {answered} where {correlation_id} was asked")
        return response

    def _next_frame(self) -> bytes:
        while True:
            self._socket.settimeout(self._left_s())
            data = self._socket.recv(_RECEIVE_BYTES)
            if not data:
                raise EOFError("the connection was closed")
            frames = self._reader.receive(data)
            if len(frames) > 1:
                raise MalformedFrame("more answers than questions")
            if frames:
                return frames[0]

    def _left_s(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left
