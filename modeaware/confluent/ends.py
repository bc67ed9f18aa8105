"""Ends that librdkafka reports (``enable.partition.eof``) for partitions in mode None.

librdkafka does not report the end of a paused partition, but an application may wait for the end of every partition.
So with this setting, a partition in mode None that has no unread records is paused only after librdkafka has reported
its end. Only the polling thread may use this module.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from modeaware.clients.member import Member
from modeaware.clients.partition import State
from modeaware.clients.starts import Key
from modeaware.confluent.names import physical_topic
from modeaware.confluent.offsets import RETRY_S, key_of, parts_of
from modeaware.librdkafka import KafkaError, Message, TopicPartition
from modeaware.modes import PartitionMode


class PartitionEnds:
    """The ends of one consumer's hidden partitions.

    Args:
        stock: the client's own methods.
        seek: seeks if librdkafka is ready for a seek, and returns whether it has done so.
        wanted: the application gets an event at the end of each partition (``enable.partition.eof``).

    Attributes:
        retry_s: when to seek again, on the monotonic clock, if librdkafka was not ready.
    """

    def __init__(self, stock: Any, member: Member, seek: Callable[[TopicPartition], bool], *, wanted: bool) -> None:
        self._stock = stock
        self._member = member
        self._seek = seek
        self._ending: set[Key] = set()  # hidden partitions that run until librdkafka reports their end
        self._reported: dict[Key, int] = {}  # partitions that may be hidden -> the end that was reported last
        self._paused: set[Key] = set()
        self.wanted = wanted
        self.retry_s: float | None = None

    def pause_first(self, places: Mapping[Key, int | None]) -> None:
        """Pause hidden partitions before they are assigned at ``places``, except those that run until a reported end.

        librdkafka may drop a pause of a partition that it is starting, and then reads the partition (#2190). It ignores
        a pause of a partition that it does not have. So this method first requests the positions: then librdkafka has
        the partitions.
        """
        hidden = {
            key
            for key, at in places.items()
            if self._member.partitions[key].state is not State.SHOWN
            and ((end := self._end_of(key)) is None or at is None or at < end)
        }
        if hidden:
            self._stock.position(parts_of(hidden))
            self._stock.pause(parts_of(hidden))
            self._paused |= hidden

    def pause(self, keys: Collection[Key]) -> None:
        """Hide ``keys``, each after its end is reported."""
        self.run_to_end(keys)
        if paused := set(keys) - self._ending:
            self._stock.pause(parts_of(paused))
            self._paused |= paused

    def shown(self, keys: Collection[Key]) -> None:
        """Note that ``keys`` are no longer hidden."""
        self._ending.difference_update(keys)
        self._paused.difference_update(keys)
        for key in keys:
            self._reported.pop(key, None)

    def running(self, keys: Iterable[Key]) -> set[Key]:
        """Return those of ``keys`` that are hidden and run until their end is reported."""
        return self._ending.intersection(keys)

    def sought(self, key: Key) -> None:
        self._reported.pop(key, None)

    def forget(self, keys: Collection[Key]) -> None:
        """Note that ``keys`` are no longer assigned. librdkafka keeps their pause flags."""
        self._ending.difference_update(keys)
        for key in keys:
            self._reported.pop(key, None)

    def run_to_end(self, keys: Iterable[Key] | None = None) -> None:
        """Let hidden partitions in mode None without unread records run until their end is reported.

        A partition that was read to its end continues at its position: after a seek, librdkafka would report an end
        again that it has reported before. A partition whose records were deleted runs from its end. If a record is
        written there after all, it is delivered at once.

        Args:
            keys: the partitions, or None for all hidden ones.
        """
        self.retry_s = None
        partitions = self._member.partitions
        all_hidden = (key for key, partition in partitions.items() if _is_hidden(partition.state))
        hidden = keys if keys is not None else all_hidden
        ends = {key: end for key in hidden if (end := self._end_of(key)) is not None}
        ends = {key: end for key, end in ends.items() if self._reported.get(key, -1) < end}
        for place in self._stock.position(parts_of(ends.keys() - self._ending)) if ends else ():
            key = key_of(place)
            at = partitions[key].base if place.offset < 0 else place.offset
            if at is None or at < ends[key]:
                if key[1] not in self._member.reading.view(key[0]).reclaimed:
                    continue
                if not self._seek(TopicPartition(*key, ends[key])):
                    self.retry_s = time.monotonic() + RETRY_S
                    continue
                partitions[key].sought(ends[key])
            self._ending.add(key)
        if resumed := self._ending & self._paused:
            self._paused -= resumed
            if free := resumed - self._member.paused:
                self._stock.resume(parts_of(free))

    def end_of(self, key: Key) -> int | None:
        """Return the end of a partition in mode None whose records were deleted. Return None for other partitions, and
        if the application gets no events."""
        end = self._end_of(key)
        return end if end is not None and key[1] in self._member.reading.view(key[0]).reclaimed else None

    def _end_of(self, key: Key) -> int | None:
        view = self._member.reading.view(key[0])
        partition = self._member.partitions.get(key)
        is_hidden = self.wanted and view.mode(key[1]) is PartitionMode.NONE
        if (
            not is_hidden
            or partition is None
            or partition.state in (State.WITHHELD, State.HIDDEN_BY_GATE, State.DECLINED)
        ):
            return None
        return view.resume_offsets.get(key[1])

    def take(self, messages: Iterable[Message]) -> None:
        """Note the ends that are among ``messages``, and pause the hidden partitions that have reached their ends.

        The position does not show whether an end was reported: if a transaction's marker is the last record, the
        position stays below the end.
        """
        for message in messages:
            error, partition, end = message.error(), message.partition(), message.offset()
            if error is None or error.code() != KafkaError._PARTITION_EOF or partition is None or end is None:
                continue
            key = (physical_topic(message) or "", partition)
            if key in self._member.partitions:
                self._reported[key] = end
            if key in self._ending:
                self._ending.discard(key)
                if self._end_of(key) is not None:
                    self._stock.pause(parts_of({key}))
                    self._paused.add(key)


def _is_hidden(state: State) -> bool:
    return state is State.HIDDEN_BY_MODE
