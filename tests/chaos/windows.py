"""Spans of time: in which something was excused, and in which nothing was acknowledged."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from tests.chaos.history import Fault


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

    def share(self, start: int, end: int) -> float:
        """How much of ``start`` to ``end`` they cover: from 0 to 1."""
        spans = zip(self._starts, self._ends, strict=True)
        covered = sum(max(min(to, end) - max(from_, start), 0) for from_, to in spans)
        return covered / (end - start) if end > start else 0.0


class Gaps:
    """The longest times without an acknowledgement, and the time of all acknowledgements."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = faults
        self._last_ms: dict[str, int] = {}
        self._first_ms: int | None = None
        self._harmed = Windows(())
        self._name = ""
        self.longest_ms: dict[str, tuple[int, int]] = {}

    @property
    def span_ms(self) -> tuple[int, int]:
        """The first acknowledgement and the last."""
        return self._first_ms or 0, max(self._last_ms.values(), default=0)

    def begin(self, name: str) -> None:
        """An incarnation of this writer is next."""
        self._name = name
        self._harmed = Windows((fault.from_ms, fault.to_ms) for fault in self._faults if fault.target == name)

    def acknowledged(self, at_ms: int) -> None:
        if self._first_ms is None or at_ms < self._first_ms:
            self._first_ms = at_ms
        last_ms = self._last_ms.get(self._name, at_ms)
        self._last_ms[self._name] = at_ms
        longest, unharmed = self.longest_ms.setdefault(self._name, (0, 0))
        if at_ms - last_ms > unharmed:
            if not self._harmed.touch(last_ms, at_ms):
                unharmed = at_ms - last_ms
            self.longest_ms[self._name] = (max(longest, at_ms - last_ms), unharmed)
