"""Where a partition is read from: every start offset a number, decided once, when the partition is assigned.

``auto_offset_reset`` is asked then. It never decides over a partition that comes back or is new: that one would skip
what has come since (``latest``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from modeaware.kafka_python._gateway import OffsetAndMetadata
from modeaware.modes import PartitionMode
from modeaware.topic_view import TopicView

log = logging.getLogger(__name__)

Partition = Any
"""kafka-python's TopicPartition."""
Offsets = dict[Partition, int]

LEAST_LISTING_MS = 1000
"""How long offsets are asked for at least, also within a shorter poll: kafka-python starts over each time."""
MOST_LISTING_MS = 5000
"""And at most, within a long poll: a broker that does not answer must not keep the others' from being read."""


def start_offset(
    view: TopicView, partition: int, committed: int | None, resume: int | None, named: int | None, log_start: int | None
) -> int | None:
    """Where to start: at the committed offset, else at the one the mode log names for partitions that came back or
    are new, else where ``auto_offset_reset`` says; never below what is known to be deleted.

    Args:
        committed: the group's committed offset, if there is one.
        resume: the offset at which a ``latest`` group reads such a partition; None where another rule holds.
        named: what ``auto_offset_reset`` names: the log start or the end; None where it names nothing.
        log_start: the partition's log start. Where it is known, the view's word on what is deleted does not count: that
            of the brokers holds for the topic that has the name now, so nothing that can be read is skipped.

    Returns:
        None where there is none: kafka-python decides.
    """
    start = committed
    if start is None and resume is not None:
        # An end below it: the log was truncated, or another topic has the name now.
        start = resume if named is None else min(resume, named)
    if start is None:
        return named
    if log_start is None:
        log_start = view.resume_offsets.get(partition, 0) if partition in view.reclaimed else 0
    return max(start, log_start)


class Found(NamedTuple):
    """What :meth:`Starts.find` found.

    Attributes:
        starts: start offsets; a partition in neither field has none, and kafka-python decides.
        unknown: partitions whose start cannot be had now (their leader is away, say): ask again.
    """

    starts: Offsets
    unknown: set[Partition]


class Starts:
    """Finds start offsets, and keeps those of partitions that delivered nothing.

    Args:
        view_of: the view in force of a topic.
        reset: ``auto_offset_reset``: ``earliest``, ``latest``, or another word for none.

    Attributes:
        starts: where partitions of this assignment started.
        has_commit: those the group is known to have a committed offset for.
    """

    def __init__(self, view_of: Callable[[str], TopicView], reset: str) -> None:
        self._view_of = view_of
        self.latest = reset.lower() == "latest"
        self.earliest = reset.lower() == "earliest"
        self._lock = threading.Lock()
        self._resume: dict[Partition, tuple[str | None, int]] = {}
        self.starts: Offsets = {}
        self.has_commit: set[Partition] = set()

    def remember(self, view: TopicView, partition_of: Callable[[str, int], Partition]) -> None:
        """Keep the resume offsets that ``view`` tells, for when a later one does not (any thread).

        The oldest one counts: a partition may be revived and retired again before this consumer comes back to it.
        """
        with self._lock:
            for number, offset in view.resume_offsets.items():
                key = partition_of(view.topic, number)
                topic_id, known = self._resume.get(key, (None, offset))
                self._resume[key] = view.topic_id, min(known, offset) if topic_id == view.topic_id else offset

    def find(self, partitions: Iterable[Partition], stock: Any, timeout_ms: float | None, *, group: bool) -> Found:
        """The start offsets of partitions without a position.

        Args:
            stock: the consumer's own methods; what it cannot list now, it leaves out.
            group: whether the consumer has a group, whose commits count.

        Raises:
            KafkaTimeoutError: not within ``timeout_ms``; nothing has changed, ask again.
            KafkaError: as from kafka-python.
        """
        parts = set(partitions)
        commits = stock.fetch_committed(parts, timeout_ms) if group else {}
        committed = {partition: commit.offset for partition, commit in commits.items()}
        resumed = {p: offset for p in parts - committed.keys() if (offset := self._resume_of(p)) is not None}
        to_name = parts - committed.keys() if self.earliest or self.latest else set()
        # An offset below the log start would be reset to the end.
        behind = {p for p in (*committed, *resumed) if self._may_be_behind(p)}
        listing_ms = MOST_LISTING_MS if timeout_ms is None else timeout_ms
        listing_ms = min(max(listing_ms, LEAST_LISTING_MS), MOST_LISTING_MS)
        named: Offsets = {}
        if to_name:
            named = (stock.beginning_offsets if self.earliest else stock.end_offsets)(to_name, listing_ms)
        log_starts: Offsets = stock.beginning_offsets(behind, listing_ms) if behind else {}
        unknown = (to_name - named.keys()) | (behind - log_starts.keys())
        starts: Offsets = {}
        for p in parts - unknown:
            start = start_offset(
                self._view_of(p.topic), p.partition, committed.get(p), resumed.get(p), named.get(p), log_starts.get(p)
            )
            if start is not None:
                starts[p] = start
        self.starts.update(starts)
        self.has_commit.update(committed)
        self._forget(parts - unknown)
        return Found(starts, unknown)

    def _may_be_behind(self, partition: Partition) -> bool:
        view = self._view_of(partition.topic)
        return (self.latest and view.topic_id is not None) or partition.partition in view.reclaimed

    def _resume_of(self, partition: Partition) -> int | None:
        view = self._view_of(partition.topic)
        hidden = not view.is_readable(partition.partition)
        if not self.latest and (self.earliest or not hidden):
            return None
        with self._lock:
            topic_id, remembered = self._resume.get(partition, (None, None))
        # Of this topic id alone (invariant I8); a view without one is of a topic that has no record.
        told = [view.resume_offsets.get(partition.partition), remembered if view.topic_id == topic_id else None]
        return min((offset for offset in told if offset is not None), default=None)

    def _forget(self, partitions: Iterable[Partition]) -> None:
        # Good for one assignment after the view has stopped telling it: from then on the group reads on by itself.
        with self._lock:
            for partition in partitions:
                if partition.partition not in self._view_of(partition.topic).resume_offsets:
                    self._resume.pop(partition, None)

    def returning(self, partition: Partition, position: int) -> int | None:
        """Where to go on with a partition that is readable again, if not at ``position``."""
        start = start_offset(self._view_of(partition.topic), partition.partition, position, None, None, None)
        return None if start == position else start

    def keep(self, partitions: set[Partition]) -> None:
        """``partitions`` are assigned, and no others."""
        self.starts = {p: start for p, start in self.starts.items() if p in partitions}
        self.has_commit &= partitions

    def idle(self, positions: Mapping[Partition, int], *, read_only: bool) -> dict[Partition, Any]:
        """What to commit for partitions that delivered nothing, as far as the group may have no commit for them.

        kafka-python's commits include such partitions, but an application may commit by itself what it has handled,
        and then an idle partition would never show as read to the controller, which waits for the group's commit.

        Args:
            positions: where the consumer is.
            read_only: ReadOnly partitions; else those of topics with modes, where ``latest`` would decide once more.
        """
        return {
            p: OffsetAndMetadata(start, "", -1)
            for p, start in self.starts.items()
            if p not in self.has_commit and positions.get(p) == start and self._may(p, read_only)
        }

    def _may(self, partition: Partition, read_only: bool) -> bool:
        view = self._view_of(partition.topic)
        if read_only:
            return view.mode(partition.partition) is PartitionMode.READ_ONLY
        return self.latest and view.topic_id is not None
