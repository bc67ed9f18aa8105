"""Which of several values of one key is the newest, and what must be copied. Pure.

Kafka orders records within a partition, and nothing orders them across partitions. An evacuation's rules are:

1. In one partition the record with the highest offset is the newest. A copy (:data:`HEADER`) stands for the record it
   was copied from; where that record's partition holds a newer one of the key, the copy stands for nothing.
2. Producers that honour modes write a key to its survivor from the switch on, and to a retired partition before it. So
   a record in a survivor at or behind its switch offset is newer than what a retired partition held then, whatever the
   producers' clocks say. So is every record written to the survivor while its copies are made.
3. A record that arrived in a retired partition after the switch, before every producer had the new modes or from one
   that honours none (a straggler), was written in parallel to 2.: the timestamp decides, and the record is newer than
   all from before the switch.
4. Of values from before the switch in different partitions (the topic was grown once, or a shrink was undone) the
   timestamp decides.

At equal timestamps a survivor's record behind the switch is newer. Before the switch a retired partition's is: the
count before the shrink was the last one in force. A copy at the key's home stands for its source; one that lies
elsewhere (the count was another one then) ranks below its source, which is copied again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

HEADER = "modeaware.evacuated"
"""The header of each copy: the place and time of its source, and the evacuation."""

_BEFORE, _SINCE = 0, 1


class Source(NamedTuple):
    """What a copy was made of: the record's place, and its timestamp in ms (-1: none)."""

    partition: int
    offset: int
    timestamp_ms: int

    def header(self, evacuation_epoch: int) -> bytes:
        """Return the value of :data:`HEADER`: ``partition@offset@timestamp@evacuation epoch``, in decimal digits."""
        return f"{self.partition}@{self.offset}@{self.timestamp_ms}@{evacuation_epoch}".encode()

    @classmethod
    def parse(cls, header: str | bytes | None) -> Source | None:
        """Return what a header says; None where there is none, or where another application wrote it."""
        if header is None:
            return None
        try:
            text = header.decode("ascii") if isinstance(header, bytes) else header
            partition, offset, timestamp_ms, _ = map(int, text.split("@"))
        except ValueError:
            return None
        return cls(partition, offset, timestamp_ms)


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
            the first straggler broke, or the one in force.
        admitted_ms: when the shrink was admitted, by the controller's clock.
    """

    switch_offsets: Mapping[int, int]
    late_from: Mapping[int, int]
    admitted_ms: int

    def stands_for(self, version: Version) -> Source:
        """Return the record whose place a version has in this order: for a copy in a survivor, its source."""
        if version.source is None or version.partition in self.late_from:
            return version.itself
        return version.source

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
        elif version.source is not None:
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
        live = [v for v in survivors if v.source is None or v.source.offset >= held.get(v.source.partition, 0)]
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
        if version.source is None:
            return True
        if than.partition in self.late_from:
            return self.decide([than], [version], home)[0] is not Verdict.COPY
        return self.rank(version, home) >= self.rank(than, home)
