"""A client that asks any broker anything, one caller at a time."""

from __future__ import annotations

import random
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from modeaware.errors import ClusterError, ErrorCode
from modeaware.wire.brokers.link import ANY_BROKER_TIMEOUT_S, NO_ANSWER, Ask, Link
from modeaware.wire.brokers.patience import Patience
from modeaware.wire.brokers.settings import kafka_python_settings
from modeaware.wire.codec import MissingExtra
from modeaware.wire.kip694 import ACTIVE_NODE_ID, ENDPOINT_NODE_ID

try:
    from kafka import errors as kafka_errors
except ImportError as error:
    raise MissingExtra(f"the controller needs kafka-python ({error}): install modeaware[controller]") from error

__all__ = ["BULK_TIMEOUT_S", "REQUEST_TIMEOUT_S", "Ask", "Brokers"]

REQUEST_TIMEOUT_S = 4.0
BULK_TIMEOUT_S = 10.0
"""For requests with large answers, to brokers that have just answered a small one."""
_SLACK_S = 1.0
_ENDPOINTS = (ENDPOINT_NODE_ID, ACTIVE_NODE_ID)


class Brokers:
    """Requests to brokers by their id. Connects when first asked, and again after a failure.

    It has no thread: its sockets move while a call waits, and in between nothing happens, so it may be used by one
    thread at a time and holds up no exit. After a fork, make another.

    Args:
        conf: librdkafka configuration (``bootstrap.servers``, security settings).
        timeout_s: how long a call waits for a broker, connecting to it included. A first connection to the cluster
            may take twice as long.

    Raises:
        ConfigError: a setting that kafka-python has nothing like.
    """

    def __init__(self, conf: Mapping[str, Any], *, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self._settings = kafka_python_settings(conf)
        self._timeout_s = timeout_s
        self._link: Link | None = None
        self._finalizer: weakref.finalize[[], Brokers] | None = None
        self._closed = False
        self._patience = Patience()

    def node_ids(self) -> tuple[int, ...]:
        """The brokers that one of them knows to be alive, asked now; sorted.

        Raises:
            ClusterError: no broker answered.
        """
        link = self._connected()
        self._refresh(link, self._deadline_s())
        return tuple(sorted(_known(link)))

    def ask(self, request: Any, node_id: int | None = None) -> Any:
        """The response of one broker (None: of any).

        Raises:
            ClusterError: it did not answer (code REQUEST_TIMED_OUT), does not know the request (UNSUPPORTED_VERSION),
                or refused the connection.
        """
        if node_id is None:
            return self.ask_any(request)[1]
        return self._raised(self.ask_each([Ask(node_id, request)])[0])

    def ask_any(self, request: Any) -> tuple[int, Any]:
        """The response of some broker, and which one that was; those that do not answer are passed over.

        Not for what must not be done twice: one that did not answer may have done it.

        Raises:
            ClusterError: as of :meth:`ask`.
        """
        self._connected()  # before the time runs: no broker is blamed for how long that takes
        deadline_s = self._deadline_s()
        while True:
            link = self._connected()
            chosen = link.manager.least_loaded_node()
            if chosen in _ENDPOINTS:  # it stands for a controller, and relays no request of later versions
                chosen = random.choice(_known(link) or [chosen])
            brief_s = min(deadline_s, time.monotonic() + ANY_BROKER_TIMEOUT_S)
            answer = None if chosen is None else self._ask_each([Ask(int(chosen), request)], brief_s)[0]
            no_answer = isinstance(answer, ClusterError) and answer.code is ErrorCode.REQUEST_TIMED_OUT
            if answer is not None and not (no_answer and time.monotonic() < deadline_s):
                return int(chosen), self._raised(answer)
            if time.monotonic() >= deadline_s:
                raise _no_answer("no broker could be asked")
            try:
                self._refresh(link, deadline_s)
            except ClusterError as error:  # of one that is frozen; the next connection tries the servers by chance
                if error.code is not ErrorCode.REQUEST_TIMED_OUT or time.monotonic() >= deadline_s:
                    raise

    @staticmethod
    def _raised(answer: Any) -> Any:
        if isinstance(answer, ClusterError):
            raise answer
        return answer

    def ask_each(self, asks: Iterable[Ask], timeout_s: float | None = None) -> list[Any]:
        """The responses, side by side and in order; a :class:`ClusterError` in the place of one that did not come.

        Args:
            timeout_s: how long to wait, in place of the usual.

        Raises:
            ClusterError: not even a connection to the cluster could be made.
        """
        wanted = list(asks)
        if wanted:
            self._connected()  # see above
        return self._ask_each(wanted, self._deadline_s(timeout_s))

    def _ask_each(self, wanted: Sequence[Ask], deadline_s: float) -> list[Any]:
        if not wanted:
            return []
        link = self._connected()
        answers: list[Any] = [None] * len(wanted)
        until_s = {ask.node_id: self._patience.until_s(ask.node_id, deadline_s) for ask in wanted}

        def one(place: int) -> Callable[[], Any]:
            node_id = wanted[place].node_id

            async def ask() -> None:
                try:
                    answers[place] = await link.send(wanted[place], until_s[node_id])
                    self._patience.answered(node_id)
                except (kafka_errors.KafkaError, OSError) as error:
                    answers[place] = _translated(error, f"broker {node_id}")
                    if answers[place].code is ErrorCode.REQUEST_TIMED_OUT:
                        self._patience.failed(node_id, until_s[node_id])

            return ask

        async def all_of_them() -> None:
            for future in [link.net.call_soon_with_future(one(place)) for place in range(len(wanted))]:
                await future

        self._run(link, all_of_them, "ask the brokers", deadline_s)
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

    def _connected(self) -> Link:
        if self._closed:
            raise ClusterError("the connection to the cluster was closed", code=ErrorCode.REQUEST_TIMED_OUT)
        link = self._link
        if link is None:
            link = self._link = Link(self._settings)
            # What is dropped without close() lets go of its sockets; at exit the operating system does.
            self._finalizer = weakref.finalize(self, link.close)
            self._finalizer.atexit = False
            # Its servers are tried by chance, and a paused one takes a while.
            deadline_s = self._deadline_s(2 * self._timeout_s)
            self._run(link, partial(link.bootstrap, deadline_s), "reach the cluster", deadline_s)
        return link

    def _deadline_s(self, timeout_s: float | None = None) -> float:
        return time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)

    def _refresh(self, link: Link, deadline_s: float) -> None:
        self._run(link, partial(link.refresh, deadline_s), "ask for the brokers", deadline_s)

    def _run(self, link: Link, what: Callable[[], Any], doing: str, deadline_s: float) -> None:
        """Drive the link until ``what`` is done. Any failure lets go of the link: nothing half done is left on it."""
        try:
            future = link.net.call_soon_with_future(what)
            left_s = max(0.0, deadline_s - time.monotonic()) + _SLACK_S
            link.net.poll(timeout_ms=left_s * 1000, future=future)
            if not future.is_done:
                raise _no_answer(f"cannot {doing}: no answer in time")
            if future.exception is not None:
                raise _translated(future.exception, f"cannot {doing}") from future.exception
        except BaseException:
            self.disconnect()
            raise


def _known(link: Link) -> list[int]:
    """The brokers: an endpoint that was a bootstrap server may be among the nodes, and is none."""
    nodes = (int(broker.node_id) for broker in link.manager.cluster.brokers())
    return [node for node in nodes if node not in _ENDPOINTS]


def _no_answer(what: str) -> ClusterError:
    return ClusterError(what, code=ErrorCode.REQUEST_TIMED_OUT)


def _translated(error: Exception, what: str) -> ClusterError:
    if isinstance(error, ClusterError):
        return error
    if isinstance(error, kafka_errors.IncompatibleBrokerVersion):
        return ClusterError(f"{what}: {error}", code=ErrorCode.UNSUPPORTED_VERSION)
    if isinstance(error, (*NO_ANSWER, OSError)):
        return _no_answer(f"{what}: no answer ({error or type(error).__name__})")
    if isinstance(error, kafka_errors.KafkaError):
        return ClusterError(f"{what}: {type(error).__name__}: {error}")
    raise error  # a mistake of ours
