"""The gates of a kafka-python consumer: what :mod:`modeaware.clients.gates` needs of kafka-python.

kafka-python commits positions, of partitions that are paused as well, and within a poll only: what it commits the
application has handled. Hence :class:`~modeaware.kafka_python.partitions.Partitions` leaves out what is behind a shut
gate, whose commit would open the gate for the group, and notes at the end of a topic that is replaced that its last
record is handled. A consumer without a group is its own group: what it has read is what is committed.

All of it is for the polling thread.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from modeaware.callouts import get_logger
from modeaware.clients.gates import ANSWER_S, Committed
from modeaware.clients.starts import Key, Starts
from modeaware.kafka_python._gateway import KafkaError, OffsetAndMetadata, TopicPartition
from modeaware.kafka_python.partitions import METADATA_END, KafkaPythonOffsets

log = get_logger(__name__)

ANSWER_MS = 1000 * ANSWER_S


class _Offsets(KafkaPythonOffsets):
    """Leaves out what the coordinator does not answer in time: it is requested again."""

    def committed(self, keys: Collection[Key]) -> dict[Key, int | None]:
        try:
            return super().committed(keys)
        except KafkaError as error:
            log.debug("committed offsets not known: %s", error)
            return {}


class KafkaPythonGroup:
    """:class:`~modeaware.clients.gates.GroupClient` by kafka-python.

    Args:
        consumer: is not kept alive.
        has_group: whether offsets are committed, for a group.
    """

    def __init__(self, consumer: Any, starts: Starts, *, has_group: bool) -> None:
        self._calling = weakref.ref(consumer)
        self._starts = starts
        self._has_group = has_group

    @property
    def _consumer(self) -> Any:
        return self._calling()

    @property
    def offsets(self) -> KafkaPythonOffsets:
        return _Offsets(self._consumer, ANSWER_MS)

    def is_polling(self) -> bool:
        return False  # the gates are looked at between records, when the application has asked for more

    def positions(self, keys: Collection[Key]) -> dict[Key, int | None]:
        found = self._offsets_of(keys)
        return {key: None if at == self._starts.start_of(key) else at for key, at in found.items()}

    def _offsets_of(self, keys: Collection[Key]) -> dict[Key, int | None]:
        subscription = self._consumer._subscription
        assigned = subscription.assigned_partitions()
        places = {key: subscription.position(TopicPartition(*key)) for key in keys if key in assigned}
        return {key: None if place is None else place.offset for key, place in places.items()}

    def committed(self, keys: Collection[Key], *, after_own: bool = False) -> dict[Key, Committed | None]:
        if not self._has_group:
            read = self._offsets_of(self._consumer._partitions.held().intersection(keys))
            return {key: None if (at := read.get(key)) is None else Committed(at) for key in keys}
        coordinator = self._consumer._coordinator
        try:
            answer = coordinator.fetch_committed_offsets({TopicPartition(*key) for key in keys}, timeout_ms=ANSWER_MS)
        except KafkaError as error:
            log.debug("%s: committed offsets not known: %s", coordinator.group_id, error)
            return {}
        found = {key: answer.get(key) for key in keys}
        return {key: at and Committed(at.offset, (at.metadata or "").rstrip(METADATA_END)) for key, at in found.items()}

    def log_starts(self, keys: Collection[Key]) -> dict[Key, int]:
        return self.offsets.log_starts(keys)

    def commit_delivered(self) -> None:
        self._commit(self._consumer._partitions.consumed_offsets())

    def commit(self, offsets: Mapping[Key, Committed]) -> None:
        self._commit(
            {
                TopicPartition(*key): OffsetAndMetadata(at.offset, at.metadata + METADATA_END, -1)
                for key, at in offsets.items()
            }
        )

    def _commit(self, offsets: Mapping[Any, Any]) -> None:
        if not self._has_group or not offsets:
            return
        coordinator = self._consumer._coordinator
        try:
            coordinator.commit_offsets_sync(offsets, timeout_ms=ANSWER_MS)
        except KafkaError as error:
            log.debug("%s: nothing committed: %s", coordinator.group_id, error)

    def have_topics(self, topics: Mapping[str, bool]) -> Collection[str]:
        return topics.keys()  # brokers that do not return one yet bring a rebalance more when they do, and no error


class ChangedPattern:
    """A pattern that matches other topics than its own; kafka-python calls :meth:`match` with each topic.

    Args:
        pattern: the application's.
        more: topics beside its own.
        left_out: those of its own that it does not match any more.
    """

    def __init__(self, pattern: str, more: Iterable[str] = (), left_out: Iterable[str] = ()) -> None:
        self.pattern = pattern
        self.changes = (frozenset(more), frozenset(left_out))
        self._match = re.compile(pattern).match

    def match(self, topic: str) -> bool:
        more, left_out = self.changes
        return topic in more or (topic not in left_out and self._match(topic) is not None)


def as_name(pattern: str) -> str:
    """Return the form in which :class:`~modeaware.clients.gates.Gates` knows a pattern among names of topics."""
    return f"^{pattern}"


def matches(name: str, topic: str) -> bool:
    """Return whether a pattern matches as kafka-python matches it: from the start of the topic's name.

    Args:
        name: the pattern, as :func:`as_name` returns it.
    """
    return re.match(name.removeprefix("^"), topic) is not None
