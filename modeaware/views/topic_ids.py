"""The topic id that a name has on the cluster now: it decides which view may apply (invariant I8).

A view is made for one topic id. A Kafka topic can be deleted and created again under its name. Without a running
controller, the record of the deleted topic stays on the mode log. So before a client acts on a view, it compares the
view's id with the id that the cluster returns for the name. The request is DescribeTopics (Metadata v10 and later,
KIP-516), which never creates a topic.

* A response with another id takes the view out of force. If a record of the other id is known, its view comes into
  force.
* A broker may lag behind and return a past id. An id is ignored if its record was removed, or if a record of another
  id came later on the log. Any other response counts until the next response: the comparison is repeated in the
  background while the topic is in use.
* Without an id nothing changes: the client continues with its last view. This is so if there is no response, the topic
  is unknown, the request is rejected, or the broker has no topic ids.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as NoAnswerInTime
from contextlib import suppress
from functools import partial
from typing import Any

from modeaware import os_threads
from modeaware.callouts import InnerLock, get_logger
from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.errors import without_frames
from modeaware.librdkafka import AdminClient, KafkaError, KafkaException, TopicCollection
from modeaware.modelog.connection import connection_conf
from modeaware.topic_view import known_id
from modeaware.views.source import MAX_ID_AGE_S
from modeaware.wire.capabilities import TOPIC_IDS

logger = get_logger(__name__)

REQUEST_TIMEOUT_S = 3.0
RETRY_S = 0.05
UNKNOWN_PATIENCE_S = 0.5
"""How long requests for the id of an unknown topic are repeated. A new topic is known to brokers in milliseconds."""
CHECK_S = 10.0
"""The longest time between comparisons of the ids of topics in use, even if ``topic.metadata.refresh.interval.ms`` is
longer. If a topic is deleted and created again, a running client applies the old view for at most this time, if brokers
respond."""
SILENT_TIMEOUT_S = 0.05
"""After a wait has timed out, each further wait is only this long, until a broker responds. So a client that uses many
topics, or polls repeatedly, waits long for silent brokers only once. The background comparison continues."""
CONFIRM_S = 1.0
"""A comparison is repeated after this time if it had no response, or took a view out of force."""
_UNKNOWN_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.LEADER_NOT_AVAILABLE)
_FINAL = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError._UNSUPPORTED_FEATURE,
)


class TopicIdUnknown(Exception):
    """The cluster has returned no id of a topic.

    Attributes:
        unknown_topic: whether the reason is that the broker has no such topic.
        final: whether a retry at once is useless.
    """

    def __init__(self, message: str, *, unknown_topic: bool = False, final: bool = False) -> None:
        super().__init__(message)
        self.unknown_topic = unknown_topic
        self.final = final


def id_from(answer: Future[Any], timeout_s: float) -> str:
    """Wait up to ``timeout_s`` seconds for a future of ``AdminClient.describe_topics``; return the topic id in it.

    Raises:
        TopicIdUnknown: there is no response, or it has no id.
    """
    try:
        # Do not raise the failure: callers keep it, and its traceback would keep their frames and clients alive.
        failure = answer.exception(max(timeout_s, 0.0))
    except NoAnswerInTime as error:
        raise TopicIdUnknown("no broker has answered in time") from error
    if isinstance(failure, KafkaException):
        code = failure.args[0].code()
        raise TopicIdUnknown(str(failure), unknown_topic=code in _UNKNOWN_TOPIC, final=code in _FINAL)
    if isinstance(failure, ValueError | TypeError):
        raise TopicIdUnknown(str(failure), final=True)
    topic_id = known_id(answer.result().topic_id)
    if topic_id is None:
        raise TopicIdUnknown(f"the brokers return no topic ids: {TOPIC_IDS.missing()}", final=True)
    return topic_id


class TopicIds:
    """Requests topic ids from the cluster. Thread-safe; the first request makes the admin client.

    Args:
        conf: librdkafka settings of the application's client.
    """

    def __init__(self, conf: Mapping[str, Any], clock: Clock = SYSTEM_CLOCK) -> None:
        self._conf = connection_conf(conf, "ids")
        self._clock = clock
        self._lock = InnerLock()
        self._admin: Any = None
        self._asked: dict[str, tuple[float, Future[Any]]] = {}
        self._waiting: dict[str, Future[Any]] = {}  # requests that wait until a thread has made the admin client
        self._sent: dict[str, Future[Any]] = {}  # the last requests that the admin client was given
        self._is_making = False
        self._closed = False

    def request(self, topics: Iterable[str], max_age_s: float) -> dict[str, Future[Any]]:
        """Return a future for each topic, without waiting.

        Callers share a pending request, and a response that is not older than ``max_age_s``.
        """
        with self._lock:
            now_s = self._clock.monotonic_s()
            due: dict[str, Future[Any]] = {t: Future() for t in topics if not self._is_fresh(t, now_s, max_age_s)}
            is_outdated = self._admin is None or self._has_timed_out(due)
            self._asked |= {topic: (now_s, os_threads.awaitable(future)) for topic, future in due.items()}
            answers = {topic: self._asked[topic][1] for topic in topics}
            admin, is_making = self._admin, self._is_making
            if is_outdated:
                self._waiting |= due
                self._is_making = self._is_making or bool(due)
            else:
                self._sent |= due
        if due and not is_outdated:
            self._describe(due, admin)
        elif due and not is_making:
            self._renew()
        return answers

    def _is_fresh(self, topic: str, now_s: float, max_age_s: float) -> bool:
        asked_s, future = self._asked.get(topic, (0.0, None))
        if future is None or not future.done():
            return future is not None
        return now_s - asked_s < (max_age_s if future.exception() is None else min(max_age_s, RETRY_S))

    def _renew(self) -> None:
        """Make an admin client, and send the waiting requests. The constructor is called without the lock, because it
        waits for the application's ``oauth_cb``, which may wait for a thread that makes a request here.

        The old client's requests without a response fail: the client is closed, and would never fulfil their futures.
        """
        made: Any = None
        lost: dict[str, Future[Any]] = {}
        failure: Exception = KafkaException(KafkaError(KafkaError._FAIL, "the request was interrupted"))
        try:
            if self._closed:
                raise KafkaException(KafkaError(KafkaError._DESTROY, "the source of views is closed"))
            made = os_threads.call(AdminClient, self._conf)
        except KafkaException as error:
            failure = without_frames(error)
        finally:
            with self._lock:
                due, self._waiting, self._is_making = self._waiting, {}, False
                before = self._admin
                if made is not None and not self._closed:
                    self._admin = made
                    lost, self._sent = self._sent, dict(due)
            del before  # without the lock: the deletion closes the old client, which may take a while
            _fail(lost, KafkaException(KafkaError(KafkaError._DESTROY, "a new connection was made meanwhile")))
            if made is None:
                _fail(due, failure)
        if made is not None:
            self._describe(due, made)

    def _describe(self, due: Mapping[str, Future[Any]], admin: Any) -> None:
        try:
            answers = admin.describe_topics(TopicCollection(list(due)), request_timeout=REQUEST_TIMEOUT_S)
        except (KafkaException, ValueError, TypeError) as error:  # ValueError, TypeError: an invalid topic name
            _fail(due, without_frames(error))
        else:
            for topic, answer in answers.items():
                answer.add_done_callback(partial(_pass_on, due[topic]))

    def _has_timed_out(self, topics: Iterable[str]) -> bool:
        """Return whether the last request about one of these topics timed out. If so, a new admin client is needed.

        librdkafka sends the request to the broker that its last metadata names as Kafka's controller. It waits for that
        broker for minutes, at two thirds of a processor core if the broker refuses connections. A new client requests
        new metadata, which names the present controller.
        """
        answers = (self._asked[topic][1] for topic in topics if topic in self._asked)
        errors = (answer.exception() for answer in answers if answer.done())
        return any(isinstance(e, KafkaException) and e.args[0].code() == KafkaError._TIMED_OUT for e in errors)

    def close(self) -> None:
        """Close the connection; later requests fail. Idempotent."""
        with self._lock:
            admin, self._closed, self._admin = self._admin, True, None
        del admin  # without the lock, as in _renew


def _fail(due: Mapping[str, Future[Any]], failure: Exception) -> None:
    for future in due.values():
        with suppress(InvalidStateError):  # it has a result
            future.set_exception(failure)


def _pass_on(to: Future[Any], answer: Future[Any]) -> None:
    failure = answer.exception()
    with suppress(InvalidStateError):  # it has failed, because its client was renewed
        if failure is None:
            to.set_result(answer.result())
        else:
            to.set_exception(failure)


class IdChecks:
    """Compares the ids of topics in use, at a client's request and again in the background. Thread-safe, except
    :meth:`step`, which only the source's thread calls.

    Args:
        ids: requests topic ids from the cluster.
        recorded: returns those of the given topics for which a view with a topic id is known.
        take_id: called with a topic and the cluster's id of it; returns whether a view went out of force.
        interval_s: the longest time between comparisons.
        stopping: an event that is set when the source stops, and ends every wait.
    """

    def __init__(
        self,
        ids: TopicIds,
        recorded: Callable[[Collection[str]], set[str]],
        take_id: Callable[[str, str], bool],
        interval_s: float,
        stopping: threading.Event,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._ids = ids
        self._recorded = recorded
        self._take_id = take_id
        self._interval_s = min(interval_s, CHECK_S)
        self._stopping = stopping
        self._clock = clock
        self._lock = InnerLock()
        self._in_use: set[str] = set()
        self._failing: set[str] = set()
        self._pending: dict[str, Future[Any]] = {}
        self._silent = False  # whether the last wait timed out, and no broker has responded since
        self._asked_s = clock.monotonic_s()
        self._due_s = self._asked_s + self._interval_s

    def use(self, topics: Iterable[str]) -> None:
        """Make :meth:`step` compare the ids of these topics as well."""
        with self._lock:
            self._in_use.update(topics)

    def verify(self, topics: Iterable[str], timeout_s: float, max_age_s: float) -> frozenset[str]:
        names = set(topics)
        self.use(names)
        if self._silent:
            timeout_s = min(timeout_s, SILENT_TIMEOUT_S)
        began_s = self._clock.monotonic_s()
        left = self._recorded(names)
        silent: set[str] = set()
        while left and not self._stopping.is_set():
            answers = self._ids.request(left, max_age_s)
            left = set()
            for topic, answer in answers.items():
                error = self._take_answer(topic, answer, began_s + timeout_s - self._clock.monotonic_s())
                if error is None or error.final:
                    continue
                patience_s = min(timeout_s, UNKNOWN_PATIENCE_S) if error.unknown_topic else timeout_s
                if self._clock.monotonic_s() + RETRY_S < began_s + patience_s:
                    left.add(topic)
                elif not error.unknown_topic:
                    self._silent = True
                    silent.add(topic)
            if left:
                self._stopping.wait(RETRY_S)
        return frozenset(silent)

    def live_id(self, topic: str, timeout_s: float) -> str | None:
        """Return the cluster's id of ``topic``, or None if no broker returns one in time."""
        try:
            answer = self._ids.request([topic], MAX_ID_AGE_S)[topic]
            return id_from(answer, min(timeout_s, SILENT_TIMEOUT_S) if self._silent else timeout_s)
        except TopicIdUnknown as error:
            logger.debug("%s: topic id not known: %s", topic, error)
            return None

    def soon(self) -> None:
        """Make :meth:`step` compare soon, at most once a second: a topic may have been created again."""
        self._due_s = min(self._due_s, self._asked_s + CONFIRM_S)

    def step(self) -> None:
        """Process the responses that have arrived, and compare the ids that are due (invariant I8). Never blocks."""
        for topic in [topic for topic, answer in self._pending.items() if answer.done()]:
            self._take_answer(topic, self._pending.pop(topic), 0.0)
        if self._pending or self._clock.monotonic_s() < self._due_s:
            return
        self._asked_s = self._clock.monotonic_s()
        self._due_s = self._asked_s + self._interval_s
        with self._lock:
            in_use = set(self._in_use)
        due = self._recorded(in_use) if in_use else set()
        with self._lock:
            self._failing &= due  # all other topics have no record any more
        if due:
            self._pending = self._ids.request(due, RETRY_S)

    def stats(self) -> dict[str, Any]:
        """Return ``unverified_topics``: the topics in use whose ids could not be compared with the cluster's."""
        with self._lock:
            return {"unverified_topics": sorted(self._failing)}

    def _take_answer(self, topic: str, answer: Future[Any], timeout_s: float) -> TopicIdUnknown | None:
        """Process the response about a topic; return the error if the response has no id."""
        try:
            topic_id = id_from(answer, timeout_s)
        except TopicIdUnknown as error:
            self._silent = self._silent and not (error.unknown_topic or error.final)
            with self._lock:
                first = topic not in self._failing
                self._failing.add(topic)
            if first:
                level = logging.DEBUG if error.unknown_topic else logging.WARNING
                logger.log(level, "%s: topic id not verified (%s); the last view stays in force", topic, error)
            if not error.final:
                self._due_s = min(self._due_s, self._clock.monotonic_s() + CONFIRM_S)
            return without_frames(error)
        self._silent = False
        with self._lock:
            self._failing.discard(topic)
        if self._take_id(topic, topic_id):
            self._due_s = min(self._due_s, self._clock.monotonic_s() + CONFIRM_S)
        return None
