"""Partitioners as objects that plain kafka-python can call (each release calls a partitioner in its own way).

>>> KafkaProducer(partitioner=for_kafka_python(named("minimal_movement")), ...)     # doctest: +SKIP
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from typing import Any, Final, Protocol

from partitioners.seam import BatchAware, LoadAware, Partitioner, TopicPartitioner, checked_index

_ABSENT: Final[Any] = object()
_Topic = tuple[TopicPartitioner, BatchAware | None, LoadAware | None]


class Cluster(Protocol):
    """The methods of kafka-python's ``ClusterMetadata`` called here; both return None for an unknown topic."""

    def partitions_for_topic(self, topic: str) -> Collection[int] | None: ...

    def available_partitions_for_topic(self, topic: str) -> Collection[int] | None: ...


class ClusterForm:
    """The methods of kafka-python's ``Partitioner``, without that base class; see :func:`for_kafka_python`."""

    def __init__(self, partitioner: Partitioner) -> None:
        self._partitioner = partitioner
        self._anonymous = partitioner.for_topic("")
        self._topics: dict[str, _Topic] = {}
        self._again = threading.local()

    def __call__(self, key: bytes | None, all_partitions: Collection[int], available: Collection[int]) -> int:
        """Return the partition for a record; ``available`` are the partitions that have a leader, in any order.

        Older releases of kafka-python call a partitioner in this way. The call names no topic, so a sticky pick applies
        to all topics of the producer.
        """
        candidates = _candidates(self._anonymous, key, all_partitions, available)
        count = len(candidates)
        return candidates[checked_index(self._anonymous.partition(key, count), count, "of the producer")]

    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: Any,
        value: Any = _ABSENT,
        serialized_value: bytes | None = None,
        cluster: Any = None,
    ) -> int:
        """Return the partition for a record. Raise ValueError if the cluster's metadata does not contain the topic.

        Older releases of kafka-python call this method as ``partition(topic, serialized_key, cluster)``.
        """
        if value is _ABSENT:
            return self._pick(topic, key, None, serialized_key)
        return self._pick(topic, serialized_key, len(serialized_key or b"") + len(serialized_value or b""), cluster)

    def on_new_batch(self, topic: str, cluster: Cluster, prev_partition: int) -> None:
        """Let a sticky partitioner leave ``prev_partition``. kafka-python calls this before a record without a key
        begins a batch there, and then calls :meth:`partition` for the record again."""
        own, batch_aware, _ = self._for_topic(topic)
        if batch_aware is None:
            # The second call has to return the same partition: else a round robin would skip one with each new batch
            # (KAFKA-9965).
            self._again.pick = (topic, prev_partition)
            return
        candidates = _candidates_in(own, None, topic, cluster)
        if prev_partition in candidates:
            batch_aware.on_new_batch(candidates.index(prev_partition))

    def _for_topic(self, topic: str) -> _Topic:
        forms = self._topics.get(topic)
        if forms is None:
            own = self._partitioner.for_topic(topic)
            # Once per topic, not per record: isinstance() with a protocol is slow.
            made = own, own if isinstance(own, BatchAware) else None, own if isinstance(own, LoadAware) else None
            forms = self._topics.setdefault(topic, made)  # one step: racing threads get the same forms
        return forms

    def _pick(self, topic: str, key: bytes | None, size: int | None, cluster: Cluster) -> int:
        own, _, load_aware = self._for_topic(topic)
        candidates = _candidates_in(own, key, topic, cluster)
        if key is None:
            again, self._again.pick = getattr(self._again, "pick", None), None
            if again is not None and again[0] == topic and again[1] in candidates:
                return int(again[1])
        count = len(candidates)
        if size is not None and load_aware is not None:
            return candidates[checked_index(load_aware.partition_by_load(key, count, size), count, f"of {topic}")]
        return candidates[checked_index(own.partition(key, count), count, f"of {topic}")]


def for_kafka_python(partitioner: Partitioner) -> Any:
    """Return ``partitioner`` for plain kafka-python: an instance of its ``kafka.partitioner.Partitioner``.

    The instance also has the call forms of other releases (:class:`ClusterForm`). A record without a key goes to a
    partition that has a leader, if there is one. A hashed key keeps its partition even without a leader. The load is
    unknown here, so a partitioner that follows the load draws uniformly. Use one instance for each producer. Safe to
    use from several threads. Needs kafka-python.
    """
    from kafka.partitioner import Partitioner as KafkaPartitioner

    class KafkaPythonForm(ClusterForm, KafkaPartitioner):  # type: ignore[misc] # kafka-python has no types
        """ClusterForm as a subclass of kafka-python's Partitioner."""

    return KafkaPythonForm(partitioner)


def _candidates_in(own: TopicPartitioner, key: bytes | None, topic: str, cluster: Cluster) -> Sequence[int]:
    partitions = cluster.partitions_for_topic(topic)
    if not partitions:
        raise ValueError(f"{topic}: not in the cluster's metadata")
    return _candidates(own, key, partitions, cluster.available_partitions_for_topic(topic))


def _candidates(
    own: TopicPartitioner, key: bytes | None, partitions: Collection[int], available: Collection[int] | None
) -> Sequence[int]:
    return sorted(partitions if own.requires_consistency(key) or not available else available)
