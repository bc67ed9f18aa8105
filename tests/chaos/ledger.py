"""Who was seen where, and when each group first read it: arrays by partition and offset, a few bytes a record."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import repeat

from tests.chaos.history import ReaderRun
from tests.chaos.journal import Entry, Kind
from tests.chaos.record import Identity
from tests.chaos.verdict import Verdict

_GROWTH = 65_536


class Pages:
    """An array of numbers per partition, by offset; 0 where nothing was noted."""

    def __init__(self, typecode: str) -> None:
        self._typecode = typecode
        self._pages: dict[int, array[int]] = {}

    def page(self, partition: int, offset: int = 0) -> array[int]:
        """The partition's array, long enough for ``offset``."""
        page = self._pages.get(partition)
        if page is None:
            page = self._pages[partition] = array(self._typecode)
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
        numbers: the identity seen at a position, by whomever.
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
                if not before:
                    times[offset] = latest[offset] = at_ms + 1
                else:
                    times[offset] = min(before, at_ms + 1)
                    latest[offset] = max(latest[offset], at_ms + 1)
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

    def _sight(self, numbers: array[int], number: int, partition: int, offset: int, who: str) -> None:
        if numbers[offset]:
            was, now = Identity.of(numbers[offset]), Identity.of(number)
            self._verdict.broken("overwritten", f"{partition}@{offset}: {was}; {who} was given {now}")
        numbers[offset] = number
