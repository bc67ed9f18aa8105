"""The routes of one confluent_kafka producer, and the ``produce`` and ``produce_batch`` that follow them.

While no topic has retired partitions both go straight to librdkafka's C methods. While some topic has, they take the
arguments of confluent_kafka's methods, by position or by name, and leave every check of them to those methods: they
add the partition, where the caller left it out, and refuse retired ones. Both happen once, before librdkafka has the
record, and never again (invariant I7). Partitioners that librdkafka does not have pick for every record, so with them
every topic has a route.
"""

from __future__ import annotations

import logging
import math
import operator
import time
import weakref
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from types import BuiltinFunctionType
from typing import Any, Final, final

from modeaware import librdkafka
from modeaware.clients.following import ClientErrors
from modeaware.clients.resize import Backlog
from modeaware.clients.routes import Load, Route, Routes, route_over
from modeaware.config import ClientConfig
from modeaware.confluent.errors import FirstViewPending, FirstViewTimeout, MovedKeyRefused, RetiredPartitionChosen
from modeaware.confluent.retarget import Switch, Target
from modeaware.errors import KeyHeld
from modeaware.librdkafka import C_HASHES, KafkaError, KafkaException
from modeaware.modes import PartitionMode
from modeaware.topic_view import TopicView
from modeaware.views.source import MAX_ID_AGE_S, VERIFY_TIMEOUT_S, Views
from partitioners import HashFunction, HashPartitioner, Partitioner

logger = logging.getLogger(__name__)

RoutedProduce: Any = None
"""The hot path in C; None where the package was installed without a compiler."""
with suppress(ImportError):
    from modeaware.confluent import _routed

    RoutedProduce = _routed.RoutedProduce

ERRORS = ClientErrors(RetiredPartitionChosen, MovedKeyRefused, pending=FirstViewPending, timeout=FirstViewTimeout)
DOUBT_AGE_S = 0.05
"""How old an answer about a topic id may be after librdkafka has rejected a record for an unknown partition."""
_RETRIABLE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE)
_PAUSE_S = 0.1

PartitionCount = Callable[[str], int]
ABSENT: Final[Any] = object()
UNASSIGNED = -1  # librdkafka's RD_KAFKA_PARTITION_UA: the partitioner chooses
DIRECT = -1
"""In the counts of :func:`fast_produce`: the topic has no route, so records pass as they are."""


@final
class Unverified:
    """Stands for a route until the topic id in its view has been compared with the cluster's (invariant I8).

    Args:
        route: the route.
        verified: compares, and returns the route that is in force then.
    """

    __slots__ = ("route", "verified")

    def __init__(self, route: Route, verified: Callable[[], Route | None]) -> None:
        self.route = route
        self.verified = verified


RouteTable = Mapping[str, "Route | Unverified | None"]
Doubt = Callable[[str], object]
"""Called with a topic whose view a failed call puts in doubt: has its topic id compared again."""
Arguments = tuple[Any, Any, Any]
"""The key, the partition and the value of a call."""
_DOUBTFUL = (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)


def fast_produce(
    base: Callable[..., Any],
    routes: RouteTable,
    counts: dict[str, int],
    hash_function: HashFunction,
    doubt: Doubt = bool,
    absent: int = 0,
) -> Callable[..., Any]:
    """A routed ``produce`` over librdkafka's own: in C where the extension is built and has the hash, else in Python.

    Args:
        base: librdkafka's bound ``produce``.
        routes: the routes in force by topic; the caller changes it in place.
        counts: by topic, changed in place as well: the number of writable partitions, where keys may be hashed straight
            to a partition (see :func:`hashed_count`); :data:`DIRECT`; 0: the route decides.
        hash_function: what the partitioner hashes keys with.
        doubt: called where the topic may have been deleted and created again; a record that was not queued is placed
            anew after it.
        absent: what counts of a topic that is not in ``counts``.
    """
    retry = _retry_of(base, routes, doubt)
    produce = _python_produce(base, routes, counts, hash_function, doubt, absent, retry)
    hash_name = next((name.value for name, function in C_HASHES.items() if function is hash_function), None)
    if RoutedProduce is None or hash_name is None:
        return produce
    return RoutedProduce(base, counts, absent, hash_name, produce, retry, KafkaException)  # type: ignore[no-any-return] # it may be None


def _retry_of(base: Callable[..., Any], routes: RouteTable, doubt: Doubt) -> Callable[..., Any]:
    def retry(
        error: KafkaException,
        where: int,
        topic: Any,
        value: Any,
        key: Any,
        called: Any = None,
        timestamp: Any = 0,
        headers: Any = None,
    ) -> Any:
        """librdkafka has refused a record for ``where``, our choice: place it anew if the topic is another one now."""
        if not _is_doubtful(error.args[0]):
            raise error
        doubt(topic)
        again = place(_route(routes, topic), key, ABSENT, value)
        again = UNASSIGNED if again is ABSENT else again
        if again == where:
            raise error
        return base(topic, value, key, again, called, None, timestamp, headers)

    return retry


def _python_produce(
    base: Callable[..., Any],
    routes: RouteTable,
    counts: dict[str, int],
    hash_function: HashFunction,
    doubt: Doubt,
    absent: int,
    retry: Callable[..., Any],
) -> Callable[..., Any]:
    def produce(
        topic: Any,
        value: Any = None,
        key: Any = None,
        partition: Any = ABSENT,
        callback: Any = ABSENT,
        on_delivery: Any = None,
        timestamp: Any = ABSENT,
        headers: Any = None,
    ) -> Any:
        # This is the hot path of a shrunk topic: the usual form of a call costs a look-up, a hash and a call into C.
        try:
            count = counts[topic]
        except (KeyError, TypeError):
            # Noted, so that the next look-up does not raise.
            count = counts.setdefault(topic, absent) if type(topic) is str else 0
        if count < 0:
            where = UNASSIGNED if partition is ABSENT else partition
        elif count and key and partition is ABSENT and type(key) is bytes:
            where = hash_function(key, count)
        elif count and key and partition is ABSENT and type(key) is str:
            where = hash_function(key.encode(), count)
        else:
            where = _placed(_route(routes, topic), routes, topic, (key, partition, value), doubt)
            if where is ABSENT:
                where = UNASSIGNED
        # A callback that is given at all counts, even None: on_delivery is its alias.
        called = on_delivery if callback is ABSENT else callback
        try:
            if headers is None and timestamp is ABSENT:
                if called is None:
                    return base(topic, value, key, where)
                return base(topic, value, key, where, called)
            return base(topic, value, key, where, called, None, 0 if timestamp is ABSENT else timestamp, headers)
        except KafkaException as error:
            if partition is not ABSENT:
                raise
            given_ms = 0 if timestamp is ABSENT else timestamp
            return retry(error, where, topic, value, key, called, given_ms, headers)

    return produce


def faithful_produce(base: Callable[..., Any], routes: RouteTable, doubt: Doubt = bool) -> Callable[..., Any]:
    """A routed ``produce`` over a foreign Python function (a tracer's, a mock's), or over a partitioner that
    hashes no keys: it passes the call on as it was written, with a partition.
    """

    def produce(*args: Any, **kwargs: Any) -> Any:
        topic: Any = args[0] if args else kwargs.get("topic")
        route = _route(routes, topic)
        if route is None:
            return base(*args, **kwargs)
        key = args[2] if len(args) > 2 else kwargs.get("key")
        given = args[3] if len(args) > 3 else kwargs.get("partition", ABSENT)
        value = args[1] if len(args) > 1 else kwargs.get("value")
        where = _placed(route, routes, topic, (key, given, value), doubt)
        if where is given:
            return base(*args, **kwargs)
        try:
            if len(args) > 3:
                return base(*args[:3], where, *args[4:], **kwargs)
            return base(*args, **{**kwargs, "partition": where})
        except KafkaException as error:
            if not _is_doubtful(error.args[0]):
                raise
            doubt(topic)
            if _route(routes, topic) is route:
                raise
        return produce(*args, **kwargs)

    return produce


def routed_batch(base: Callable[..., Any], routes: RouteTable, doubt: Doubt = bool) -> Callable[..., Any]:
    """A routed ``produce_batch``: one call of ``base`` for each partition, with the caller's own message dicts, so that
    ``_error`` lands in them. A message's own ``partition`` counts, as confluent_kafka documents it (its 2.16 ignores
    it).

    A key that is held stays held for the rest of the call. A polling thread may open the guard between two messages,
    and a later record of the key would then overtake the refused one.
    """

    def produce(topic: Any, messages: Any, partition: Any = ABSENT, *args: Any, **kwargs: Any) -> Any:
        route = _route(routes, topic)
        default = UNASSIGNED if partition is ABSENT else partition
        if route is None or not _well_formed(messages):  # the latter raises there, before anything is queued
            return base(topic, messages, default, *args, **kwargs)
        by_partition: dict[Any, list[dict[str, Any]]] = {}
        held: dict[bytes | None, KafkaError] = {}
        for message in messages:
            message.pop("_error", None)  # of an earlier call: what is found below is of this one
            own = message.get("partition")
            given = default if own is None else own
            key = key_bytes(message)
            if key in held and given == UNASSIGNED:
                message["_error"] = held[key]
                continue
            arguments = (message.get("key"), given, message.get("value"))
            try:
                where = _placed(route, routes, topic, arguments, doubt)
            except KeyHeld as error:  # reported as base reports a full queue
                held[key] = message["_error"] = KafkaError(KafkaError._QUEUE_FULL, str(error))
            else:
                by_partition.setdefault(where, []).append(message)
        queued = sum(base(topic, group, where, *args, **kwargs) for where, group in by_partition.items())
        doubtful = [] if queued == len(messages) else [m for m in messages if _is_doubtful(m.get("_error"))]
        # Not those with a partition given, as in produce(): nothing may be raised once records are queued.
        left = [m for m in doubtful if default == UNASSIGNED and m.get("partition") in (None, UNASSIGNED)]
        if left:
            doubt(topic)
            if _route(routes, topic) is not route:
                for message in left:
                    del message["_error"]
                queued += produce(topic, left, partition, *args, **kwargs)
        return queued

    return produce


def key_bytes(message: dict[str, Any]) -> bytes | None:
    """Return the key of a message of ``produce_batch`` as it is written: text and its UTF-8 bytes are one key."""
    key = message.get("key")
    return key.encode() if isinstance(key, str) else key


def hashed_count(route: Route) -> int:
    """How many writable partitions there are, where the hash of a key is the partition itself; else 0."""
    return len(route.writable) if route.dense and route.open else 0


def place(route: Route | None, key: Any, partition: Any, value: Any = None) -> Any:
    """The partition for a record: ``partition`` where one was given, else the route's pick.

    Where there is no route, and where the arguments are such that librdkafka's method will refuse them, it is
    ``partition`` as given.

    Raises:
        RetiredPartitionChosen: ``partition`` takes no records, or none of the topic does.
    """
    if route is None:
        return partition
    if partition is not ABSENT:
        try:
            explicit = operator.index(partition)
        except TypeError:
            return partition
        if explicit != UNASSIGNED:
            if explicit >= 0:
                route.refuse_retired(explicit, RetiredPartitionChosen)
            return partition
    if not route.writable:
        route.refuse_retired(0, RetiredPartitionChosen)
    if isinstance(key, str):
        key = key.encode()
    elif key is not None and type(key) is not bytes:
        try:
            key = memoryview(key).tobytes()
        except TypeError:
            return partition
    size = 0 if route.by_load is None else sum(len(part) for part in (key, value) if hasattr(part, "__len__"))
    return route.pick(key, size)


def _placed(by: Route | None, routes: RouteTable, topic: Any, arguments: Arguments, doubt: Doubt) -> Any:
    """:func:`place`; where ``by`` refuses the record, by the view of the topic that has the name now (invariant I8).

    Raises:
        RetiredPartitionChosen: that is the same view, or one that refuses it as well.
    """
    try:
        return place(by, *arguments)
    except RetiredPartitionChosen:
        doubt(topic)
        route = _route(routes, topic)
        if route is by:
            raise
        return place(route, *arguments)


def _is_doubtful(error: Any) -> bool:
    """Whether librdkafka has refused a record for what the topic no longer has."""
    return isinstance(error, KafkaError) and error.code() in _DOUBTFUL


def _route(routes: RouteTable, topic: Any) -> Route | None:
    route = routes.get(topic) if isinstance(topic, str) else None
    return route.verified() if type(route) is Unverified else route  # isinstance() costs more


def _well_formed(messages: Any) -> bool:
    # Exactly what confluent_kafka's check refuses: a message that it would take must not get past the routes.
    return isinstance(messages, list) and all(
        isinstance(message, dict)
        and isinstance(message.get("value"), bytes | str | None)
        and isinstance(message.get("key"), bytes | str | None)
        and isinstance(message.get("partition"), int | None)
        and message.get("timestamp") is None
        for message in messages
    )


class EveryTopic(dict[str, Route | Unverified | None]):
    """The routes in force; for topics without one, a route over all partitions that the brokers return.

    The partition count is requested when a topic is first sent to, and again when it is older than ``max_age_s`` or the
    topic's view has changed, in the sender's thread. Without an answer the last count stays. Any thread may look a
    route up; while one requests a count, the others use the last one.

    Args:
        count: requests the count; raises what the sender is to see.
        max_age_s: ``topic.metadata.refresh.interval.ms``.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        partitioner: Partitioner,
        count: PartitionCount,
        max_age_s: float,
        load: Load | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._partitioner = partitioner
        self._count = count
        self._max_age_s = max_age_s
        self._load = load
        self._clock = clock
        self._whole: dict[str, tuple[Route, float]] = {}  # and when its count is to be renewed

    def __setitem__(self, topic: str, route: Route | Unverified | None) -> None:
        super().__setitem__(topic, route)
        if topic in self._whole:
            self._whole[topic] = self._whole[topic][0], -math.inf

    def get(  # type: ignore[override] # one use of it
        self, topic: str, default: Route | Unverified | None = None
    ) -> Route | Unverified | None:
        route = super().get(topic)
        if route is not None:
            return route
        whole, due_s = self._whole.get(topic, (None, 0.0))
        if whole is None or self._clock() > due_s:
            whole = self._renewed(topic, whole)
        return whole

    def _renewed(self, topic: str, before: Route | None) -> Route:
        try:
            if before is not None:
                self._whole[topic] = before, self._clock() + self._max_age_s
            count = self._count(topic)
        except KafkaException as error:
            if before is None:
                raise
            logger.warning("%s: continuing with %d partitions: %s", topic, len(before.writable), error)
            return before
        if before is None or len(before.writable) != count:
            view = TopicView(topic, modes=(PartitionMode.READ_WRITE,) * count)
            before = route_over(view, self._partitioner.for_topic(topic), self._load)
        self._whole[topic] = before, self._clock() + self._max_age_s
        return before


def partition_count(producer: librdkafka.Producer, timeout_s: float) -> PartitionCount:
    """Request partition counts through ``producer``, which is not kept alive. A topic that is being created is waited
    for.

    The function returned raises KafkaException: no answer, or none but errors, within ``timeout_s``.
    """
    held = weakref.ref(producer)

    def count(topic: str) -> int:
        sending = held()
        assert sending is not None, "it is the producer that sends"
        deadline_s = time.monotonic() + timeout_s
        while True:
            left_s = max(deadline_s - time.monotonic(), 0.1)
            described = librdkafka.Producer.list_topics(sending, topic, timeout=left_s).topics[topic]
            if described.error is None and described.partitions:
                return len(described.partitions)
            error = described.error or KafkaError(KafkaError.LEADER_NOT_AVAILABLE, f"{topic}: no partitions yet")
            if error.code() not in _RETRIABLE or time.monotonic() + _PAUSE_S > deadline_s:
                raise KafkaException(error)
            time.sleep(_PAUSE_S)  # no event says when the brokers have created it

    return count


class Router(Routes):
    """The routes of one producer, and the switches its methods go through.

    One thread at a time applies views (the source's); any number call ``produce.call`` meanwhile.

    Args:
        produce: the next ``produce`` after ours: librdkafka's own bound C method, or a Python function patched over it.
        produce_batch: likewise.
        count: how many partitions a topic has; for a partitioner that librdkafka does not have, which therefore picks
            even where nothing is retired.
        backlog: begins to follow what the producer has queued for a topic; None: it never has anything queued.
    """

    def __init__(
        self,
        produce: Target,
        produce_batch: Target,
        views: Views,
        config: ClientConfig,
        partitioner: Partitioner,
        count: PartitionCount | None = None,
        backlog: Callable[[str], Backlog] | None = None,
        load: Load | None = None,
    ) -> None:
        super().__init__(views, config, ERRORS, partitioner, backlog, load)
        if count is not None:
            self._routes = EveryTopic(partitioner, count, config.refresh_interval_ms / 1000, load)
        self._config = config
        self._verified: dict[str, str | None] = {}
        self._unanswered_since_s: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._unrouted = DIRECT if count is None else 0
        self._closed = False
        self._stock = (produce, produce_batch)
        hash_function = partitioner.hash_function if isinstance(partitioner, HashPartitioner) else None
        if isinstance(produce, BuiltinFunctionType) and hash_function is not None:
            one = fast_produce(produce, self._routes, self._counts, hash_function, self._doubt, self._unrouted)
        else:
            one = faithful_produce(produce, self._routes, self._doubt)
        self._routed = (one, routed_batch(produce_batch, self._routes, self._doubt))
        self._direct = self._stock if count is None else self._routed
        self.produce = Switch(self._first_produce)
        self.produce_batch = Switch(self._first_produce_batch)

    def stats(self) -> dict[str, Any]:
        """Return ``modeaware_stats()``; ``in_c``: records of shrunk topics go through the extension."""
        return {**super().stats(), "in_c": RoutedProduce is not None and isinstance(self._routed[0], RoutedProduce)}

    def _put(self, topic: str, route: Route | None) -> None:
        # In this order no call in between takes an old count for a new route: 0 leads to the route.
        self._counts[topic] = 0
        if route is None or self._is_verified(route.view):
            self._routes[topic] = route
            self._counts[topic] = self._unrouted if route is None else hashed_count(route)
        else:
            self._routes[topic] = Unverified(route, partial(self._settle, topic))

    def of(self, topic: str) -> Route | None:
        entry = dict.get(self._routes, topic)
        return entry.route if isinstance(entry, Unverified) else entry

    def _is_verified(self, view: TopicView) -> bool:
        return view.topic_id is None or self._verified.get(view.topic) == view.topic_id

    def _settle(self, topic: str) -> Route | None:
        """The first record of ``topic`` by a view of another topic id: have that compared with the cluster's.

        While no broker answers, records wait as they do for the first view: under ``block`` BufferError is raised, for
        ``modeaware.view.timeout.ms`` at most. Then the last view stays in force, and the source repeats the
        comparison.
        """
        unanswered = self._compare(topic, VERIFY_TIMEOUT_S, MAX_ID_AGE_S)
        if unanswered and self._config.on_unknown == "block":
            since_s = self._unanswered_since_s.setdefault(topic, time.monotonic())
            if time.monotonic() - since_s < self._config.view_timeout_ms / 1000:
                raise FirstViewPending(
                    f"{topic}: no broker has returned the topic id yet, and without it the partition modes cannot be "
                    "applied; nothing was queued, try again"
                )
        with self._lock:
            self._unanswered_since_s.pop(topic, None)
            unverified = self._routes.get(topic)
            if isinstance(unverified, Unverified):
                self._verified[topic] = unverified.route.view.topic_id
                self._put(topic, unverified.route)
            route = self._routes.get(topic)
        assert not isinstance(route, Unverified), "its id was just noted as verified"
        return route

    def _doubt(self, topic: str) -> None:
        self._compare(topic, VERIFY_TIMEOUT_S, DOUBT_AGE_S)

    def _compare(self, topic: str, timeout_s: float, max_age_s: float) -> Collection[str]:
        """Return the topic, where no broker has answered."""
        # Without the lock: it calls this router with what changed.
        return () if self._closed else self._views.verify((topic,), timeout_s, max_age_s)

    def close(self) -> None:
        """Point at librdkafka's own methods for good: they raise that the producer is closed. Waiting calls return."""
        with self._lock:
            self._closed = True
            self._point_to(self._stock)
            self.known.set()

    def _point(self) -> None:
        if not self._closed:
            self._point_to(self._routed if any(self._routes.values()) else self._direct)

    def _point_to(self, targets: tuple[Target, Target]) -> None:
        self.produce.point_to(targets[0])
        self.produce_batch.point_to(targets[1])

    def _is_known(self) -> bool:
        return self.known.is_set()

    def _is_routed(self) -> bool:
        return self.produce.target is not self._stock[0]

    def _first_produce(self, *args: Any, **kwargs: Any) -> Any:
        self._await_view()
        return self.produce.target(*args, **kwargs)

    def _first_produce_batch(self, *args: Any, **kwargs: Any) -> Any:
        self._await_view()
        return self.produce_batch.target(*args, **kwargs)

    def _await_view(self) -> None:
        """Wait for the first view, or raise by ``on_unknown``; then calls go elsewhere."""
        self.first_view.wait()
        with self._lock:
            if not self.known.is_set():
                self._point_to(self._direct)
