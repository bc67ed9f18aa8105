"""Which of several values of one key is the newest, and what has to be copied. Pure.

Kafka orders records within a partition. Across partitions nothing does, so this is what an evacuation goes by:

1. In one partition the record with the highest offset is the newest. One that an evacuation wrote (:data:`HEADER`)
   stands for the record it was copied from; where that partition holds a newer one of the key, it stands for nothing.
2. Producers that honour modes write a key to its survivor from the switch on, and to a retired partition before it. So
   a record that lies in a survivor at or behind its switch offset is newer than what a retired partition held then,
   whatever the clocks of the producers say. So is all that is written to it while its copies are made.
3. What arrived in a retired partition after that, in the moments until every producer was told or from one that
   honours no modes (a straggler), was written beside 2.: the timestamp decides, and it is newer than all that was
   written before the switch.
4. Of values from before the switch that lie in different partitions (the topic was grown once, or a shrink was taken
   back) the timestamp decides.

At equal timestamps a survivor's record behind the switch is the newer one. Before the switch a retired partition's is:
the count before the shrink was the last one in force. A copy that lies at the key's home stands for its source; one
that lies elsewhere (the count was another one then) is less than its source, which is copied again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

HEADER = "modeaware.evacuated"
"""The header of each record that an evacuation writes: where the value was, since when, and by which evacuation."""

_BEFORE, _SINCE = 0, 1


class Source(NamedTuple):
    """What a copy was made of: the offset it has there, and its timestamp in ms (-1: it had none)."""

    partition: int
    offset: int
    timestamp_ms: int

    def header(self, evacuation_epoch: int) -> bytes:
        """The value of :data:`HEADER`: ``partition@offset@timestamp@evacuation epoch``, in decimal digits."""
        return f"{self.partition}@{self.offset}@{self.timestamp_ms}@{evacuation_epoch}".encode()

    @classmethod
    def parse(cls, header: str | bytes | None) -> Source | None:
        """What a header says; None where there is none, or where it is not one of ours."""
        if header is None:
            return None
        try:
            text = header.decode("ascii") if isinstance(header, bytes) else header
            partition, offset, timestamp_ms, _ = map(int, text.split("@"))
        except ValueError:
            return None
        return cls(partition, offset, timestamp_ms)


class Version(NamedTuple):
    """A record of a key: where it lies, its timestamp in ms (-1: none), and what it is a copy of (None: none)."""

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
        switch_offsets: survivor -> its end when the shrink was admitted. One that was revived since, when a part of the
            shrink was undone, has none: there the timestamps tell what was written since.
        late_from: retired partition -> its end when the shrink was admitted. (Of one whose record does not have it, the
            seal that the first straggler broke, or the one in force.)
        admitted_ms: when the shrink was admitted, by the controller's clock.
    """

    switch_offsets: Mapping[int, int]
    late_from: Mapping[int, int]
    admitted_ms: int

    def stands_for(self, version: Version) -> Source:
        """Whose place a version has in this order: of a copy in a survivor that is its source's."""
        if version.source is None or version.partition in self.late_from:
            return version.itself
        return version.source

    def rank(self, version: Version, home: int) -> tuple[int, int, int, int, int]:
        """Grows with how new a version is, among those of different partitions."""
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
        """What has to be done for a key.

        Args:
            retired: of each retired partition that holds the key its last version there; one at least.
            survivors: the same of the survivors.
            home: the survivor that the key belongs to now.

        Returns:
            ``COPY`` and the version to be written to ``home``; ``PLACED`` and the copy of it that is there already;
            ``NEWER`` and the survivor's version that is newer than all of ``retired``.
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
        """Whether ``version``, which came to ``home`` after it was decided to write ``than`` there, is as new or newer:
        that is not to be written behind it. What a producer wrote always is."""
        here, there = self.stands_for(version), self.stands_for(than)
        if here.partition == there.partition:
            return here.offset >= there.offset
        if version.source is None:
            return True
        if than.partition in self.late_from:
            return self.decide([than], [version], home)[0] is not Verdict.COPY
        return self.rank(version, home) >= self.rank(than, home)
