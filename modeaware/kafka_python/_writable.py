"""A kafka-python partitioner that is shown the writable partitions only."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from modeaware.config import ClientConfig
from modeaware.kafka_python import _gateway
from modeaware.kafka_python.errors import HeldKeyError, MovedKeyError, RetiredPartitionError
from modeaware.resize import Backlog, Guarding, Watching
from modeaware.routing import Route, route_for
from modeaware.topic_view import TopicView
from modeaware.views.resizes import Resizes, lightened
from partitioners import Partitioner, named


class Routes:
    """The routes of one producer's topics: a listener of views. One thread at a time applies them, any may look.

    Args:
        config: our settings: what to do about resizes.
        partitioner: the producer's, if it is one of :mod:`partitioners`; any other is taken to place records with a
            key by murmur2, as kafka-python's do.
        backlog: tells what the producer has queued for a topic now; None: nothing, ever.

    Attributes:
        known: set when the first views are followed.
        changes: how often views came.
    """

    def __init__(
        self,
        config: ClientConfig,
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
            held=HeldKeyError,
            refused=MovedKeyError,
        )
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
            HeldKeyError, MovedKeyError: it has to stay out.
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
            RetiredPartitionError: ``partition`` takes no records.
        """
        route = self.of(topic)
        refusal = None if route is None else route.refusal(partition)
        if refusal is not None:
            raise RetiredPartitionError(refusal, topic=topic, partition=partition)


class WritablePartitioner(_gateway.Partitioner):  # type: ignore[misc,unused-ignore]  # untyped
    """Has another partitioner choose among the writable partitions.

    That one sees a ``ClusterMetadata`` in which all partitions of the topic are the writable ones, and the available
    ones those of them that have a leader. So kafka-python's own, which hash to ``all[murmur2 % len(all)]``, send a key
    to ``writable[murmur2 % len(writable)]``, whichever leaders come or go and however old their metadata is.

    Attributes:
        inner: the application's partitioner, of either form that kafka-python takes.
    """

    def __init__(self, inner: Any, routes: Routes) -> None:
        self.inner = inner
        self._routes = routes

    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: Any,
    ) -> Any:
        """As ``kafka.partitioner.Partitioner.partition``.

        Raises:
            RetiredPartitionError: no partition of the topic is writable.
        """
        return self._pick(topic, key, serialized_key, value, serialized_value, self._shown(topic, cluster))

    def pick_over(
        self,
        count: int,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: Any,
    ) -> Any:
        """What is picked where the first ``count`` partitions are all there is."""
        seen = WritablePart(cluster, topic, tuple(range(count)))
        return self._pick(topic, key, serialized_key, value, serialized_value, seen)

    def _pick(
        self, topic: str, key: Any, serialized_key: bytes | None, value: Any, serialized_value: bytes | None, seen: Any
    ) -> Any:
        if isinstance(self.inner, _gateway.Partitioner):
            return self.inner.partition(topic, key, serialized_key, value, serialized_value, seen)
        warnings.warn("partitioner does not implement kafka.partitioner.Partitioner", DeprecationWarning, stacklevel=4)
        return self.inner.partition(topic, serialized_key, seen)

    def on_new_batch(self, topic: str, cluster: Any, prev_partition: int) -> None:
        """As ``StickyPartitioner.on_new_batch``; passed on to partitioners that have it."""
        hook = getattr(self.inner, "on_new_batch", None)
        if hook is not None:
            hook(topic, self._shown(topic, cluster), prev_partition)

    def _shown(self, topic: str, cluster: Any) -> Any:
        route = self._routes.of(topic)
        if route is None:
            return cluster
        if not route.writable:
            self._routes.refuse_retired(topic, 0)
        return WritablePart(cluster, topic, route.writable)


class WritablePart:
    """kafka-python's ``ClusterMetadata``, with the writable partitions of one topic for all of it."""

    def __init__(self, cluster: Any, topic: str, writable: tuple[int, ...]) -> None:
        self._cluster = cluster
        self._topic = topic
        self._writable = writable

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        # The view's list also where the cluster's metadata is older: all producers must hash over the same.
        if topic != self._topic:
            return self._cluster.partitions_for_topic(topic)  # type: ignore[no-any-return]  # as kafka-python's
        return set(self._writable)

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        available = self._cluster.available_partitions_for_topic(topic)
        if topic != self._topic or available is None:
            return available  # type: ignore[no-any-return]  # as kafka-python's
        return set(available).intersection(self._writable)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)
