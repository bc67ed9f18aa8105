"""Points a producer's ``produce`` and ``produce_batch`` at what the views in force ask for."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from types import BuiltinFunctionType
from typing import Any

from modeaware.config import ClientConfig
from modeaware.confluent import _routed
from modeaware.confluent._every_topic import EveryTopic, Load, PartitionCount
from modeaware.confluent._routed import Unverified
from modeaware.confluent._switch import Switch, Target
from modeaware.confluent.errors import FirstViewPending, FirstViewTimeout, MovedKeyRefused
from modeaware.resize import Backlog
from modeaware.routing import Route, route_for
from modeaware.topic_view import TopicView
from modeaware.views.resizes import Resizes, lightened
from modeaware.views.source import MAX_ID_AGE_S, VERIFY_TIMEOUT_S
from partitioners import HashPartitioner, Partitioner

logger = logging.getLogger(__name__)

DOUBT_AGE_S = 0.05
"""How old an answer about a topic id may be after librdkafka has refused a record for a partition that is not there."""


class Router:
    """The routes of one producer, and the switches its methods go through.

    One thread at a time applies views (the source's); any number call ``produce.call`` meanwhile. A call uses the route
    in force when it looks the topic up, and nothing of it is decided again later (invariant I7).

    Args:
        produce: the next ``produce`` after ours: librdkafka's own bound C method, or a Python function patched over it.
        produce_batch: likewise.
        partitioner: what the producer's configuration asks for.
        config: our settings.
        count: how many partitions a topic has; for a partitioner that librdkafka does not have, which therefore picks
            even where nothing is retired.
        failure: why the source of the views cannot be read now, for messages.
        backlog: begins to follow what the producer has queued for a topic; None: it has nothing queued, ever.
        load: see :class:`~modeaware.routing.Route`.
        verify: ``Views.verify``; None: views hold for whatever topic has the name.
    """

    def __init__(
        self,
        produce: Target,
        produce_batch: Target,
        partitioner: Partitioner,
        config: ClientConfig,
        failure: Callable[[], Exception | None],
        count: PartitionCount | None = None,
        backlog: Callable[[str], Backlog] | None = None,
        load: Load | None = None,
        verify: Callable[[Collection[str], float, float], Collection[str]] | None = None,
    ) -> None:
        self._routes: dict[str, Route | Unverified | None] = {}
        self._verify = verify
        self._verified: dict[str, str | None] = {}
        self._unanswered_since_s: dict[str, float] = {}
        if count is not None:
            self._routes = EveryTopic(partitioner, count, config.refresh_interval_ms / 1000, load)
        self._load = load
        self._counts: dict[str, int] = {}
        self._partitioner = partitioner
        self._resizes = Resizes(
            config.on_resize,
            partitioner,
            config.resize_callback,
            self._shorten,
            backlog=backlog,
            refused=MovedKeyRefused,
        )
        self._config = config
        self._failure = failure
        self._known = threading.Event()
        self._closed = False
        self._lock = threading.RLock()
        self._deadline_s: float | None = None
        self.changes = 0
        self._first = (self._first_produce, self._first_produce_batch)
        self._stock = (produce, produce_batch)
        self._routed = (self._make_routed(produce), _routed.produce_batch(produce_batch, self._routes, self._doubt))
        self._direct = self._stock if count is None else self._routed
        self.produce = Switch(self._first[0])
        self.produce_batch = Switch(self._first[1])

    def _make_routed(self, produce: Target) -> Target:
        partitioner = self._partitioner
        hash_function = partitioner.hash_function if isinstance(partitioner, HashPartitioner) else None
        if isinstance(produce, BuiltinFunctionType) and hash_function is not None:
            return _routed.fast_produce(produce, self._routes, self._counts, hash_function, self._doubt)
        return _routed.faithful_produce(produce, self._routes, self._doubt)

    def apply(self, changed: Mapping[str, TopicView]) -> None:
        """Follow the views that changed; the first call says that views are known now."""
        with self._lock:
            if self._closed:
                return
            for topic, view in changed.items():
                route = route_for(view, self._partitioner)
                self._put(topic, self._resizes.adjusted(view, route, first=not self._known.is_set()))
            self.changes += 1
            self._point(self._routed if any(self._routes.values()) else self._direct)
            self._known.set()
            due = self._resizes.take_due()
        self._resizes.tell(due)

    def _put(self, topic: str, route: Route | None) -> None:
        # In this order no call in between takes an old count for a new route: 0 leads to the route.
        self._counts[topic] = 0
        if route is not None and self._load is not None:
            route = replace(route, load=self._load)
        if route is None or self._is_verified(route.view):
            self._routes[topic] = route
            self._counts[topic] = _routed.hashed_count(route)
        else:
            self._routes[topic] = Unverified(route, partial(self._settle, topic))

    def _is_verified(self, view: TopicView) -> bool:
        return self._verify is None or view.topic_id is None or self._verified.get(view.topic) == view.topic_id

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
                    f"{topic}: no broker has returned its topic id yet, which shows whether the partition modes apply; "
                    "nothing was queued, try again"
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
        """Returns the topic, where no broker has answered."""
        if self._verify is None or self._closed:
            return ()
        return self._verify((topic,), timeout_s, max_age_s)  # without the lock: it calls this router with what changed

    def _shorten(self, topic: str) -> None:
        """Something has no longer to see every key of ``topic``: its resize is told of, or nothing is held any more."""
        with self._lock:
            entry = self._routes.get(topic)
            route = entry.route if isinstance(entry, Unverified) else entry
            if route is not None and not route.open:
                self._put(topic, lightened(route))

    def close(self) -> None:
        """Point at librdkafka's own methods for good: the producer is closed, and they say so. Whoever waits goes
        on."""
        with self._lock:
            self._closed = True
            self._point(self._stock)
            self._known.set()

    def _point(self, targets: tuple[Target, Target]) -> None:
        self.produce.point_to(targets[0])
        self.produce_batch.point_to(targets[1])

    @property
    def routed_topics(self) -> int:
        """How many topics have retired partitions."""
        return sum(route is not None for route in self._routes.values())

    @property
    def resizes(self) -> int:
        """How many resizes of topics with keys were told of."""
        return self._resizes.count

    @property
    def state(self) -> str:
        """``waiting`` for the first view, ``direct`` (librdkafka's own methods), or ``routed``."""
        if not self._known.is_set():
            return "waiting"
        return "direct" if self.produce.target is self._stock[0] else "routed"

    def _first_produce(self, *args: Any, **kwargs: Any) -> Any:
        self._await_view()
        return self.produce.target(*args, **kwargs)

    def _first_produce_batch(self, *args: Any, **kwargs: Any) -> Any:
        self._await_view()
        return self.produce_batch.target(*args, **kwargs)

    def _await_view(self) -> None:
        """Wait for the first view, to one deadline for all sends, and point elsewhere; or raise as ``on_unknown``
        says."""
        timeout_s = self._config.view_timeout_ms / 1000
        with self._lock:
            if self._deadline_s is None:
                self._deadline_s = time.monotonic() + timeout_s
            left_s = self._deadline_s - time.monotonic()
        if self._known.wait(max(left_s, 0.0)):
            return
        failure = self._failure()
        message = (
            f"no view of the partition modes within {self._config.view_timeout_ms} ms (modeaware.view.timeout.ms): "
            f"{failure or 'the mode log was not read to its end yet'}"
        )
        if self._config.on_unknown == "block":
            raise FirstViewPending(f"{message}; nothing was queued, try again")
        if self._config.on_unknown == "error":
            raise FirstViewTimeout(f"{message}; nothing was queued")
        logger.warning("%s; every partition is taken as ReadWrite until there is one", message)
        with self._lock:
            if not self._known.is_set():
                self._point(self._direct)


class Listener:
    """Hands views to a router without keeping it, or its producer, alive."""

    def __init__(self, router: Router) -> None:
        self._router = weakref.ref(router)

    def __call__(self, changed: Mapping[str, TopicView]) -> None:
        router = self._router()
        if router is not None:
            router.apply(changed)
