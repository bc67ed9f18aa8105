"""The blocking transport: kafka-python's connections, driven by the thread that waits for a response.

:class:`KafkaLink` has the connections and their event loop. :mod:`modeaware.wire.brokers` sends requests to any broker
over a link; :class:`OneServer` sends frames to one server. Both translate the librdkafka settings of a client, so they
connect as that client's user.
"""

from __future__ import annotations

import logging
import random
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from io import BytesIO
from itertools import cycle
from typing import Any, ClassVar, NamedTuple

from modeaware.config import OAUTH_CALLBACK, named_function
from modeaware.errors import ClusterError, ConfigError, ErrorCode
from modeaware.wire.capabilities import CLIENT_NAME
from modeaware.wire.codec import SASL_AUTHENTICATE_KEY, Header
from modeaware.wire.frames import MAX_REQUEST_BYTES, frame
from modeaware.wire.security import TLS_SETTINGS, security_protocol, servers, ssl_context

# isort: split
# After modeaware's imports: the codec raises an ImportError that explains how to install kafka-python.
from kafka import errors as kafka_errors
from kafka.net.inet import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.net.selector import NetworkSelector
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse, SaslBytesRequest

ANY_BROKER_TIMEOUT_S = 2.0
"""How long to wait for one broker if any other will do. A paused broker accepts connections, but never answers."""
SLICE_S = 0.1
"""How often :meth:`KafkaLink.run` checks whether the result is still wanted."""
NO_ANSWER = (
    kafka_errors.KafkaTimeoutError,
    kafka_errors.RequestTimedOutError,
    kafka_errors.KafkaConnectionError,
    kafka_errors.NodeNotReadyError,
    kafka_errors.UnknownBrokerIdError,
    kafka_errors.Cancelled,
)
_UNAUTHENTICATED = (kafka_errors.SaslAuthenticationFailedError, kafka_errors.UnsupportedSaslMechanismError)
CORRELATION_BYTES = 4
_CORRELATION_AT = 8  # after the length, the api key and its version
_ONLY_NODE = "bootstrap-0"  # kafka-python's name of the first bootstrap server
_DIRECT = "modeaware-direct://"
"""The ``proxy_url`` that selects :class:`_ClosingSocket`. A suffix ``v4`` or ``v6`` limits it to IPv4 or IPv6."""

# Settings


_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
_TAKEN = TLS_SETTINGS | {
    "sasl.kerberos.service.name",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.password",
    "sasl.username",
    "security.protocol",
    # Read by _sasl(), or mere tuning, which decides neither which broker is reached nor as which user.
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.method",
    "ssl.provider.location",
}


def kafka_python_settings(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return kafka-python's settings for the same brokers and the same user.

    Takes ``bootstrap.servers``, ``client.id``, ``broker.address.family``, ``security.protocol``, ``ssl.*`` with PEM
    files or strings, and ``sasl.*`` for PLAIN, SCRAM, OAUTHBEARER (by ``oauth_cb``) and GSSAPI (with the credentials
    of the process). Settings that only tune librdkafka are left out.

    Raises:
        ConfigError: a setting that decides which user connects, or how, is missing, invalid, or has no equivalent in
            kafka-python.
    """
    protocol = security_protocol(conf)
    settings: dict[str, Any] = {
        "bootstrap_servers": servers(conf),
        "client_id": str(conf.get("client.id") or "modeaware-controller"),
        "security_protocol": protocol,
    }
    if (family := str(conf.get("broker.address.family")).lower()) in ("v4", "v6"):
        settings["proxy_url"] = _DIRECT + family
    used = tuple(f"{name.lower()}." for name in protocol.split("_") if name != "PLAINTEXT")
    for name, value in conf.items():
        decides = name.startswith(used) or (name == "enable.sasl.oauthbearer.unsecure.jwt" and value)
        if decides and value not in (None, "") and name not in _TAKEN:
            raise ConfigError(f"{name} has no equivalent in kafka-python, which makes the controller's own connections")
    if protocol.endswith("SSL"):
        settings["ssl_context"] = ssl_context(conf)
    if protocol.startswith("SASL"):
        settings |= _sasl(conf)
    return settings


def _sasl(conf: Mapping[str, Any]) -> dict[str, Any]:
    mechanism = str(conf.get("sasl.mechanism") or conf.get("sasl.mechanisms") or "GSSAPI").upper()
    if mechanism not in _MECHANISMS:
        raise ConfigError(f"sasl.mechanism: {mechanism!r} is not one of {', '.join(_MECHANISMS)}")
    settings: dict[str, Any] = {"sasl_mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        if str(conf.get("sasl.oauthbearer.method", "default")).lower() != "default":
            raise ConfigError("sasl.oauthbearer.method: the controller takes tokens from oauth_cb only")
        callback = conf.get(OAUTH_CALLBACK)
        if isinstance(callback, str):
            callback = named_function(OAUTH_CALLBACK, callback)
        if not callable(callback):
            raise ConfigError("oauth_cb is missing: sasl.mechanism OAUTHBEARER takes its tokens from oauth_cb")
        settings["sasl_oauth_token_provider"] = OauthCallback(callback, str(conf.get("sasl.oauthbearer.config", "")))
    elif mechanism == "GSSAPI":
        if find_spec("gssapi") is None:
            raise ConfigError("sasl.mechanism GSSAPI: install the Python package gssapi")
        settings["sasl_kerberos_service_name"] = str(conf.get("sasl.kerberos.service.name", "kafka"))
    else:
        for setting in ("sasl.username", "sasl.password"):
            if conf.get(setting) is None:
                raise ConfigError(f"{setting} is missing: sasl.mechanism {mechanism} needs {setting}")
        settings["sasl_plain_username"] = str(conf["sasl.username"])
        settings["sasl_plain_password"] = str(conf["sasl.password"])
    return settings


class OauthCallback(AbstractTokenProvider):  # type: ignore[misc,unused-ignore]  # untyped
    """Tokens from confluent_kafka's ``oauth_cb(config) -> (token, expiry_s[, principal, extensions])``."""

    def __init__(self, callback: Callable[[str], Any], config: str) -> None:
        super().__init__()
        self._callback = callback
        self._config = config
        self._extensions: dict[str, str] = {}

    def token(self) -> str:
        """Return a new token; kafka-python takes one for each connection."""
        try:
            answer = self._callback(self._config)
        except Exception as error:
            raise kafka_errors.SaslAuthenticationFailedError(
                f"oauth_cb failed: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(answer, tuple | list) or len(answer) < 2:  # the answer is not quoted: it may be a token
            raise kafka_errors.SaslAuthenticationFailedError(
                f"oauth_cb must return (token, expiry in seconds), not {type(answer).__name__}"
            )
        self._extensions = dict(answer[3]) if len(answer) > 3 and answer[3] else {}
        return str(answer[0])

    def extensions(self) -> dict[str, str]:
        return self._extensions


class SaslLogFilter(logging.Filter):
    """Drops each line of kafka-python's log that contains a SASL message, as an object or as sent bytes.

    At DEBUG kafka-python logs every request in full, SaslAuthenticate included. Thread-safe.
    """

    LOGGERS = ("kafka.net.connection", "kafka.protocol.parser")
    SECRET = (SaslAuthenticateRequest, SaslAuthenticateResponse, SaslBytesRequest)

    def filter(self, record: logging.LogRecord) -> bool:
        arguments = record.args if isinstance(record.args, tuple) else ()
        sending = "Send" in str(record.msg)
        return not any(isinstance(a, self.SECRET) or (sending and _holds_sasl(a)) for a in arguments)


def _holds_sasl(frames: object) -> bool:
    """Return whether one of these frames is a SaslAuthenticate request, or the last is incomplete and so may be one."""
    if not isinstance(frames, (bytes, bytearray)):
        return False
    while frames:
        size = int.from_bytes(frames[:4], "big")
        if len(frames) < 4 + size or size < 2 or int.from_bytes(frames[4:6], "big") == SASL_AUTHENTICATE_KEY:
            return True
        frames = frames[4 + size :]
    return False


_SASL_LOG_FILTER = SaslLogFilter()


# Connections to all brokers


class Ask(NamedTuple):
    """A request (one of :mod:`~modeaware.wire.requests`, not used before) and its broker.

    If ``once`` is true, the request must not be carried out twice, so it is not sent again after a broken connection.
    """

    node_id: int
    request: Any
    once: bool = False


class _ClosingSocket(KafkaNetSocket):  # type: ignore[misc,unused-ignore]  # untyped
    """A plain socket that is closed if it cannot connect; kafka-python leaves the close to the garbage collector.

    kafka-python chooses this class by the scheme of ``proxy_url``.
    """

    SCHEMES = (_DIRECT.removesuffix("://"),)
    FAMILIES: ClassVar[Mapping[str, int]] = {f"{_DIRECT}v4": socket.AF_INET, f"{_DIRECT}v6": socket.AF_INET6}

    def __init__(self, proxy_url: str = _DIRECT) -> None:
        super().__init__(proxy_url)
        self._family = self.FAMILIES.get(proxy_url)
        self._untried = 0

    def dns_lookup(self, host: str, port: int, raise_error: bool = False) -> list[Any]:
        entries = super().dns_lookup(host, port, raise_error)
        wanted = [entry for entry in entries if self._family in (None, entry[0])]
        self._untried = len(wanted)
        return wanted

    async def connect(self, net: Any, addrinfo: Any, socket_options: Any = (), timeout_at: float | None = None) -> Any:
        """Connect, or close the socket. Each address gets an equal share of the time that remains."""
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
            raise kafka_errors.KafkaConnectionError(
                f"{address}: {error}"
            ) from error  # kafka-python tries the next address
        except BaseException:
            made.close()
            raise


class _ClosingSSLSocket(ssl.SSLSocket):
    """A TLS socket that is closed if its handshake fails."""

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except OSError:
            self.close()
            raise


class KafkaLink:
    """kafka-python's connections and their event loop, which runs in the thread that calls ``net.poll``."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        configs = {
            "proxy_url": _DIRECT,
            **settings,
            "receive_message_max_bytes": 1 << 30,
            "max_in_flight_requests_per_connection": 100,
            "reconnect_backoff_max_ms": 300,
            "request_timeout_ms": ANY_BROKER_TIMEOUT_S * 1000,
            "socket_connection_setup_timeout_ms": ANY_BROKER_TIMEOUT_S * 1000,
            "socket_connection_setup_timeout_max_ms": 2 * ANY_BROKER_TIMEOUT_S * 1000,
            "slow_task_threshold_secs": 0,  # kafka-python would warn of slow tasks while a large response is decoded
        }
        if (context := settings.get("ssl_context")) is not None:
            context.sslsocket_class = _ClosingSSLSocket
        for name in SaslLogFilter.LOGGERS:
            logging.getLogger(name).addFilter(_SASL_LOG_FILTER)
        self.net = NetworkSelector(**configs)
        self.manager = KafkaConnectionManager(self.net, **configs)
        cluster = self.manager.cluster
        bootstrap = cluster.bootstrap_brokers()
        in_turn = cycle(random.sample(bootstrap, len(bootstrap)))
        # In turn: kafka-python's own choice is random each time, and may repeatedly be a server that never answers.
        cluster.bootstrap_brokers = lambda: [next(in_turn)]

    def run(self, what: Callable[[], Any], deadline_s: float, wanted: Callable[[], bool] = lambda: True) -> Any:
        """Drive the connections until ``what`` is done, and return its result or raise its error.

        Raises:
            KafkaTimeoutError: ``deadline_s`` has passed.
            Cancelled: ``wanted`` returned False.
        """
        future = self.net.call_soon_with_future(what)
        while not future.is_done:
            if not wanted():
                raise kafka_errors.Cancelled("the response was abandoned")
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise kafka_errors.KafkaTimeoutError("no answer in time")
            self.net.poll(timeout_ms=min(left_s, SLICE_S) * 1000, future=future)
        if future.exception is not None:
            raise future.exception
        return future.value

    async def bootstrap(self, deadline_s: float) -> None:
        """Request the list of brokers from the bootstrap servers in turn, until one returns it."""
        while True:
            try:
                await self.manager.bootstrap_async(min(_left_ms(deadline_s), ANY_BROKER_TIMEOUT_S * 1000))
                return
            except kafka_errors.KafkaTimeoutError:
                if time.monotonic() >= deadline_s:
                    raise

    async def refresh(self, deadline_s: float) -> None:
        """Request the list of brokers again, from a known broker."""
        while True:
            try:
                await self.manager.cluster.refresh_metadata()
                return
            except NO_ANSWER:
                if time.monotonic() >= deadline_s:
                    raise
                await self.net.sleep(0.05)

    async def send(self, ask: Ask, deadline_s: float) -> Any:
        """Send a request. If the connection breaks, send the request once more, unless ``ask.once``: the broker may
        have closed an idle connection."""
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
            if connection.paused:  # throttled, or too many requests in flight
                await self.net.sleep(min(0.02, left_s))
                continue
            left_ms = (deadline_s - time.monotonic()) * 1000
            return await connection.send_request(ask.request, request_timeout_ms=left_ms)

    def close(self) -> None:
        self.manager.close()
        self.net.close()


def _left_ms(deadline_s: float) -> float:
    return max(1.0, (deadline_s - time.monotonic()) * 1000)


# One server


class OneServer:
    """A connection to one server, with the client's own security settings; the client software name is ``modeaware``.

    Connects at the first request. Has no thread: a call drives the socket while it waits. For one thread at a time.
    """

    def __init__(self, conf: Mapping[str, Any], server: str) -> None:
        self.server = server
        client_id = conf.get("client.id") or CLIENT_NAME
        self._settings = kafka_python_settings({**conf, "bootstrap.servers": server, "client.id": client_id})
        self._settings["client_software_name"] = CLIENT_NAME
        self._link: KafkaLink | None = None

    def ask(
        self,
        api_key: int,
        api_version: int,
        encode: Callable[[int, str | None], bytes],
        timeout_s: float,
        wanted: Callable[[], bool] = lambda: True,
    ) -> bytes:
        """Return the response's frame payload.

        Args:
            encode: makes the request's frame payload from a correlation id and a client id.
            timeout_s: for connection, TLS, SASL and the response together.
            wanted: called several times a second; the call fails once ``wanted`` returns False.

        Raises:
            ClusterError: no response (code REQUEST_TIMED_OUT), the server did not authenticate the user
                (SASL_AUTHENTICATION_FAILED), or another error (no code). The connection is closed; the next call
                opens a new one.
        """
        deadline_s = time.monotonic() + timeout_s
        try:
            return self._ask(_Request(api_key, api_version, encode), deadline_s, wanted)
        except BaseException:  # the connection may hold half a request, and kafka-python would keep a failed login
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; the next call opens a new one. Idempotent."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    @property
    def connected(self) -> bool:
        """Whether a connection was opened and not closed by this client; the server may have closed it since."""
        return self._link is not None

    def _ask(self, request: _Request, deadline_s: float, wanted: Callable[[], bool]) -> bytes:
        if self._link is None:
            self._link = KafkaLink(self._settings)
        link = self._link

        async def exchange() -> bytes:
            left_ms = _left_ms(deadline_s)
            connection = link.manager.get_connection(_ONLY_NODE, timeout_ms=left_ms, refresh_metadata_on_err=False)
            await link.manager.wait_for(connection.init_future, left_ms)
            answer: bytes = await connection.send_request(request, request_timeout_ms=_left_ms(deadline_s))
            return answer

        try:
            return bytes(link.run(exchange, deadline_s + SLICE_S, wanted))
        except Exception as error:  # kafka-python's, or an exception of the client's oauth_cb
            code = None
            if isinstance(error, (*NO_ANSWER, OSError)):
                code = ErrorCode.REQUEST_TIMED_OUT
            elif isinstance(error, _UNAUTHENTICATED):
                code = ErrorCode.SASL_AUTHENTICATION_FAILED
            raise ClusterError(f"{self.server}: {type(error).__name__}: {error}", code=code) from error


class _Request:
    """A request in the form that kafka-python's connections expect; its response stays bytes."""

    def __init__(self, api_key: int, api_version: int, encode: Callable[[int, str | None], bytes]) -> None:
        self.API_KEY = api_key
        self.API_VERSION = api_version
        self._encode = encode
        self._payload = b""
        self.header = _RequestHeader(api_key, api_version, 0)

    def with_header(self, correlation_id: int, client_id: str | None) -> None:
        self.header = _RequestHeader(self.API_KEY, self.API_VERSION, correlation_id)
        self._payload = self._encode(correlation_id, client_id)

    def encode(self, framed: bool = False, header: bool = False) -> bytes:
        assert framed, "header and all, as connections require it"
        assert header
        return frame(self._payload, MAX_REQUEST_BYTES)

    def expect_response(self) -> bool:
        return True


class _RequestHeader(Header):
    def get_response_class(self) -> type[_RawResponse]:
        return _RawResponse


class _RawResponse:
    """A response that stays bytes: kafka-python's own class for the api key may have another layout."""

    def __init__(self, correlation_id: int) -> None:
        self.correlation_id = correlation_id

    @classmethod
    def parse_header(cls, data: Any) -> _RawResponse:
        return cls(int.from_bytes(data.read(4), "big", signed=True))

    @staticmethod
    def decode(data: Any) -> bytes:
        data.seek(0)
        return bytes(data.read())


class Repeated:
    """A request that is sent many times. It is encoded once, and its responses stay bytes until :meth:`decoded`.

    For thousands of topics, encoding and decoding take most of the time. So the caller first compares a response's
    bytes with those of the last response, and decodes only a different one. A response is the payload of the frame; its
    first :data:`CORRELATION_BYTES` differ each time.

    One request at a time. After a failure, make a new object: the next broker may have another version.

    Args:
        request: one of :mod:`~modeaware.wire.requests`, not used before.
    """

    def __init__(self, request: Any) -> None:
        self._request = request
        self._before = self._after = b""
        self.header: _RequestHeader | None = None
        self.API_VERSION: Any = None  # set by the connection, to a version that the broker supports

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)

    def with_header(self, correlation_id: int, client_id: str | None) -> None:
        if self.header is None:
            self._request.API_VERSION = self.API_VERSION
            self._request.with_header(correlation_id, client_id)
            encoded = bytes(self._request.encode(framed=True, header=True))
            self._before, self._after = encoded[:_CORRELATION_AT], encoded[_CORRELATION_AT + CORRELATION_BYTES :]
        self.header = _RequestHeader(self.API_KEY, self.API_VERSION, correlation_id)

    def encode(self, framed: bool = False, header: bool = False) -> bytes:
        assert framed, "header and all, as connections require it"
        assert self.header is not None
        return self._before + self.header.correlation_id.to_bytes(CORRELATION_BYTES, "big") + self._after

    def decoded(self, answer: bytes) -> Any:
        """Decode a response to kafka-python's object."""
        response, data = self._request.header.get_response_class(), BytesIO(answer)
        response.parse_header(data)
        return response.decode(data)
