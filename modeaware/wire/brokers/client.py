"""A client that asks any broker anything, one caller at a time."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from modeaware.errors import ClusterError, ErrorCode
from modeaware.wire.brokers.settings import kafka_python_settings
from modeaware.wire.codec import MissingExtra

try:
    from kafka import errors as kafka_errors
    from kafka.net.inet import KafkaNetSocket
    from kafka.net.manager import KafkaConnectionManager
    from kafka.net.selector import NetworkSelector
except ImportError as error:
    raise MissingExtra(f"the controller needs kafka-python ({error}): pip install 'modeaware[controller]'") from error

REQUEST_TIMEOUT_S = 8.0
_ANY_BROKER_TIMEOUT_MS = 2_000
"""How long one broker has where any would do: a paused one takes connections and never answers."""
_SLACK_S = 1.0
_NO_ANSWER = (
    kafka_errors.KafkaTimeoutError,
    kafka_errors.RequestTimedOutError,
    kafka_errors.KafkaConnectionError,
    kafka_errors.NodeNotReadyError,
    kafka_errors.UnknownBrokerIdError,
    kafka_errors.Cancelled,
)


class Ask(NamedTuple):
    """A request (one of :mod:`~modeaware.wire.brokers.messages`, not used before) and the broker it is for."""

    node_id: int
    request: Any


class Brokers:
    """Requests to brokers by their id. Connects when first asked, and again after a failure.

    It has no thread: its sockets move while a call waits, and in between nothing happens, so it may be used by one
    thread at a time and holds up no exit. After a fork, make another.

    Args:
        conf: librdkafka configuration (``bootstrap.servers``, security settings).
        timeout_s: how long any call waits, connecting included.

    Raises:
        ConfigError: a setting that kafka-python has nothing like.
    """

    def __init__(self, conf: Mapping[str, Any], *, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self._settings = kafka_python_settings(conf)
        self._timeout_s = timeout_s
        self._link: _Link | None = None
        self._finalizer: weakref.finalize[[], Brokers] | None = None
        self._closed = False

    def node_ids(self) -> tuple[int, ...]:
        """The brokers that one of them knows to be alive, asked now; sorted.

        Raises:
            ClusterError: no broker answered.
        """
        link = self._connected()
        self._run(link, partial(link.refresh, self._deadline_s()), "ask for the brokers")
        return tuple(sorted(int(broker.node_id) for broker in link.manager.cluster.brokers()))

    def ask(self, request: Any, node_id: int | None = None) -> Any:
        """The response of one broker (None: of any).

        Raises:
            ClusterError: it did not answer (code REQUEST_TIMED_OUT), does not know the request (UNSUPPORTED_VERSION),
                or refused the connection.
        """
        if node_id is not None:
            return self._raised(self.ask_each([Ask(node_id, request)])[0])
        deadline_s = self._deadline_s()
        while True:
            link = self._connected()
            chosen = link.manager.least_loaded_node()
            brief_s = min(deadline_s, time.monotonic() + _ANY_BROKER_TIMEOUT_MS / 1000)
            answer = None if chosen is None else self._ask_each([Ask(int(chosen), request)], brief_s)[0]
            no_answer = isinstance(answer, ClusterError) and answer.code is ErrorCode.REQUEST_TIMED_OUT
            if answer is not None and not (no_answer and time.monotonic() < deadline_s):
                return self._raised(answer)
            if time.monotonic() >= deadline_s:
                raise _no_answer("no broker could be asked")
            self._run(link, partial(link.refresh, deadline_s), "ask for the brokers")

    @staticmethod
    def _raised(answer: Any) -> Any:
        if isinstance(answer, ClusterError):
            raise answer
        return answer

    def ask_each(self, asks: Iterable[Ask]) -> list[Any]:
        """The responses, side by side and in order; a :class:`ClusterError` in the place of one that did not come.

        Raises:
            ClusterError: not even a connection to the cluster could be made.
        """
        return self._ask_each(list(asks), self._deadline_s())

    def _ask_each(self, wanted: Sequence[Ask], deadline_s: float) -> list[Any]:
        if not wanted:
            return []
        link = self._connected()
        answers: list[Any] = [None] * len(wanted)

        def one(place: int) -> Callable[[], Any]:
            async def ask() -> None:
                try:
                    answers[place] = await link.send(wanted[place], deadline_s)
                except (kafka_errors.KafkaError, OSError) as error:
                    answers[place] = _translated(error, f"broker {wanted[place].node_id}")

            return ask

        async def all_of_them() -> None:
            for future in [link.net.call_soon_with_future(one(place)) for place in range(len(wanted))]:
                await future

        self._run(link, all_of_them, "ask the brokers")
        if any(isinstance(answer, ClusterError) and answer.code is None for answer in answers):
            self.disconnect()  # kafka-python keeps a refusal (of a password, say) for as long as it lives
        return answers

    def close(self) -> None:
        """Close all connections. Idempotent; a call after it fails."""
        self._closed = True
        self.disconnect()

    def disconnect(self) -> None:
        """Close all connections; the next call begins again with ``bootstrap.servers``."""
        link, self._link = self._link, None
        if self._finalizer is not None:
            self._finalizer.detach()
        if link is not None:
            link.close()

    def _connected(self) -> _Link:
        if self._closed:
            raise ClusterError("the connection to the cluster was closed", code=ErrorCode.REQUEST_TIMED_OUT)
        link = self._link
        if link is None:
            link = self._link = _Link(self._settings)
            # What is dropped without close() lets go of its sockets; at exit the operating system does.
            self._finalizer = weakref.finalize(self, link.close)
            self._finalizer.atexit = False
            self._run(link, partial(link.bootstrap, self._deadline_s()), "reach the cluster")
        return link

    def _deadline_s(self) -> float:
        return time.monotonic() + self._timeout_s

    def _run(self, link: _Link, what: Callable[[], Any], doing: str) -> None:
        """Drive the link until ``what`` is done. Any failure lets go of the link: nothing half done is left on it."""
        try:
            future = link.net.call_soon_with_future(what)
            link.net.poll(timeout_ms=(self._timeout_s + _SLACK_S) * 1000, future=future)
            if not future.is_done:
                raise _no_answer(f"cannot {doing}: no answer in time")
            if future.exception is not None:
                raise _translated(future.exception, f"cannot {doing}") from future.exception
        except BaseException:
            self.disconnect()
            raise


class _TidySocket(KafkaNetSocket):  # type: ignore[misc,unused-ignore]  # untyped
    """A plain connection whose socket is closed when it cannot be made: kafka-python leaves that to the collector.

    Classes are chosen by the scheme of ``proxy_url``; there is no proxy.
    """

    SCHEMES = ("modeaware-direct",)

    async def connect(self, net: Any, addrinfo: Any, socket_options: Any = (), timeout_at: float | None = None) -> Any:
        """Connect, or close the socket."""
        family, kind, protocol, _, address = addrinfo
        made = self.socket(family, kind, protocol)
        try:
            made.setblocking(False)
            for option in socket_options:
                made.setsockopt(*option)
            return await self.sock_connect(net, made, address, timeout_at=timeout_at)
        except BaseException:
            made.close()
            raise


class _Link:
    """kafka-python's connections, and the loop that moves them (by whoever calls ``poll``)."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        configs = {
            **settings,
            "proxy_url": f"{_TidySocket.SCHEMES[0]}://",
            "receive_message_max_bytes": 1 << 30,
            "max_in_flight_requests_per_connection": 100,
            "reconnect_backoff_max_ms": 1_000,
            "request_timeout_ms": _ANY_BROKER_TIMEOUT_MS,
            "socket_connection_setup_timeout_ms": 2 * _ANY_BROKER_TIMEOUT_MS,
            "socket_connection_setup_timeout_max_ms": 2 * _ANY_BROKER_TIMEOUT_MS,
            "slow_task_threshold_secs": 0,  # it warns of large answers, which take a while to decode
        }
        self.net = NetworkSelector(**configs)
        self.manager = KafkaConnectionManager(self.net, **configs)

    async def bootstrap(self, deadline_s: float) -> None:
        """Learn the brokers from one of the bootstrap servers, trying them in turns."""
        while True:
            try:
                left_ms = max(1.0, (deadline_s - time.monotonic()) * 1000)
                await self.manager.bootstrap_async(min(left_ms, _ANY_BROKER_TIMEOUT_MS))
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
            except _NO_ANSWER:
                if time.monotonic() >= deadline_s:
                    raise
                await self.net.sleep(0.05)

    async def send(self, ask: Ask, deadline_s: float) -> Any:
        """Twice at most: a connection that was idle for long may be found closed when it is used."""
        try:
            return await self._send_once(ask, deadline_s)
        except (kafka_errors.KafkaConnectionError, kafka_errors.UnknownBrokerIdError):
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


def _no_answer(what: str) -> ClusterError:
    return ClusterError(what, code=ErrorCode.REQUEST_TIMED_OUT)


def _translated(error: Exception, what: str) -> ClusterError:
    if isinstance(error, ClusterError):
        return error
    if isinstance(error, kafka_errors.IncompatibleBrokerVersion):
        return ClusterError(f"{what}: {error}", code=ErrorCode.UNSUPPORTED_VERSION)
    if isinstance(error, (*_NO_ANSWER, OSError)):
        return _no_answer(f"{what}: no answer ({error or type(error).__name__})")
    if isinstance(error, kafka_errors.KafkaError):
        return ClusterError(f"{what}: {type(error).__name__}: {error}")
    raise error  # a mistake of ours
