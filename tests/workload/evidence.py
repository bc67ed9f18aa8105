"""What is known of a run beside its records. Pure data."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.workload.record import log_of

OPEN_END = 1 << 32
"""Later than anything: the time, or the offset, of an end that was not seen."""


class Gone(NamedTuple):
    """From ``at_ms`` (at the latest) to ``until_ms`` offsets below ``below`` were out of readers' reach: by ``how``.

    ``deleted`` is for good and for every consumer; ``None`` is a mode, which plain consumers do not honour.
    """

    at_ms: int
    log: int
    below: int
    how: str
    until_ms: int = OPEN_END


class Shrink(NamedTuple):
    """A shrink that was called complete, by partition, and what a plain client saw in Kafka right then.

    Attributes:
        seals: each retired partition's seal, as the mode log has it; empty where that was not found.
        reclaims: the offset below which its records were to go: the seal, or a required group's commit below it.
        log_starts: its log's start; missing where no broker told in time.
        left: where the log starts below the seal: how many records a plain reader was given from there to the seal.
    """

    at_ms: int
    to: int
    seals: Mapping[int, int]
    reclaims: Mapping[int, int]
    log_starts: Mapping[int, int]
    left: Mapping[int, int]


class Fault(NamedTuple):
    """Something was done to ``target`` from ``from_ms`` to ``to_ms``.

    ``group`` is the group whose readers may read again because of it, ``"*"`` for all, None for none.
    """

    from_ms: int
    to_ms: int
    kind: str
    target: str
    group: str | None = None


def crc32_place(key: bytes, count: int) -> int:
    """Where librdkafka's ``consistent_random`` places a key."""
    return zlib.crc32(key) % count


def logs_of(topics: Iterable[str], logs: Iterable[int]) -> set[int]:
    """Return those of ``logs`` that are of a topic of such a name."""
    names = set(topics)
    return {log for log in logs if any(log_of(name, log & 0xFFFF) == log for name in names)}


@dataclass(frozen=True)
class Evidence:
    """What is known of a run beside its records.

    Attributes:
        groups: the groups that had to read everything; all of the ledger's by default.
        starts: each log's start when all was over; a log that is missing was deleted. None where the run ended before
            what the topics held was noted: then nothing can be said of what was not read.
        writable: view version -> the partitions it calls writable, as far as known.
        counts: topic -> its partition count; all of its partitions were writable as long as it was written to.
        place: (key, count) -> index among the writable partitions.
        seals: log -> the seal of a partition of a topic that was replaced.
        reused: logs of topics whose name belonged to more than one topic: offsets there say nothing.
        plain: those of the groups whose members are stock consumers.
        faults: what may explain that records were read again, or that a transaction's outcome is not known. None where
            that was not noted: then records may be read again.
        shrinks: the shrinks that were called complete.
        back: topics that were deleted and exist again.
    """

    groups: Sequence[str] | None = None
    starts: Mapping[int, int] | None = field(default_factory=dict)
    writable: Mapping[int, Sequence[int]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    place: Callable[[bytes, int], int] = crc32_place
    seals: Mapping[int, int] = field(default_factory=dict)
    reused: Collection[int] = ()
    gone: Sequence[Gone] = ()
    plain: Collection[str] = ()
    faults: Sequence[Fault] | None = None
    shrinks: Sequence[Shrink] = ()
    back: Sequence[str] = ()
