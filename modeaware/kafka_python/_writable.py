"""A kafka-python partitioner that is shown the writable partitions only."""

from __future__ import annotations

import warnings
from typing import Any

from modeaware.kafka_python import _gateway
from modeaware.views.routes import Routes


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
