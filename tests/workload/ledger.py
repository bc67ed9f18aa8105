"""What became of each record: where it was acknowledged, read and found, and when each group read it.

A ledger is filled while clients of this process work, or from their journals afterwards. It takes some 30 bytes a
record, so the records of a run that goes on for hours are judged and dropped in parts (:meth:`Ledger.split`).
"""

from __future__ import annotations

import threading
import time
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from enum import Enum
from itertools import repeat
from typing import NamedTuple

from tests.workload.journal import UNPLACED, Kind, Sink, unpack_bounds
from tests.workload.record import Identity, is_of, log_name
from tests.workload.verdict import Verdict

_GROWTH = 4_096
PLACED, ACKED, STORED, SIGHTED = 1, 2, 4, 8


class Outcome(Enum):
    """What became of a transaction, as its writer was told. UNKNOWN: it was not."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Bounds(NamedTuple):
    """From the record ``first`` on, partitions were chosen under a view between these versions, both included."""

    first: int
    lower: int
    upper: int


class Run:
    """One incarnation of a writer and its records, by sequence number.

    Attributes:
        name: the writer's, the same for all of its incarnations; empty if no such writer is known.
        once, in_order: what it promises: each record once, as an idempotent producer does; and the order of each key.
        firsts, outcomes: its transactions, in order: the first record of each, and what became of it.
        bounds: under which views it sent, ascending; empty if it is not aware.
        ended: whether it came to its end in good order, with all it had sent settled.
        marks: PLACED, ACKED, STORED and SIGHTED of each record.
        first_ms, last_ms: of each group the times of its first and its latest reading of each record, plus 1.
        highest: of each group the latest record of each key that it was given.
    """

    def __init__(self, groups: int) -> None:
        self.name = ""
        self.aware = self.transactional = self.ended = False
        self.once = self.in_order = True
        self.firsts: list[int] = []
        self.outcomes: list[Outcome] = []
        self.bounds: list[Bounds] = []
        self.refused: Counter[int] = Counter()
        self.marks, self.keys, self.logs, self.offsets = array("B"), array("H"), array("H"), array("I")
        self.first_ms = [array("I") for _ in range(groups)]
        self.last_ms = [array("I") for _ in range(groups)]
        self.highest: list[dict[int, int]] = [{} for _ in range(groups)]

    def reach(self, sequence: int) -> None:
        """Have a place for the record."""
        if sequence >= len(self.marks):
            more = sequence + _GROWTH - len(self.marks)
            for each in (self.marks, self.keys, self.logs, self.offsets, *self.first_ms, *self.last_ms):
                each.extend(repeat(0, more))

    def having(self, marks: int) -> Iterator[int]:
        """The sequence numbers of the records that have any of these marks."""
        return (sequence for sequence, found in enumerate(self.marks) if found & marks)

    def transaction(self, sequence: int) -> int:
        """The place of the transaction that the record was sent in."""
        return max(bisect_right(self.firsts, sequence) - 1, 0)

    def outcome(self, sequence: int) -> Outcome:
        """COMMITTED for what was sent without a transaction."""
        return self.outcomes[self.transaction(sequence)] if self.outcomes else Outcome.COMMITTED


class Ledger:
    """All that is known of the records of a workload. Thread-safe.

    Args:
        groups: the groups that have to read everything.
        ordered: those of them that are given each key in its order, across partitions and topics. Their readings have
            to be noted in the order in which they came.
        now_ms: the run's time; of the ledger's own making by default.

    Attributes:
        verdict: what was found to be wrong while entries were noted.
        distinct: group -> how many records it has read.
        again: group -> threes (flat): the index of a log, and the times (ms) of a first reading there and of a later
            one.
        unsure: group -> spans of time (ms): a commit of it failed, or a member lost its partitions, at the end of each.
        taken_ms: group -> log -> when a member took it.
    """

    def __init__(
        self, groups: Iterable[str], ordered: Collection[str] = (), now_ms: Callable[[], int] | None = None
    ) -> None:
        began_ns = time.monotonic_ns()
        self.now_ms = now_ms or (lambda: (time.monotonic_ns() - began_ns) // 1_000_000)
        self.groups = tuple(groups)
        self.ordered = ordered
        self.verdict = Verdict()
        self.runs: dict[int, Run] = {}
        self.logs: list[int] = []
        self.distinct: Counter[str] = Counter()
        self.again: dict[str, array[int]] = {group: array("I") for group in self.groups}
        self.unsure: dict[str, list[tuple[int, int]]] = {group: [] for group in self.groups}
        self.taken_ms: dict[str, dict[int, list[int]]] = {group: {} for group in self.groups}
        self._indexes: dict[int, int] = {}
        self._dropped: set[int] = set()
        self._turn = threading.Lock()

    def writer(
        self,
        run: int,
        name: str,
        *,
        aware: bool = False,
        transactional: bool = False,
        once: bool = True,
        in_order: bool = True,
    ) -> Sink:
        """What one incarnation of a writer notes into."""
        with self._turn:
            made = self._run(run)
            made.name, made.aware, made.transactional = name, aware, transactional
            made.once, made.in_order = once, in_order
        return _WriterSink(self, made)

    def reader(self, group: str, name: str, *, holds: bool = False) -> Sink:
        """What one incarnation of a member of a group notes into.

        Args:
            holds: it notes which partitions it takes and drops, so that it can be told when it reads backwards.
        """
        return _ReaderSink(self, group, name, holds)

    def store(self, number: int, log: int, offset: int) -> None:
        """Note that a record lies there at the end."""
        with self._turn:
            self._sight(number, log, offset, STORED | SIGHTED)

    def note_of_writer(self, writer: Run, kind: int, number: int, log: int, offset: int) -> None:
        with self._turn:
            if kind == Kind.ACKED:
                self._sight(number, log, offset, ACKED)
            elif kind == Kind.REFUSED:
                writer.refused[offset] += 1
            elif kind == Kind.VIEW:
                writer.bounds.append(Bounds(offset, *unpack_bounds(number)))
            elif kind == Kind.BEGUN:
                writer.firsts.append(offset)
                writer.outcomes.append(Outcome.UNKNOWN)
            elif kind == Kind.ENDED:
                writer.ended = True
            else:
                writer.outcomes[-1] = Outcome.COMMITTED if kind == Kind.COMMITTED else Outcome.ABORTED

    def note_of_reader(self, group: str, kind: int, log: int, offset: int, at_ms: int) -> None:
        with self._turn:
            if kind == Kind.COMMIT_FAILED:
                self.unsure[group].append((min(offset, at_ms), at_ms))
            elif kind == Kind.TAKEN:
                self.taken_ms[group].setdefault(log, []).append(at_ms)

    def read(self, group: str, number: int, log: int, offset: int, at_ms: int) -> None:
        """Note that a group was given a record."""
        with self._turn:
            run, elsewhere = self._sight(number, log, offset, SIGHTED)
            if run is None:
                return
            sequence = number & 0xFFFFFFFF
            index = self.groups.index(group)
            firsts, lasts, highest = run.first_ms[index], run.last_ms[index], run.highest[index]
            before = firsts[sequence]
            firsts[sequence] = min(before or at_ms + 1, at_ms + 1)
            lasts[sequence] = max(lasts[sequence], at_ms + 1)
            if before and elsewhere:
                return
            if before:
                self.again[group].extend((run.logs[sequence], min(before - 1, at_ms), max(before - 1, at_ms)))
                return
            self.distinct[group] += 1
            key = number >> 32 & 0xFFFF
            latest = highest.get(key, -1)
            if sequence < latest and run.in_order and group in self.ordered:
                self.verdict.broken("order", f"{group} was given {Identity.of(number)} after record {latest}")
            highest[key] = max(sequence, latest)

    def _sight(self, number: int, log: int, offset: int, marks: int) -> tuple[Run | None, bool]:
        """Mark a record and note its place; its run (None: dropped), and whether it was seen elsewhere before."""
        if number >> 48 in self._dropped:
            return None, False
        run, sequence = self._run(number >> 48), number & 0xFFFFFFFF
        run.reach(sequence)
        run.keys[sequence] = number >> 32 & 0xFFFF
        before = run.marks[sequence]
        run.marks[sequence] = before | marks
        if offset == UNPLACED:
            return run, False
        index = self.index(log)
        if not before & PLACED:
            run.marks[sequence] |= PLACED
            run.logs[sequence], run.offsets[sequence] = index, offset
        elif (run.logs[sequence], run.offsets[sequence]) != (index, offset):
            if run.once:
                first = f"{log_name(self.logs[run.logs[sequence]])}@{run.offsets[sequence]}"
                self.verdict.broken("doubled", f"{Identity.of(number)} at {first} and {log_name(log)}@{offset}")
            return run, True
        return run, False

    def _run(self, run: int) -> Run:
        if run not in self.runs:
            self.runs[run] = Run(len(self.groups))
        return self.runs[run]

    def index(self, log: int) -> int:
        """The place of a log in :attr:`logs`."""
        index = self._indexes.get(log)
        if index is None:
            index = self._indexes[log] = len(self.logs)
            self.logs.append(log)
        return index

    def describe(self, number: int, sequence: int) -> str:
        """A record of a run, and where it lies, for people."""
        run = self.runs[number]
        what = f"{Identity(number, run.keys[sequence], sequence)} of {run.name or 'nobody'}"
        where = f"{log_name(self.logs[run.logs[sequence]])}@{run.offsets[sequence]}: " if self.logs else ""
        return (where if run.marks[sequence] & PLACED else "") + what

    def unread(self, groups: Iterable[str] | None = None) -> dict[str, int]:
        """Group -> how many acknowledged and committed records it has not read; for all groups by default."""
        with self._turn:
            left = dict.fromkeys(self.groups if groups is None else groups, 0)
            for run in self.runs.values():
                for sequence in run.having(ACKED):
                    if run.outcome(sequence) is Outcome.COMMITTED:
                        for group in left:
                            left[group] += not run.first_ms[self.groups.index(group)][sequence]
            return left

    @property
    def acknowledged(self) -> int:
        """How many records were acknowledged."""
        with self._turn:
            return sum(1 for run in self.runs.values() for _ in run.having(ACKED))

    def committed(self) -> set[Identity]:
        """The records that were acknowledged and, where they were sent in a transaction, committed."""
        with self._turn:
            return {
                Identity(number, run.keys[sequence], sequence)
                for number, run in self.runs.items()
                for sequence in run.having(ACKED)
                if run.outcome(sequence) is Outcome.COMMITTED
            }

    def read_by(self, group: str, topic: str | None = None) -> dict[Identity, tuple[int, int]]:
        """The records that a group was given, of one topic or of all -> the times (ms) of the first and the last
        reading."""
        index = self.groups.index(group)
        with self._turn:
            return {
                Identity(number, run.keys[sequence], sequence): (first - 1, run.last_ms[index][sequence] - 1)
                for number, run in self.runs.items()
                for sequence, first in enumerate(run.first_ms[index])
                if first and (topic is None or is_of(self.logs[run.logs[sequence]], topic))
            }

    def logs_with(self, marks: int) -> set[int]:
        """The logs in which a record with any of these marks lies."""
        with self._turn:
            indexes = {run.logs[each] for run in self.runs.values() for each in run.having(marks)}
            return {self.logs[index] for index in indexes}

    def split(self, below: int) -> Ledger:
        """Move the runs below a number into a ledger of their own. What is noted of them from here on is left out."""
        with self._turn:
            part = Ledger(self.groups, self.ordered, self.now_ms)
            part.logs, part._indexes = list(self.logs), dict(self._indexes)
            part.runs = {run: self.runs.pop(run) for run in sorted(self.runs) if run < below}
            part.verdict, self.verdict = self.verdict, Verdict()
            part.again, self.again = self.again, {group: array("I") for group in self.groups}
            self._dropped.update(part.runs)
            return part


class _WriterSink(Sink):
    def __init__(self, ledger: Ledger, run: Run) -> None:
        super().__init__(ledger.now_ms)
        self._ledger, self._run = ledger, run

    def note(self, kind: int, number: int = 0, log: int = 0, offset: int = 0, at_ms: int | None = None) -> None:
        self._ledger.note_of_writer(self._run, kind, number, log, offset)


class _ReaderSink(Sink):
    """Sees whether a reader is given offsets in order while it holds a log."""

    def __init__(self, ledger: Ledger, group: str, name: str, holds: bool) -> None:
        super().__init__(ledger.now_ms)
        self._ledger, self._group, self._name, self._holds = ledger, group, name, holds
        self._held: dict[int, int] = {}

    def note(self, kind: int, number: int = 0, log: int = 0, offset: int = 0, at_ms: int | None = None) -> None:
        at_ms = self.now_ms() if at_ms is None else at_ms
        if kind != Kind.READ:
            self._held.pop(log, None)
            self._ledger.note_of_reader(self._group, kind, log, offset, at_ms)
            return
        if self._holds and offset <= self._held.get(log, -1):
            what = f"{self._name}: {log_name(log)}@{offset} after {self._held[log]}"
            self._ledger.verdict.broken("read-backwards", what)
        self._held[log] = offset
        self._ledger.read(self._group, number, log, offset, at_ms)
