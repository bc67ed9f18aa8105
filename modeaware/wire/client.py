"""A client of controllers: one connection as the caller's own user, for one request and one response. Blocking."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from modeaware.errors import ClusterError, ControllerUnavailable, ErrorCode, RequestRefused
from modeaware.modelog.records import ClaimRecord
from modeaware.wire import capabilities, codec
from modeaware.wire.capabilities import API_VERSIONS_VERSION, CLIENT_NAME, identity
from modeaware.wire.frames import MAX_CHANGE_BYTES, MalformedFrame, frame
from modeaware.wire.security import security_protocol, split_address

if TYPE_CHECKING:
    from modeaware.wire.transport import OneServer

PROBE_TIMEOUT_S = 3.0
HELLO_TIMEOUT_S = 5.0
"""How long a controller may take to accept a connection and to answer ApiVersions: a dead controller's host may drop
packets, and a frozen process never answers. No command has been sent by then, so callers may try another controller."""


def request(conf: Mapping[str, Any], claim: ClaimRecord, message: Any, timeout_s: float) -> Any:
    """Send ``message`` to the controller that made ``claim`` and return its response message.

    Sends ApiVersions first, so that another process at the controller's port, or another cluster's controller, never
    receives a command. Blocks for at most ``timeout_s``. Thread-safe.

    Raises:
        ControllerUnavailable: the message was not sent, because there is no connection, the user was not authenticated,
            or the server is not that controller.
        RequestRefused: the message was not sent, because it is too large or that controller does not support it.
        ConfigError: a security setting cannot be used.
        ClusterError: the message was sent, and no readable response arrived in time. The command may have been carried
            out.
    """
    deadline_s = time.monotonic() + timeout_s
    server = _server(conf, claim)
    try:
        api_version = _common_version(server, claim, message.API_KEY, min(timeout_s, HELLO_TIMEOUT_S))

        def encode(correlation_id: int, client_id: str | None) -> bytes:
            return codec.encode_request(message, api_version, correlation_id, client_id or CLIENT_NAME)

        _check_size(encode(0, None))  # raises before anything is sent
        try:
            answer = server.ask(message.API_KEY, api_version, encode, max(deadline_s - time.monotonic(), 0.001))
            return codec.decode_response(answer, message.API_KEY, api_version)[1]
        except (ClusterError, MalformedFrame) as error:
            raise ClusterError(
                f"the controller at {claim.address} accepted the command, but its response is unreadable ({error}): "
                "describe the topic ('modeaware topics --describe') before a retry",
                code=ErrorCode.REQUEST_TIMED_OUT,
            ) from error
    finally:
        server.close()


def _check_size(payload: bytes) -> None:
    """Raise RequestRefused (MESSAGE_TOO_LARGE) if a controller would not accept the request."""
    frame(payload, MAX_CHANGE_BYTES)
    try:
        codec.decode_request(payload)
    except MalformedFrame as error:
        too_many = f"the request has too many parts ({error}): name fewer topics in one request"
        raise RequestRefused(too_many, code=ErrorCode.MESSAGE_TOO_LARGE) from error


def is_running(conf: Mapping[str, Any], claim: ClaimRecord | None) -> bool:
    """Return whether the controller that made ``claim`` answers at its address. Sends no command.

    Raises:
        ControllerUnavailable: this host, this user or these security settings do not allow a connection to the address.
    """
    if claim is None or address_of(claim) is None:
        return False
    server = _server(conf, claim)
    try:
        _common_version(server, claim, codec.DELETE_PARTITIONS_KEY, PROBE_TIMEOUT_S)
    except ControllerUnavailable as error:
        if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
            raise
        return False
    except RequestRefused:  # a controller of another version, which runs
        return True
    finally:
        server.close()
    return True


def address_of(claim: ClaimRecord) -> tuple[str, int] | None:
    """Return the host and port of a claim, or None if the claim has no valid address."""
    try:
        host, port = split_address(claim.address or "")
    except ValueError:  # any controller may have written the claim
        return None
    return (host, port) if host and port else None


def is_loopback(address: str) -> bool:
    """Return whether ``host:port`` is on the loopback interface, and so has no meaning on any other host."""
    host = address.rpartition(":")[0].removeprefix("[").removesuffix("]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a host name
        return host == "localhost"


def _server(conf: Mapping[str, Any], claim: ClaimRecord) -> OneServer:
    """Return a connection that is not open yet. Its security is the claim's, if the client's settings allow that."""
    from modeaware.wire.transport import OneServer  # imports kafka-python's connections, which few processes need

    if claim.address is None:
        raise ControllerUnavailable(f"the controller {claim.controller_id} has stopped, or takes no commands")
    if address_of(claim) is None:
        raise ControllerUnavailable(
            f"the controller at {claim.address} cannot be reached: its address is not HOST:PORT"
        )
    loopback = is_loopback(claim.address)
    if loopback and claim.host and claim.host != socket.gethostname():
        raise ControllerUnavailable(
            f"the controller {claim.controller_id} runs on host {claim.host} and takes commands there only "
            f"({claim.address}): run the command on that host",
            code=ErrorCode.INVALID_CONFIG,  # final: a retry would not change it
        )
    wanted = security_protocol(conf)
    if wanted.endswith("SSL") and not claim.security_protocol.endswith("SSL") and not loopback:
        raise ControllerUnavailable(
            f"the controller {claim.controller_id} takes commands at {claim.address} without TLS, and "
            f"security.protocol is {wanted}: nothing was sent. Start the controller with --tls-certificate",
            code=ErrorCode.INVALID_CONFIG,
        )
    return OneServer({**conf, "security.protocol": claim.security_protocol}, claim.address)


def _common_version(server: OneServer, claim: ClaimRecord, api_key: int, timeout_s: float) -> int:
    """Return the highest common version of the api, after checking that the server is the claim's controller."""
    try:
        payload = server.ask(
            codec.API_VERSIONS_KEY,
            API_VERSIONS_VERSION,
            lambda correlation_id, _: capabilities.request(correlation_id, _client_version()),
            timeout_s,
        )
        offered = capabilities.read(payload)
        if identity(claim.controller_id) not in offered.features:
            raise MalformedFrame("it identifies itself by another name")
    except (ClusterError, RequestRefused) as error:
        code = error.code if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED else None
        raise ControllerUnavailable(
            f"the controller at {claim.address} cannot be reached: {error}", code=code
        ) from error
    except MalformedFrame as error:
        raise ControllerUnavailable(
            f"the server at {claim.address} is not the controller {claim.controller_id}: {error}"
        ) from error
    if (common := offered.common_version(api_key, codec.VERSIONS[api_key])) is None:
        raise RequestRefused(
            f"the controller {claim.controller_id} at {claim.address} does not support this request "
            f"({codec.MESSAGES[api_key][0].__name__}): nothing was sent. Upgrade the controllers first",
            code=ErrorCode.UNSUPPORTED_VERSION,
        )
    return common


@cache
def _client_version() -> str:
    return version("modeaware")
