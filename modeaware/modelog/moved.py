"""The record of open gates: for one old topic, the groups that may read its new topic.

The gates have a record of their own. Otherwise the old topic's whole record would be appended again for each group, and
these copies would make up most of the log. The key is :data:`MOVED_PREFIX` and the id of the old topic. The controller
decides by :mod:`modeaware.lifecycle.moved` and appends the record; clients open their gates by the record. A tombstone
removes the record when the old topic is gone.

Names are stored in full, not as hashes: 1 000 names of 255 bytes take 258 000 bytes in ASCII and 766 000 in another
script, which fits :data:`~modeaware.modelog.records.MAX_RECORD_BYTES`. :mod:`modeaware.lifecycle.moved` decides about
names beyond that size.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from modeaware.modelog.json_form import VersionedRecord, form, integer, text, texts
from modeaware.topic_view import Moved

MOVED_PREFIX = "moved:"


def moved_key(topic_id: str) -> str:
    """Return the key of the record about the old topic with this id."""
    return f"{MOVED_PREFIX}{topic_id}"


def topic_id_of(key: str) -> str | None:
    """Return the id of the old topic in a key, or None if the key belongs to another kind of record."""
    return key.removeprefix(MOVED_PREFIX) if key.startswith(MOVED_PREFIX) else None


@dataclass(frozen=True)
class MovedRecord(VersionedRecord):
    """The groups of one old topic that have an open gate of the new topic.

    Attributes:
        topic_id: the old topic's id.
        groups: the names of these groups; ignored if ``all`` is true.
        all: whether the gate is open for every group.
    """

    KIND = "a record of open gates"

    topic_id: str = field(metadata=form(text))
    groups: tuple[str, ...] = field(default=(), metadata=form(texts, sorted))
    all: bool = field(default=False, metadata=form(bool))
    controller_epoch: int = field(default=0, metadata=form(integer, required=True))
    epoch: int = field(default=-1, metadata=form(integer, required=True))
    changed_ms: int = field(default=0, metadata=form(integer))

    @property
    def moved(self) -> Moved:
        """Return the part of the record that clients need."""
        return Moved(self.all, frozenset(self.groups), self.version)

    def stamped(self, controller_epoch: int, now_ms: int) -> MovedRecord:
        """Return the next record about this topic: epoch + 1, under the given controller epoch."""
        return replace(self, epoch=self.epoch + 1, controller_epoch=controller_epoch, changed_ms=now_ms)
