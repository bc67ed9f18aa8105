"""The partitions of a confluent_kafka consumer: which of them it reads, and from where.

librdkafka is assigned every partition this consumer owns. Those in mode None are *hidden*: paused by us, and left out
of what the application sees. So are those of a topic that replaces another one, until their gate is open. A change of
modes between two rebalances is then a pause, or a seek and a resume, and skips and repeats no record. The alternative,
changing librdkafka's assignment, would throw away positions and stored offsets under an eager protocol; and under an
incremental one librdkafka takes such a call for the answer to a revocation that may already wait in its queue.

Of a paused partition librdkafka does not report the end (``enable.partition.eof``), and an application may wait for the
end of every partition. So where it wants them, a hidden partition in mode None that has nothing left to read is not
paused before librdkafka has reported its end (:meth:`Partitions.let_end`).

All of it is for the polling thread. ``stock`` are the client's own methods.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from typing import Any

from modeaware.callouts import get_logger
from modeaware.clients.gates import ANSWER_S
from modeaware.clients.starts import Key, Starts
from modeaware.clients.tally import PARTITIONS_LEFT_OUT, PARTITIONS_TAKEN_UP, TALLY
from modeaware.confluent.names import physical_topic
from modeaware.librdkafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from modeaware.modes import PartitionMode, format_ranges
from modeaware.topic_view import TopicView

log = get_logger(__name__)

TIMEOUT_S = 10.0
SINGLE_ANSWER_S = 0.25
RETRY_S = 0.1
# While a leader or coordinator moves, and when a connection breaks.
_RETRIABLE = frozenset(
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


def key_of(partition: TopicPartition) -> Key:
    return (partition.topic, partition.partition)


def parts_of(keys: Iterable[Key]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, OFFSET_INVALID) for topic, partition in sorted(keys)]


class LibrdkafkaOffsets:
    """Offsets that librdkafka requests from brokers: :class:`~modeaware.clients.starts.BrokerOffsets`, and commits.

    Args:
        onlooker: whom to ask about topics that need not be assigned (:class:`~modeaware.confluent.gates.Onlooker`).
    """

    def __init__(self, stock: Any, group_id: str, onlooker: Any = None) -> None:
        self._stock = stock
        self._onlooker = onlooker or stock
        self._group_id = group_id
        self._leader_epochs: dict[Key, tuple[int, int | None]] = {}  # committed offset -> leader epoch

    def committed(self, keys: Collection[Key]) -> dict[Key, int | None]:
        if not keys:
            return {}
        try:
            answer = self._stock.committed(parts_of(keys), timeout=TIMEOUT_S)
        except KafkaException as error:
            log.warning(
                "%s: committed offsets not known (%s): librdkafka decides the start of %d partitions",
                self._group_id, error, len(keys),
            )  # fmt: skip
            return {}
        for partition in answer:
            if partition.error is not None:
                log.warning("%s: committed offset of %s: %s", self._group_id, partition, partition.error)
        self._leader_epochs = {key_of(p): (p.offset, p.leader_epoch) for p in answer if p.error is None}
        return {key_of(p): p.offset if p.offset >= 0 else None for p in answer if p.error is None}

    def committed_elsewhere(self, keys: Collection[Key]) -> dict[Key, int | None]:
        try:
            answer = self._onlooker.committed(parts_of(keys), timeout=TIMEOUT_S)
        except KafkaException as error:
            log.warning("%s: committed offsets of earlier topics not known: %s", self._group_id, error)
            return {}
        return {key_of(p): p.offset if p.offset >= 0 else None for p in answer if p.error is None}

    def placed(self, key: Key, offset: int) -> TopicPartition:
        """Return where to start. A committed offset keeps its leader epoch: by it librdkafka notices a truncated log.

        An offset that was raised has none: the end of the commit's epoch may lie below it.
        """
        committed, leader_epoch = self._leader_epochs.get(key, (None, None))
        if committed != offset or leader_epoch is None:
            return TopicPartition(*key, offset)
        return TopicPartition(*key, offset, leader_epoch=leader_epoch)

    def log_starts(self, keys: Collection[Key]) -> dict[Key, int]:
        return self.listed(dict.fromkeys(keys, OFFSET_BEGINNING))

    def log_starts_now(self, keys: Collection[Key]) -> dict[Key, int]:
        """The same without those whose leader does not answer at once: librdkafka waits for all, and returns none.

        ``poll`` waits meanwhile. Where many leaders are away, only some partitions are requested one by one in a call.
        """
        asked = [TopicPartition(*key, OFFSET_BEGINNING) for key in sorted(keys)]
        found = self._answered(asked, ANSWER_S) if asked else {}
        if not found and len(asked) > 1:
            deadline_s = time.monotonic() + ANSWER_S
            for each in random.sample(asked, len(asked)):  # the same silent ones must not always come first
                if time.monotonic() >= deadline_s:
                    break
                found |= self._answered([each], SINGLE_ANSWER_S)
        return found

    def _answered(self, asked: list[TopicPartition], timeout_s: float) -> dict[Key, int]:
        """Request offsets once, by the timestamps in ``asked``; those without an answer are left out."""
        try:
            answer = self._stock.offsets_for_times(asked, timeout=timeout_s)
        except KafkaException as error:
            log.debug("%s: offsets of %s not known: %s", self._group_id, asked, error)
            return {}
        return {key_of(p): p.offset for p in answer if p.error is None and p.offset >= 0}

    def log_ends(self, keys: Collection[Key]) -> dict[Key, int]:
        return self.listed(dict.fromkeys(keys, OFFSET_END))

    def listed(self, logical: Mapping[Key, int]) -> dict[Key, int]:
        """Return the offsets that logical offsets stand for now; those without an answer are left out."""
        # ListOffsets' special timestamps are librdkafka's logical offsets.
        known: dict[Key, int] = {}
        deadline_s = time.monotonic() + TIMEOUT_S
        while left := [TopicPartition(*key, offset) for key, offset in logical.items() if key not in known]:
            error: KafkaError | None = None
            try:
                answer = self._stock.offsets_for_times(left, timeout=TIMEOUT_S)
            except KafkaException as failure:
                error = failure.args[0]
            else:
                known |= {key_of(p): p.offset for p in answer if p.error is None and p.offset >= 0}
                error = next((p.error for p in answer if p.error is not None), None)
            if len(known) == len(logical):
                break
            if error is None or error.code() not in _RETRIABLE or time.monotonic() > deadline_s:
                log.warning(
                    "%s: start offsets of %d partitions not known (%s): auto.offset.reset decides at their first fetch",
                    self._group_id, len(logical) - len(known), error,
                )  # fmt: skip
                break
            time.sleep(RETRY_S)  # a leader is being elected; other partitions wait for this answer as well
        return known

    def commit(self, starts: Mapping[Key, int], has_commit: set[Key]) -> None:
        """Commit the start offsets of partitions that delivered nothing, unless the group has a commit for them.

        Args:
            has_commit: updated with what is found and done.
        """
        idle = {key_of(p) for p in self._stock.position(parts_of(starts)) if p.offset < 0} if starts else set()
        # Requested now: an earlier owner, or the application by other means, may have committed since.
        committed = self.committed(idle)
        without = [TopicPartition(*key, starts[key]) for key, offset in committed.items() if offset is None]
        has_commit.update(key for key, offset in committed.items() if offset is not None)
        if not without:
            return
        try:
            self._stock.commit(offsets=without, asynchronous=False)
        except KafkaException as error:
            log.warning(
                "%s: start offsets of %d idle partitions not committed: %s", self._group_id, len(without), error
            )
        else:
            has_commit.update(key_of(p) for p in without)


class Partitions:
    """The partitions a consumer owns, and those of them that it reads.

    Attributes:
        mine: what librdkafka is assigned.
        held: what the application sees of it: all but the hidden ones (and those it declined).
        manual: the application assigns by itself, outside any subscription.

    Args:
        is_shut: whether the gate before a topic is shut (:mod:`modeaware.clients.gates`): its partitions are hidden.
        onlooker: as for :class:`LibrdkafkaOffsets`.
        wants_ends: the application is given the end of each partition.
    """

    def __init__(
        self,
        stock: Any,
        group_id: str,
        starts: Starts,
        view: Callable[[str], TopicView],
        is_shut: Callable[[str], bool] = lambda topic: False,
        onlooker: Any = None,
        *,
        wants_ends: bool = False,
    ) -> None:
        self._stock = stock
        self._offsets = LibrdkafkaOffsets(stock, group_id, onlooker)
        self._view = view
        self._is_shut = is_shut
        self._declined: set[Key] = set()
        self._chosen: dict[Key, TopicPartition] = {}  # by the application, of partitions that are not shown yet
        # librdkafka keeps a partition's pause flag over assignments, so these outlive them too.
        self._paused_by_us: set[Key] = set()
        self._paused_by_application: set[Key] = set()
        self._wants_ends = wants_ends
        self._ending: set[Key] = set()  # hidden ones that run until librdkafka reports their end
        self._reported: dict[Key, int] = {}  # the last end that it has reported, of those that may be hidden
        self.starts = starts
        self.mine: set[Key] = set()
        self.held: set[Key] = set()
        self.manual = False

    def readable(self, keys: Iterable[Key]) -> set[Key]:
        """Return those of ``keys`` that are not in mode None, by the views in force, nor behind a gate."""
        readable = {key for key in keys if self._view(key[0]).is_readable(key[1])}
        return readable if self.manual else {key for key in readable if not self._is_shut(key[0])}

    @property
    def target(self) -> set[Key]:
        """What should be held by the views in force."""
        return self.readable(self.mine) - self._declined

    @property
    def unseen(self) -> set[Key]:
        """What is assigned, and was never offered to the application."""
        return self.mine - self.held - self._declined

    # Changes of the assignment: in a rebalance, or by the application

    def assign(self, partitions: Iterable[TopicPartition], *, hidden: Set[Key] = frozenset()) -> None:
        """Replace the assignment by ``partitions`` and the ``hidden`` ones."""
        starts = self._resolved([*partitions, *parts_of(hidden)])
        self._stock.assign(starts)
        self.clear()
        self._assigned(starts, hidden)

    def add(self, partitions: Iterable[TopicPartition], *, hidden: Set[Key] = frozenset()) -> None:
        """Add ``partitions`` and the ``hidden`` ones to the assignment (incremental protocols)."""
        starts = self._resolved([*partitions, *parts_of(hidden)])
        self._stock.incremental_assign(starts)
        self._assigned(starts, hidden)

    def remove(self, partitions: list[TopicPartition]) -> None:
        """Take ``partitions`` from the assignment (incremental protocols)."""
        self._stock.incremental_unassign(partitions)
        self.forget(key_of(p) for p in partitions)

    def unassign(self) -> None:
        self._stock.unassign()
        self.clear()

    def forget(self, keys: Iterable[Key]) -> None:
        """``keys`` are no longer assigned."""
        gone = set(keys)
        for assigned in (self.mine, self.held, self._declined, self._ending):
            assigned -= gone
        for key in gone:
            self._chosen.pop(key, None)
            self._reported.pop(key, None)
        self.starts.forget(gone)

    def clear(self) -> None:
        """Nothing is assigned any more."""
        self.forget(self.mine)

    def _resolved(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        self.starts.assigning({p.topic for p in partitions})
        return [self._behind_deleted(place) for place in (partitions if self.manual else self.resolve(partitions))]

    def _behind_deleted(self, place: TopicPartition) -> TopicPartition:
        """Return ``place``, or the end of a partition in mode None, where the records between them were deleted."""
        end = self._end_of(key_of(place))
        is_before = end is not None and place.offset < end and place.partition in self._view(place.topic).reclaimed
        return TopicPartition(*key_of(place), end) if end is not None and is_before else place

    def resolve(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions with a number as offset, wherever one is known.

        Where none was set, by the rule of :mod:`modeaware.clients.starts`; "beginning" and "end" become the numbers
        they are now. A partition whose offset is not known keeps what it came with: librdkafka decides then.
        """
        parts = {key_of(p): p for p in partitions}
        unset = {key for key, p in parts.items() if p.offset in (OFFSET_INVALID, OFFSET_STORED)}
        logical = {key: p.offset for key, p in parts.items() if p.offset in (OFFSET_BEGINNING, OFFSET_END)}
        found = self.starts.find(unset, self._offsets).starts if unset else {}
        places = {key: self._offsets.placed(key, offset) for key, offset in found.items()}
        places |= {key: TopicPartition(*key, offset) for key, offset in self._offsets.listed(logical).items()}
        self.starts.settled(parts.keys() - unset)
        return [places.get(key, p) for key, p in parts.items()]

    def _assigned(self, partitions: list[TopicPartition], hidden: Set[Key]) -> None:
        keys = {key_of(p) for p in partitions}
        held = self.readable(keys) - hidden
        self.mine |= keys
        self.held |= held
        for partition in partitions:
            self._started(partition)
        self.let_end()
        self._pause(keys - held - self._ending)
        TALLY.add(PARTITIONS_LEFT_OUT, len(keys - held))
        self._resume(held & self._paused_by_us)
        if self.manual and held < keys:
            for topic in sorted({topic for topic, _ in keys - held}):
                left_out = format_ranges(p for t, p in keys - held if t == topic)
                log.warning("%s: partitions %s are in mode None and left out until they are readable", topic, left_out)

    def _started(self, place: TopicPartition) -> None:
        is_set = place.offset not in (OFFSET_INVALID, OFFSET_STORED)
        self.starts.started(key_of(place), place.offset if is_set else None)

    # Changes in mid-life

    def hide(self, keys: Iterable[Key]) -> None:
        """Hold ``keys`` no longer; what was fetched of them and not delivered is dropped."""
        hidden = self.held & set(keys)
        self.held -= hidden
        self.let_end()
        self._pause(hidden - self._ending)
        TALLY.add(PARTITIONS_LEFT_OUT, len(hidden))
        for key in hidden:
            self.starts.hidden(key)

    def show(self, keys: Iterable[Key]) -> set[Key]:
        """Hold ``keys`` again, each from the offset that the application chose; else from its position on, or from its
        start where it delivered nothing.

        Returns:
            The partitions that librdkafka is not ready for yet (their assignment has just begun), and those whose log
            may begin behind their position and whose leader does not answer: try again.
        """
        unheld = set(keys) - self.held
        chosen = [self._chosen[key] for key in unheld & self._chosen.keys()]
        back = self._stock.position(parts_of(unheld - self._chosen.keys()))
        replaced = {key for key in map(key_of, back) if self.starts.is_of_another_topic(key)}
        for place in back:
            start = self.starts.start_of(key_of(place)) if place.offset < 0 else place.offset
            # Neither a position nor a start of another topic means anything now.
            place.offset = OFFSET_INVALID if start is None or key_of(place) in replaced else start
        places = {key_of(p): p for p in self.resolve([*back, *chosen])}
        behind = {key for key, place in places.items() if self.starts.may_be_behind(key, place.offset)}
        log_starts = self._offsets.log_starts_now(behind)
        for key, log_start in log_starts.items():
            if log_start > places[key].offset:
                places[key] = TopicPartition(*key, log_start)
        later = behind - log_starts.keys()
        for key, place in places.items():
            if key in later:
                continue
            if key in replaced and place.offset == OFFSET_INVALID:
                place.offset = OFFSET_BEGINNING  # librdkafka's own one is of the topic that was deleted
            self._started(place)
            if self._seek(place):
                self.held.add(key)
                self._chosen.pop(key, None)
            else:
                later.add(key)
        shown = places.keys() - later
        self._ending -= shown
        for key in shown:
            self._reported.pop(key, None)
        self._resume(shown)
        TALLY.add(PARTITIONS_TAKEN_UP, len(shown))
        return later

    def let_end(self) -> bool:
        """Let hidden partitions in mode None that have nothing left to read run until their end is reported.

        One that is read already goes on where it is, since librdkafka may have reported its end before; one whose
        records were deleted, from its end. A record that arrives there nevertheless is delivered at once.

        Returns:
            Whether librdkafka is not ready for one of them yet: try again.
        """
        hidden = {key: end for key in self.unseen if (end := self._end_of(key)) is not None}
        ends = {key: end for key, end in hidden.items() if self._reported.get(key, -1) < end}
        late = False
        for place in self._stock.position(parts_of(ends.keys() - self._ending)) if ends else ():
            key = key_of(place)
            at = self.starts.start_of(key) if place.offset < 0 else place.offset
            if at is None or at < ends[key]:
                if key[1] not in self._view(key[0]).reclaimed:
                    continue
                if not self._seek(TopicPartition(*key, ends[key])):
                    late = True
                    continue
                self.starts.started(key, ends[key])
            self._ending.add(key)
        self._resume(self._ending & self._paused_by_us)
        return late

    def _end_of(self, key: Key) -> int | None:
        """Return the offset behind the last record of a partition in mode None, where the application wants ends."""
        view = self._view(key[0])
        is_hidden = self._wants_ends and view.mode(key[1]) is PartitionMode.NONE
        return view.resume_offsets.get(key[1]) if is_hidden and (self.manual or not self._is_shut(key[0])) else None

    def take_ends(self, messages: Iterable[Message]) -> None:
        """Note the ends that are among ``messages``, and pause the hidden partitions that have them.

        The position does not show whether an end was reported: behind the marker of a transaction it is short of it.
        """
        for message in messages:
            error, partition, end = message.error(), message.partition(), message.offset()
            if error is None or error.code() != KafkaError._PARTITION_EOF or partition is None or end is None:
                continue
            key = (physical_topic(message) or "", partition)
            if key in self.mine:
                self._reported[key] = end
            if key in self._ending:
                self._ending.discard(key)
                self._pause({key})

    def choose(self, target: set[Key], partitions: Iterable[TopicPartition]) -> set[Key]:
        """The application chose ``partitions`` when it was shown ``target`` in mid-life: with offsets of its own maybe.

        What it left out is declined until the next assignment. Returns what :meth:`show` does.
        """
        chosen = {key_of(p): p for p in partitions}
        for key in chosen.keys() - self.mine:
            log.warning("%s [%d] is not assigned to this consumer now and was left out", *key)
        self._declined |= target - chosen.keys()
        self.hide(target - chosen.keys())
        with_offset = {key for key, place in chosen.items() if place.offset not in (OFFSET_INVALID, OFFSET_STORED)}
        placed = {key: chosen[key] for key in target & with_offset}
        shown_before = placed.keys() & self.held
        self._chosen |= {key: placed[key] for key in placed.keys() - shown_before}
        later = self.show(target & chosen.keys())
        for key in shown_before:
            self.seek(placed[key])
        return later

    def _seek(self, place: TopicPartition) -> bool:
        if place.offset == OFFSET_INVALID:
            return True  # not known: librdkafka's own offset stands
        try:
            self._stock.seek(place)
        except KafkaException as error:
            if error.args[0].code() not in (KafkaError._STATE, KafkaError._PREV_IN_PROGRESS):
                raise
            return False
        return True

    def _pause(self, keys: set[Key]) -> None:
        if keys:
            self._stock.pause(parts_of(keys))
            self._paused_by_us |= keys

    def _resume(self, keys: set[Key]) -> None:
        self._paused_by_us -= keys
        free = keys - self._paused_by_application
        if free:
            self._stock.resume(parts_of(free))

    def drop_fetched(self) -> None:
        """Drop what was fetched and not delivered, before the consumer is closed.

        ``rd_kafka_consumer_close`` takes what is left in the queue. It drops records, but stores the offsets of the
        control records behind them, and commits those: on a transactional topic the group would skip the records.
        """
        if assigned := self._stock.assignment():
            self._stock.pause(assigned)

    # Commits of start offsets

    def idle_before_leaving(self, keys: Iterable[Key]) -> dict[Key, int]:
        """Return what :meth:`commit` is to commit before another member may get ``keys``."""
        return self.starts.idle(self.held.intersection(keys), leaving=True)

    def commit(self, starts: Mapping[Key, int] | None = None) -> None:
        """Commit ``starts``, or those of ReadOnly partitions, where nothing was delivered."""
        self._offsets.commit(self.starts.idle(self.held) if starts is None else starts, self.starts.has_commit)

    # The application's own calls

    def pause(self, partitions: list[TopicPartition]) -> None:
        self._stock.pause(partitions)
        self._paused_by_application |= {key_of(p) for p in partitions}

    def resume(self, partitions: list[TopicPartition]) -> None:
        self._stock.resume([p for p in partitions if key_of(p) not in self._paused_by_us])
        self._paused_by_application -= {key_of(p) for p in partitions}

    def seek(self, partition: TopicPartition) -> None:
        self._stock.seek(partition)
        self._chosen.pop(key_of(partition), None)
        self._reported.pop(key_of(partition), None)
        if key_of(partition) in self.mine:
            self.starts.started(key_of(partition), partition.offset)

    def visible(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return ``partitions`` without those that are assigned to librdkafka and not held."""
        unseen = self.mine - self.held
        return [p for p in partitions if key_of(p) not in unseen] if unseen else partitions
