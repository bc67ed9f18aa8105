"""The table of routes in which a ``produce`` looks up the topic and partition for a name.

A *route* chooses the topic and the partition of a record (:class:`modeaware.clients.routes.Route`). An entry is a
route, None (librdkafka chooses), or an :class:`Unverified`, which the first record verifies. If the producer's
partitioner does not exist in librdkafka, this package picks for every record, and every topic has a route.
"""

from __future__ import annotations

import math
import operator
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, final

from modeaware import librdkafka, os_threads
from modeaware.callouts import get_logger
from modeaware.clients.routes import Load, Route, route_over
from modeaware.confluent.errors import RetiredPartitionChosen
from modeaware.librdkafka import KafkaError, KafkaException
from modeaware.modes import PartitionMode
from modeaware.topic_view import TopicView
from partitioners import Partitioner

logger = get_logger(__name__)

_RETRIABLE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE)
_PAUSE_S = 0.1
_NOTICE_S, _NOTICES = 0.5, 3

PartitionCount = Callable[[str], int]
UNASSIGNED = -1  # librdkafka's RD_KAFKA_PARTITION_UA, and confluent_kafka's default: the partitioner chooses
Doubt = Callable[[str], object]
"""Compares a topic's id with the cluster's after a failed call: the topic may have been deleted and created again."""
Arguments = tuple[Any, Any, Any]
"""The key, the partition and the value of a call."""


@final
class Unverified:
    """Stands for a route until its topic ids have been compared with the cluster's (invariant I8).

    Args:
        route: the route.
        verified: compares the ids, and returns the route that is then in force. While the ids are unknown, it may raise
            instead (``Router._verify``), and the send raises this exception.
    """

    __slots__ = ("route", "verified")

    def __init__(self, route: Route, verified: Callable[[], Route | None]) -> None:
        self.route = route
        self.verified = verified


RouteTable = Mapping[str, Route | Unverified | None]


def route_of(routes: RouteTable, topic: Any) -> Route | None:
    route = routes.get(topic) if isinstance(topic, str) else None
    return route.verified() if type(route) is Unverified else route  # isinstance() costs more


def place(route: Route | None, key: Any, partition: Any, value: Any = None) -> Any:
    """Return the partition for a record: ``partition`` if one was given, else the route's pick.

    Without a route, or with arguments that librdkafka's method will refuse, return ``partition`` unchanged.

    Raises:
        RetiredPartitionChosen: ``partition`` takes no records, or the topic has no partition that does.
    """
    if route is None:
        return partition
    if partition != UNASSIGNED:
        try:
            explicit = operator.index(partition)
        except TypeError:
            return partition
        if explicit >= 0:
            route.refuse_retired(explicit, RetiredPartitionChosen)
        return partition
    if route.passes and route.open:
        return partition
    if not route.writable and not route.passes:
        route.refuse_retired(0, RetiredPartitionChosen)
    if isinstance(key, str):
        key = key.encode()
    elif key is not None and type(key) is not bytes:
        try:
            key = memoryview(key).tobytes()
        except TypeError:
            return partition
    if route.passes:
        if key is not None:
            route.sees(key)
        return partition
    size = 0 if route.by_load is None else sum(len(part) for part in (key, value) if hasattr(part, "__len__"))
    return route.pick(key, size)


def placed(
    by: Route | None, routes: RouteTable, topic: Any, arguments: Arguments, doubt: Doubt
) -> tuple[Any, Route | None]:
    """Return :func:`place`'s partition, and the route that chose it. If the route ``by`` refuses the record, compare
    the topic id again. Then place the record by the route in force (invariant I8).

    Raises:
        RetiredPartitionChosen: the route is still ``by``, or the new route refuses the record as well.
    """
    try:
        return place(by, *arguments), by
    except RetiredPartitionChosen:
        doubt(topic)
        route = route_of(routes, topic)
        if route is by:
            raise
        return place(route, *arguments), route


def topic_of(route: Route | None, name: Any) -> Any:
    """Return the topic to which a record under ``name`` goes by ``route``, the route of that name."""
    return name if route is None else route.view.topic


class EveryTopic(dict[str, Route | Unverified | None]):
    """The routes in force. A topic without a route gets one over all partitions that the brokers return. So does a
    topic whose route leaves the choice to the client library.

    The partition count is requested at the first send to a topic. A sending thread requests the count again when the
    last one is older than ``max_age_s`` or the topic's view has changed. Without an answer, the last count stays. Any
    thread may look up a route. While one thread renews a count, the others use the last count.

    Args:
        count: requests a topic's partition count, or raises KafkaException.
        max_age_s: ``topic.metadata.refresh.interval.ms``.
        clock: seconds, monotonic.
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
        self._whole: dict[str, tuple[Route, float]] = {}  # topic -> its route, and the time to renew its count
        self._led: dict[str, tuple[Route, Route, Route]] = {}  # name -> entry, route of the whole topic, their merger

    def __setitem__(self, topic: str, route: Route | Unverified | None) -> None:
        super().__setitem__(topic, route)
        if topic in self._whole:
            self._whole[topic] = self._whole[topic][0], -math.inf

    def get(  # type: ignore[override] # without the other signatures of dict.get
        self, topic: str, default: Route | Unverified | None = None
    ) -> Route | Unverified | None:
        entry = super().get(topic)
        if isinstance(entry, Unverified) or (entry is not None and not entry.passes):
            return entry
        return self._whole_of(topic) if entry is None else self._led_by(topic, entry)

    def _led_by(self, name: str, entry: Route) -> Route:
        whole = self._whole_of(entry.view.topic)
        kept = self._led.get(name)
        if kept is None or kept[0] is not entry or kept[1] is not whole:
            count = None if entry.name is None else len(whole.writable)
            made = replace(whole, name=entry.name, count=count, first_keys=entry.first_keys)
            kept = self._led[name] = (entry, whole, made)
        return kept[2]

    def _whole_of(self, topic: str) -> Route:
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
            logger.warning("%s: partition count unknown; continuing with %d: %s", topic, len(before.writable), error)
            return before
        if before is None or len(before.writable) != count:
            view = TopicView(topic, modes=(PartitionMode.READ_WRITE,) * count)
            before = route_over(view, self._partitioner.for_topic(topic), self._load)
        self._whole[topic] = before, self._clock() + self._max_age_s
        return before


def partition_count(client: librdkafka.Producer | librdkafka.Consumer, timeout_s: float) -> PartitionCount:
    """Return a function that requests partition counts through ``client``. The function does not keep ``client`` alive,
    and waits for a topic that is being created.

    The function raises KafkaException if brokers return no count within ``timeout_s``.
    """
    held = weakref.ref(client)

    def count(topic: str) -> int:
        sending = held()
        assert sending is not None, "the client is alive during its own call"
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                described = _described(sending, topic, max(deadline_s - time.monotonic(), 0.1))
            except os_threads.NoThread as none:
                raise KafkaException(KafkaError(KafkaError._FAIL, f"partition count not requested: {none}")) from none
            if described.error is None and described.partitions:
                return len(described.partitions)
            error = described.error or KafkaError(KafkaError.LEADER_NOT_AVAILABLE, f"{topic}: no partitions yet")
            if error.code() not in _RETRIABLE or time.monotonic() + _PAUSE_S > deadline_s:
                raise KafkaException(error)
            time.sleep(_PAUSE_S)  # no event reports that the brokers have created the topic

    return count


def _described(client: librdkafka.Producer | librdkafka.Consumer, topic: str, timeout_s: float) -> Any:
    """Return the metadata of a topic. ``client`` requests it, and so also uses the metadata for its own sends."""
    stock: Any = librdkafka.Producer if isinstance(client, librdkafka.Producer) else librdkafka.Consumer
    # In another thread, because this one may be in a delivery callback. confluent_kafka keeps the state of a poll per
    # thread. After list_topics in this thread, confluent_kafka would abort at the next callback of the same poll.
    return os_threads.call_apart(stock.list_topics, client, topic, timeout=timeout_s).topics[topic]


def renew_metadata(count: PartitionCount, topic: str) -> None:
    """Make librdkafka request the metadata of ``topic``; ``count`` is of :func:`partition_count`."""
    try:
        count(topic)
    except KafkaException as error:
        text = "topic %s: another topic had this name before, and the metadata of this topic was not received: %s"
        logger.warning(text, topic, error)


def notice_deletion(client: librdkafka.Producer) -> Callable[[str], None]:
    """Return a function that makes librdkafka notice that a topic is deleted. It does not keep ``client`` alive.

    librdkafka then forgets the topic and its leader epochs 30 s later. Otherwise it may never write to a later topic of
    that name, because the later topic's leader epochs are lower (librdkafka#4898).
    """
    held = weakref.ref(client)

    def notice(topic: str) -> None:
        for _ in range(_NOTICES):
            if (sending := held()) is None:
                return
            try:
                if _described(sending, topic, _NOTICE_S).error is not None:
                    return
            except (KafkaException, os_threads.NoThread) as error:
                logger.debug("%s was deleted, and its metadata was not requested: %s", topic, error)
            del sending
            time.sleep(_PAUSE_S)  # a broker that has just started may still return the topic

    return notice
