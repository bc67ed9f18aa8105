"""Where a record goes while its topic has retired partitions: a view and a partitioner make a route.

A partitioner picks an index among the writable partitions, so a keyed record goes to
``writable[hash % len(writable)]``, by the view alone (invariant I3). A shrink retires the highest partitions, hence
``writable`` is nearly always ``0 .. n-1`` and the index is the partition. Where ``n`` divides the old count,
``h % old % n == h % n``: only the keys of the retired partitions move.

A topic whose partitions are all writable has no route: the client library's own choice is right.

A name may lead to another topic, which has replaced the one of that name (:mod:`modeaware.chain`). Its records
go where the application's records for that other topic go, whatever topic has that name now: one that was deleted and
created again takes them by its own partitions, as it takes those that name it. To refuse them would stop every writer
of a topic that is fenced, and gain nothing: what is acknowledged there can be read there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from modeaware.callouts import InnerLock, get_logger
from modeaware.chain import segments
from modeaware.clients.following import ClientErrors, FirstView, ViewShare
from modeaware.clients.named import NamedTopics
from modeaware.clients.resize import Resizes, observe_key, picks_of, sees_keys, without_finished_observers
from modeaware.clients.tally import SENDS_REFUSED, TALLY
from modeaware.config import ClientConfig
from modeaware.errors import PartitionRetired
from modeaware.modes import format_ranges
from modeaware.topic_view import TopicView
from modeaware.views.source import VERIFY_TIMEOUT_S, Views
from partitioners import LoadAware, Partitioner, TopicPartitioner, checked_index, named

logger = get_logger(__name__)

Load = Callable[[str, tuple[int, ...]], Sequence[int]]
"""Returns the load of a topic's candidates; empty where it is not known."""
NO_STATS: Mapping[str, Any] = {
    "state": "waiting",
    "routed_topics": 0,
    "view_changes": 0,
    "resizes": 0,
    "replaced": {},
    "views": {},
}
"""``modeaware_stats()`` of a producer whose constructor has not run."""


@dataclass(frozen=True, eq=False)
class Route:
    """Where the records of one topic go at one epoch. Safe to use from several threads.

    Attributes:
        view: the view it follows.
        writable: the partitions to choose from, ascending.
        dense: ``writable`` is ``0 .. n-1``, so an index is the partition itself.
        by_load: picks for records that need no consistency by their size and the load, where the partitioner can
            (KIP-794).
        load: None where the load is never known.
        open: the partitioner need not see every key: where it hashes, the hash alone gives the index.
        passes: every partition is writable, so the client library chooses. The route is there for what follows.
        name: what the application calls the topic, where the topic of ``view`` has replaced the one of that name.
        count: how many partitions that topic has, then: one that the application names was meant for the earlier topic.
    """

    view: TopicView
    writable: tuple[int, ...]
    dense: bool
    partitioner: TopicPartitioner
    by_load: Callable[[bytes | None, int, int, Sequence[int]], int] | None = None
    load: Load | None = None
    open: bool = True
    passes: bool = False
    name: str | None = None
    count: int | None = None

    def pick(self, key: bytes | None, size: int = 0) -> int:
        """Return the partition for a record with ``key`` (None: it has none) of ``size`` bytes.

        Raises:
            ValueError: no partition is writable, the partitioner requires an explicit one, or it chose none of them.
        """
        if self.by_load is not None and not self.partitioner.requires_consistency(key):
            load = () if self.load is None else self.load(self.view.topic, self.writable)
            index = self.by_load(key, len(self.writable), size, load)
        else:
            index = self.partitioner.partition(key, len(self.writable))
        if type(index) is not int or not 0 <= index < len(self.writable):  # an application's own partitioner
            index = checked_index(index, len(self.writable), f"of {self.view.topic}")
        return index if self.dense else self.writable[index]

    def refusal(self, partition: int) -> str | None:
        """Return why a record may not be addressed to ``partition`` (invariant I3); None where it may."""
        view, is_absent = self.view, self.count is not None and partition >= self.count
        if not is_absent and view.is_writable(partition):
            return None
        if view.is_replaced:
            assert view.successor is not None, "it is replaced"
            return f"{view.topic} was replaced by {view.successor.topic} and takes no records: write to that topic"
        if not self.choices:
            return f"no partition of {view.topic} takes records now ({view.describe()}): grow the topic"
        advice = f"leave the partition out, or choose one of {format_ranges(self.choices)}"
        if is_absent:
            return (
                f"partition {partition} of {self.name}: the topic was replaced by {view.topic}, which has "
                f"{self.count} partitions: {advice}"
            )
        listed = partition < len(view.modes)
        state = f"is {view.mode(partition).label}" if listed else "is not listed in the topic's record"
        return f"partition {partition} of {view.topic} {state} and takes no records ({view.describe()}): {advice}"

    @property
    def choices(self) -> tuple[int, ...]:
        """The partitions that a record may be addressed to, where that is known here."""
        return self.writable if self.view.modes else tuple(range(self.count or 0))

    def refuse_retired(self, partition: int, error: type[PartitionRetired]) -> None:
        """Raise ``error`` where ``partition`` takes no records."""
        refusal = self.refusal(partition)
        if refusal is not None:
            TALLY.add(SENDS_REFUSED)
            refused = error(refusal, topic=self.view.topic, partition=partition)
            refused.writable_partitions = self.choices
            raise refused


def route_for(view: TopicView, partitioner: Partitioner) -> Route | None:
    """Return the route that ``view`` requires; None where every partition is writable."""
    return None if view.all_writable else route_over(view, picks_of(partitioner, view.topic))


def route_over(view: TopicView, picks: TopicPartitioner, load: Load | None = None) -> Route:
    """Return the route over the writable partitions of a ``view`` that has a record, even where all are."""
    writable = view.writable
    dense = not writable or writable[-1] == len(writable) - 1
    innermost: Any = picks
    while sees_keys(innermost):
        innermost = innermost.inner
    by_load = innermost.partition_by_load if isinstance(innermost, LoadAware) else None
    return Route(view, writable, dense, picks, by_load, load, open=not sees_keys(picks))


class Names:
    """The names of topics that lead to another topic, or will soon. One thread at a time calls :meth:`follow`."""

    def __init__(self) -> None:
        self._segments: dict[str, tuple[TopicView, ...]] = {}

    def follow(self, changed: Mapping[str, TopicView], views: Callable[[str], TopicView]) -> dict[str, str]:
        """Take in views that have changed, and ``views`` for all others.

        Returns:
            The names that lead to another topic than before -> that earlier topic.
        """
        moved = {}
        for name in self.through(changed):
            before = self.leads_to(name)
            chain = segments(name, lambda topic: changed[topic] if topic in changed else views(topic))
            if chain[0].successor is None:
                self._segments.pop(name, None)
            else:
                self._segments[name] = chain
            if self.leads_to(name) != before:
                moved[name] = before
        return moved

    def returning(self, name: str, views: Callable[[str], TopicView]) -> tuple[str, str] | None:
        """Return the topic, and its id, that records under ``name`` go to now or next, where another topic had its name
        before; else None."""
        chain = self.segments(name)
        if not chain:
            return None
        coming = chain[-1].successor
        topic, topic_id = (chain[-1].topic, chain[-1].topic_id) if coming is None else (coming.topic, coming.topic_id)
        return (topic, topic_id) if topic_id is not None and not views(topic).applies_to(topic_id) else None

    def through(self, topics: Iterable[str]) -> set[str]:
        """Return the names that have to do with any of ``topics``, and their own names."""
        named = frozenset(topics)
        return {*named, *(n for n, chain in self._segments.items() if any(view.topic in named for view in chain))}

    def segments(self, name: str) -> tuple[TopicView, ...]:
        """Return :func:`modeaware.chain.segments`; nothing where the topic of that name has no successor."""
        return self._segments.get(name, ())

    def leads_to(self, name: str) -> str:
        """Return the topic that records under ``name`` go to."""
        return self._segments[name][-1].topic if name in self._segments else name

    def replaced(self) -> dict[str, str]:
        """Return the names that lead to another topic -> that topic."""
        return {name: chain[-1].topic for name, chain in list(self._segments.items()) if chain[-1].topic != name}

    @property
    def is_any_announced(self) -> bool:
        """Whether some topic has a successor that its name does not lead to yet."""
        return any(chain[-1].successor is not None for chain in self._segments.values())


class Routes:
    """The routes of one producer, by its share of the views: of topics, and of names that lead to another topic. One
    thread at a time calls :meth:`follow`, any may look.

    A send uses the route in force when it looks the topic up, and nothing of it is decided again later (invariant I7).

    Args:
        views: the producer's, to follow and to give back.
        partitioner: the producer's, if it is one of :mod:`partitioners`; any other is taken to place records with a
            key by murmur2, as kafka-python's do.
        load: for partitioners that follow it.
        look_anew: has the client library request the metadata of a topic; None: it needs not.

    Attributes:
        known: set when the first views are followed.
        first_view: the wait for them.
        named: the topics that names stand for in calls that write no record.
        changes: how often views came.
    """

    def __init__(
        self,
        views: Views,
        config: ClientConfig,
        errors: ClientErrors,
        partitioner: Partitioner | None = None,
        load: Load | None = None,
        look_anew: Callable[[str], object] | None = None,
    ) -> None:
        # Where the producer's own partitioner picks, ours says which keys stay, and what share of them moves.
        self._picker = named("murmur2_random") if partitioner is None else partitioner
        self._errors = errors
        self._load = load
        self._resizes = Resizes(config.on_resize, self._picker, config.resize_callback, self._lighten)
        self._views = views
        self._routes: dict[str, Any] = {}  # by name
        self._own: dict[str, Route | None] = {}  # by topic
        self._back: dict[str, Route] = {}  # by topic, where a chain leads back to the name of one that is gone
        self._names = Names()
        self._look_anew = look_anew
        self._looked_anew: set[str] = set()
        self._verified: dict[str, str | None] = {}  # topic -> the id that has been compared with the cluster's
        self._lock = InnerLock()
        self._share: ViewShare | None = None
        self.known = threading.Event()
        self.first_view = FirstView(config, self.known.wait, views, errors)
        self.named = NamedTopics(views, self.first_view)
        self.changes = 0

    def serve(self, producer: object) -> None:
        """Follow the views for ``producer``, which is not kept alive."""
        self._share = ViewShare(producer, self._views, self.follow)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Have the views read with other credentials: see ``Views.set_sasl_credentials``."""
        self._views.set_sasl_credentials(username, password)

    def release(self) -> None:
        """Give the views back; the last ones stay in force. Idempotent."""
        if self._share is not None:
            self._share.release()

    def close(self) -> None:
        """The producer is closed: give the views back, and have calls that wait for the first one return."""
        self.release()
        self.known.set()

    def follow(self, changed: Mapping[str, TopicView]) -> None:
        """Put views in force, and report resizes that are due."""
        with self._lock:
            first = not self.known.is_set()
            self._lead(changed, first=first)
            self._put({topic: self._made(view, first=first) for topic, view in changed.items()})
            self.changes += 1
            self._point()
            self.known.set()
            due = self._resizes.take_due()
        self._resizes.report(due)

    def _made(self, view: TopicView, *, first: bool) -> Route | None:
        route = route_for(view, self._picker)
        if view.is_replaced:  # no key of it moves: its readers read it to the end, and then the successor
            return route
        picks = self._resizes.observed(view, None if route is None else route.partitioner, first=first)
        return None if picks is None else route_over(view, picks, self._load)

    def _lead(self, changed: Mapping[str, TopicView], *, first: bool) -> dict[str, str]:
        """Take in where names lead (under the lock).

        Returns:
            The names that lead to another topic than before -> that earlier topic.
        """
        moved = self._names.follow(changed, self._views.view)
        for name, before in moved.items():
            topic = self._names.leads_to(name)
            replaced = next((view for view in self._names.segments(name) if view.topic == before), None)
            if first or replaced is None or replaced.successor is None:
                continue
            text = (
                "%s was replaced by %s: records under the name %s go there from now on. Earlier ones that are still "
                "queued may be refused, with MSG_SIZE_TOO_LARGE where their delivery callback was not reached"
            )
            logger.info(text, before, topic, name)
            view = self._views.view(topic)
            count = len(view.writable) if view.modes else replaced.successor.partition_count
            self._resizes.replaced(name, replaced, topic, count)
        for name in self._names.through(changed):
            self._forget_earlier_topic(name)
        return moved

    def _forget_earlier_topic(self, name: str) -> None:
        """Where a chain leads back to an earlier name, the client library knows that topic by the partitions that it
        had: a record for one that is no more is not acknowledged, and ends a transaction of librdkafka's for good."""
        returning = self._names.returning(name, self._views.view)
        if returning is not None and returning[1] not in self._looked_anew and self._look_anew is not None:
            self._looked_anew.add(returning[1])
            self._look_anew(returning[0])

    def _put(self, routes: Mapping[str, Route | None]) -> None:
        """Put routes of topics in force."""
        self._own |= routes
        names = self._names.through(routes)
        for name in names:
            segments = self._names.segments(name)
            if len(segments) > 1 and segments[-1].topic == name and (successor := segments[-2].successor) is not None:
                self._back[name] = self._passing(segments[-1], tuple(range(successor.partition_count)))
            else:
                self._back.pop(name, None)
        for name in names:
            self._enter(name)

    def _passing(self, view: TopicView, writable: tuple[int, ...]) -> Route:
        return Route(view, writable, dense=True, partitioner=picks_of(self._picker, view.topic), passes=True)

    def _enter(self, name: str) -> None:
        """Put what is in force under ``name`` into the table (under the lock)."""
        self._routes[name] = self._by_name(name)

    def _by_name(self, name: str) -> Route | None:
        """The route of a name, which may lead to another topic, or will soon."""
        segments = self._names.segments(name)
        if not segments:
            return self._own.get(name)
        last = segments[-1]
        route = self.of(last.topic)
        if route is None or (route.view.is_replaced and not route.view.applies_to(last.topic_id)):
            route = self._passing(last, last.writable)
        if last.topic != name:
            successor = segments[-2].successor
            assert successor is not None, "it leads to the last one"
            count = max(len(route.view.modes), successor.partition_count)
            picks = self._resizes.observed_name(name, route.partitioner)
            route = replace(route, name=name, count=count, partitioner=picks, open=not sees_keys(picks))
        return route

    def _point(self) -> None:
        """Routes have changed (under the lock)."""

    def _lighten(self, topic: str) -> None:
        """An observer of ``topic`` is over."""
        with self._lock:
            route = self.of(topic)
            if route is not None and not route.open:
                left = without_finished_observers(route.partitioner)
                self._put({topic: replace(route, partitioner=left, open=not sees_keys(left))})
            self._enter(topic)

    def of(self, topic: str) -> Route | None:
        """Return the topic's own route; None where every partition is writable. It is that of the topic which has the
        name now, where one that is gone leads there."""
        return self._back.get(topic) or self._own.get(topic)

    def leads_to(self, name: str) -> str:
        """Return the topic that records under ``name`` go to."""
        return self._names.leads_to(name)

    def unverified(self, name: str) -> list[tuple[str, str | None]]:
        """Return the topics that a record under ``name`` depends on, and their ids, which are to be compared with the
        cluster's (invariant I8). Where a topic is gone its name leads on by the word of the log, whatever topic comes
        up under it."""
        own = self.of(self._names.leads_to(name))
        segments = self._names.segments(name)
        views = [] if own is None else [own.view]
        for view in segments if own is None else segments[:-1]:
            views += [] if view.is_alias else [view]
        ids = [(view.topic, view.topic_id) for view in views if view.topic_id is not None]
        return [(topic, topic_id) for topic, topic_id in ids if self._verified.get(topic) != topic_id]

    def observe_key(self, name: str, key: bytes) -> None:
        """Take in the key of a record under ``name`` that another partitioner has placed."""
        route: Route | None = self._routes.get(name)
        if route is not None and not route.open:
            observe_key(route.partitioner, key)

    def refuse_retired(self, topic: str, partition: int) -> None:
        """
        Raises:
            PartitionRetired: ``partition`` takes no records.
        """
        route = self.of(topic)
        if route is not None:
            route.refuse_retired(partition, self._errors.retired)

    @property
    def routed_topics(self) -> int:
        """How many topics have retired partitions."""
        return sum(route is not None for route in list(self._own.values()))

    def stats(self) -> dict[str, Any]:
        """Return a producer's ``modeaware_stats()``; ``replaced``: the topic that each name leads to."""
        return {
            "state": ("routed" if self._is_routed() else "direct") if self._is_known() else "waiting",
            "routed_topics": self.routed_topics,
            "view_changes": max(self.changes - 1, 0),
            "resizes": self._resizes.count,
            "replaced": self._names.replaced(),
            "views": self._views.stats(),
        }

    def _is_known(self) -> bool:
        return self.known.is_set() or self.first_view.over

    def _is_routed(self) -> bool:
        return bool(self.routed_topics)


class VerifiedRoutes(Routes):
    """Routes that are verified each before its first record, and again when the client's metadata has changed.

    A topic that was deleted and created again under its name takes the first record by its own partitions, not by the
    modes of the old topic. Thread-safe.

    Args:
        timeout_s: how long a call of :meth:`verify` may take.
    """

    def __init__(self, timeout_s: float, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timeout_s = min(timeout_s, VERIFY_TIMEOUT_S)

    def verify(self, name: str) -> None:
        """Have the views verified that a record under ``name`` depends on (invariant I8); may block. See
        ``Views.verify``."""
        self._views.verify([topic for topic, _ in self.unverified(name)], self._timeout_s)

    def mark(self, name: str) -> None:
        """Note that they are verified. Not before the views that were found are followed."""
        self._verified |= dict(self.unverified(name))

    def refuse_absent(self, name: str, partition: int) -> None:
        """Refuse a partition that was meant for an earlier topic of ``name``, and that the one it leads to lacks.

        Raises:
            PartitionRetired: see :meth:`Route.refusal`.
        """
        route: Route | None = self._routes.get(name)
        if route is not None and route.name is not None:
            route.refuse_retired(partition, self._errors.retired)

    def metadata_changed(self, _: object = None) -> None:
        """The client's metadata has changed: verify again."""
        self._verified.clear()
