"""A history: all that is known of a run when it is over. Pure data; :mod:`tests.chaos.judge` judges it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from tests.chaos.journal import Entry

OPEN_END = 1 << 32
"""Later than anything: the time, or the offset, of an end that was not seen."""


class Outcome(Enum):
    """What became of a transaction, as its writer was told. UNKNOWN: it was not."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Transaction(NamedTuple):
    """The records ``first`` to ``end`` - 1 (sequence numbers) of a run."""

    first: int
    end: int
    outcome: Outcome


class Bounds(NamedTuple):
    """From the record ``first`` on, partitions were chosen under a view between these versions, both included."""

    first: int
    lower: int
    upper: int


@dataclass(frozen=True)
class WriterRun:
    """One incarnation of a writer.

    Attributes:
        run: its number, see :class:`tests.chaos.record.Identity`.
        name: the writer's, the same for all of its incarnations.
        acks: its ACKED entries, in the order the acknowledgements came.
        transactions: in order, without gaps; None if it is not transactional.
        bounds: under which views it sent, ascending; empty if it is not aware.
        ended: whether it came to its end in good order, with all it had sent settled.
    """

    run: int
    name: str
    aware: bool
    acks: Iterable[Entry]
    transactions: Sequence[Transaction] | None = None
    bounds: Sequence[Bounds] = ()
    ended: bool = False


class ReaderRun(NamedTuple):
    """One incarnation of a member of a group; its READ, TAKEN, DROPPED and COMMIT_FAILED entries in order."""

    name: str
    group: str
    entries: Iterable[Entry]


class Gone(NamedTuple):
    """From ``at_ms`` (at the latest) to ``until_ms`` offsets below ``below`` were out of readers' reach: by ``how``.

    ``deleted`` is for good and for every consumer; ``None`` is a mode, which plain consumers do not honour.
    """

    at_ms: int
    partition: int
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


class Contents(NamedTuple):
    """What a plain consumer (read_committed) found in the topic when all was over: each partition's log start, and
    STORED entries by partition and offset."""

    log_starts: Mapping[int, int]
    stored: Iterable[Entry]


class Chain(NamedTuple):
    """What became of the records of topics that replaced each other, see :mod:`tests.chaos.chains`.

    Attributes:
        acknowledged: how many records were.
        unread: writer -> acknowledged records that its group was not given.
        out_of_order: writer -> how many records the group was given after a later one of their key.
        back: deleted topics that exist again.
    """

    name: str
    acknowledged: int
    unread: Mapping[str, Sequence[str]]
    out_of_order: Mapping[str, int]
    back: Sequence[str]


@dataclass(frozen=True)
class History:
    """A run.

    Attributes:
        groups: the groups that had to read everything.
        contents: None where the run ended before they were read: then nothing can be said of what was not read.
        writable: view version -> the partitions it calls writable, as far as known.
        plain: those of the groups whose members are stock consumers.
        shrinks: the shrinks that were called complete.
        chains: the chains of topics that replaced each other, of those whose end was seen.
    """

    groups: Sequence[str]
    writers: Sequence[WriterRun]
    readers: Sequence[ReaderRun]
    contents: Contents | None
    gone: Sequence[Gone] = ()
    faults: Sequence[Fault] = ()
    writable: Mapping[int, Sequence[int]] = field(default_factory=dict)
    plain: frozenset[str] = frozenset()
    shrinks: Sequence[Shrink] = ()
    chains: Sequence[Chain] = ()
