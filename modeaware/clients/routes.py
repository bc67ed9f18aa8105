"""Routes: the choice of each record's partition while its topic has retired partitions.

A *route* is a view and a partitioner. The partitioner picks an index among the writable partitions, so a keyed record
goes to ``writable[hash % len(writable)]``, by the view alone (invariant I3). A shrink retires the highest partitions.
So ``writable`` is nearly always ``0 .. n-1``, and the index is the partition. If ``n`` divides the old count,
``h % old % n == h % n``, and only the keys of the retired partitions move.

A topic whose partitions are all writable has no route: the client library's own choice is right.

From the switch on, the name of an old topic points to a new topic (:mod:`modeaware.chain`). Records under the old name
go where records under the new name go, whichever topic has the new name now. If the new topic was deleted and created
again, the records go to the partitions of the created topic. A refusal would stop every producer of the old topic, and
protect nothing: acknowledged records of the created topic can be read there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from modeaware.callouts import InnerLock, get_logger
from modeaware.chain import chain_views
from modeaware.clients.following import ClientErrors, FirstView, ViewShare
from modeaware.clients.named import NamedTopics
from modeaware.clients.resize import Resizes, picks_of
from modeaware.clients.tally import SENDS_REFUSED, TALLY
from modeaware.config import ClientConfig
from modeaware.errors import PartitionRetired
from modeaware.modes import format_ranges
from modeaware.topic_view import TopicView
from modeaware.views.source import Views
from partitioners import LoadAware, Partitioner, TopicPartitioner, checked_index, named

logger = get_logger(__name__)

Load = Callable[[str, tuple[int, ...]], Sequence[int]]
"""Returns the load of each of the given partitions of a topic, or an empty sequence if the load is unknown."""
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
    """The choice of partitions for the records of one topic at one epoch. Safe to use from several threads.

    Attributes:
        view: the view of the route.
        writable: the partitions to choose from, ascending.
        dense: ``writable`` is ``0 .. n-1``, so an index is the partition itself.
        by_load: picks by record size and load (KIP-794), for records that the partitioner may place anywhere. It is
            None if the partitioner ignores the load.
        load: returns the load, or is None if the load is never known.
        first_keys: calls that a record with a key requires before it is placed. Each call puts a route without itself
            in force. Any thread may make the calls, and more than once. Their exceptions reach the sender.
        passes: every partition is writable, so the client library chooses. The other attributes still apply.
        name: the application's name for the topic, if the topic of ``view`` has replaced the topic of that name.
        count: the new topic's number of partitions, if ``name`` is set. A partition that the application gives was
            meant for the old topic, and may not exist in the new topic.
    """

    view: TopicView
    writable: tuple[int, ...]
    dense: bool
    partitioner: TopicPartitioner
    by_load: Callable[[bytes | None, int, int, Sequence[int]], int] | None = None
    load: Load | None = None
    first_keys: tuple[Callable[[], None], ...] = ()
    passes: bool = False
    name: str | None = None
    count: int | None = None

    def pick(self, key: bytes | None, size: int = 0) -> int:
        """Return the partition for a record of ``size`` bytes. Without a key, ``key`` is None.

        Raises:
            ValueError: no partition is writable, the partitioner requires an explicit one, or its pick is invalid.
        """
        self.sees(key)
        if self.by_load is not None and not self.partitioner.requires_consistency(key):
            load = () if self.load is None else self.load(self.view.topic, self.writable)
            index = self.by_load(key, len(self.writable), size, load)
        else:
            index = self.partitioner.partition(key, len(self.writable))
        if type(index) is not int or not 0 <= index < len(self.writable):  # an application's own partitioner
            index = checked_index(index, len(self.writable), f"of {self.view.topic}")
        return index if self.dense else self.writable[index]

    def sees(self, key: bytes | None) -> None:
        """Make the calls that a record with ``key`` requires; any partitioner may place the record."""
        if self.first_keys and self.partitioner.requires_consistency(key):
            for call in self.first_keys:
                call()

    @property
    def open(self) -> bool:
        """Whether the route need not see every key, so the hash of a key alone gives the index."""
        return not self.first_keys

    def refusal(self, partition: int) -> str | None:
        """Return why a record may not be addressed to ``partition`` (invariant I3), or None if it may."""
        view, is_absent = self.view, self.count is not None and partition >= self.count
        if not is_absent and view.is_writable(partition):
            return None
        if view.is_replaced:
            assert view.replaced_by is not None, "the topic is replaced"
            return f"{view.topic} was replaced by {view.replaced_by.topic} and takes no records: write to that topic"
        if not self.choices:
            return f"no partition of {view.topic} takes records now ({view.describe()}); grow the topic"
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
        """The partitions to which a record may be addressed; empty if the route has neither modes nor a count."""
        return self.writable if self.view.modes else tuple(range(self.count or 0))

    def refuse_retired(self, partition: int, error: type[PartitionRetired]) -> None:
        """Raise ``error`` if ``partition`` takes no records."""
        refusal = self.refusal(partition)
        if refusal is not None:
            TALLY.add(SENDS_REFUSED)
            refused = error(refusal, topic=self.view.topic, partition=partition)
            refused.writable_partitions = self.choices
            raise refused


def route_for(view: TopicView, partitioner: Partitioner, load: Load | None = None) -> Route | None:
    """Return the route that ``view`` requires, or None if every partition is writable."""
    if view.all_writable:
        return None
    return route_over(view, picks_of(partitioner, view.topic, by_load=load is not None), load)


def route_over(view: TopicView, picks: TopicPartitioner, load: Load | None = None) -> Route:
    """Return the route over the writable partitions of ``view``, even if all are writable. ``view`` must have modes."""
    writable = view.writable
    dense = not writable or writable[-1] == len(writable) - 1
    by_load = picks.partition_by_load if isinstance(picks, LoadAware) else None
    return Route(view, writable, dense, picks, by_load, load)


class Names:
    """The names of old topics, and the topics to which they point. One thread at a time calls :meth:`follow`.

    A name is listed once its new topic is announced. The name points to that topic only from the switch on.
    """

    def __init__(self) -> None:
        self._chains: dict[str, tuple[TopicView, ...]] = {}

    def follow(self, changed: Mapping[str, TopicView], views: Callable[[str], TopicView]) -> dict[str, str]:
        """Follow the views that have ``changed``; ``views`` returns the view of any other topic.

        Returns:
            Each name that points to another topic than before -> the topic to which it pointed before.
        """
        moved = {}
        for name in self.through(changed):
            before = self.points_to(name)
            chain = chain_views(name, lambda topic: changed[topic] if topic in changed else views(topic))
            if chain[0].replaced_by is None:
                self._chains.pop(name, None)
            else:
                self._chains[name] = chain
            if self.points_to(name) != before:
                moved[name] = before
        return moved

    def returning(self, name: str, views: Callable[[str], TopicView]) -> tuple[str, str] | None:
        """Return the topic to which records under ``name`` go, or will go after an announced switch, and the topic's
        id. Return None unless the view under that topic's name is of an earlier topic."""
        chain = self.chain(name)
        if not chain:
            return None
        coming = chain[-1].replaced_by
        topic, topic_id = (chain[-1].topic, chain[-1].topic_id) if coming is None else (coming.topic, coming.topic_id)
        return (topic, topic_id) if topic_id is not None and not views(topic).applies_to(topic_id) else None

    def through(self, topics: Iterable[str]) -> set[str]:
        """Return ``topics``, and the names whose chain contains one of them."""
        named = frozenset(topics)
        return {*named, *(n for n, chain in self._chains.items() if any(view.topic in named for view in chain))}

    def chain(self, name: str) -> tuple[TopicView, ...]:
        """Return :func:`modeaware.chain.chain_views` of ``name``, or an empty tuple if its topic has no new topic."""
        return self._chains.get(name, ())

    def points_to(self, name: str) -> str:
        """Return the topic to which records under ``name`` go."""
        return self._chains[name][-1].topic if name in self._chains else name

    def replaced(self) -> dict[str, str]:
        """Return a mapping: each name that points to another topic -> that topic."""
        return {name: chain[-1].topic for name, chain in list(self._chains.items()) if chain[-1].topic != name}

    @property
    def is_any_announced(self) -> bool:
        """Whether a new topic is announced to which producers have not switched yet."""
        return any(chain[-1].replaced_by is not None for chain in self._chains.values())


class Routes:
    """The routes of one producer, by its share of the views: for topics, and for names that point to another topic. One
    thread at a time calls :meth:`follow`; any thread may read.

    A send uses the route that is in force when it looks the route up. A record's partition is not chosen again
    (invariant I7).

    Args:
        views: the producer's share of the views.
        partitioner: the producer's partitioner, or None if it is not one of :mod:`partitioners`. With None, records
            with a key are assumed to be placed by murmur2, as by kafka-python's partitioners.
        load: the load for partitioners that follow it.
        renew_metadata: makes the client library request a topic's metadata, or is None if the library needs no request.

    Attributes:
        known: set when the first views are followed.
        first_view: the wait for the first views.
        named: the topics that names stand for in calls that write no record.
        changes: how many times views have been followed.
    """

    def __init__(
        self,
        views: Views,
        config: ClientConfig,
        errors: ClientErrors,
        partitioner: Partitioner | None = None,
        load: Load | None = None,
        renew_metadata: Callable[[str], object] | None = None,
    ) -> None:
        # If the library's partitioner picks, ours only decides which records have hashed keys, and which share moves.
        self._picker = named("murmur2_random") if partitioner is None else partitioner
        self._errors = errors
        self._load = load
        self._resizes = Resizes(config.on_resize, self._picker, config.resize_callback, self._lighten)
        self._views = views
        self._routes: dict[str, Any] = {}  # by name
        self._own: dict[str, Route | None] = {}  # by topic
        self._back: dict[str, Route] = {}  # by topic, after a rename back to a deleted topic's name
        self._names = Names()
        self._renew_metadata = renew_metadata
        self._metadata_renewed: set[str] = set()
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
        """Read the views with other credentials: see ``Views.set_sasl_credentials``."""
        self._views.set_sasl_credentials(username, password)

    def release(self) -> None:
        """Release the views; the last ones stay in force. Idempotent."""
        if self._share is not None:
            self._share.release()

    def close(self) -> None:
        """Release the views of a closed producer, and end the calls that wait for the first view."""
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
        route = route_for(view, self._picker, self._load)
        if view.is_replaced:  # no key moves: readers read the old topic to its end, and then the new topic
            return route
        self._resizes.follow(view, routed=route is not None, first=first)
        return None if route is None else replace(route, first_keys=self._resizes.first_keys(view.topic))

    def _lead(self, changed: Mapping[str, TopicView], *, first: bool) -> dict[str, str]:
        """Follow the topics to which names point (under the lock).

        Returns:
            Each name that points to another topic than before -> the topic to which it pointed before.
        """
        moved = self._names.follow(changed, self._views.view)
        for name, before in moved.items():
            topic = self._names.points_to(name)
            replaced = next((view for view in self._names.chain(name) if view.topic == before), None)
            if first or replaced is None or replaced.replaced_by is None:
                continue
            text = (
                "%s was replaced by %s, which from now on gets the records sent under the name %s. Brokers may reject "
                "records that are still queued (MSG_SIZE_TOO_LARGE)"
            )
            logger.info(text, before, topic, name)
            view = self._views.view(topic)
            count = len(view.writable) if view.modes else replaced.replaced_by.partition_count
            self._resizes.replaced(name, replaced, topic, count)
        for name in self._names.through(changed):
            self._forget_earlier_topic(name)
        return moved

    def _forget_earlier_topic(self, name: str) -> None:
        """Make the client library request the metadata of the new topic of a rename back.

        Without the request, the library would still have the partitions of the earlier topic of that name. A record for
        a partition that no longer exists is not acknowledged, and a librdkafka transaction with it cannot continue.
        """
        returning = self._names.returning(name, self._views.view)
        if returning is not None and returning[1] not in self._metadata_renewed and self._renew_metadata is not None:
            self._metadata_renewed.add(returning[1])
            self._renew_metadata(returning[0])

    def _put(self, routes: Mapping[str, Route | None]) -> None:
        """Put routes of topics in force."""
        self._own |= routes
        names = self._names.through(routes)
        for name in names:
            chain = self._names.chain(name)
            if len(chain) > 1 and chain[-1].topic == name and (new_topic := chain[-2].replaced_by) is not None:
                self._back[name] = self._passing(chain[-1], tuple(range(new_topic.partition_count)))
            else:
                self._back.pop(name, None)
        for name in names:
            self._enter(name)

    def _passing(self, view: TopicView, writable: tuple[int, ...]) -> Route:
        return Route(view, writable, dense=True, partitioner=picks_of(self._picker, view.topic), passes=True)

    def _enter(self, name: str) -> None:
        """Put the route of ``name`` into the table (under the lock)."""
        self._routes[name] = self._by_name(name)

    def _by_name(self, name: str) -> Route | None:
        """Return the route of a name, which may point to another topic."""
        chain = self._names.chain(name)
        if not chain:
            return self._own.get(name)
        last = chain[-1]
        route = self.of(last.topic)
        if route is None or (route.view.is_replaced and not route.view.applies_to(last.topic_id)):
            route = self._passing(last, last.writable)
        if last.topic != name:
            new_topic = chain[-2].replaced_by
            assert new_topic is not None, "the name points to the last topic"
            count = max(len(route.view.modes), new_topic.partition_count)
            first_keys = (*self._resizes.first_keys_of(name), *route.first_keys)
            route = replace(route, name=name, count=count, first_keys=first_keys)
        return route

    def _point(self) -> None:
        """React to changed routes (under the lock); for subclasses."""

    def _lighten(self, topic: str) -> None:
        """Leave out of the routes for ``topic`` the calls that are no longer required, because a key was seen."""
        with self._lock:
            route = self.of(topic)
            if route is not None and not route.open:
                self._put({topic: replace(route, first_keys=self._resizes.first_keys(topic))})
            self._enter(topic)

    def of(self, topic: str) -> Route | None:
        """Return the topic's own route, or None if every partition is writable. After a rename back, it is the route of
        the topic that has the name now."""
        return self._back.get(topic) or self._own.get(topic)

    def points_to(self, name: str) -> str:
        """Return the topic to which records under ``name`` go."""
        return self._names.points_to(name)

    def unverified(self, name: str) -> list[tuple[str, str | None]]:
        """Return the topics on which a record under ``name`` depends, each with its id. Ids that have been compared
        with the cluster's are left out. Aliases are left out, too: only the log decides where an alias
        points, whichever topic is created under its name."""
        own = self.of(self._names.points_to(name))
        chain = self._names.chain(name)
        views = [] if own is None else [own.view]
        for view in chain if own is None else chain[:-1]:
            views += [] if view.is_alias else [view]
        ids = [(view.topic, view.topic_id) for view in views if view.topic_id is not None]
        return [(topic, topic_id) for topic, topic_id in ids if self._verified.get(topic) != topic_id]

    def observe_key(self, name: str, key: bytes) -> None:
        """Note the key of a record under ``name`` that another partitioner has placed."""
        route: Route | None = self._routes.get(name)
        if route is not None:
            route.sees(key)

    def refuse_retired(self, topic: str, partition: int) -> None:
        """Refuse a partition that takes no records.

        Raises:
            PartitionRetired: see :meth:`Route.refusal`.
        """
        route = self.of(topic)
        if route is not None:
            route.refuse_retired(partition, self._errors.retired)

    @property
    def routed_topics(self) -> int:
        """The number of topics with retired partitions."""
        return sum(route is not None for route in list(self._own.values()))

    def stats(self) -> dict[str, Any]:
        """Return a producer's ``modeaware_stats()``. ``replaced`` maps each name that points to another topic to that
        topic."""
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
