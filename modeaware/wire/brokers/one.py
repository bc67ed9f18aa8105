"""One server that is asked for what kafka-python has no schema of its own for, as the client's user."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from modeaware.errors import ClusterError, ErrorCode
from modeaware.wire.api_versions import CLIENT_NAME
from modeaware.wire.brokers.link import NO_ANSWER, Link
from modeaware.wire.brokers.settings import kafka_python_settings
from modeaware.wire.codec import MissingExtra
from modeaware.wire.frames import MAX_REQUEST_BYTES, frame

try:
    from kafka import errors as kafka_errors
except ImportError as error:
    raise MissingExtra(f"this needs kafka-python ({error}): install modeaware[kafka-python]") from error

SLICE_S = 0.1
"""How often a caller that waits is asked whether it still wants the answer."""
_NOT_LET_IN = (kafka_errors.SaslAuthenticationFailedError, kafka_errors.UnsupportedSaslMechanismError)
_ONLY_NODE = "bootstrap-0"  # what kafka-python calls the first bootstrap server

Encode = Callable[[int, str | None], bytes]
"""Makes a request's frame payload from a correlation id and a client id."""


class OneServer:
    """A connection to one server, with the client's own security settings; the client software name is ``modeaware``.

    It is made when first asked, and has no thread: its socket moves while a call waits. One thread at a time.

    Args:
        conf: the client's librdkafka settings.
        server: ``host:port``, instead of its bootstrap servers.

    Raises:
        ConfigError: a setting that kafka-python has nothing like.
    """

    def __init__(self, conf: Mapping[str, Any], server: str) -> None:
        self.server = server
        client_id = conf.get("client.id") or CLIENT_NAME
        self._settings = kafka_python_settings({**conf, "bootstrap.servers": server, "client.id": client_id})
        self._settings["client_software_name"] = CLIENT_NAME
        self._link: Link | None = None

    def ask(
        self,
        api_key: int,
        api_version: int,
        encode: Encode,
        timeout_s: float,
        wanted: Callable[[], bool] = lambda: True,
    ) -> bytes:
        """The response's frame payload.

        Args:
            timeout_s: for all of it: connection, TLS, SASL, and the answer.
            wanted: asked now and then; where it says no, this ends with an error.

        Raises:
            ClusterError: no answer (code REQUEST_TIMED_OUT), the server did not let the user in
                (SASL_AUTHENTICATION_FAILED), or something else went wrong. The connection is closed, and the next call
                makes another.
        """
        deadline_s = time.monotonic() + timeout_s
        request = _Request(api_key, api_version, encode)
        done = False
        try:
            answer = self._ask(request, deadline_s, wanted)
            done = True
            return answer
        finally:
            if not done:  # nothing half done is left on it, and no refusal is remembered
                self.close()

    def close(self) -> None:
        """Close the connection; the next call makes another. Idempotent."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    @property
    def connected(self) -> bool:
        """Whether there is a connection, as far as is known: nobody looks while nothing is asked."""
        return self._link is not None

    def _ask(self, request: _Request, deadline_s: float, wanted: Callable[[], bool]) -> bytes:
        link = self._link
        if link is None:
            link = self._link = Link(self._settings)

        async def exchange() -> bytes:
            left_ms = _left_ms(deadline_s)
            manager = link.manager
            connection = manager.get_connection(_ONLY_NODE, timeout_ms=left_ms, refresh_metadata_on_err=False)
            await manager.wait_for(connection.init_future, left_ms)
            answer: bytes = await connection.send_request(request, request_timeout_ms=_left_ms(deadline_s))
            return answer

        future = link.net.call_soon_with_future(exchange)
        while not future.is_done:
            if not wanted():
                raise self._error(kafka_errors.Cancelled("nobody waits for the answer any more"))
            if time.monotonic() > deadline_s + SLICE_S:
                raise self._error(kafka_errors.KafkaTimeoutError("no answer in time"))
            link.net.poll(timeout_ms=SLICE_S * 1000, future=future)
        if future.exception is not None:  # kafka-python's, or what the client's oauth_cb raised
            raise self._error(future.exception) from future.exception
        return bytes(future.value)

    def _error(self, error: Exception) -> ClusterError:
        code = None
        if isinstance(error, (*NO_ANSWER, OSError)):
            code = ErrorCode.REQUEST_TIMED_OUT
        elif isinstance(error, _NOT_LET_IN):
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
        return ClusterError(f"{self.server}: {type(error).__name__}: {error}", code=code)


def _left_ms(deadline_s: float) -> float:
    return max(1.0, (deadline_s - time.monotonic()) * 1000)


class _Request:
    """What kafka-python's connections take for a request: one that encodes itself, and leaves the answer as it is."""

    def __init__(self, api_key: int, api_version: int, encode: Encode) -> None:
        self.API_KEY = api_key
        self.API_VERSION = api_version
        self._encode = encode
        self._payload = b""
        self.header = _Header(api_key, api_version, 0)

    def with_header(self, correlation_id: int, client_id: str | None) -> None:
        self.header = _Header(self.API_KEY, self.API_VERSION, correlation_id)
        self._payload = self._encode(correlation_id, client_id)

    def encode(self, framed: bool = False, header: bool = False) -> bytes:
        assert framed, "header and all, as connections ask for it"
        assert header
        return frame(self._payload, MAX_REQUEST_BYTES)

    def expect_response(self) -> bool:
        return True


class _Header:
    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id

    def get_response_class(self) -> type[_Answer]:
        return _Answer


class _Answer:
    """A response as it came; kafka-python's own class for the api key may have another layout."""

    def __init__(self, correlation_id: int) -> None:
        self.correlation_id = correlation_id

    @classmethod
    def parse_header(cls, data: Any) -> _Answer:
        return cls(int.from_bytes(data.read(4), "big", signed=True))

    @staticmethod
    def decode(data: Any) -> bytes:
        data.seek(0)
        return bytes(data.read())
