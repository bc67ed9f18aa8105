"""Topics as a plan's sample would show them, without a Kafka."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from modeaware.plan.sample import Sample, SampledRecord, Stretch, choose_stretches, recent_from

Place = Callable[[bytes | None, int], int]
"""Key and the record's number to its partition."""


def records_of(keys: Iterable[bytes | None], place: Place) -> list[tuple[int, bytes | None, int]]:
    """(partition, key, size) in the order of sending."""
    return [(place(key, number), key, 100) for number, key in enumerate(keys)]


def some_keys(count: int, records: int, seed: int = 1) -> list[bytes]:
    """``records`` keys, drawn from ``count`` different ones."""
    randomness = random.Random(seed)
    return [b"key-%d" % randomness.randrange(count) for _ in range(records)]


def sample_of(sent: Iterable[tuple[int, bytes | None, int]], count: int, asked: int = 10_000) -> Sample:
    """What reading a topic of ``count`` partitions would bring, a record a second."""
    logs: dict[int, list[SampledRecord]] = {p: [] for p in range(count)}
    for number, (partition, key, size) in enumerate(sent):
        log = logs[partition]
        log.append(SampledRecord(partition, len(log), key, size, 1_000_000 + number * 1000))
    ends = {p: Stretch(0, len(log)) for p, log in logs.items()}
    places = choose_stretches(ends, asked)
    found = [r for p, stretches in places.items() for place in stretches for r in logs[p][place.start : place.end]]
    recent = {p: recent_from(all_) for p, all_ in places.items()}
    from_start = all(all_[0].start == 0 for all_ in places.values())
    return Sample("orders", count, asked, ends, tuple(found), recent, from_start)
