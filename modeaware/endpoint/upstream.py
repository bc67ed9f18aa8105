"""The way to the brokers: which ones, and how they are reached. Never as whom: that is each client's own business."""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from modeaware.endpoint.link import Link
from modeaware.endpoint.tls import TlsStream
from modeaware.errors import ClusterError, ConfigError, ErrorCode
from modeaware.wire.brokers.settings import kafka_python_settings
from modeaware.wire.client_tls import DEFAULT_PORT, split_address

CONNECT_TIMEOUT_S = 5.0
DOUBT_S = 60.0
"""How long a server comes last that took no connection, or took one and then sent nothing."""
# What decides how a broker is recognised, and nothing about who connects to it.
_TAKEN = frozenset(
    {
        "bootstrap.servers",
        "enable.ssl.certificate.verification",
        "metadata.broker.list",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.cipher.suites",
        "ssl.crl.location",
        "ssl.endpoint.identification.algorithm",
    }
)

MakeLink = Callable[[TlsStream | None, "asyncio.Future[None]"], Link]
"""Makes the link of a new connection, with this side's TLS and what tells when it is ready."""


class NoBroker(ClusterError):
    """None of the bootstrap servers takes a connection."""

    default_code = ErrorCode.REQUEST_TIMED_OUT


class Upstream:
    """Opens connections to the brokers, one for each client, at each server in turn. Used in one loop.

    A server is doubted that took no connection, or on whose connection no frame came before it ended: a process that
    hangs still accepts. It comes last, until it has sent a frame. Now and then (:data:`DOUBT_S`) one client has to find
    out; whom that fails comes to another server when it returns.

    Args:
        servers: host and port of the bootstrap servers, at least one.
        security_protocol: PLAINTEXT, SASL_PLAINTEXT or SASL_SSL.
        context: TLS to the brokers, with SASL_SSL.
        connect_timeout_s: how long one broker has, until TLS is through its handshake.
    """

    def __init__(
        self,
        servers: Sequence[tuple[str, int]],
        security_protocol: str = "PLAINTEXT",
        context: ssl.SSLContext | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        self.servers = tuple(servers)
        self.security_protocol = security_protocol
        self._context = context
        self._timeout_s = connect_timeout_s
        self._next = 0
        self._doubted_until_s: dict[int, float] = {}

    @classmethod
    def from_conf(cls, conf: Mapping[str, Any], connect_timeout_s: float = CONNECT_TIMEOUT_S) -> Upstream:
        """From the controller's librdkafka configuration: ``bootstrap.servers``, ``security.protocol``, ``ssl.ca.*``,
        ``enable.ssl.certificate.verification``, ``ssl.endpoint.identification.algorithm``, ``ssl.cipher.suites``,
        ``ssl.crl.location``. Its certificate and its credentials are not even looked at.

        Raises:
            ConfigError: one of them cannot be used; or ``security.protocol`` is SSL.
        """
        protocol = str(conf.get("security.protocol", "plaintext")).upper()
        if protocol == "SSL":
            raise ConfigError(
                "security.protocol: with SSL alone brokers know users by their certificates, and the endpoint cannot "
                "present a user's certificate for it. Reach the brokers by SASL_SSL, or run the controller without "
                "a listener"
            )
        plain = {name: value for name, value in conf.items() if name in _TAKEN}
        # Only the TLS half of SASL_SSL is wanted: the SASL half would ask for credentials.
        plain["security.protocol"] = {"SASL_PLAINTEXT": "PLAINTEXT", "SASL_SSL": "SSL"}.get(protocol, protocol)
        settings = kafka_python_settings(plain)
        servers = [_split(server) for server in settings["bootstrap_servers"]]
        return cls(servers, protocol, settings.get("ssl_context"), connect_timeout_s)

    @property
    def sasl(self) -> bool:
        """Whether brokers want to know by SASL who connects."""
        return self.security_protocol.startswith("SASL")

    @property
    def tls(self) -> bool:
        """Whether connections to brokers are encrypted."""
        return self._context is not None

    async def connect(self, make_link: MakeLink) -> Link:
        """A link to the first broker that takes one: the servers in turn, doubted ones last.

        Raises:
            NoBroker: none does; says why, for each.
        """
        reasons = []
        for at in self._order():
            host, port = self.servers[at]
            self._next = (at + 1) % len(self.servers)
            if at in self._doubted_until_s:
                self._judge(at, False)  # while this client finds out, others need not
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await self._connect_to(at, make_link)
            except TimeoutError:
                reasons.append(f"{host}:{port}: no connection within {self._timeout_s:g} s")
            except OSError as error:  # an SSLError is one
                reasons.append(f"{host}:{port}: {error}")
            self._judge(at, False)
        raise NoBroker(f"no broker takes a connection ({'; '.join(reasons)})")

    def _order(self) -> list[int]:
        count, now_s = len(self.servers), asyncio.get_running_loop().time()
        in_turn = [(self._next + number) % count for number in range(count)]
        return sorted(in_turn, key=lambda at: now_s < self._doubted_until_s.get(at, now_s))

    def _judge(self, at: int, answered: bool) -> None:
        if answered:
            self._doubted_until_s.pop(at, None)
        else:
            self._doubted_until_s[at] = asyncio.get_running_loop().time() + DOUBT_S

    async def _connect_to(self, at: int, make_link: MakeLink) -> Link:
        host, port = self.servers[at]
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[None] = loop.create_future()
        tls = TlsStream(self._context, host) if self._context is not None else None

        def new_link() -> Link:
            link = make_link(tls, opened)
            link.judge = functools.partial(self._judge, at)
            return link

        _, link = await loop.create_connection(new_link, host, port)
        try:
            await opened
        except BaseException:
            link.abort()
            raise
        return link


def _split(server: str) -> tuple[str, int]:
    try:
        return split_address(server, DEFAULT_PORT)  # librdkafka takes a host without a port
    except ValueError as error:
        raise ConfigError(f"bootstrap.servers: {error}") from error
