"""Notes in a kafka-python consumer's commits, while the consumer reads a topic to its end.

A *note* is the member's report about a partition, in the metadata of a commit (:mod:`modeaware.notes`). kafka-python
sends all commits through two methods of its coordinator: commits by the application, by the timer, before a rebalance,
and at ``close()``. If the end of a partition is known, this module adds the note to each commit without metadata. So no
commit of kafka-python overwrites a note. The result of each commit is an input of the member.

Only the polling thread may use this module, and kafka-python's own thread while the polling thread waits for that
thread. A producer may send offsets from any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from modeaware.clients.member import Member
from modeaware.clients.partition import State, Step
from modeaware.clients.taken_metadata import notes_of
from modeaware.kafka_python._gateway import ConsumerGroupMetadata, OffsetAndMetadata
from modeaware.kafka_python.offsets import METADATA_END, Partition, Parts, as_committed

Commits = dict[Partition, Any]


class CommitNotes:
    """The commits of one consumer.

    Args:
        parts: the consumer's parts. From now on, the coordinator sends commits with notes, and the subscription
            returns :meth:`consumed` as the offsets to commit.
    """

    def __init__(self, member: Member, parts: Parts) -> None:
        self._member = member
        self._subscription = parts.subscription
        self._coordinator = coordinator = parts.coordinator
        self._kind = type(coordinator)
        coordinator.commit_offsets_async = self._commit_async
        coordinator._commit_offsets_sync_async = self._commit_sync
        parts.subscription.all_consumed_offsets = self.consumed

    def consumed(self) -> Commits:
        """Return the offsets that kafka-python commits if the application names none.

        Of a subscription, partitions that the member shows, or hides by their mode, are included. A commit on a
        partition behind a gate would claim that the group has moved to the new topic. A partition whose records the
        application has dropped is included once it is read again.
        """
        every: Commits = type(self._subscription).all_consumed_offsets(self._subscription)
        if not self._subscription.partitions_auto_assigned():
            return every
        partitions = self._member.partitions
        held = {p: each for p, each in partitions.items() if each.state in _COMMITTED}
        return {p: at for p, at in every.items() if p in held and (not held[p].is_dropped or held[p].step is Step.DONE)}

    def send(self, offsets: Commits, answered: Callable[[Commits | None], None]) -> None:
        """Send a commit of the member, which gets the result in a later poll.

        Args:
            answered: called with the commits and their notes, or with None if the commit failed or its outcome is
                unknown.
        """
        noted = self._with_notes(offsets)
        self._kind.commit_offsets_async(
            self._coordinator, noted, lambda _, answer: answered(None if isinstance(answer, Exception) else noted)
        )

    def for_transaction(self, offsets: Any) -> Any:
        """Return the offsets of a transaction with their notes (any thread)."""
        if not _is_usual(offsets):
            return offsets  # kafka-python refuses the call
        return {p: self._noted(p, at, at.offset, in_transaction=True) for p, at in offsets.items()}

    def _commit_async(self, offsets: Any, callback: Callable[[Any, Any], Any] | None = None) -> Any:
        if not _is_usual(offsets):
            return self._kind.commit_offsets_async(self._coordinator, offsets, callback)
        own = callback or self._coordinator.config["default_offset_commit_callback"]
        noted = self._with_notes(offsets)

        def answered(_: Any, answer: Any) -> None:
            if isinstance(answer, Exception):
                self._member.doubted(noted)
            own(offsets, answer)

        self._learn(noted)  # not when the answer comes: it must not override a note that is sent in between
        return self._kind.commit_offsets_async(self._coordinator, noted, answered)

    async def _commit_sync(self, offsets: Commits, timeout_ms: float | None = None) -> Any:
        noted = self._with_notes(offsets)
        self._member.doubted(noted)  # until the answer arrives
        answer = await self._kind._commit_offsets_sync_async(self._coordinator, noted, timeout_ms)
        self._learn(noted)
        return answer

    def _learn(self, sent: Commits) -> None:
        self._member.committed({p: as_committed(at) for p, at in sent.items()})

    def _with_notes(self, offsets: Commits) -> Commits:
        return {p: self._noted(p, at, self._position(p)) for p, at in offsets.items()}

    def _position(self, partition: Partition) -> int | None:
        state = self._subscription.assignment.get(partition)
        place = None if state is None else state.position
        return None if place is None else int(place.offset)

    def _noted(self, partition: Partition, at: Any, position: int | None, *, in_transaction: bool = False) -> Any:
        if at.metadata:
            return at
        note = self._member.metadata(partition, at.offset, position, in_transaction=in_transaction)
        return at._replace(metadata=note + METADATA_END) if note else at


_COMMITTED = (State.SHOWN, State.HIDDEN_BY_MODE)


def _is_usual(offsets: Any) -> bool:
    return isinstance(offsets, dict) and all(isinstance(at, OffsetAndMetadata) for at in offsets.values())


def metadata_key(metadata: Any) -> Any:
    """Return the part of group metadata that identifies a consumer: all fields but the last, which is its state."""
    return tuple(metadata[:4]) if isinstance(metadata, ConsumerGroupMetadata) else None


def transactional_offsets(offsets: Any, metadata: Any) -> Any:
    """Return the offsets that a producer sends to its transaction (any thread): ``offsets`` with the notes of the
    consumer that returned the group's ``metadata``. Without such a consumer or its notes, return ``offsets`` itself."""
    notes = notes_of(metadata_key(metadata))
    return offsets if notes is None else notes.for_transaction(offsets)
