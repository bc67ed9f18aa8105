"""The routes of one confluent_kafka producer, and the ``produce`` and ``produce_batch`` that follow them.

A *route* (:class:`modeaware.clients.routes.Route`) chooses the topic and the partition of a record. A topic with
retired partitions has a route, and so has the name of a topic that was replaced or will be replaced. If librdkafka does
not have the producer's partitioner, this package picks the partition of every record, and every topic has a route.

While there is no route, both methods are librdkafka's C methods. Otherwise our methods take the same arguments as
confluent_kafka's methods, by position or by name, and leave the checks of arguments to these. Ours pass the new topic
in place of a replaced one, add the partition where the caller left it out, and refuse retired partitions. All of this
happens once, before librdkafka has the record, and never again (invariant I7).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import MethodDescriptorType
from typing import Any

from modeaware.clients.following import ClientErrors
from modeaware.clients.routes import Load, Route, Routes
from modeaware.config import ClientConfig
from modeaware.confluent.delivery import Deliveries, Report, reported
from modeaware.confluent.errors import FirstViewPending, FirstViewTimeout, RetiredPartitionChosen
from modeaware.confluent.retarget import ABSENT, Switch, Target
from modeaware.confluent.route_table import (
    UNASSIGNED,
    Doubt,
    EveryTopic,
    PartitionCount,
    RouteTable,
    Unverified,
    place,
    placed,
    route_of,
    topic_of,
)
from modeaware.interim import is_interim_of
from modeaware.librdkafka import C_HASHES, KafkaError, KafkaException
from modeaware.topic_view import TopicView
from modeaware.views.source import MAX_ID_AGE_S, VERIFY_TIMEOUT_S, Views
from partitioners import HashFunction, HashPartitioner, Partitioner

RoutedProduce: Any = None
"""The hot path in C, or None if the package was installed without a compiler."""
with suppress(ImportError):
    from modeaware.confluent import _routed

    RoutedProduce = _routed.RoutedProduce

ERRORS = ClientErrors(RetiredPartitionChosen, pending=FirstViewPending, timeout=FirstViewTimeout)
DOUBT_AGE_S = 0.05
"""The topic's id is compared with the cluster's if a record is refused, or rejected for an unknown topic or partition.
An earlier answer of the cluster is reused up to this age."""
PARAMETERS = ("topic", "value", "key", "partition", "callback", "on_delivery", "timestamp", "headers")
DIRECT = -1
"""The :data:`Count` of a name whose records pass unchanged: librdkafka chooses the partition."""
Count = int | tuple[str, int]
"""How :func:`fast_produce` handles the records under a name. A positive number is the number of writable partitions: a
key's hash alone gives the partition. With 0, the route decides. The third value is :data:`DIRECT`. For the name of an
old topic, a value other than 0 is in a pair, after the new topic."""
Counts = dict[str, Count]
Reports = dict[str, Report]
"""Names that will soon point to another topic -> the wrapper of the delivery callbacks of records under that name."""
NO_REPORTS: Reports = {}
_DOUBTFUL = (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)


def fast_produce(
    base: Callable[..., Any],
    routes: RouteTable,
    counts: Counts,
    hash_function: HashFunction,
    doubt: Doubt = bool,
    absent: int = 0,
    reports: Reports = NO_REPORTS,
) -> Callable[..., Any]:
    """Return a ``produce`` with routes over librdkafka's own: in C if the extension has the hash, else in Python.

    Args:
        base: librdkafka's ``produce``. Like all functions here, it takes the producer as its first argument.
        routes: the routes in force by topic; the caller changes the mapping in place.
        counts: name -> :data:`Count`; the caller changes this mapping in place, too.
        hash_function: the partitioner's hash of keys.
        doubt: called if the topic may have been deleted and created again. Afterwards, a record that was not queued is
            placed again.
        absent: the :data:`Count` of a name that is not in ``counts``.
        reports: wrappers of delivery callbacks, as :data:`Reports` describes; also changed in place by the caller.
    """
    retry = _retry_of(base, routes, doubt)
    produce = _python_produce(base, routes, counts, hash_function, doubt, absent, reports, retry)
    hash_name = next((name.value for name, function in C_HASHES.items() if function is hash_function), None)
    if RoutedProduce is None or hash_name is None:
        return RoutedInPython(base, counts, reports, absent, hash_function, produce, retry)
    return RoutedProduce(base, counts, reports, absent, hash_name, produce, retry, KafkaException)  # type: ignore[no-any-return] # it may be None


@dataclass(frozen=True, slots=True)
class RoutedInPython:
    """A ``produce`` with routes, without the extension. ``Producer.produce`` reads its fields, which saves a frame per
    record."""

    base: Callable[..., Any]
    counts: Counts
    reports: Reports
    absent: int
    hash_function: HashFunction
    slow: Callable[..., Any]
    retry: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.slow(*args, **kwargs)


def _retry_of(base: Callable[..., Any], routes: RouteTable, doubt: Doubt) -> Callable[..., Any]:
    def retry(
        producer: Any,
        error: KafkaException,
        where: int,
        topic: Any,
        value: Any,
        key: Any,
        called: Any = None,
        timestamp: Any = 0,
        headers: Any = None,
    ) -> Any:
        """Choose again for a record that librdkafka rejected, and send the record. If the choice is the same as before,
        raise ``error``."""
        if not _is_doubtful(error.args[0]):
            raise error
        doubt(topic)
        route = route_of(routes, topic)
        again = place(route, key, UNASSIGNED, value)
        to = topic_of(route, topic)
        if (to, again) == (topic, where):
            raise error
        return base(producer, to, value, key, again, called, None, timestamp, headers)

    return retry


def _python_produce(
    base: Callable[..., Any],
    routes: RouteTable,
    counts: Counts,
    hash_function: HashFunction,
    doubt: Doubt,
    absent: int,
    reports: Reports,
    retry: Callable[..., Any],
) -> Callable[..., Any]:
    def produce(
        producer: Any,
        topic: Any,
        value: Any = None,
        key: Any = None,
        partition: Any = UNASSIGNED,
        callback: Any = ABSENT,
        on_delivery: Any = None,
        timestamp: Any = 0,
        headers: Any = None,
    ) -> Any:
        chosen = partition != UNASSIGNED
        count = counts.get(topic, absent) if isinstance(topic, str) else 0
        to, route = topic, None
        if isinstance(count, tuple):  # the given partition was meant for the old topic
            to, count = (topic, 0) if chosen else count
        if count < 0:
            where = partition
        elif count and key and not chosen and type(key) is bytes:
            where = hash_function(key, count)
        elif count and key and not chosen and type(key) is str:
            where = hash_function(key.encode(), count)
        else:
            where, route = placed(route_of(routes, topic), routes, topic, (key, partition, value), doubt)
            to = topic_of(route, topic)
        # As in confluent_kafka, on_delivery counts only if the argument callback is absent. None is not absent.
        called = on_delivery if callback is ABSENT else callback
        called = reported(reports, topic, called)
        try:
            if headers is None and timestamp == 0:
                if called is None:
                    return base(producer, to, value, key, where)
                return base(producer, to, value, key, where, called)
            return base(producer, to, value, key, where, called, None, timestamp, headers)
        except KafkaException as error:
            if chosen:
                raise
            return retry(producer, error, where, to, value, key, called, timestamp, headers)

    return produce


def faithful_produce(
    base: Callable[..., Any], routes: RouteTable, doubt: Doubt = bool, reports: Reports = NO_REPORTS
) -> Callable[..., Any]:
    """Return a ``produce`` with routes over a foreign Python function (a tracer's, a mock's), or for a partitioner that
    hashes no keys. It passes the caller's arguments on. Where the route requires that, it changes partition, topic and
    callback.
    """

    def produce(producer: Any, *args: Any, **kwargs: Any) -> Any:
        topic: Any = args[0] if args else kwargs.get("topic")
        route = route_of(routes, topic)
        if route is None:
            return base(producer, *args, **kwargs)
        key = args[2] if len(args) > 2 else kwargs.get("key")
        given = args[3] if len(args) > 3 else kwargs.get("partition", UNASSIGNED)
        value = args[1] if len(args) > 1 else kwargs.get("value")
        where, current = placed(route, routes, topic, (key, given, value), doubt)
        changes = {} if where is given else {3: where}
        if current is not None and current.view.topic != topic:
            changes[0] = current.view.topic
        if reports:
            callbacks = {at: args[at] if len(args) > at else kwargs.get(PARAMETERS[at]) for at in (4, 5)}
            changes |= {
                at: reported(reports, topic, callback) for at, callback in callbacks.items() if callback is not None
            }
        positional = [changes.pop(at, argument) for at, argument in enumerate(args)]
        try:
            changed = {PARAMETERS[at]: argument for at, argument in changes.items()}
            return base(producer, *positional, **{**kwargs, **changed})
        except KafkaException as error:
            if where is given or not _is_doubtful(error.args[0]):
                raise
            doubt(topic)
            if route_of(routes, topic) is route:
                raise
        return produce(producer, *args, **kwargs)

    return produce


def routed_batch(
    base: Callable[..., Any], routes: RouteTable, doubt: Doubt = bool, reports: Reports = NO_REPORTS
) -> Callable[..., Any]:
    """Return a ``produce_batch`` with routes. It calls ``base`` once for each partition, and sets errors as ``_error``
    in the caller's own message dicts. A message's own ``partition`` has precedence. confluent_kafka documents this
    rule, but its release 2.16 ignores the field.
    """

    def produce(
        producer: Any, topic: Any, messages: Any, partition: Any = UNASSIGNED, *args: Any, **kwargs: Any
    ) -> Any:
        route = route_of(routes, topic)
        passes = route is not None and route.passes and route.open and partition == UNASSIGNED and _is_bare(messages)
        if route is None or not (passes or _well_formed(messages)):  # the stock method raises for bad messages
            return base(producer, topic, messages, partition, *args, **kwargs)
        by_partition: dict[Any, list[dict[str, Any]]] = {partition: messages} if passes else {}
        current: Route | None = route
        for message in () if passes else messages:
            message.pop("_error", None)  # from an earlier call; the errors of this call are set below
            own = message.get("partition")
            given = partition if own is None else own
            if isinstance(value := message.get("value"), str):
                value.encode()  # an invalid string is refused here, before any record is queued
            arguments = (message.get("key"), given, value)
            where, current = placed(current, routes, topic, arguments, doubt)
            by_partition.setdefault(where, []).append(message)
        if current is not route:  # another view during the loop: the first records were placed by an earlier view
            return produce(producer, topic, messages, partition, *args, **kwargs)
        to = topic_of(current, topic)
        send = _reporting(base, partial(reported, reports, topic)) if reports else base
        queued = 0
        for where, group in by_partition.items():
            try:
                queued += send(producer, to, group, where, *args, **kwargs)
            except Exception as error:
                if not queued:
                    raise
                # Raise nothing: other records are queued, and the application would send them again.
                for message in group:
                    message["_error"] = as_kafka_error(error)
        doubtful = [] if queued == len(messages) else [m for m in messages if _is_doubtful(m.get("_error"))]
        # As in produce(), only records without a given partition are placed again.
        left = [m for m in doubtful if partition == UNASSIGNED and m.get("partition") in (None, UNASSIGNED)]
        if left:
            doubt(topic)
            try:
                if route_of(routes, topic) is not current:
                    for message in left:
                        del message["_error"]
                    queued += produce(producer, topic, left, partition, *args, **kwargs)
            except Exception as error:  # noqa: BLE001 - records are queued, and the application would send them again
                for message in left:
                    message["_error"] = as_kafka_error(error)
        return queued

    return produce


def _reporting(base: Callable[..., Any], report: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a ``produce_batch`` that passes each callback through ``report``, in copies of the caller's message dicts.
    The caller's own dicts get only ``_error``."""

    def produce(
        producer: Any, topic: Any, messages: list[dict[str, Any]], partition: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if not (args or kwargs) and all(map(_CALLBACK.isdisjoint, messages)):
            return base(producer, topic, messages, partition)
        copies = [
            {**original, "callback": report(original["callback"])} if "callback" in original else {**original}
            for original in messages
        ]
        kwargs = {name: report(value) for name, value in kwargs.items()}
        queued = base(producer, topic, copies, partition, *(report(argument) for argument in args), **kwargs)
        for message, copy in zip(messages, copies, strict=True):
            if "_error" in copy:
                message["_error"] = copy["_error"]
        return queued

    return produce


def as_kafka_error(refusal: Exception) -> KafkaError:
    """Return the ``_error`` of a record that was refused before it was queued, by this module or by the application's
    partitioner."""
    if isinstance(refusal, KafkaException):
        error: KafkaError = refusal.args[0]
        return error
    code = KafkaError._QUEUE_FULL if isinstance(refusal, BufferError) else KafkaError._APPLICATION
    return KafkaError(code, str(refusal) or type(refusal).__name__)


def count_of(route: Route, unrouted: int = DIRECT) -> Count:
    """Return the :data:`Count` of a name with ``route``; ``unrouted`` is the count of a name without a route."""
    if not route.open:
        return 0
    count = unrouted if route.passes else len(route.writable) if route.dense else 0
    return count if route.name is None or not count else (route.view.topic, count)


def _is_doubtful(error: Any) -> bool:
    """Whether librdkafka has rejected a record because its metadata lacks the topic or the partition."""
    return isinstance(error, KafkaError) and error.code() in _DOUBTFUL


def _is_bare(messages: Any) -> bool:
    """Return whether no message names its partition, or has an error from an earlier call."""
    try:
        return isinstance(messages, list) and all(map(_OWN.isdisjoint, messages))
    except TypeError:
        return False


_OWN, _CALLBACK = frozenset({"partition", "_error"}), frozenset({"callback"})


def _well_formed(messages: Any) -> bool:
    # The same check as confluent_kafka's: a message that confluent_kafka accepts must not bypass the routes.
    return isinstance(messages, list) and all(
        isinstance(message, dict)
        and isinstance(message.get("value"), bytes | str | None)
        and isinstance(message.get("key"), bytes | str | None)
        and isinstance(message.get("partition"), int | None)
        and message.get("timestamp") is None
        for message in messages
    )


class Router(Routes):
    """The routes of one producer, and its ``produce`` and ``produce_batch``, which change with the routes
    (:class:`~modeaware.confluent.retarget.Switch`).

    One thread at a time applies views: the thread of the views' source, or a sending thread that verifies a topic id.
    Meanwhile any number of threads may call ``produce.call``, with the producer as first argument.

    Args:
        produce: the next ``produce`` after ours: librdkafka's own C method, or a Python function patched over it.
        produce_batch: the next ``produce_batch`` after ours.
        count: returns how many partitions a topic has; needed if librdkafka does not have the partitioner. Then
            ``partitioner`` picks the partition even in topics without retired partitions.
        deliveries: the producer's delivery callbacks.
    """

    def __init__(
        self,
        produce: Target,
        produce_batch: Target,
        views: Views,
        config: ClientConfig,
        partitioner: Partitioner,
        count: PartitionCount | None = None,
        load: Load | None = None,
        deliveries: Deliveries | None = None,
        renew_metadata: Callable[[str], object] | None = None,
        notice_deletion: Callable[[str], object] = lambda topic: None,
    ) -> None:
        super().__init__(views, config, ERRORS, partitioner, load, renew_metadata)
        self._notice_deletion = notice_deletion
        if count is not None:
            self._routes = EveryTopic(partitioner, count, config.refresh_interval_ms / 1000, load)
        self._config = config
        self._deliveries = deliveries
        self._reports: Reports = {}
        self._unanswered_since_s: dict[str, float] = {}
        self._counts: Counts = {}
        self._unrouted = DIRECT if count is None else 0
        self._closed = False
        self._stock = (produce, produce_batch)
        hash_function = partitioner.hash_function if isinstance(partitioner, HashPartitioner) else None
        if type(produce) is MethodDescriptorType and hash_function is not None:
            one = fast_produce(
                *(produce, self._routes, self._counts, hash_function, self._doubt, self._unrouted, self._reports)
            )
        else:
            one = faithful_produce(produce, self._routes, self._doubt, self._reports)
        self._routed = (one, routed_batch(produce_batch, self._routes, self._doubt, self._reports))
        self._direct = self._stock if count is None else self._routed
        self.produce = Switch(self._first_produce)
        self.produce_batch = Switch(self._first_produce_batch)

    def stats(self) -> dict[str, Any]:
        """Return ``modeaware_stats()``; ``in_c``: the C extension handles records of shrunk topics."""
        in_c = RoutedProduce is not None and isinstance(self._routed[0], RoutedProduce)
        return {**super().stats(), "in_c": in_c}

    def _lead(self, changed: Mapping[str, TopicView], *, first: bool) -> dict[str, str]:
        moved = super()._lead(changed, first=first)
        for topic, view in changed.items():
            # Only for a topic whose name is kept: another topic gets the name later. The request that notices the
            # deletion makes brokers with automatic creation create the deleted topic again.
            if (
                view.is_alias
                and view.replaced_by is not None
                and is_interim_of(view.replaced_by.topic, topic)
                and not first
            ):
                self._notice_deletion(topic)
        if self._deliveries is not None:
            self._deliveries.follow(announced=self._names.is_any_announced, switched=bool(moved))
        return moved

    def _enter(self, name: str) -> None:
        route = self._by_name(name)
        chain = self._names.chain(name)
        if self._deliveries is not None and chain and chain[-1].replaced_by is not None:
            self._reports[name] = self._deliveries.report
        else:
            self._reports.pop(name, None)
        # While the count is 0, concurrent calls use the route. So no call combines the old count with the new route.
        self._counts[name] = 0
        if route is None or not self.unverified(name):
            self._routes[name] = route
            self._counts[name] = self._unrouted if route is None else count_of(route, self._unrouted)
        else:
            self._routes[name] = Unverified(route, partial(self._verify, name))

    def _verify(self, name: str) -> Route | None:
        """Compare topic ids with the cluster's before the first record under ``name`` uses views with new ids.

        If no broker answers and ``modeaware.on.unknown`` is ``block``, each send raises BufferError, as before the
        first view. After ``modeaware.view.timeout.ms``, or with another setting at once, sends use the last view. The
        source of the views repeats the comparison.
        """
        while isinstance(dict.get(self._routes, name), Unverified):
            compared = [topic for topic, _ in self.unverified(name)]
            if compared:
                self._await_ids(name, self._compare(compared, VERIFY_TIMEOUT_S, MAX_ID_AGE_S))
            with self._lock:
                self._unanswered_since_s.pop(name, None)
                self._verified |= {topic: topic_id for topic, topic_id in self.unverified(name) if topic in compared}
                self._enter(name)
        route = self._routes.get(name)
        return route.verified() if isinstance(route, Unverified) else route

    def _await_ids(self, name: str, unanswered: Collection[str]) -> None:
        if unanswered and self._config.on_unknown == "block":
            since_s = self._unanswered_since_s.setdefault(name, time.monotonic())
            if time.monotonic() - since_s < self._config.view_timeout_ms / 1000:
                raise FirstViewPending(
                    f"{', '.join(sorted(unanswered))}: no broker has returned the topic id yet, and without the id the "
                    "partition modes cannot be applied; nothing was queued, try again"
                )

    def _doubt(self, topic: str) -> None:
        self._compare({topic, self._names.points_to(topic)}, VERIFY_TIMEOUT_S, DOUBT_AGE_S)

    def _compare(self, topics: Collection[str], timeout_s: float, max_age_s: float) -> Collection[str]:
        """Return the topics whose ids no broker has returned."""
        # The caller must not hold the lock: the comparison calls this router's follow(), which takes it.
        return () if self._closed else self._views.verify(topics, timeout_s, max_age_s)

    def close(self) -> None:
        """Point to librdkafka's own methods for good, which raise that the producer is closed. End waiting calls."""
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
        """Wait for the first view, or raise as ``on_unknown`` requires. After a wait that does not raise, no later call
        waits."""
        self.first_view.wait()
        with self._lock:
            if not self.known.is_set():
                self._point_to(self._direct)
