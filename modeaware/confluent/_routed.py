"""``produce`` and ``produce_batch`` while some topic has retired partitions.

They take the arguments of confluent_kafka's methods, by position or by name, and leave every check of them to those
methods: what is added is the partition, where the caller left it out, and a refusal of retired ones. That is said once,
before the record is librdkafka's, and never again (invariant I7).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, final

from modeaware.confluent.errors import RetiredPartitionChosen
from modeaware.errors import KeyHeld
from modeaware.librdkafka import KafkaError, KafkaException
from modeaware.routing import Route
from modeaware.tally import SENDS_REFUSED, TALLY
from partitioners import HashFunction

ABSENT: Final[Any] = object()
UNASSIGNED = -1  # librdkafka's RD_KAFKA_PARTITION_UA: the partitioner chooses


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


Routes = Mapping[str, "Route | Unverified | None"]
Doubt = Callable[[str], object]
"""Called with a topic whose view a failed call puts in doubt: has its topic id compared again."""
Arguments = tuple[Any, Any, Any]
"""The key, the partition and the value of a call."""
_DOUBTFUL = (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)


def fast_produce(
    base: Callable[..., Any],
    routes: Routes,
    counts: dict[str, int],
    hash_function: HashFunction,
    doubt: Doubt = bool,
) -> Callable[..., Any]:
    """A routed ``produce`` over librdkafka's own.

    Args:
        base: librdkafka's bound ``produce``.
        routes: the routes in force by topic; the caller changes it in place.
        counts: the number of writable partitions of each topic whose keys may be hashed straight to a partition (see
            :func:`hashed_count`); changed in place as well.
        hash_function: what the partitioner hashes keys with.
        doubt: called where the topic may have been deleted and created again; a record that was not queued is placed
            anew after it.
    """

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
            count = 0
            if type(topic) is str:
                counts.setdefault(topic, 0)  # so that the next look-up does not raise
        if count and key and partition is ABSENT and type(key) is bytes:
            where = hash_function(key, count)
        elif count and key and partition is ABSENT and type(key) is str:
            where = hash_function(key.encode(), count)
        else:
            route = _route(routes, topic)
            try:
                where = place(route, key, partition, value)
            except RetiredPartitionChosen as refused:
                where = _place_again(refused, route, routes, topic, (key, partition, value), doubt)
            if where is ABSENT:
                where = UNASSIGNED
        try:
            if headers is None and timestamp is ABSENT and callback is ABSENT:
                if on_delivery is None:
                    return base(topic, value, key, where)
                return base(topic, value, key, where, on_delivery)
            # A callback that is given at all counts, even None: on_delivery is its alias.
            called = on_delivery if callback is ABSENT else callback
            return base(topic, value, key, where, called, None, 0 if timestamp is ABSENT else timestamp, headers)
        except KafkaException as error:
            if partition is not ABSENT or not _is_doubtful(error.args[0]):
                raise
            doubt(topic)
            again = place(_route(routes, topic), key, partition, value)
            again = UNASSIGNED if again is ABSENT else again
            if again == where:
                raise
        called = on_delivery if callback is ABSENT else callback
        return base(topic, value, key, again, called, None, 0 if timestamp is ABSENT else timestamp, headers)

    return produce


def faithful_produce(base: Callable[..., Any], routes: Routes, doubt: Doubt = bool) -> Callable[..., Any]:
    """A routed ``produce`` over somebody else's Python function (a tracer's, a mock's), or over a partitioner that
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
        try:
            where = place(route, key, given, value)
        except RetiredPartitionChosen as refused:
            where = _place_again(refused, route, routes, topic, (key, given, value), doubt)
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


def produce_batch(base: Callable[..., Any], routes: Routes, doubt: Doubt = bool) -> Callable[..., Any]:
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
                try:
                    where = place(route, *arguments)
                except RetiredPartitionChosen as refused:
                    where = _place_again(refused, route, routes, topic, arguments, doubt)
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


def hashed_count(route: Route | None) -> int:
    """How many writable partitions there are, where the hash of a key is the partition itself; else 0."""
    return len(route.writable) if route is not None and route.dense and route.open else 0


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
                _refuse_retired(route, explicit)
            return partition
    if not route.writable:
        _refuse_retired(route, 0)
    if isinstance(key, str):
        key = key.encode()
    elif key is not None and type(key) is not bytes:
        try:
            key = memoryview(key).tobytes()
        except TypeError:
            return partition
    size = 0 if route.by_load is None else sum(len(part) for part in (key, value) if hasattr(part, "__len__"))
    return route.pick(key, size)


def _place_again(
    refused: RetiredPartitionChosen, by: Route | None, routes: Routes, topic: Any, arguments: Arguments, doubt: Doubt
) -> Any:
    """:func:`place` by the view of the topic that has the name now (invariant I8), after it was refused by ``by``.

    Raises:
        RetiredPartitionChosen: that is the view that has refused it, or one that refuses it as well.
    """
    doubt(topic)
    route = _route(routes, topic)
    if route is by:
        raise refused
    return place(route, *arguments)


def _is_doubtful(error: Any) -> bool:
    """Whether librdkafka has refused a record for what the topic no longer has."""
    return isinstance(error, KafkaError) and error.code() in _DOUBTFUL


def _refuse_retired(route: Route, partition: int) -> None:
    refusal = route.refusal(partition)
    if refusal is not None:
        TALLY.add(SENDS_REFUSED)
        raise RetiredPartitionChosen(refusal, topic=route.view.topic, partition=partition)


def _route(routes: Routes, topic: Any) -> Route | None:
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
