"""The routes of a producer whose own partitioner goes on choosing: kafka-python's and aiokafka's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

from modeaware.config import ClientConfig
from modeaware.errors import KeyHeld, KeyMoved, PartitionRetired
from modeaware.resize import Backlog, Guarding, Watching
from modeaware.routing import Route, route_for
from modeaware.tally import SENDS_REFUSED, TALLY
from modeaware.topic_view import TopicView
from modeaware.views.resizes import Resizes, lightened
from modeaware.views.source import VERIFY_TIMEOUT_S, Views
from partitioners import Partitioner, named


class RouteErrors(NamedTuple):
    """A client's own forms of what a route raises."""

    retired: type[PartitionRetired] = PartitionRetired
    held: type[KeyHeld] = KeyHeld
    moved: type[KeyMoved] = KeyMoved


class Routes:
    """The routes of one producer's topics: a listener of views. One thread at a time applies them, any may look.

    Args:
        config: our settings: what to do about resizes.
        errors: what is raised.
        partitioner: the producer's, if it is one of :mod:`partitioners`; any other is taken to place records with a
            key by murmur2, as kafka-python's and aiokafka's do.
        backlog: tells what the producer has queued for a topic now; None: nothing, ever.

    Attributes:
        known: set when the first views are followed.
        changes: how often views came.
    """

    def __init__(
        self,
        config: ClientConfig,
        errors: RouteErrors,
        partitioner: Partitioner | None = None,
        backlog: Callable[[str], Backlog] | None = None,
    ) -> None:
        self._routes: dict[str, Route | None] = {}
        # Does not pick: says which records keep to a partition by their key, and what share of the keys moves.
        self._picker = named("murmur2_random") if partitioner is None else partitioner
        self._resizes = Resizes(
            config.on_resize,
            self._picker,
            config.resize_callback,
            self._noticed,
            backlog=backlog,
            held=errors.held,
            refused=errors.moved,
        )
        self._retired = errors.retired
        self._lock = threading.Lock()
        self.known = threading.Event()
        self.changes = 0

    def __call__(self, changed: Mapping[str, TopicView]) -> None:
        with self._lock:
            for topic, view in changed.items():
                route = route_for(view, self._picker)
                self._routes[topic] = self._resizes.adjusted(view, route, first=not self.known.is_set())
            self.changes += 1
            self.known.set()
            due = self._resizes.take_due()
        self._resizes.tell(due)

    @property
    def resizes(self) -> int:
        """How many resizes of topics with keys were told of."""
        return self._resizes.count

    def look_at_key(self, topic: str, key: bytes, chosen: int, before: Callable[[int], int]) -> None:
        """A record with a key is about to be queued in ``chosen``.

        Args:
            key: as it is sent.
            before: where the key was, when that many partitions were writable.

        Raises:
            KeyHeld, KeyMoved: it has to stay out.
        """
        route = self.of(topic)
        if route is None or route.open or not route.partitioner.requires_consistency(key):
            return
        looking = route.partitioner
        if isinstance(looking, Watching):
            looking.notice()
            looking = looking.inner
        if isinstance(looking, Guarding):
            looking.judge(before, chosen)

    def _noticed(self, topic: str) -> None:
        with self._lock:
            route = self._routes.get(topic)
            if route is not None and not route.open:
                self._routes[topic] = lightened(route)

    def of(self, topic: str) -> Route | None:
        """The route in force; None where every partition is writable."""
        return self._routes.get(topic)

    @property
    def routed_topics(self) -> int:
        """How many topics have retired partitions."""
        return sum(route is not None for route in list(self._routes.values()))

    def refuse_retired(self, topic: str, partition: int) -> None:
        """
        Raises:
            PartitionRetired: ``partition`` takes no records.
        """
        route = self.of(topic)
        refusal = None if route is None else route.refusal(partition)
        if refusal is not None:
            TALLY.add(SENDS_REFUSED)
            raise self._retired(refusal, topic=topic, partition=partition)


class VerifiedRoutes:
    """Has each route verified before its first record, and again when the client's metadata has changed.

    A topic that was deleted and created again under its name takes the first record by its own partitions, not by the
    modes of the old topic. Thread-safe.

    Args:
        timeout_s: how long a call of :meth:`check` may take.
    """

    def __init__(self, views: Views, routes: Routes, timeout_s: float) -> None:
        self._views = views
        self._routes = routes
        self._timeout_s = min(timeout_s, VERIFY_TIMEOUT_S)
        self._verified: dict[str, Route | None] = {}

    def has(self, topic: str) -> bool:
        """Whether the route in force of ``topic`` is verified."""
        route = self._routes.of(topic)
        return route is None or self._verified.get(topic) is route

    def check(self, topic: str) -> None:
        """Have the view of ``topic`` verified, unless its route is (invariant I8); see ``Views.verify``."""
        if not self.has(topic):
            self.verify(topic)
            self.mark(topic)

    def verify(self, topic: str) -> None:
        """The first half of :meth:`check`, which may block."""
        self._views.verify([topic], self._timeout_s)

    def mark(self, topic: str) -> None:
        """The second half: the route in force is verified. Not before the view that was found is followed."""
        self._verified[topic] = self._routes.of(topic)

    def metadata_changed(self, _: object = None) -> None:
        """The client's metadata has changed: verify again."""
        self._verified.clear()
