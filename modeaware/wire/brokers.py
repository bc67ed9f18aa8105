"""Any Kafka request to any broker: nothing in the response is filtered.

librdkafka's admin client hides facts that a controller needs: share groups, leader epochs of commits, and which broker
sent an answer. The requests are in :mod:`modeaware.wire.requests`.

A broker of a KRaft cluster forwards requests to Kafka's own controller. With ZooKeeper that controller is one of the
brokers; the others reject such a request, and name the controller in their metadata (:func:`ask_controller`).
"""

from __future__ import annotations

import random
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from modeaware.errors import ClusterError, ErrorCode
from modeaware.wire import capabilities
from modeaware.wire.codec import ACTIVE_NODE_ID, ENDPOINT_NODE_ID
from modeaware.wire.requests import MetadataRequest
from modeaware.wire.transport import ANY_BROKER_TIMEOUT_S, NO_ANSWER, Ask, KafkaLink, kafka_python_settings

# isort: split
from kafka import errors as kafka_errors

__all__ = ["BULK_TIMEOUT_S", "REQUEST_TIMEOUT_S", "Ask", "Brokers", "Route", "ask_controller", "route_to_controller"]

REQUEST_TIMEOUT_S = 4.0
BULK_TIMEOUT_S = 10.0
"""The timeout of requests with large responses, to brokers that have just answered a small request."""
SILENT_TIMEOUT_S = 1.0
"""The timeout of a broker that did not answer the last request in time: enough if the broker has recovered."""
SILENT_FOR_S = 10.0
"""How long :data:`SILENT_TIMEOUT_S` applies. Then the broker gets the whole timeout again, because it may be slow
rather than dead."""
_SLACK_S = 1.0
_IN_TIME_S = 0.1
_ENDPOINTS = (ENDPOINT_NODE_ID, ACTIVE_NODE_ID)


class SilentBrokers:
    """Shortens the timeout of brokers that timed out: within :data:`SILENT_FOR_S`, such a broker delays only one call
    by the whole timeout."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._silent_since_s: dict[int, float] = {}

    def until_s(self, node_id: int, deadline_s: float) -> float:
        """Return the deadline for this broker, in a call that ends at ``deadline_s``."""
        now_s = self._monotonic_s()
        return min(deadline_s, now_s + SILENT_TIMEOUT_S) if self._is_silent(node_id) else deadline_s

    def answered(self, node_id: int) -> None:
        self._silent_since_s.pop(node_id, None)

    def failed(self, node_id: int, until_s: float) -> None:
        """Note that the broker did not respond. Only a timeout makes it silent: a refused connection takes no time."""
        if self._monotonic_s() > until_s - _IN_TIME_S and not self._is_silent(node_id):
            self._silent_since_s[node_id] = self._monotonic_s()

    def _is_silent(self, node_id: int) -> bool:
        since_s = self._silent_since_s.get(node_id)
        return since_s is not None and self._monotonic_s() - since_s < SILENT_FOR_S


class Brokers:
    """Requests to brokers by their id. Connects at the first request, and again after a failure.

    There is no thread: the sockets are served only while a call waits. So only one thread at a time may use this, and
    the process's exit is not delayed. After a fork, make another object.

    Args:
        conf: librdkafka configuration (``bootstrap.servers``, security settings).
        timeout_s: how long a call waits for a broker, the connection to that broker included. The first connection to
            the cluster, and the next one after a failure, may take twice as long: several servers may have to be tried.
    """

    def __init__(self, conf: Mapping[str, Any], *, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self._conf = dict(conf)
        # The settings of the first link are made here, so that a ConfigError is raised by the constructor.
        self._settings: dict[str, Any] | None = kafka_python_settings(conf)
        self._timeout_s = timeout_s
        self._link: KafkaLink | None = None
        self._finalizer: weakref.finalize[[], Brokers] | None = None
        self._closed = False
        self._silent = SilentBrokers()

    def node_ids(self) -> tuple[int, ...]:
        """Request the list of live brokers from a broker; return their ids, sorted."""
        link = self._connected()
        self._refresh(link, self._deadline_s())
        return tuple(sorted(_known(link)))

    def ask(self, request: Any, node_id: int | None = None) -> Any:
        """Return the response of the broker ``node_id``, or of any broker if that is None.

        Raises:
            ClusterError: no response (code REQUEST_TIMED_OUT), the broker does not support the request
                (UNSUPPORTED_VERSION), or it refused the user.
        """
        if node_id is None:
            return self.ask_any(request)[1]
        return _raised(self.ask_each([Ask(node_id, request)])[0])

    def ask_any(self, request: Any) -> tuple[int, Any]:
        """Return the id and the response of some broker; brokers that do not respond are skipped.

        Only for requests that may be carried out twice, because a skipped broker may have carried the request out.
        """
        self._connected()  # before the time limit begins: the time to connect does not count for any broker
        deadline_s = self._deadline_s()
        while True:
            link = self._connected()
            chosen = link.manager.least_loaded_node()
            if chosen in _ENDPOINTS:  # an endpoint perhaps does not relay the newest requests
                chosen = random.choice(_known(link) or [chosen])
            brief_s = min(deadline_s, time.monotonic() + ANY_BROKER_TIMEOUT_S)
            answer = None if chosen is None else self._ask_each([Ask(int(chosen), request)], brief_s)[0]
            timed_out = isinstance(answer, ClusterError) and answer.code is ErrorCode.REQUEST_TIMED_OUT
            if answer is not None and not (timed_out and time.monotonic() < deadline_s):
                return int(chosen), _raised(answer)
            if time.monotonic() >= deadline_s:
                raise ClusterError("no broker was reached", code=ErrorCode.REQUEST_TIMED_OUT)
            try:
                self._refresh(link, deadline_s)
            except ClusterError as error:  # perhaps a broker is frozen; the next link tries servers in another order
                if error.code is not ErrorCode.REQUEST_TIMED_OUT or time.monotonic() >= deadline_s:
                    raise

    def ask_each(self, asks: Iterable[Ask], timeout_s: float | None = None) -> list[Any]:
        """Send requests in parallel; return the responses in order, with a :class:`ClusterError` in place of a missing
        one."""
        wanted = list(asks)
        if wanted:
            self._connected()  # before the time limit begins
        return self._ask_each(wanted, self._deadline_s(timeout_s))

    def _ask_each(self, wanted: Sequence[Ask], deadline_s: float) -> list[Any]:
        if not wanted:
            return []
        link = self._connected()
        answers: list[Any] = [None] * len(wanted)
        until_s = {ask.node_id: self._silent.until_s(ask.node_id, deadline_s) for ask in wanted}

        async def ask_one(place: int) -> None:
            ask = wanted[place]
            try:
                answers[place] = await link.send(ask, until_s[ask.node_id])
                self._silent.answered(ask.node_id)
            except (kafka_errors.KafkaError, OSError) as error:
                answers[place] = _translated(error, f"broker {ask.node_id}", ask.request)
                if answers[place].code is ErrorCode.REQUEST_TIMED_OUT:
                    self._silent.failed(ask.node_id, until_s[ask.node_id])

        async def ask_all() -> None:
            for future in [link.net.call_soon_with_future(partial(ask_one, place)) for place in range(len(wanted))]:
                await future

        self._run(link, ask_all, "ask the brokers", deadline_s)
        if any(isinstance(answer, ClusterError) and answer.code is None for answer in answers):
            self.disconnect()  # kafka-python's connections would keep a refusal (of a password, say) for good
        return answers

    def close(self) -> None:
        """Close all connections. Idempotent. Every later request fails."""
        self._closed = True
        self.disconnect()

    def disconnect(self) -> None:
        """Close all connections; the next call begins again with ``bootstrap.servers``."""
        link, self._link = self._link, None
        if self._finalizer is not None:
            self._finalizer.detach()
        if link is not None:
            link.close()

    def _connected(self) -> KafkaLink:
        if self._closed:
            raise ClusterError("the connection to the cluster was closed", code=ErrorCode.REQUEST_TIMED_OUT)
        link = self._link
        if link is None:
            # Each further link reads the settings again: certificates may have been renewed in their files.
            settings, self._settings = self._settings or kafka_python_settings(self._conf), None
            link = self._link = KafkaLink(settings)
            # Closes the sockets of an object that is dropped without close(); at exit the operating system closes them.
            self._finalizer = weakref.finalize(self, link.close)
            self._finalizer.atexit = False
            # Twice the time: the link tries the servers in random order, and waits a while for a paused server.
            deadline_s = self._deadline_s(2 * self._timeout_s)
            self._run(link, partial(link.bootstrap, deadline_s), "reach the cluster", deadline_s)
        return link

    def _deadline_s(self, timeout_s: float | None = None) -> float:
        return time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)

    def _refresh(self, link: KafkaLink, deadline_s: float) -> None:
        self._run(link, partial(link.refresh, deadline_s), "request the list of brokers", deadline_s)

    def _run(self, link: KafkaLink, what: Callable[[], Any], doing: str, deadline_s: float) -> None:
        """Drive the link until ``what`` is done. Any failure closes the link, so that no unfinished work remains."""
        try:
            link.run(what, max(deadline_s, time.monotonic()) + _SLACK_S)
        except (kafka_errors.KafkaError, OSError) as error:
            self.disconnect()
            raise _translated(error, f"cannot {doing}") from error
        except BaseException:
            self.disconnect()
            raise


def _known(link: KafkaLink) -> list[int]:
    """Return the ids of the brokers, without those of endpoints, which may be among kafka-python's nodes."""
    nodes = (int(broker.node_id) for broker in link.manager.cluster.brokers())
    return [node for node in nodes if node not in _ENDPOINTS]


def _raised(answer: Any) -> Any:
    if isinstance(answer, ClusterError):
        raise answer
    return answer


def _translated(error: Exception, what: str, request: Any = None) -> ClusterError:
    if isinstance(error, ClusterError):
        return error
    if isinstance(error, kafka_errors.IncompatibleBrokerVersion):
        why = str(error)
        if request is not None:
            why = capabilities.missing(request.name.removesuffix("Request"), request._min_version or 0)
        return ClusterError(f"{what}: {why}", code=ErrorCode.UNSUPPORTED_VERSION)
    if isinstance(error, (*NO_ANSWER, OSError)):
        return ClusterError(f"{what}: no answer ({error or type(error).__name__})", code=ErrorCode.REQUEST_TIMED_OUT)
    if isinstance(error, kafka_errors.KafkaError):
        return ClusterError(f"{what}: {type(error).__name__}: {error}")
    raise error  # any other error is a bug


class Route(NamedTuple):
    """A broker that answers, and the id of Kafka's controller by that broker's metadata (below 0 if unknown)."""

    node: int
    controller: int


def route_to_controller(brokers: Brokers) -> Route:
    """Return where to send requests for Kafka's controller."""
    node, cluster = brokers.ask_any(MetadataRequest(topics=[], allow_auto_topic_creation=False))
    return Route(node, int(cluster.controller_id))


def ask_controller(
    brokers: Brokers,
    route: Route,
    request: Callable[[], Any],
    codes: Callable[[Any], Iterable[int]],
    *,
    once: bool = True,
    timeout_s: float | None = None,
) -> Any:
    """Return the response of ``route.node`` or, if that broker is not the controller, of ``route.controller``. If no
    response arrives, return the :class:`ClusterError`.

    Args:
        request: makes a new message for each attempt; if it raises an exception, nothing is sent.
        codes: returns the error codes in a response. If all are NOT_CONTROLLER, nothing was done.
        once: as for :class:`~modeaware.wire.transport.Ask`.
        timeout_s: as for :meth:`Brokers.ask_each`, for each of the two attempts.
    """
    (answer,) = brokers.ask_each([Ask(route.node, request(), once)], timeout_s)
    if isinstance(answer, ClusterError) or route.controller < 0 or set(codes(answer)) != {ErrorCode.NOT_CONTROLLER}:
        return answer
    (answer,) = brokers.ask_each([Ask(route.controller, request(), once)], timeout_s)
    return answer
