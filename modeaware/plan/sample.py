"""A sample of a topic's records: where it is taken, and what it stands for. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from modeaware.lifecycle.facts import TopicFacts

STRETCHES = 4
"""In how many places of a partition records are read; the newest place gives half of them."""


class SampledRecord(NamedTuple):
    """One record, without its value.

    Attributes:
        key: None for a record without one.
        size: bytes of key, value and headers, before compression.
        timestamp_ms: -1 where it has none.
    """

    partition: int
    offset: int
    key: bytes | None
    size: int
    timestamp_ms: int = -1


class Stretch(NamedTuple):
    """The offsets of a partition from ``start`` up to, but without, ``end``."""

    start: int
    end: int

    @property
    def length(self) -> int:
        return max(0, self.end - self.start)


@dataclass(frozen=True)
class Sample:
    """Some records of a topic.

    Attributes:
        count: how many partitions the topic has.
        asked: how many records there were to be at most.
        logs: partition -> its log start and end when the sample was taken; one that could not be asked is missing.
        recent_from: partition -> the offset at which the newer half of its sample begins.
        from_start: whether it begins at each log's start, so that its timestamps span all that the topic holds.
        unread: partitions whose part of the sample could not be read to its end in time.
    """

    topic: str
    count: int
    asked: int
    logs: Mapping[int, Stretch]
    records: tuple[SampledRecord, ...]
    recent_from: Mapping[int, int] = field(default_factory=dict)
    from_start: bool = False
    unread: frozenset[int] = frozenset()

    @cached_property
    def weights(self) -> Mapping[int, float]:
        """Partition -> how many records of it each of its sampled records stands for (>= 1)."""
        sampled = Counter(record.partition for record in self.records)
        return {p: max(1.0, self.logs[p].length / n) if p in self.logs else 1.0 for p, n in sampled.items()}

    @cached_property
    def span_ms(self) -> int | None:
        """The time that the records of the topic span; None where the sample or its timestamps do not tell."""
        if not self.from_start:
            return None
        stamps = [record.timestamp_ms for record in self.records if record.timestamp_ms > 0]
        return max(stamps) - min(stamps) if stamps and max(stamps) > min(stamps) else None

    @property
    def total_records(self) -> int:
        """How many offsets the topic holds."""
        return sum(log.length for log in self.logs.values())

    @cached_property
    def total_bytes(self) -> float:
        """How many bytes the topic holds, before compression, by the sample's record sizes."""
        return sum(record.size * self.weights[record.partition] for record in self.records)

    @cached_property
    def _recent_since_ms(self) -> int | None:
        stamps = sorted(record.timestamp_ms for record in self.records)
        return stamps[len(stamps) // 2] if stamps and stamps[0] > 0 and stamps[-1] > stamps[0] else None

    def is_recent(self, record: SampledRecord) -> bool:
        """Whether it is in the newer half: by time where all have timestamps, else of its partition."""
        if self._recent_since_ms is not None:
            return record.timestamp_ms >= self._recent_since_ms
        return record.offset >= self.recent_from.get(record.partition, 0)


def choose_stretches(logs: Mapping[int, Stretch], asked: int) -> dict[int, tuple[Stretch, ...]]:
    """Where to read: equal shares of all partitions that hold records, each from several places, oldest first.

    What a short partition cannot give the others give. The lengths add up to at most ``asked``. The first place is the
    log's start and the last one ends at its end, so timestamps tell what time the topic spans.

    Raises:
        ValueError: ``asked`` is not positive.
    """
    if asked < 1:
        raise ValueError(f"a sample of {asked} records")
    quotas = _quotas({p: log.length for p, log in logs.items() if log.length > 0}, asked)
    return {p: _places(logs[p], quota) for p, quota in quotas.items() if quota > 0}


def recent_from(stretches: tuple[Stretch, ...]) -> int:
    """The offset at which the newer half of a partition's sample begins."""
    last = stretches[-1]
    return last.start if len(stretches) > 1 else last.start + last.length // 2


def _quotas(lengths: Mapping[int, int], asked: int) -> dict[int, int]:
    if asked < len(lengths):  # not even one of each: partitions spread over all
        spread = sorted(lengths)
        return {spread[i * len(spread) // asked]: 1 for i in range(asked)}
    quotas: dict[int, int] = {}
    left = asked
    waiting = sorted(lengths, key=lambda p: (lengths[p], p))  # the shortest first: what they leave goes to the others
    while waiting:
        partition, *waiting = waiting
        quotas[partition] = min(lengths[partition], left // (len(waiting) + 1))
        left -= quotas[partition]
    return quotas


def _places(log: Stretch, quota: int) -> tuple[Stretch, ...]:
    older = quota // 2 // (STRETCHES - 1)
    if quota >= log.length or older < 1:
        return (Stretch(log.end - quota, log.end),)
    newest = Stretch(log.end - (quota - older * (STRETCHES - 1)), log.end)
    step = (newest.start - log.start - older) / (STRETCHES - 1)
    starts = [log.start + int(i * step) for i in range(STRETCHES - 1)]
    places = [Stretch(start, start + older) for start in starts] + [newest]
    if any(after.start < before.end for before, after in pairwise(places)):  # they would overlap: one piece
        return (Stretch(log.end - quota, log.end),)
    return tuple(places)


@dataclass(frozen=True)
class TopicLook:
    """The topic on the brokers; ``unknown``: what could not be looked up, in words."""

    facts: TopicFacts
    unknown: tuple[str, ...] = ()

    @property
    def logs(self) -> dict[int, Stretch]:
        return {p: Stretch(log.log_start, log.end_offset) for p, log in self.facts.partitions.items()}
