"""What a consumer holds, and how that changes in mid-life without skipping or repeating a record.

librdkafka is assigned every partition this consumer owns. Those in mode None are *hidden*: paused by us, and left out
of what the application sees. So a change of modes between two rebalances is a pause, or a seek and a resume. The
alternative, changing librdkafka's assignment, would throw away positions and stored offsets under an eager protocol;
and under an incremental one librdkafka takes such a call for the answer to a revocation that may already wait in its
queue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from modeaware.confluent._offsets import Key, StartOffsets, key_of
from modeaware.librdkafka import OFFSET_BEGINNING, OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from modeaware.modes import format_ranges
from modeaware.tally import PARTITIONS_LEFT_OUT, PARTITIONS_TAKEN_UP, TALLY
from modeaware.topic_view import TopicView

log = logging.getLogger(__name__)


class Holding:
    """The partitions a consumer owns, and those of them that it holds. For the polling thread.

    Attributes:
        mine: what librdkafka is assigned.
        held: what the application sees of it: all but the hidden ones (and those it declined).
        manual: the application assigns by itself, outside any subscription.
    """

    def __init__(self, stock: Any, offsets: StartOffsets, view: Callable[[str], TopicView]) -> None:
        self._stock = stock
        self._offsets = offsets
        self._view = view
        self._starts: dict[Key, int] = {}
        self._start_ids: dict[Key, str | None] = {}  # the topic ids that they hold for
        self._declined: set[Key] = set()
        # librdkafka keeps a partition's pause flag over assignments, so these outlive them too.
        self._paused_by_us: set[Key] = set()
        self._paused_by_application: set[Key] = set()
        self.mine: set[Key] = set()
        self.held: set[Key] = set()
        self.manual = False

    def readable(self, keys: Iterable[Key]) -> set[Key]:
        """Those of ``keys`` that are not in mode None, by the views in force."""
        return {key for key in keys if self._view(key[0]).is_readable(key[1])}

    @property
    def target(self) -> set[Key]:
        """What should be held by the views in force."""
        return self.readable(self.mine) - self._declined

    @property
    def starts(self) -> dict[Key, int]:
        """Where held partitions started, as far as that is a number, and one of the topic that has the name now."""
        return {
            key: start
            for key, start in self._starts.items()
            if key in self.held and start >= 0 and not self._of_another_topic(key)
        }

    def _of_another_topic(self, key: Key) -> bool:
        """Whether the topic was deleted and created again since ``key`` started (invariant I8)."""
        return self._start_ids.get(key) not in (None, self._view(key[0]).topic_id)

    def _start_at(self, key: Key, offset: int) -> None:
        self._starts[key] = offset
        self._start_ids[key] = self._view(key[0]).topic_id

    # Changes of the assignment: in a rebalance, or asked for by the application

    def assign(self, partitions: Iterable[TopicPartition], *, hidden: Iterable[Key] = ()) -> None:
        """Replace the assignment by ``partitions`` and the ``hidden`` ones."""
        parts = [*partitions, *(TopicPartition(*key) for key in sorted(hidden))]
        starts = self._starting(parts)
        self._stock.assign(starts)
        self.clear()
        self._assigned(starts)

    def add(self, partitions: Iterable[TopicPartition], *, hidden: Iterable[Key] = ()) -> None:
        """Add ``partitions`` and the ``hidden`` ones to the assignment (incremental protocols)."""
        parts = [*partitions, *(TopicPartition(*key) for key in sorted(hidden))]
        starts = self._starting(parts)
        self._stock.incremental_assign(starts)
        self._assigned(starts)

    def remove(self, partitions: list[TopicPartition]) -> None:
        """Take ``partitions`` from the assignment (incremental protocols)."""
        self._stock.incremental_unassign(partitions)
        self.forget(key_of(p) for p in partitions)

    def unassign(self) -> None:
        self._stock.unassign()
        self.clear()

    def forget(self, keys: Iterable[Key]) -> None:
        """``keys`` are no longer assigned."""
        for key in set(keys):
            self.mine.discard(key)
            self.held.discard(key)
            self._declined.discard(key)
            self._starts.pop(key, None)
            self._start_ids.pop(key, None)
            self._offsets.has_commit.discard(key)

    def clear(self) -> None:
        """Nothing is assigned any more."""
        self.forget(self.mine)

    def _starting(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        for topic in {p.topic for p in partitions}:
            self._offsets.assigning(topic)
        return partitions if self.manual else self._offsets.resolve(partitions)

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        keys = {key_of(p) for p in partitions}
        held = self.readable(keys)
        self.mine |= keys
        self.held |= held
        for partition in partitions:
            self._start_at(key_of(partition), partition.offset)
        self._pause(keys - held)
        TALLY.add(PARTITIONS_LEFT_OUT, len(keys - held))
        self._resume(held & self._paused_by_us)
        if self.manual and held < keys:
            for topic in sorted({topic for topic, _ in keys - held}):
                left_out = format_ranges(p for t, p in keys - held if t == topic)
                log.warning("%s: partitions %s are in mode None and left out until they are readable", topic, left_out)

    # Changes in mid-life

    def hide(self, keys: Iterable[Key]) -> None:
        """Hold ``keys`` no longer; what was fetched of them and not delivered is dropped."""
        hidden = self.held & set(keys)
        self._pause(hidden)
        TALLY.add(PARTITIONS_LEFT_OUT, len(hidden))
        for key in hidden:
            # One that was assigned before the topic had a record: what hides it now has the id.
            self._start_ids[key] = self._start_ids.get(key) or self._view(key[0]).topic_id
        self.held -= hidden

    def show(self, keys: Iterable[Key]) -> set[Key]:
        """Hold ``keys`` again, each from its position on, or from its start where it delivered nothing.

        Returns:
            The partitions that librdkafka is not ready for yet (their assignment has just begun): try again.
        """
        back = [TopicPartition(*key) for key in sorted(set(keys) - self.held)]
        later: set[Key] = set()
        positions = self._stock.position(back)
        replaced = {key_of(p) for p in positions if self._of_another_topic(key_of(p))}
        for place in positions:
            if key_of(place) in replaced:  # neither position nor start means anything now
                place.offset = OFFSET_INVALID
                self._starts.pop(key_of(place), None)
        idle = [
            TopicPartition(*key_of(p), self._starts.get(key_of(p), OFFSET_INVALID)) for p in positions if p.offset < 0
        ]
        known = [p for p in positions if p.offset >= 0] + self._offsets.resolve(idle)
        places = {key_of(p): p for p in self._offsets.at_least_reclaimed(known)}
        for key, place in places.items():
            if key in replaced and place.offset == OFFSET_INVALID:
                place.offset = OFFSET_BEGINNING  # librdkafka's own one is of the topic that was deleted
            self._start_at(key, place.offset)
            if self._seek(place):
                self.held.add(key)
            else:
                later.add(key)
        self._resume(places.keys() - later)
        TALLY.add(PARTITIONS_TAKEN_UP, len(places.keys() - later))
        return later

    def choose(self, target: set[Key], partitions: Iterable[TopicPartition]) -> None:
        """The application chose ``partitions`` when it was shown ``target`` in mid-life: with offsets of its own maybe.

        What it left out is declined until the next assignment.
        """
        chosen = {key_of(p): p for p in partitions}
        for key in chosen.keys() - self.mine:
            log.warning("%s [%d] is not assigned to this consumer now and was left out", *key)
        self._declined |= target - chosen.keys()
        self.hide(target - chosen.keys())
        self.show(target & chosen.keys())
        for key in target & chosen.keys() & self.held:
            if chosen[key].offset != OFFSET_INVALID:
                self.seek(chosen[key])

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
            self._stock.pause([TopicPartition(*key) for key in sorted(keys)])
            self._paused_by_us |= keys

    def _resume(self, keys: set[Key]) -> None:
        self._paused_by_us -= keys
        free = sorted(keys - self._paused_by_application)
        if free:
            self._stock.resume([TopicPartition(*key) for key in free])

    # The application's own calls

    def pause(self, partitions: list[TopicPartition]) -> None:
        self._stock.pause(partitions)
        self._paused_by_application |= {key_of(p) for p in partitions}

    def resume(self, partitions: list[TopicPartition]) -> None:
        self._stock.resume([p for p in partitions if key_of(p) not in self._paused_by_us])
        self._paused_by_application -= {key_of(p) for p in partitions}

    def seek(self, partition: TopicPartition) -> None:
        self._stock.seek(partition)
        if key_of(partition) in self.mine:
            self._start_at(key_of(partition), partition.offset)

    def visible(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """``partitions`` without those that are assigned to librdkafka and not held."""
        unseen = self.mine - self.held
        return [p for p in partitions if key_of(p) not in unseen] if unseen else partitions
