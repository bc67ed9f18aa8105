"""Which of several values of one key is the newest, which one to copy, and where to. No IO.

Kafka orders records within a partition, but not across partitions or topics. An evacuation's rules are:

1. In one partition the record with the highest offset is the newest.
2. Groups read the old topic to its seals before the new one. So a record that a producer wrote to the new topic is
   newer than all records of the old topic, whatever its timestamp is. This also holds while copies are made.
3. A copy (:data:`HEADER`) stands for its source, a record of the old topic. If the source's partition now has a newer
   record of the key, from a producer that ignored the modes, the copy does not count. An application may pass on the
   header with another value, or to another topic. Such a record is no copy, as the header shows: it contains the id of
   the evacuated topic, and a digest of the copy's key and value.
4. Between values in different partitions of the old topic (possible if it was grown once) the timestamp decides.

A key's *home* is its partition in the new topic. A copy at home ranks above its source, so the source needs no further
copy. A copy elsewhere (made when the new topic had another count) ranks below its source, which is copied again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from modeaware.errors import ConfigError
from modeaware.spark.connector import chosen_partitioner, topic_partitioner
from partitioners import DEFAULT_NAME, Partitioner

HEADER = "modeaware.evacuated"
"""The header of each copy: its source's place and time, the evacuation, and a digest of the copy's key and value."""
DIGEST_SQL = "substring(sha2(concat_ws('@', hex(key), hex(value)), 256), 1, 16)"
""":func:`digest` of a record in Spark's SQL."""


def digest(key: bytes, value: bytes | None) -> str:
    """Return the digest of a key and value, as it is in a copy's header."""
    parts = [part.hex().upper() for part in (key, value) if part is not None]
    return hashlib.sha256("@".join(parts).encode()).hexdigest()[:16]


class OldRecord(NamedTuple):
    """A record of the old topic: its place, and its timestamp in ms (-1 if it has none)."""

    partition: int
    offset: int
    timestamp_ms: int

    def header(self, evacuation_epoch: int, topic_id: str, digest: str) -> bytes:
        """Return the value of :data:`HEADER`: ``partition@offset@timestamp@evacuation epoch@topic id@digest``."""
        return f"{self.partition}@{self.offset}@{self.timestamp_ms}@{evacuation_epoch}@{topic_id}@{digest}".encode()

    @classmethod
    def parse(cls, header: str | bytes | None, topic_id: str, digest: str | None) -> OldRecord | None:
        """Return the source of a copy by its header; None if the record is no copy, because it has no such header, or
        another record's header.

        Args:
            topic_id: the id of the old topic.
            digest: the digest of the record that has the header (:func:`digest`).
        """
        if header is None:
            return None
        try:
            text = header.decode("ascii") if isinstance(header, bytes) else header
            *numbers, of_topic, of_record = text.split("@")
            partition, offset, timestamp_ms, _ = map(int, numbers)
        except ValueError:  # an application's own header of this name
            return None
        return cls(partition, offset, timestamp_ms) if (of_topic, of_record) == (topic_id, digest) else None


class NewRecord(NamedTuple):
    """A record of the new topic: its place, its timestamp in ms (-1 if it has none), and the source if it is a copy."""

    partition: int
    offset: int
    timestamp_ms: int
    source: OldRecord | None = None


class Verdict(Enum):
    """The decision about a key of the old topic."""

    COPY = "copy"
    PLACED = "placed"
    NEWER = "newer"


def rank(record: OldRecord | NewRecord, home: int) -> tuple[bool, int, int, int, int]:
    """Return a value by which to sort the records of one key: the newest record has the greatest."""
    if isinstance(record, OldRecord):
        source, place = record, 1
    elif record.source is None:
        return True, record.offset, 0, 0, 0
    else:
        source, place = record.source, 2 if record.partition == home else 0
    return False, source.timestamp_ms, place, source.partition, source.offset


def decide(old: Sequence[OldRecord], new: Sequence[NewRecord], home: int) -> tuple[Verdict, OldRecord]:
    """Return the action for a key, and its newest record in the old topic.

    ``COPY`` that record to ``home``; ``PLACED``: its copy exists already; ``NEWER``: the new topic has a newer value.

    Args:
        old: the key's last record in each partition of the old topic that has one; at least one record.
        new: the key's last record in each partition of the new topic that has one.
        home: the partition of the new topic to which the key belongs.
    """
    held = {record.partition: record.offset for record in old}
    live = [r for r in new if r.source is None or r.source.offset >= held.get(r.source.partition, 0)]
    newest_old = max(old, key=lambda record: rank(record, home))
    newest = max(live, key=lambda record: rank(record, home), default=None)
    if newest is None or rank(newest, home) < rank(newest_old, home):
        return Verdict.COPY, newest_old
    return Verdict.PLACED if newest.source == newest_old else Verdict.NEWER, newest_old


def is_newer(record: NewRecord, than: OldRecord | NewRecord, home: int) -> bool:
    """Return whether ``record`` is at least as new as ``than``. ``record`` was appended to ``home`` after the decision
    to write ``than`` there.

    If it is, ``than`` must not be written behind ``record``. A record of a producer always is at least as new.
    """
    source, other = record.source, than if isinstance(than, OldRecord) else than.source
    if source is not None and other is not None and source.partition == other.partition:
        return source.offset >= other.offset
    return rank(record, home) >= rank(than, home)


@dataclass(frozen=True)
class KeyPlaces:
    """Where a topic's producers place keys, by their partitioner or its name. Picklable if the name is given."""

    topic: str
    partitioner: str | Partitioner

    @classmethod
    def of(cls, conf: Mapping[str, Any], topic: str) -> KeyPlaces:
        """Return the places by the partitioner of ``conf``; ConfigError if it is invalid, or places no keys."""
        rule, own = chosen_partitioner(conf, DEFAULT_NAME)
        if rule is not None and rule.placer is None:
            raise ConfigError(f"partitioner: {rule.name!r} places no keys; use that of the producers of {topic!r}")
        return cls(topic, own if rule is None else rule.name)

    def indices(self, keys: Sequence[bytes], count: int) -> list[int]:
        """Return the index of each key among ``count`` partitions; 0 for a key that is not placed by its bytes."""
        picks = topic_partitioner(self.partitioner, self.topic)
        return [picks.partition(key, count) if picks.requires_consistency(key) else 0 for key in keys]

    @property
    def empty_placed(self) -> bool:
        """Whether an empty key is placed by its bytes (of which it has none), like any other key."""
        return topic_partitioner(self.partitioner, self.topic).requires_consistency(b"")
