"""Which record was seen where, when each group first read it, and what became of its transaction."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import repeat

from tests.chaos.history import Outcome, ReaderRun, WriterRun
from tests.chaos.journal import Entry, Kind
from tests.chaos.record import Identity
from tests.chaos.verdict import Verdict

_GROWTH = 65_536


class Pages:
    """An array of numbers per partition, by offset; 0 where nothing was noted. A few bytes a record."""

    def __init__(self, typecode: str) -> None:
        self._pages: defaultdict[int, array[int]] = defaultdict(lambda: array(typecode))

    def page(self, partition: int, offset: int = 0) -> array[int]:
        """The partition's array, long enough for ``offset``."""
        page = self._pages[partition]
        if len(page) <= offset:
            page.extend(repeat(0, offset + _GROWTH - len(page)))
        return page

    def get(self, partition: int, offset: int) -> int:
        page = self._pages.get(partition)
        return page[offset] if page is not None and offset < len(page) else 0

    @property
    def partitions(self) -> Sequence[int]:
        return sorted(self._pages)


class Ledger:
    """The sightings of a history.

    Attributes:
        numbers: the identity seen at a position, by any reader.
        present: 1 where a record lay when all was over.
        first_ms: group -> the time of its first reading of a position, plus 1.
        last_ms: likewise of its latest reading.
        again: group -> threes (flat): a partition, and the times (ms) of a first reading there and of a later one.
        unsure: group -> spans of time (ms): a commit of it failed, or a member lost its partitions, at the end of each.
        taken_ms: group -> partition -> when a member took it.
    """

    def __init__(self, groups: Sequence[str], verdict: Verdict) -> None:
        self._verdict = verdict
        self.numbers = Pages("Q")
        self.present = Pages("B")
        self.first_ms = {group: Pages("I") for group in groups}
        self.last_ms = {group: Pages("I") for group in groups}
        self.again: dict[str, array[int]] = {group: array("I") for group in groups}
        self.unsure: dict[str, list[tuple[int, int]]] = {group: [] for group in groups}
        self.taken_ms: dict[str, dict[int, list[int]]] = {group: {} for group in groups}

    def read_by(self, reader: ReaderRun) -> None:
        """Take in one reader's journal."""
        first_ms, last_ms = self.first_ms[reader.group], self.last_ms[reader.group]
        again = self.again[reader.group]
        held: dict[int, int] = {}  # partition -> the last offset given while it was held
        for number, offset, at_ms, partition, kind in reader.entries:
            if kind == Kind.READ:
                numbers = self.numbers.page(partition, offset)
                if numbers[offset] != number:
                    self._sight(numbers, number, partition, offset, reader.name)
                if offset <= held.get(partition, -1):
                    self._verdict.broken("read-backwards", f"{reader.name}: {partition}@{offset} after {held}")
                held[partition] = offset
                times, latest = first_ms.page(partition, offset), last_ms.page(partition, offset)
                before = times[offset]
                times[offset] = min(before or at_ms + 1, at_ms + 1)
                latest[offset] = max(latest[offset], at_ms + 1)
                if before:
                    again.extend((partition, min(before - 1, at_ms), max(before - 1, at_ms)))
            elif kind == Kind.COMMIT_FAILED:
                self.unsure[reader.group].append((min(offset, at_ms), at_ms))
            else:  # taken or dropped
                held.pop(partition, None)
                if kind == Kind.TAKEN:
                    self.taken_ms[reader.group].setdefault(partition, []).append(at_ms)

    def stored(self, entries: Iterable[Entry]) -> None:
        """Take in the topic's contents at the end."""
        for number, offset, _, partition, _ in entries:
            numbers = self.numbers.page(partition, offset)
            if numbers[offset] != number:
                self._sight(numbers, number, partition, offset, "the end")
            self.present.page(partition, offset)[offset] = 1

    def _sight(self, numbers: array[int], number: int, partition: int, offset: int, reader: str) -> None:
        if numbers[offset]:
            was, now = Identity.of(numbers[offset]), Identity.of(number)
            self._verdict.broken("overwritten", f"{partition}@{offset}: {was}; {reader} was given {now}")
        numbers[offset] = number


class Fates:
    """What became of each record, as far as its writer was told: in which transaction, with which outcome."""

    def __init__(self, writers: Iterable[WriterRun]) -> None:
        self._firsts: dict[int, list[int]] = {}
        self._outcomes: dict[int, list[Outcome]] = {}
        for writer in writers:
            transactions = writer.transactions or ()
            self._firsts[writer.run] = [transaction.first for transaction in transactions]
            self._outcomes[writer.run] = [transaction.outcome for transaction in transactions]

    def knows(self, number: int) -> bool:
        """Whether its run is one of the history's."""
        return number >> 48 in self._firsts

    def transaction(self, number: int) -> tuple[int, int]:
        """The run, and the place in it of the transaction the record was sent in."""
        run = number >> 48
        return run, max(bisect_right(self._firsts[run], number & 0xFFFFFFFF) - 1, 0)

    def outcome(self, number: int) -> Outcome:
        """COMMITTED for what was sent without a transaction."""
        run, index = self.transaction(number)
        return self._outcomes[run][index] if self._outcomes[run] else Outcome.COMMITTED

    def seen(self, number: int) -> bool:
        """Note that a reader was given the record. False: it is one of an aborted transaction.

        A transaction of unknown outcome of which one record was seen was committed: then all of it has to be there.
        """
        outcome = self.outcome(number)
        if outcome is Outcome.UNKNOWN:
            run, index = self.transaction(number)
            self._outcomes[run][index] = Outcome.COMMITTED
        return outcome is not Outcome.ABORTED
