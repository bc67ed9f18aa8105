"""Where a partition is read from: every start offset a number, decided once.

``auto.offset.reset`` is resolved when a partition is assigned and never decides in mid-life: a partition that is
assigned a second time before it delivered anything would otherwise skip what arrived in between (``latest``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from modeaware.confluent._group_conf import EARLIEST, LATEST, GroupConf
from modeaware.librdkafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from modeaware.modes import PartitionMode
from modeaware.topic_view import TopicView

log = logging.getLogger(__name__)

Key = tuple[str, int]
"""A topic and a partition."""


def _bare(partition: TopicPartition, offset: int = OFFSET_INVALID) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition, offset)


TIMEOUT_S = 10.0
RETRY_S = 0.1
_UNSET = (OFFSET_INVALID, OFFSET_STORED)
# While a leader or coordinator moves, and when a connection breaks.
_PASSING = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._DESTROY_BROKER,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._WAIT_COORD,
    }
)
# ListOffsets' special timestamps are librdkafka's logical offsets.
_BEGINNING, _END = OFFSET_BEGINNING, OFFSET_END


def key_of(partition: TopicPartition) -> Key:
    return (partition.topic, partition.partition)


class StartOffsets:
    """Finds start offsets; used by the polling thread alone.

    Args:
        stock: the client's own methods (``committed``, ``offsets_for_times``, ``commit``).
        conf: the group's settings.
        view: the view in force of a topic.
        recorded: see ``Views``.

    Attributes:
        resume: resume offsets (with the topic's id) of partitions that were retired, or new, while this consumer lived:
            a view that calls a partition ReadWrite no longer tells them.
        has_commit: partitions the group is known to have a committed offset for.
    """

    def __init__(
        self,
        stock: Any,
        conf: GroupConf,
        view: Callable[[str], TopicView],
        recorded: Callable[[Iterable[str]], set[str]],
    ) -> None:
        self._stock = stock
        self._conf = conf
        self._view = view
        self._recorded = recorded
        self.resume: dict[Key, tuple[str | None, int]] = {}
        self.has_commit: set[Key] = set()
        self._ids: dict[str, str | None] = {}  # of the topics that partitions were assigned of
        self._made_anew: dict[str, set[int]] = {}  # topics, and the partitions that have got a start since

    def assigning(self, topic: str) -> None:
        """Partitions of ``topic`` are being assigned; its view has been verified, as far as it could be."""
        view = self._view(topic)
        self.remember(view)
        self._ids[topic] = view.topic_id

    def remember(self, view: TopicView) -> None:
        """Keep the resume offsets that ``view`` tells, for when a later one does not (any thread).

        The oldest one counts: a partition may be revived and retired again before this consumer comes back to it. What
        is kept of a topic goes when the topic gets another id (invariant I8).
        """
        if self._ids.get(view.topic) not in (None, view.topic_id):
            self._forget_topic(view.topic)
            self._ids[view.topic] = view.topic_id
        elif view.topic in self._ids:  # it may have been assigned before the topic had a record
            self._ids[view.topic] = view.topic_id
        for partition, offset in view.resume_offsets.items():
            topic_id, known = self.resume.get((view.topic, partition), (None, offset))
            oldest = min(known, offset) if topic_id == view.topic_id else offset
            self.resume[view.topic, partition] = (view.topic_id, oldest)

    def _forget_topic(self, topic: str) -> None:
        for key in [key for key in tuple(self.resume) if key[0] == topic]:
            self.resume.pop(key, None)
        for key in [key for key in tuple(self.has_commit) if key[0] == topic]:
            self.has_commit.discard(key)
        self._made_anew[topic] = set()

    def resolve(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """The partitions with a number as offset, wherever one can be had.

        Where none was set: the committed offset, else the resume offset (a partition that came back, or a new one),
        else what ``auto.offset.reset`` names. "Beginning" and "end" become the numbers they are now. A partition
        whose offset cannot be had keeps what it came with: librdkafka decides then, and the log says so.
        """
        parts = list(partitions)
        committed = self._committed([_bare(p) for p in parts if p.offset in _UNSET])
        found = {key_of(p): p for p in self._at_least_log_start(committed)}
        missing = [p for p in found.values() if p.offset < 0]
        self.has_commit.update(key for key, p in found.items() if p.offset >= 0)
        for start in self._reset(missing):
            found[key_of(start)] = start
        named = [TopicPartition(p.topic, p.partition, p.offset) for p in parts if p.offset in (_BEGINNING, _END)]
        for start in self._listed(named):
            found[key_of(start)] = start
        self._forget_resume(parts)
        return [found.get(key_of(p), p) for p in parts]

    def _forget_resume(self, partitions: list[TopicPartition]) -> None:
        # Good for one assignment after the view has stopped telling it: from then on the group reads on by itself.
        for partition in partitions:
            if partition.partition not in self._view(partition.topic).resume_offsets:
                self.resume.pop(key_of(partition), None)
            if partition.topic in self._made_anew:
                self._made_anew[partition.topic].add(partition.partition)

    def _committed(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        if not partitions:
            return []
        try:
            answer = self._stock.committed(partitions, timeout=TIMEOUT_S)
        except KafkaException as error:
            log.warning(
                "%s: committed offsets not known (%s): librdkafka decides the start of %d partitions",
                self._conf.group_id, error, len(partitions),
            )  # fmt: skip
            return []
        committed = []
        for partition in answer:
            if partition.error is not None:
                log.warning("%s: committed offset of %s: %s", self._conf.group_id, partition, partition.error)
                continue
            committed.append(partition)
        return committed

    def _reset(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Start offsets of partitions without a commit."""
        if self._conf.offset_reset not in EARLIEST | LATEST:
            return []
        timestamp = _BEGINNING if self._conf.offset_reset in EARLIEST else _END
        listed = {key_of(p): p for p in self._listed([_bare(p, timestamp) for p in partitions])}
        resumed = []
        for partition in partitions if timestamp == _END else ():
            key = key_of(partition)
            if (resume := self._resume(key)) is not None:
                end = listed.pop(key, partition).offset  # partition's own is no number: the end could not be had
                # An end below it: the log was truncated, or another topic has the name now.
                resumed.append(_bare(partition, resume if end < 0 else min(resume, end)))
        return self._at_least_log_start(resumed) + self.at_least_reclaimed(listed.values())

    def _at_least_log_start(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Start offsets, none of them below the log start, where ``latest`` would skip what has come since.

        What lies below a seal is deleted, and a commit that ends before a transaction's marker counted as being there.
        """
        raised = {}
        if self._conf.offset_reset in LATEST:
            behind = [p for p in partitions if p.offset >= 0 and self._may_be_behind(p.topic)]
            raised = {key_of(p): p.offset for p in self._listed([_bare(p, _BEGINNING) for p in behind])}
        for partition in partitions:
            partition.offset = max(partition.offset, raised.get(key_of(partition), partition.offset))
        return self.at_least_reclaimed(partitions)

    def _may_be_behind(self, topic: str) -> bool:
        return self._view(topic).topic_id is not None or topic in self._made_anew

    def _listed(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The offsets that the partitions' logical offsets stand for now; those that cannot be had are left out."""
        known: list[TopicPartition] = []
        left = partitions
        deadline_s = time.monotonic() + TIMEOUT_S
        while left:
            found, error = self._list_once(left)
            known += found
            left = [p for p in left if key_of(p) not in {key_of(f) for f in found}]
            if left and (error is None or error.code() not in _PASSING or time.monotonic() > deadline_s):
                log.warning(
                    "%s: start offsets of %d partitions not known (%s): auto.offset.reset decides at their first fetch",
                    self._conf.group_id, len(left), error,
                )  # fmt: skip
                break
            if left:
                time.sleep(RETRY_S)  # a leader is being elected; other partitions wait for this answer as well
        return known

    def _list_once(self, partitions: list[TopicPartition]) -> tuple[list[TopicPartition], KafkaError | None]:
        try:
            answer = self._stock.offsets_for_times([_bare(p, p.offset) for p in partitions], timeout=TIMEOUT_S)
        except KafkaException as error:
            return [], error.args[0]
        errors = [p.error for p in answer if p.error is not None]
        return [_bare(p, p.offset) for p in answer if p.error is None and p.offset >= 0], next(iter(errors), None)

    def at_least_reclaimed(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """``partitions`` with no offset below what was reclaimed: there is nothing, and auto.offset.reset would
        decide.

        The view says where to look, and the log start that the brokers return is the offset: it holds for the topic
        that has the name now, so nothing that can be read is ever skipped (invariant I8).
        """
        parts = list(partitions)
        behind = [p for p in parts if 0 <= p.offset < self._reclaimed_to(key_of(p))]
        starts = {key_of(p): p.offset for p in self._listed([_bare(p, _BEGINNING) for p in behind])}
        for partition in behind:
            partition.offset = max(partition.offset, starts.get(key_of(partition), 0))
        return parts

    def _reclaimed_to(self, key: Key) -> int:
        view = self._view(key[0])
        return view.resume_offsets.get(key[1], 0) if key[1] in view.reclaimed else 0

    def _resume(self, key: Key) -> int | None:
        view = self._view(key[0])
        if key[0] in self._made_anew and key[1] not in self._made_anew[key[0]]:
            return 0  # the topic was created while this consumer was there: all of it is new to the group
        topic_id, remembered = self.resume.get(key, (None, None))
        offsets = [view.resume_offsets.get(key[1]), remembered if view.topic_id == topic_id else None]
        return min((offset for offset in offsets if offset is not None), default=None)

    def commit_read_only(self, starts: Mapping[Key, int]) -> None:
        """Commit where ReadOnly partitions that delivered nothing start, if the group has no commit for them.

        librdkafka commits what was delivered, so an idle partition would never show as read to the controller, which
        waits for the group's commit before it goes on.

        Args:
            starts: the start offsets of the partitions held.
        """
        self._commit_idle({key: start for key, start in starts.items() if self._read_only(key)})

    def commit_before_leaving(self, starts: Mapping[Key, int], modes_changed: Callable[[str], bool]) -> None:
        """The same before a rebalance, for partitions of topics with modes, where ``latest`` would decide once more.

        Whoever gets such a partition next would skip what has come since. Without ``enable.auto.commit`` only if it
        is a change of modes that may have brought the rebalance about.
        """
        if self._conf.offset_reset in LATEST and starts:
            # That of a topic which was created again is of the old one: it brings rebalances about all the same, and
            # where its record is gone, what this consumer found out about the topic goes with the consumer.
            topics = {topic for topic, _ in starts}
            topics = self._recorded(topics) | (topics & self._made_anew.keys())
            topics = {topic for topic in topics if self._conf.auto_commit or modes_changed(topic)}
            self._commit_idle({key: start for key, start in starts.items() if key[0] in topics})

    def _commit_idle(self, starts: Mapping[Key, int]) -> None:
        idle = [TopicPartition(*key) for key in starts if key not in self.has_commit]
        idle = [p for p in self._stock.position(idle) if p.offset < 0] if idle else []
        # Asked now: a member before us, or the application by other means, may have committed since.
        without = []
        for partition in self._committed([_bare(p) for p in idle]):
            if partition.offset >= 0:
                self.has_commit.add(key_of(partition))
            else:
                without.append(TopicPartition(*key_of(partition), starts[key_of(partition)]))
        if not without:
            return
        try:
            self._stock.commit(offsets=without, asynchronous=False)
        except KafkaException as error:
            log.warning(
                "%s: start offsets of %d idle partitions not committed: %s", self._conf.group_id, len(without), error
            )
        else:
            self.has_commit.update(key_of(p) for p in without)

    def _read_only(self, key: Key) -> bool:
        return self._view(key[0]).mode(key[1]) is PartitionMode.READ_ONLY
