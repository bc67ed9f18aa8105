"""kafka-python's connections, moved by whoever waits for an answer."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from modeaware.wire.brokers.discreet import keep_credentials_out_of_the_log
from modeaware.wire.brokers.settings import DIRECT
from modeaware.wire.codec import MissingExtra

try:
    from kafka import errors as kafka_errors
    from kafka.net.inet import KafkaNetSocket
    from kafka.net.manager import KafkaConnectionManager
    from kafka.net.selector import NetworkSelector
except ImportError as error:
    raise MissingExtra(f"the controller needs kafka-python ({error}): install modeaware[controller]") from error

ANY_BROKER_TIMEOUT_S = 2.0
"""How long one broker has where any would do: a paused one takes connections and never answers."""
NO_ANSWER = (
    kafka_errors.KafkaTimeoutError,
    kafka_errors.RequestTimedOutError,
    kafka_errors.KafkaConnectionError,
    kafka_errors.NodeNotReadyError,
    kafka_errors.UnknownBrokerIdError,
    kafka_errors.Cancelled,
)


class Ask(NamedTuple):
    """A request (one of :mod:`~modeaware.wire.brokers.messages`, not used before) and the broker it is for.

    ``once``: it must not be done twice, so it is not sent again where the connection broke.
    """

    node_id: int
    request: Any
    once: bool = False


class _TidySocket(KafkaNetSocket):  # type: ignore[misc,unused-ignore]  # untyped
    """A plain connection whose socket is closed when it cannot be made: kafka-python leaves that to the collector.

    Classes are chosen by the scheme of ``proxy_url``; there is no proxy.
    """

    SCHEMES = (DIRECT.removesuffix("://"),)
    FAMILIES: ClassVar[Mapping[str, int]] = {f"{DIRECT}v4": socket.AF_INET, f"{DIRECT}v6": socket.AF_INET6}

    def __init__(self, proxy_url: str = DIRECT) -> None:
        super().__init__(proxy_url)
        self._family = self.FAMILIES.get(proxy_url)
        self._untried = 0

    def dns_lookup(self, host: str, port: int, raise_error: bool = False) -> list[Any]:
        """The addresses to try, in order."""
        found = super().dns_lookup(host, port, raise_error)
        wanted = [entry for entry in found if self._family in (None, entry[0])]
        self._untried = len(wanted)
        return wanted

    async def connect(self, net: Any, addrinfo: Any, socket_options: Any = (), timeout_at: float | None = None) -> Any:
        """Connect, or close the socket. An address has its share of the time that is left to it and those after it."""
        if timeout_at is not None and self._untried > 1:
            now_s = time.monotonic()
            timeout_at = now_s + (timeout_at - now_s) / self._untried
        self._untried -= 1
        family, kind, protocol, _, address = addrinfo
        made = self.socket(family, kind, protocol)
        try:
            made.setblocking(False)
            for option in socket_options:
                made.setsockopt(*option)
            return await self.sock_connect(net, made, address, timeout_at=timeout_at)
        except kafka_errors.KafkaTimeoutError as error:
            made.close()
            if self._untried <= 0:
                raise
            raise kafka_errors.KafkaConnectionError(f"{address}: {error}") from error  # after which the next is tried
        except BaseException:
            made.close()
            raise


class _TidySSLSocket(ssl.SSLSocket):
    """Closed where its handshake fails, as :class:`_TidySocket` is."""

    def do_handshake(self, block: bool = False) -> None:
        """Go on with the handshake."""
        try:
            super().do_handshake(block)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except OSError:
            self.close()
            raise


class Link:
    """kafka-python's connections, and the loop that moves them (by whoever calls ``poll``)."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        configs = {
            "proxy_url": DIRECT,
            **settings,
            "receive_message_max_bytes": 1 << 30,
            "max_in_flight_requests_per_connection": 100,
            "reconnect_backoff_max_ms": 300,
            "request_timeout_ms": ANY_BROKER_TIMEOUT_S * 1000,
            "socket_connection_setup_timeout_ms": ANY_BROKER_TIMEOUT_S * 1000,
            "socket_connection_setup_timeout_max_ms": 2 * ANY_BROKER_TIMEOUT_S * 1000,
            "slow_task_threshold_secs": 0,  # it warns of large answers, which take a while to decode
        }
        if (context := settings.get("ssl_context")) is not None:
            context.sslsocket_class = _TidySSLSocket
        keep_credentials_out_of_the_log()
        self.net = NetworkSelector(**configs)
        self.manager = KafkaConnectionManager(self.net, **configs)

    async def bootstrap(self, deadline_s: float) -> None:
        """Learn the brokers from one of the bootstrap servers, trying them in turns."""
        while True:
            try:
                left_ms = max(1.0, (deadline_s - time.monotonic()) * 1000)
                await self.manager.bootstrap_async(min(left_ms, ANY_BROKER_TIMEOUT_S * 1000))
                return
            except kafka_errors.KafkaTimeoutError:
                if time.monotonic() >= deadline_s:
                    raise

    async def refresh(self, deadline_s: float) -> None:
        """Learn the brokers anew from one that is known."""
        while True:
            try:
                await self.manager.cluster.refresh_metadata()
                return
            except NO_ANSWER:
                if time.monotonic() >= deadline_s:
                    raise
                await self.net.sleep(0.05)

    async def send(self, ask: Ask, deadline_s: float) -> Any:
        """Twice at most: a connection that was idle for long may be found closed when it is used."""
        try:
            return await self._send_once(ask, deadline_s)
        except (kafka_errors.KafkaConnectionError, kafka_errors.UnknownBrokerIdError):
            if ask.once:
                raise
            if self.manager.cluster.broker_metadata(ask.node_id) is None:
                await self.manager.cluster.refresh_metadata()
            return await self._send_once(ask, deadline_s)

    async def _send_once(self, ask: Ask, deadline_s: float) -> Any:
        while True:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise kafka_errors.KafkaTimeoutError("no answer in time")
            delay_s = self.manager.connection_delay(ask.node_id)
            if delay_s > 0:
                await self.net.sleep(min(delay_s, left_s))
                continue
            connection = self.manager.get_connection(ask.node_id)
            await self.manager.wait_for(connection.init_future, left_s * 1000)
            if connection.paused:  # throttled, or too many requests on their way
                await self.net.sleep(min(0.02, left_s))
                continue
            left_ms = (deadline_s - time.monotonic()) * 1000
            return await connection.send_request(ask.request, request_timeout_ms=left_ms)

    def close(self) -> None:
        self.manager.close()
        self.net.close()
