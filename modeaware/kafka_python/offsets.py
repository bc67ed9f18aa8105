"""Offsets that kafka-python requests from brokers for a consumer, and the parts of kafka-python's consumer.

Only the polling thread may use this module.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from modeaware.callouts import get_logger
from modeaware.clients.actions import Committed
from modeaware.clients.starts import Key
from modeaware.kafka_python._gateway import KafkaError, KafkaTimeoutError, OffsetAndMetadata, TopicPartition

log = get_logger(__name__)

Partition = Any
"""kafka-python's TopicPartition: a tuple of topic and partition."""
Offsets = dict[Partition, int]

LEAST_LISTING_MS = 1000
"""The shortest time for a request for offsets, even in a shorter poll: the next poll would start the request again."""
MOST_LISTING_MS = 5000
"""The longest time for such a request: a silent broker must not delay the partitions of other brokers."""
METADATA_END = "\0"
"""Ends the metadata of our commits, as librdkafka does. Without it, members of the group that use confluent_kafka would
read beyond the end of the metadata, and fail if the bytes there are not text."""


class Parts(NamedTuple):
    """Parts of a kafka-python consumer; they do not keep the consumer alive."""

    coordinator: Any
    subscription: Any
    fetcher: Any
    cluster: Any
    net: Any


def partitions_of(keys: Iterable[Key]) -> set[Partition]:
    return {TopicPartition(*key) for key in keys}


def to_commit(at: Committed) -> Any:
    """Return a commit in kafka-python's form."""
    return OffsetAndMetadata(at.offset, at.metadata and at.metadata.rstrip(METADATA_END) + METADATA_END, -1)


def as_committed(at: Any) -> Committed:
    """Return a commit from kafka-python's form."""
    return Committed(at.offset, (at.metadata or "").rstrip(METADATA_END))


class KafkaPythonOffsets:
    """Offsets that kafka-python requests from brokers (:class:`~modeaware.clients.starts.BrokerOffsets`), within a poll
    of ``timeout_ms``. When this time is over, ``committed`` raises KafkaTimeoutError."""

    def __init__(self, parts: Parts, timeout_ms: float | None) -> None:
        self._parts = parts
        self._timeout_ms = timeout_ms

    def committed(self, keys: Collection[Key]) -> dict[Key, Committed | None]:
        partitions = partitions_of(keys)
        answer = self._parts.coordinator.fetch_committed_offsets(partitions, timeout_ms=self._timeout_ms)
        return {key: as_committed(answer[key]) if key in answer else None for key in keys}

    def committed_now(self, keys: Collection[Key]) -> dict[Key, Committed | None]:
        """Return the group's present commits, metadata included, by a new request. kafka-python keeps a request that
        was not answered in time, and would take the late answer for the answer to the next request."""
        self._parts.coordinator._offset_fetch_futures.pop(frozenset(partitions_of(keys)), None)
        return self.committed(keys)

    def committed_elsewhere(self, keys: Collection[Key]) -> dict[Key, int | None]:
        try:
            return {key: None if at is None else at.offset for key, at in self.committed(keys).items()}
        except KafkaTimeoutError:
            raise
        except KafkaError as error:
            log.warning("committed offsets of earlier topics unknown: %s", error)
            return {}

    def log_starts(self, keys: Collection[Key]) -> Offsets:
        return self._by_leader(self._parts.fetcher.beginning_offsets, keys)

    def log_starts_by_topic(self, keys: Collection[Key]) -> Offsets:
        """Return :meth:`log_starts`, with one request per topic, because the user may lack the right to one topic."""
        starts: Offsets = {}
        for topic in sorted({topic for topic, _ in keys}):
            try:
                starts |= self.log_starts([key for key in keys if key[0] == topic])
            except KafkaError as error:
                log.warning("%s: not read yet, because its log starts are unknown: %s", topic, error)
        return starts

    def log_ends(self, keys: Collection[Key]) -> Offsets:
        return self._by_leader(self._parts.fetcher.end_offsets, keys)

    def _by_leader(self, request: Callable[[list[Partition], float], Offsets], keys: Collection[Key]) -> Offsets:
        """Send one request per leader, so that a missing broker does not delay the partitions of other brokers."""
        timeout_ms = MOST_LISTING_MS if self._timeout_ms is None else self._timeout_ms
        timeout_ms = min(max(timeout_ms, LEAST_LISTING_MS), MOST_LISTING_MS)
        leaders: dict[Any, list[Partition]] = defaultdict(list)
        for partition in partitions_of(keys):
            leaders[self._parts.cluster.leader_for_partition(partition)].append(partition)
        offsets: Offsets = {}
        for leader, led in leaders.items():
            if leader in (None, -1):
                continue
            try:
                offsets.update(request(led, timeout_ms))
            except KafkaTimeoutError as error:
                log.debug("start offsets of %s unknown: %s", led, error)
        return offsets
