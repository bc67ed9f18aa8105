"""Partitioners in the forms that kafka-python and aiokafka call.

>>> KafkaProducer(partitioner=for_kafka_python(named("minimal_movement")), ...)     # doctest: +SKIP
>>> AIOKafkaProducer(partitioner=for_aiokafka(named("minimal_movement")), ...)      # doctest: +SKIP
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from typing import Any, Final, Protocol

from partitioners.seam import BatchAware, LoadAware, Partitioner, TopicPartitioner

_ABSENT: Final[Any] = object()


class Cluster(Protocol):
    """What is used of kafka-python's ``ClusterMetadata``."""

    def partitions_for_topic(self, topic: str) -> Collection[int] | None:
        """All partitions; None where the topic is not known."""
        ...

    def available_partitions_for_topic(self, topic: str) -> Collection[int] | None:
        """Those that have a leader; None where the topic is not known."""
        ...


class _Topic:
    """The partitioner of a topic, and what it is besides: to ask that of a protocol for each record would be slow."""

    __slots__ = ("batch_aware", "load_aware", "own")

    def __init__(self, own: TopicPartitioner) -> None:
        self.own = own
        self.batch_aware = own if isinstance(own, BatchAware) else None
        self.load_aware = own if isinstance(own, LoadAware) else None


class CallForm:
    """A partitioner as a function of key, all and available partitions: aiokafka's form, and older kafka-python's.

    Safe to use from several threads. That form names no topic, so what sticks, sticks for all topics of the producer:
    use one for each producer.
    """

    def __init__(self, partitioner: Partitioner) -> None:
        self._anonymous = partitioner.for_topic("")

    def __call__(self, key: bytes | None, all_partitions: Collection[int], available: Collection[int]) -> int:
        """The partition for a record.

        Args:
            key: as it is sent; None for a record without one.
            all_partitions: the topic's partitions, in any order: aiokafka lists a set.
            available: those that have a leader, in any order.
        """
        candidates = _candidates(self._anonymous, key, all_partitions, available)
        return candidates[self._anonymous.partition(key, len(candidates))]


class ClusterForm(CallForm):
    """The methods of kafka-python's ``Partitioner``, without its base class; see :func:`for_kafka_python`."""

    def __init__(self, partitioner: Partitioner) -> None:
        super().__init__(partitioner)
        self._partitioner = partitioner
        self._topics: dict[str, _Topic] = {}
        self._again = threading.local()

    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: Any,
        value: Any = _ABSENT,
        serialized_value: bytes | None = None,
        cluster: Any = None,
    ) -> int:
        """The partition for a record: ``partition(topic, key, serialized_key, value, serialized_value, cluster)``, or
        as older releases call it, ``partition(topic, serialized_key, cluster)``.

        Raises:
            ValueError: the cluster's metadata have no such topic.
        """
        if value is _ABSENT:
            return self._pick(topic, key, None, serialized_key)
        return self._pick(topic, serialized_key, len(serialized_key or b"") + len(serialized_value or b""), cluster)

    def on_new_batch(self, topic: str, cluster: Cluster, prev_partition: int) -> None:
        """A record without a key would begin a new batch for ``prev_partition``; the caller picks for it again."""
        found = self._for_topic(topic)
        if found.batch_aware is None:
            # Without this a round robin would skip a partition with each new batch (KAFKA-9965).
            self._again.pick = (topic, prev_partition)
            return
        candidates = _candidates_in(found.own, None, topic, cluster)
        if prev_partition in candidates:
            found.batch_aware.on_new_batch(candidates.index(prev_partition))

    def _for_topic(self, topic: str) -> _Topic:
        found = self._topics.get(topic)
        # setdefault is one step: threads that race get the same one.
        return self._topics.setdefault(topic, _Topic(self._partitioner.for_topic(topic))) if found is None else found

    def _pick(self, topic: str, key: bytes | None, size: int | None, cluster: Cluster) -> int:
        found = self._for_topic(topic)
        candidates = _candidates_in(found.own, key, topic, cluster)
        if key is None:
            again, self._again.pick = getattr(self._again, "pick", None), None
            if again is not None and again[0] == topic and again[1] in candidates:
                return int(again[1])
        count = len(candidates)
        if size is not None and found.load_aware is not None:
            return candidates[found.load_aware.partition_by_load(key, count, size)]
        return candidates[found.own.partition(key, count)]


def for_kafka_python(partitioner: Partitioner) -> Any:
    """``partitioner`` for plain kafka-python: an instance of its ``kafka.partitioner.Partitioner``.

    It serves the six-argument ``partition`` of kafka-python 3 and its ``on_new_batch``, the three-argument one, and the
    call form of older releases. Records without a key go to available partitions, where there are any; hashed ones go
    by all of them. What queues hold is not known there, so ``uniform_sticky`` draws uniformly. Use one for each
    producer. Safe to use from several threads.

    Raises:
        ModuleNotFoundError: kafka-python is not installed.
    """
    from kafka.partitioner import Partitioner as KafkaPartitioner

    class KafkaPythonForm(ClusterForm, KafkaPartitioner):  # type: ignore[misc] # kafka-python has no types
        """Both: the methods are ours."""

    return KafkaPythonForm(partitioner)


def for_aiokafka(partitioner: Partitioner) -> CallForm:
    """``partitioner`` for plain aiokafka; see :class:`CallForm`. Needs neither aiokafka nor kafka-python."""
    return CallForm(partitioner)


def _candidates_in(own: TopicPartitioner, key: bytes | None, topic: str, cluster: Cluster) -> Sequence[int]:
    partitions = cluster.partitions_for_topic(topic)
    if not partitions:
        raise ValueError(f"topic {topic} is not in the cluster's metadata")
    return _candidates(own, key, partitions, cluster.available_partitions_for_topic(topic))


def _candidates(
    own: TopicPartitioner, key: bytes | None, partitions: Collection[int], available: Collection[int] | None
) -> Sequence[int]:
    return sorted(partitions if own.requires_consistency(key) or not available else available)
