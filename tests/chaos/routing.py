"""Judges where aware writers sent their records, and counts what landed in partitions that were retired then."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from tests.chaos.history import Bounds, History
from tests.chaos.journal import UNPLACED
from tests.chaos.record import Identity
from tests.chaos.verdict import Verdict


def check_routing(history: History, verdict: Verdict) -> None:
    """Aware writers: one key, one view, one partition, and that a writable one. Counts how much could be judged."""
    homes: dict[tuple[int, int], int] = {}  # (version, key) -> partition
    spans: dict[int, list[tuple[int, int]]] = {}
    for retired in history.retired:
        spans.setdefault(retired.partition, []).append((retired.first, retired.end))
    for writer in history.writers:
        if not writer.aware:
            continue
        firsts = [bounds.first for bounds in writer.bounds]
        for number, offset, _, partition, _ in writer.acks:
            verdict.routing["aware"] += 1
            if offset != UNPLACED:
                landed = any(first <= offset < end for first, end in spans.get(partition, ()))
                verdict.landed_retired += landed
            bounds = _bounds_at(writer.bounds, firsts, number & 0xFFFFFFFF)
            if bounds is None or bounds.lower != bounds.upper:
                continue  # the view changed while it was sent: either may have been in force
            verdict.routing["homes"] += 1
            version, key = bounds.lower, number >> 32 & 0xFFFF
            what = f"{partition}@{offset}: {Identity.of(number)} of {writer.name} under version {version}"
            home = homes.setdefault((version, key), partition)
            if home != partition:
                verdict.broken("moved", f"{what}; others went to {home}")
            writable = history.writable.get(version)
            if writable is None:
                continue
            verdict.routing["writable"] += 1
            if partition not in writable:
                verdict.broken("retired-chosen", f"{what}; writable are {list(writable)}")


def _bounds_at(bounds: Sequence[Bounds], firsts: Sequence[int], sequence: int) -> Bounds | None:
    index = bisect_right(firsts, sequence) - 1
    return bounds[index] if index >= 0 else None
