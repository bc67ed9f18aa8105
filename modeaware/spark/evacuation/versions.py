"""Which of several values of one key is the newest, what must be copied, and where to. Pure.

Kafka orders records within a partition, and nothing orders them across partitions. An evacuation's rules are:

1. In one partition the record with the highest offset is the newest. A copy (:data:`HEADER`) stands for the record it
   was copied from; where that record's partition holds a newer one of the key, the copy stands for nothing.
   Applications pass on headers with values of their own, to other topics too, and such a record is no copy: the header
   names the topic that was evacuated, and the key and value by a digest.
2. Producers that honour modes write a key to its survivor from the switch on, and to a retired partition before it. So
   a record in a survivor at or behind its switch offset is newer than what a retired partition held then, whatever the
   producers' clocks say. So is every record written to the survivor while its copies are made.
3. A record that arrived in a retired partition after the switch, before every producer had the new modes or from one
   that honours none (a straggler), was written in parallel to 2.: the timestamp decides, and the record is newer than
   all from before the switch.
4. Of values from before the switch in different partitions (the topic was grown once, or a shrink was undone) the
   timestamp decides.

Of a topic that is replaced all partitions are evacuated, and the successor's are the survivors. The first rules are the
same, with the switch at offset 0, and nothing is late: groups read the topic to its seals first, so whatever producers
write to the successor is newer, without any clock. Partitions of the topic are numbered from -1 down (:func:`number`),
in the headers of copies as well: a later evacuation of the successor takes such a copy for the record that it is there.

At equal timestamps a survivor's record behind the switch is newer. Before the switch a retired partition's is: the
count before the shrink was the last one in force. A copy at the key's home stands for its source; one that lies
elsewhere (the count was another one then) ranks below its source, which is copied again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from modeaware.errors import ConfigError
from modeaware.spark.connector import chosen_partitioner
from partitioners import DEFAULT_NAME, Partitioner, named
from partitioners.columns import partition_column

HEADER = "modeaware.evacuated"
"""The header of each copy: the place and time of its source, the evacuation, and a digest of the copy itself."""
DIGEST_SQL = "substring(sha2(concat_ws('@', hex(key), hex(value)), 256), 1, 16)"
""":func:`digest` of a record in Spark's SQL."""

_BEFORE, _SINCE = 0, 1


def number(partition: int) -> int:
    """Return the number of a predecessor's partition among those of its successor; of such a number, the partition."""
    return -1 - partition


def digest(key: bytes, value: bytes | None) -> str:
    """Return what the header of a copy says of its key and value."""
    parts = [part.hex().upper() for part in (key, value) if part is not None]
    return hashlib.sha256("@".join(parts).encode()).hexdigest()[:16]


class Source(NamedTuple):
    """What a copy was made of: the record's place, and its timestamp in ms (-1: none)."""

    partition: int
    offset: int
    timestamp_ms: int

    def header(self, evacuation_epoch: int, topic_id: str, digest: str) -> bytes:
        """Return the value of :data:`HEADER`: ``partition@offset@timestamp@evacuation epoch@topic id@digest``."""
        return f"{self.partition}@{self.offset}@{self.timestamp_ms}@{evacuation_epoch}@{topic_id}@{digest}".encode()

    @classmethod
    def parse(cls, header: str | bytes | None, topic_id: str, digest: str | None) -> Source | None:
        """Return what a header says; None where the record is no copy: it has no such header, or passes on that of
        another record.

        Args:
            topic_id: of the topic that is evacuated.
            digest: of the record that has the header (:func:`digest`).
        """
        if header is None:
            return None
        try:
            text = header.decode("ascii") if isinstance(header, bytes) else header
            *numbers, of_topic, of_record = text.split("@")
            partition, offset, timestamp_ms, _ = map(int, numbers)
        except ValueError:  # that of an application
            return None
        return cls(partition, offset, timestamp_ms) if (of_topic, of_record) == (topic_id, digest) else None


class Version(NamedTuple):
    """A record of a key: its place, its timestamp in ms (-1: none), and what it is a copy of (None: no copy)."""

    partition: int
    offset: int
    timestamp_ms: int
    source: Source | None = None

    @property
    def itself(self) -> Source:
        """The record as the source of a copy."""
        return Source(
            self.partition, self.offset, self.timestamp_ms if self.source is None else self.source.timestamp_ms
        )


class Verdict(Enum):
    """What becomes of a key that lies in a retired partition."""

    COPY = "copy"
    PLACED = "placed"
    NEWER = "newer"


@dataclass(frozen=True)
class Order:
    """The order of the versions of one key during one shrink.

    Attributes:
        switch_offsets: survivor -> its end when the shrink was admitted. One that was revived since, when part of the
            shrink was undone, has none: there the timestamps decide what was written since.
        late_from: retired partition -> its end when the shrink was admitted; where the record lacks it, the seal that
            the first straggler broke, or the one in force. Of a topic that is replaced: each partition -> its seal.
        admitted_ms: when the shrink was admitted, by the controller's clock.
    """

    switch_offsets: Mapping[int, int]
    late_from: Mapping[int, int]
    admitted_ms: int

    def source_of(self, version: Version) -> Source | None:
        """Return what a version in a survivor is a copy of; None: no evacuation of these partitions made it."""
        source, of_predecessor = version.source, next(iter(self.late_from), 0) < 0
        return source if source is not None and (source.partition < 0) is of_predecessor else None

    def stands_for(self, version: Version) -> Source:
        """Return the record whose place a version has in this order: for a copy in a survivor, its source."""
        source = None if version.partition in self.late_from else self.source_of(version)
        return version.itself if source is None else source

    def rank(self, version: Version, home: int) -> tuple[int, int, int, int, int]:
        """Return what orders versions of different partitions: the newest has the greatest."""
        origin = self.stands_for(version)
        first_since = self.switch_offsets.get(origin.partition, self.late_from.get(origin.partition))
        if first_since is not None:
            era = _SINCE if origin.offset >= first_since else _BEFORE
        else:
            era = _SINCE if origin.timestamp_ms >= self.admitted_ms else _BEFORE
        if version.partition in self.late_from:
            place = 1
        elif self.source_of(version) is not None:
            place = 2 if version.partition == home else 0
        else:
            place = 2 if era == _SINCE else 0
        return era, origin.timestamp_ms, place, origin.partition, origin.offset

    def decide(self, retired: Sequence[Version], survivors: Sequence[Version], home: int) -> tuple[Verdict, Version]:
        """Return what must be done for a key: ``COPY`` and the version to write to ``home``; ``PLACED`` and the copy
        that is there already; ``NEWER`` and the survivor's version that is newer than all of ``retired``.

        Args:
            retired: the last version in each retired partition that holds the key; one at least.
            survivors: the same of the survivors.
            home: the survivor that the key belongs to now.
        """
        held = {version.partition: version.offset for version in retired}
        sources = [(version, self.source_of(version)) for version in survivors]
        live = [v for v, source in sources if source is None or source.offset >= held.get(source.partition, 0)]
        newest_retired = max(retired, key=lambda version: self.rank(version, home))
        if not live:
            return Verdict.COPY, newest_retired
        newest = max((newest_retired, *live), key=lambda version: self.rank(version, home))
        if newest is newest_retired:
            return Verdict.COPY, newest
        placed = self.stands_for(newest) == self.stands_for(newest_retired)
        return (Verdict.PLACED if placed else Verdict.NEWER), newest

    def is_newer(self, version: Version, than: Version, home: int) -> bool:
        """Whether ``version``, which came to ``home`` after the decision to write ``than`` there, is as new or newer,
        so that ``than`` must not be written behind it. A producer's record always is."""
        here, there = self.stands_for(version), self.stands_for(than)
        if here.partition == there.partition:
            return here.offset >= there.offset
        if self.source_of(version) is None:
            return True
        if than.partition in self.late_from:
            return self.decide([than], [version], home)[0] is not Verdict.COPY
        return self.rank(version, home) >= self.rank(than, home)


@dataclass(frozen=True)
class KeyPlaces:
    """Where the producers of a topic place keys, by a partitioner or its name. Picklable where it is a name."""

    topic: str
    partitioner: str | Partitioner

    @classmethod
    def of(cls, conf: Mapping[str, Any], topic: str) -> KeyPlaces:
        """Return the places by the partitioner of ``conf``; ConfigError where there is none, or it places no keys."""
        rule, own = chosen_partitioner(conf, DEFAULT_NAME)
        if rule is not None and rule.placer is None:
            raise ConfigError(f"partitioner: {rule.name!r} places no keys; use that of the producers of {topic!r}")
        return cls(topic, own if rule is None else rule.name)

    def indices(self, keys: Sequence[bytes], count: int) -> NDArray[np.int32]:
        """Return the index of each key among ``count`` partitions; 0 for one that is not placed by its bytes."""
        if isinstance(self.partitioner, str):
            return partition_column(keys, count, self.partitioner, null_partitions=0)
        picks = self.partitioner.for_topic(self.topic)
        return np.fromiter(
            (picks.partition(key, count) if picks.requires_consistency(key) else 0 for key in keys), np.int32, len(keys)
        )

    @property
    def empty_placed(self) -> bool:
        """Whether an empty key is placed by its bytes, like any other."""
        chosen = named(self.partitioner) if isinstance(self.partitioner, str) else self.partitioner
        return chosen.for_topic(self.topic).requires_consistency(b"")
