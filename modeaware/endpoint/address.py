"""Where the endpoint listens, what it tells clients to connect to, and what may not be."""

from __future__ import annotations

import ipaddress
import logging
import socket
from typing import NamedTuple

from modeaware.endpoint.upstream import Upstream
from modeaware.errors import ConfigError
from modeaware.wire.client_tls import split_address

logger = logging.getLogger(__name__)


class Target(NamedTuple):
    """An address to bind; ``loopback``: only this host reaches it; ``everywhere``: it is no address to connect to."""

    family: socket.AddressFamily
    host: str
    port: int
    loopback: bool
    everywhere: bool


def resolve(listen: str) -> Target:
    """The address that ``HOST:PORT`` stands for (no host: 127.0.0.1).

    Raises:
        ConfigError: it is not of that form, or there is no such host.
    """
    try:
        host, port = split_address(listen)
        found = socket.getaddrinfo(host or "127.0.0.1", port, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot listen on {listen!r}: {error}") from error
    addresses = [ipaddress.ip_address(address[0]) for *_, address in found]
    family, *_, first = found[0]
    return Target(
        family,
        str(first[0]),
        port,
        loopback=all(address.is_loopback for address in addresses),
        everywhere=addresses[0].is_unspecified,
    )


def advertised_address(advertised: str) -> tuple[str, int]:
    """``HOST:PORT`` as clients are told it.

    Raises:
        ConfigError: it is not of that form, or no address to connect to.
    """
    try:
        host, port = split_address(advertised)
    except ValueError as error:
        raise ConfigError(f"--advertised-listener: {error}") from error
    if not host or not port:
        raise ConfigError(f"--advertised-listener: {advertised!r} is not HOST:PORT with a host and a port")
    try:
        unspecified = ipaddress.ip_address(host).is_unspecified
    except ValueError:  # a name
        unspecified = False
    if unspecified:
        raise ConfigError(f"--advertised-listener: {host} is no address that clients can connect to")
    return host, port


def security_protocol(tls: bool, upstream: Upstream) -> str:
    """What clients speak to the endpoint, in the words of ``security.protocol``."""
    if upstream.sasl:
        return "SASL_SSL" if tls else "SASL_PLAINTEXT"
    return "SSL" if tls else "PLAINTEXT"


def check(listen: str, target: Target, advertised: str | None, tls: bool, upstream: Upstream) -> None:
    """See that the endpoint opens no door that the brokers keep shut.

    Raises:
        ConfigError: it would.
    """
    if target.everywhere and advertised is None:
        raise ConfigError(
            f"cannot listen on {listen!r} alone: clients have to be told an address they can connect to "
            "(--advertised-listener HOST:PORT)"
        )
    if not target.loopback and upstream.tls and not tls:
        raise ConfigError(
            f"cannot listen on {listen!r} without TLS: brokers are reached by {upstream.security_protocol}, and what "
            "users send them would cross the network in the clear. Give the endpoint a certificate "
            "(--tls-certificate and --tls-key), or listen on a loopback address such as 127.0.0.1:9690"
        )
    if not target.loopback and not upstream.sasl:
        logger.warning(
            "listening on %s, and the brokers do not ask who connects: whoever reaches this address is "
            "ANONYMOUS to them, and may change partitions as far as they let ANONYMOUS do so",
            listen,
        )
    spoken = security_protocol(tls, upstream)
    if spoken != upstream.security_protocol:
        logger.warning(
            "clients speak %s to this endpoint and %s to the brokers: it takes admin commands; clients that bootstrap "
            "here have one setting for both, and cannot go from here to a broker",
            spoken,
            upstream.security_protocol,
        )
