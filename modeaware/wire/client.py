"""A small blocking client of controllers: one connection, as the client's own user, one request, one answer."""

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
from modeaware.wire import codec
from modeaware.wire.api_versions import CLIENT_NAME
from modeaware.wire.client_tls import security_protocol, split_address
from modeaware.wire.frames import MAX_REQUEST_BYTES, MalformedFrame, frame
from modeaware.wire.messages import lost_in_version

if TYPE_CHECKING:
    from modeaware.wire.brokers.one import OneServer

HELLO_TIMEOUT_S = 5.0
"""How long a controller may take to accept a connection and to answer ApiVersions. Nothing is sent before, so a caller
may then look for the next controller: the host of a dead one may drop packets, and a stopped process never answers."""
_HELLO_VERSION = 3


def request(conf: Mapping[str, Any], claim: ClaimRecord, message: Any, timeout_s: float) -> Any:
    """Send ``message`` to the controller that made ``claim`` and return its response message.

    Asks for ApiVersions first: whatever else may have taken its port, another cluster's controller too, is never sent a
    command. Blocks for ``timeout_s`` at most. May be called from any thread.

    Args:
        conf: the client's librdkafka settings: who connects, and how the other side is recognised.

    Raises:
        ControllerUnavailable: nothing was sent: no connection, the user was not let in, or whatever listens there is
            not that controller.
        RequestRefused: the request is too large, or that controller would misread it; nothing was sent.
        ConfigError: a security setting cannot be used.
        ClusterError: the command was sent, and no answer that could be read came back in time; it may
            have been carried out.
    """
    deadline_s = time.monotonic() + timeout_s
    server = _server(conf, claim)
    try:
        api_version = _common_version(server, claim, message.API_KEY, min(timeout_s, HELLO_TIMEOUT_S))
        if (why := lost_in_version(message, api_version)) is not None:
            raise RequestRefused(why, code=ErrorCode.UNSUPPORTED_VERSION)
        payload = codec.encode_request(message, api_version, 0, CLIENT_NAME)
        frame(payload, MAX_REQUEST_BYTES)  # refused here, before anything of it is sent
        try:
            answer = server.ask(message.API_KEY, api_version, _encode(message, api_version), _left_s(deadline_s))
            return codec.decode_response(answer, message.API_KEY, api_version)[1]
        except (ClusterError, MalformedFrame) as error:
            raise ClusterError(
                f"the controller at {claim.address} took the command and gave no answer that could be read ({error}): "
                "look at the topic ('modeaware topics --describe') before trying again",
                code=ErrorCode.REQUEST_TIMED_OUT,
            ) from error
    finally:
        server.close()


def is_running(conf: Mapping[str, Any], claim: ClaimRecord | None, timeout_s: float = 3.0) -> bool:
    """Whether the controller that made ``claim`` answers at its address. Sends no command.

    Raises:
        ControllerUnavailable: that cannot be told from this host, or as this user.
    """
    if claim is None or address_of(claim) is None:
        return False
    server = _server(conf, claim)
    try:
        _common_version(server, claim, codec.DELETE_PARTITIONS_KEY, timeout_s)
    except ControllerUnavailable as error:
        if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
            raise
        return False
    finally:
        server.close()
    return True


def identity(controller_id: str) -> str:
    """The feature by which a controller's ApiVersions response says who it is."""
    return f"modeaware.controller.{controller_id}"


def address_of(claim: ClaimRecord) -> tuple[str, int] | None:
    """Host and port that a claim names; None: none that anybody could connect to."""
    try:
        host, port = split_address(claim.address or "")
    except ValueError:  # whoever wrote the claim
        return None
    return (host, port) if host and port else None


def is_loopback(address: str) -> bool:
    """Whether ``host:port`` names the loopback interface, and so means nothing on any other host."""
    host = address.rpartition(":")[0].removeprefix("[").removesuffix("]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost"


def _server(conf: Mapping[str, Any], claim: ClaimRecord) -> OneServer:
    """The connection to make, with the security that the controller asks for and the client allows."""
    from modeaware.wire.brokers.one import OneServer  # kafka-python's connections, where they are needed

    if claim.address is None:
        raise ControllerUnavailable(f"the controller {claim.controller_id} has stopped, or takes no commands")
    if address_of(claim) is None:
        raise ControllerUnavailable(f"the controller at {claim.address!r} cannot be reached: that is not HOST:PORT")
    loopback = is_loopback(claim.address)
    if loopback and claim.host and claim.host != socket.gethostname():
        raise ControllerUnavailable(
            f"the controller {claim.controller_id} runs on host {claim.host} and takes commands there only "
            f"({claim.address}): run the command on that host",
            code=ErrorCode.INVALID_CONFIG,  # time does not change it
        )
    wanted = security_protocol(conf)
    if wanted.endswith("SSL") and not claim.security_protocol.endswith("SSL") and not loopback:
        raise ControllerUnavailable(
            f"the controller {claim.controller_id} takes commands at {claim.address} without TLS, and "
            f"security.protocol is {wanted}: nothing was sent",
            code=ErrorCode.INVALID_CONFIG,
        )
    return OneServer({**conf, "security.protocol": claim.security_protocol}, claim.address)


def _common_version(server: OneServer, claim: ClaimRecord, api_key: int, timeout_s: float) -> int:
    """The highest version of the api that both sides speak, once the other one has said that it made the claim.

    Raises:
        ControllerUnavailable: it has not.
    """
    hello = codec.ApiVersionsRequest(client_software_name=CLIENT_NAME, client_software_version=_client_version())
    try:
        payload = server.ask(codec.API_VERSIONS_KEY, _HELLO_VERSION, _encode(hello, _HELLO_VERSION), timeout_s)
        answer = codec.decode_response(payload, codec.API_VERSIONS_KEY, _HELLO_VERSION)[1]
        return _agreed(answer, claim, api_key)
    except (ClusterError, RequestRefused) as error:
        code = error.code if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED else None
        raise ControllerUnavailable(
            f"the controller at {claim.address} cannot be reached: {error}", code=code
        ) from error
    except MalformedFrame as error:
        raise ControllerUnavailable(
            f"what listens at {claim.address} is not the controller {claim.controller_id}: {error}"
        ) from error


def _agreed(answer: Any, claim: ClaimRecord, api_key: int) -> int:
    if answer.error_code:
        raise MalformedFrame(f"error {answer.error_code} to ApiVersions")
    if identity(claim.controller_id) not in (feature.name for feature in answer.supported_features or ()):
        raise MalformedFrame("it goes by another name")
    lowest, highest = codec.SUPPORTED_VERSIONS[api_key]
    for offered in answer.api_keys or ():
        if offered.api_key == api_key and offered.min_version <= highest and offered.max_version >= lowest:
            return int(min(offered.max_version, highest))
    raise MalformedFrame(f"it does not offer api key {api_key}, as the controller of modeaware does")


def _encode(message: Any, api_version: int) -> Any:
    return lambda correlation_id, client_id: codec.encode_request(
        message, api_version, correlation_id, client_id or CLIENT_NAME
    )


def _left_s(deadline_s: float) -> float:
    return max(deadline_s - time.monotonic(), 0.001)


@cache
def _client_version() -> str:
    return version("modeaware")
