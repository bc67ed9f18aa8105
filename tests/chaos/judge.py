"""Judges a history: every promise is checked against what was really acknowledged and read. Pure; after jepsen's
``kafka.clj``, with the modes and the deletions added.

A million acknowledgements with three groups take about ten seconds and 100 MiB.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from tests.chaos.fates import Fates
from tests.chaos.history import Bounds, Fault, Gone, History, Outcome, WriterRun
from tests.chaos.journal import UNPLACED
from tests.chaos.ledger import Ledger
from tests.chaos.record import Identity
from tests.chaos.verdict import Verdict

SETTLE_MS = 15_000
"""How long after the end of a fault a group may still read again because of it."""


def judge(history: History) -> Verdict:
    """Judge. The journals behind the history's iterables are read more than once."""
    verdict = Verdict()
    ledger = Ledger(history.groups, verdict)
    for reader in history.readers:
        ledger.read_by(reader)
    if history.contents is None:
        verdict.broken("unjudged", "there are no contents")
    else:
        ledger.stored(history.contents.stored)
    fates = Fates(history.writers)
    _check_log(ledger, fates, verdict)
    _check_acknowledged(history, ledger, fates, verdict)
    _check_gone(history.gone, ledger, verdict)
    _check_routing(history, verdict)
    for group in history.groups:
        _check_duplicates(group, history.faults, ledger, verdict)
    _count_transactions(history.writers, verdict)
    return verdict


def _check_log(ledger: Ledger, fates: Fates, verdict: Verdict) -> None:
    """What lies in the partitions: no record twice, none of an aborted transaction, each key in the order sent."""
    met: dict[int, bytearray] = {}
    for partition in ledger.numbers.partitions:
        last: dict[int, int] = {}  # run and key -> sequence
        for offset, number in enumerate(ledger.numbers.page(partition)):
            if not number:
                continue
            where = f"{partition}@{offset}"
            if not fates.knows(number):
                verdict.broken("stranger", f"{where}: {Identity.of(number)}")
                continue
            run_and_key, sequence = number >> 32, number & 0xFFFFFFFF
            if not fates.seen(number):
                verdict.broken("aborted-read", f"{where}: {Identity.of(number)}")
            marks = met.setdefault(number >> 48, bytearray())
            if len(marks) <= sequence:
                marks.extend(bytes(sequence + 65_536 - len(marks)))
            if marks[sequence]:
                verdict.broken("duplicate-in-log", f"{where}: {Identity.of(number)}, and at another offset")
                continue
            marks[sequence] = 1
            if sequence < last.get(run_and_key, -1):
                verdict.broken("order", f"{where}: {Identity.of(number)} after record {last[run_and_key]}")
            last[run_and_key] = sequence


def _check_acknowledged(history: History, ledger: Ledger, fates: Fates, verdict: Verdict) -> None:
    """What was acknowledged was read by every group, whether it is still there or not."""
    readings = list(ledger.first_ms.items())
    unplaced = _places(history.writers, ledger)
    gaps = _Gaps(history.faults)
    for writer in history.writers:
        gaps.begin(writer.name)
        for number, offset, at_ms, partition, _ in writer.acks:
            gaps.acknowledged(at_ms)
            outcome = fates.outcome(number)
            if outcome is not Outcome.COMMITTED:
                verdict.unsettled += outcome is Outcome.UNKNOWN
                continue
            verdict.acknowledged += 1
            if offset == UNPLACED:
                partition, offset = unplaced.get(number, (partition, UNPLACED))
            found = ledger.numbers.get(partition, offset)
            present = found == number and ledger.present.get(partition, offset)
            if history.contents is None:
                continue
            verdict.deleted += not present
            if found == number:
                missing = [group for group, times in readings if not times.get(partition, offset)]
            else:
                missing = list(history.groups)
                if found:
                    what = f"{partition}@{offset}: {Identity.of(number)} was acknowledged, there is"
                    verdict.broken("overwritten", f"{what} {Identity.of(found)}")
            if missing:
                what = f"{partition}@{offset}: {Identity.of(number)} of {writer.name} at {at_ms} ms, by {missing}"
                verdict.broken("unread" if present else "lost", what)
    verdict.longest_gap_ms = gaps.longest_ms
    for group, times in readings:
        verdict.read[group] = sum(len(page) - page.count(0) for page in map(times.page, times.partitions))
        verdict.duplicates[group] = len(ledger.again[group]) // 2


def _places(writers: Iterable[WriterRun], ledger: Ledger) -> dict[int, tuple[int, int]]:
    """Where the records really are that were acknowledged without an offset."""
    wanted = {ack[0] for writer in writers for ack in writer.acks if ack[1] == UNPLACED}
    return {
        number: (partition, offset)
        for partition in (ledger.numbers.partitions if wanted else ())
        for offset, number in enumerate(ledger.numbers.page(partition))
        if number in wanted
    }


def _check_gone(gone: Iterable[Gone], ledger: Ledger, verdict: Verdict) -> None:
    """Before offsets went out of reach every group had read what lay there."""
    reached: dict[int, int] = {}
    for at_ms, partition, below, how in sorted(gone, key=lambda each: (each.partition, each.at_ms)):
        start = reached.get(partition, 0)
        reached[partition] = max(start, below)
        numbers = ledger.numbers.page(partition)
        for offset in range(start, min(below, len(numbers))):
            if not numbers[offset]:
                continue  # a control record, or nobody ever saw it: then it is lost, if it was acknowledged
            for group, times in ledger.first_ms.items():
                first_ms = times.get(partition, offset) - 1
                if first_ms < 0 or first_ms > at_ms:
                    when = "never" if first_ms < 0 else f"at {first_ms} ms"
                    what = f"{partition}@{offset}: {how} at {at_ms} ms; {group} read it {when}"
                    verdict.broken("deleted-unread", what)


def _check_routing(history: History, verdict: Verdict) -> None:
    """Aware writers: one key, one view, one partition, and that a writable one."""
    homes: dict[tuple[int, int], int] = {}  # (version, key) -> partition
    for writer in history.writers:
        if not writer.aware:
            continue
        firsts = [bounds.first for bounds in writer.bounds]
        for number, offset, _, partition, _ in writer.acks:
            bounds = _bounds_at(writer.bounds, firsts, number & 0xFFFFFFFF)
            if bounds is None or bounds.lower != bounds.upper:
                continue  # the view changed while it was sent: either may have been in force
            version, key = bounds.lower, number >> 32 & 0xFFFF
            what = f"{partition}@{offset}: {Identity.of(number)} of {writer.name} under version {version}"
            home = homes.setdefault((version, key), partition)
            if home != partition:
                verdict.broken("moved", f"{what}; others went to {home}")
            if partition not in history.writable.get(version, (partition,)):
                verdict.broken("retired-chosen", f"{what}; writable are {list(history.writable[version])}")


def _bounds_at(bounds: Sequence[Bounds], firsts: Sequence[int], sequence: int) -> Bounds | None:
    index = bisect_right(firsts, sequence) - 1
    return bounds[index] if index >= 0 else None


def _check_duplicates(group: str, faults: Iterable[Fault], ledger: Ledger, verdict: Verdict) -> None:
    """At least once allows a second reading where something was done to the group between the two."""
    windows = [(fault.from_ms, fault.to_ms + SETTLE_MS) for fault in faults if fault.group in (group, "*")]
    excuses = Windows([*windows, *((at_ms, at_ms) for at_ms in ledger.unsure_ms[group])])
    pairs = ledger.again[group]
    for index in range(0, len(pairs), 2):
        if not excuses.touch(pairs[index], pairs[index + 1]):
            what = f"{group} read something at {pairs[index]} ms and at {pairs[index + 1]} ms"
            verdict.broken("unexplained-duplicate", what)


def _count_transactions(writers: Iterable[WriterRun], verdict: Verdict) -> None:
    for writer in writers:
        verdict.transactions.update(transaction.outcome.value for transaction in writer.transactions or ())


class Windows:
    """Spans of time, merged."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(spans):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def touch(self, start: int, end: int) -> bool:
        """Whether any of them has a moment in common with ``start`` to ``end``."""
        index = bisect_right(self._starts, end) - 1
        return index >= 0 and self._ends[index] >= start


class _Gaps:
    """The longest times without an acknowledgement."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = faults
        self._last_ms: dict[str, int] = {}
        self._harmed = Windows(())
        self._name = ""
        self.longest_ms: dict[str, tuple[int, int]] = {}

    def begin(self, name: str) -> None:
        """An incarnation of this writer is next."""
        self._name = name
        self._harmed = Windows((fault.from_ms, fault.to_ms) for fault in self._faults if fault.target == name)

    def acknowledged(self, at_ms: int) -> None:
        last_ms = self._last_ms.get(self._name, at_ms)
        self._last_ms[self._name] = at_ms
        longest, unharmed = self.longest_ms.setdefault(self._name, (0, 0))
        if at_ms - last_ms > unharmed:
            if not self._harmed.touch(last_ms, at_ms):
                unharmed = at_ms - last_ms
            self.longest_ms[self._name] = (max(longest, at_ms - last_ms), unharmed)
