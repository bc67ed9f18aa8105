"""Notes in an application's own commits, while the application reads a topic to its end.

A *note* is the member's report about a partition, in the metadata of a commit (:mod:`modeaware.notes`). If the end of a
partition is known, a commit on this partition gets the note, unless the commit has metadata. This applies to the
consumer's ``commit`` and ``store_offsets``, and to ``send_offsets_to_transaction`` of this package's producers.

A ``commit()`` without arguments is sent unchanged, and the member then sends its note in a commit of its own. There is
one exception. When a revocation was shown, the application may have dropped records of a partition. Until this
partition delivers again, ``commit()`` leaves it out. Otherwise librdkafka would commit the offset behind the dropped
records: a seek does not reset the stored offset.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from typing import Any

from modeaware.clients.actions import Committed
from modeaware.clients.member import Member
from modeaware.clients.named import PairedName
from modeaware.clients.partition import Step
from modeaware.clients.starts import Key
from modeaware.clients.taken_metadata import notes_of
from modeaware.confluent.offsets import key_of, metadata_of, parts_of
from modeaware.confluent.retarget import Target
from modeaware.librdkafka import Message, TopicPartition

_PARAMETERS = ("message", "offsets", "asynchronous")


class CommitNotes:
    """The application's commits through one consumer.

    Args:
        commit, store_offsets: the methods that send commits and store offsets; the client is their first argument.
        stock: the client's own methods.
    """

    def __init__(self, commit: Target, store_offsets: Target, member: Member, stock: Any) -> None:
        self._member = member
        self._stock = stock
        self._own = commit, store_offsets
        self._noting = partial(self._commit, commit), partial(self._store, store_offsets)
        self._notes = False

    def methods(self, *, noting: bool, may_drop: bool) -> tuple[Target, Target]:
        """Return the functions that ``commit`` and ``store_offsets`` are to call.

        Args:
            noting: the functions report commits to the member, and add notes.
            may_drop: ``commit()`` leaves out partitions whose records the application has dropped.
        """
        self._notes = noting
        commit, store_offsets = self._noting if noting else self._own
        return self._noting[0] if may_drop else commit, store_offsets

    def for_transaction(self, offsets: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the offsets of a transaction with their notes."""
        return [self._noted(partition, partition.offset, in_transaction=True) for partition in offsets]

    def _commit(self, method: Target, consumer: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._notes and not self._member.has_dropped:
            return method(consumer, *args, **kwargs)
        given = {**dict(zip(_PARAMETERS, args, strict=False)), **kwargs}
        given = {name: value for name, value in given.items() if value is not None or name not in _PARAMETERS[:2]}
        offsets = _offsets_of(given)
        if len(args) > len(_PARAMETERS) or (offsets is None and ("message" in given or "offsets" in given)):
            return method(consumer, *args, **kwargs)  # librdkafka refuses the call
        others = {name: value for name, value in given.items() if name not in ("message", "offsets")}
        if offsets is None:
            sent, stores = self._positions(tuple(self._member.partitions)), self._member.committing.stores
            dropped = self._dropped(sent) if stores else ()
            sent = {key: at for key, at in sent.items() if key not in dropped and self._is_new(key, at.offset)}
            if dropped:
                others["offsets"] = [at for _, at in sorted(sent.items())]
            result = method(consumer, **others)
            if stores:
                self._member.committed({key: Committed(at.offset) for key, at in sent.items()})
            return result
        noted = self._with_notes(offsets)
        result = method(consumer, offsets=noted, **others)
        self._member.committed(
            {key_of(partition): Committed(partition.offset, metadata_of(partition)) for partition in noted}
        )
        return result

    def _store(self, method: Target, consumer: Any, *args: Any, **kwargs: Any) -> Any:
        offsets = _offsets_of({**dict(zip(_PARAMETERS, args, strict=False)), **kwargs})
        if offsets is None or len(args) > 2:
            return method(consumer, *args, **kwargs)
        noted = self._with_notes(offsets)
        result = method(consumer, offsets=noted)
        self._member.committed(
            {key_of(partition): Committed(partition.offset, metadata_of(partition)) for partition in noted}
        )
        self._member.stored(map(key_of, noted))
        return result

    def _dropped(self, positions: Collection[Key]) -> set[Key]:
        """Return the partitions of which librdkafka still stores an offset behind records that were dropped."""
        return {
            key
            for key, each in tuple(self._member.partitions.items())  # the polling thread may change them
            if each.is_dropped and (each.step is not Step.DONE or key not in positions)
        }

    def _is_new(self, key: Key, at: int) -> bool:
        partition = self._member.partitions.get(key)
        at_commit = partition.committed if partition is not None and partition.knows_commit else None
        return at_commit is None or at_commit.offset < at

    def _positions(self, keys: Iterable[Key]) -> dict[Key, TopicPartition]:
        asked = parts_of(keys)
        return {key_of(p): p for p in self._stock.position(asked) if p.offset >= 0} if asked else {}

    def _with_notes(self, offsets: Iterable[TopicPartition]) -> list[TopicPartition]:
        offsets = list(offsets)
        positions = self._positions(self._member.partitions.keys() & set(map(key_of, offsets)))
        at = {key: position.offset for key, position in positions.items()}
        return [self._noted(partition, at.get(key_of(partition))) for partition in offsets]

    def _noted(
        self, partition: TopicPartition, position: int | None, *, in_transaction: bool = False
    ) -> TopicPartition:
        if metadata_of(partition) or partition.offset < 0:
            return partition
        metadata = self._member.metadata(key_of(partition), partition.offset, position, in_transaction=in_transaction)
        if not metadata:
            return partition
        epoch: int | None = partition.leader_epoch  # None: it has none
        known: dict[str, Any] = {} if epoch is None else {"leader_epoch": epoch}
        return TopicPartition(partition.topic, partition.partition, partition.offset, metadata, **known)


def _offsets_of(given: dict[str, Any]) -> list[TopicPartition] | None:
    message, offsets = given.get("message"), given.get("offsets")
    if (
        isinstance(offsets, list)
        and message is None
        and all(isinstance(partition, TopicPartition) for partition in offsets)
    ):
        return offsets
    if not isinstance(message, Message) or offsets is not None or message.error() is not None:
        return None
    return [behind(message, message.topic() or "")]


def behind(message: Message, topic: str) -> TopicPartition:
    """Return the offset behind a record, as librdkafka computes it from a message."""
    partition, offset, epoch = message.partition(), message.offset(), message.leader_epoch()
    assert partition is not None
    assert offset is not None
    known: dict[str, Any] = {} if epoch is None else {"leader_epoch": epoch}
    name = topic.physical if isinstance(topic, PairedName) else topic
    return TopicPartition(name, partition, offset + 1, **known)


def transactional_offsets(offsets: Any, metadata: Any) -> Any:
    """Return the offsets that a producer sends to its transaction (any thread): ``offsets`` with the notes of the
    consumer that returned the group's ``metadata``. Without such a consumer or its notes, return ``offsets`` itself."""
    notes = notes_of(metadata) if isinstance(metadata, bytes) else None
    is_usual = isinstance(offsets, list) and all(isinstance(partition, TopicPartition) for partition in offsets)
    return notes.for_transaction(offsets) if notes is not None and is_usual else offsets
