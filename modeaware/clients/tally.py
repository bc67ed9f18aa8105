"""Counters of rare events, over all mode-aware clients of this process."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping

from modeaware.callouts import InnerLock

SENDS_REFUSED = "sends-refused"
RESIZE_WARNINGS = "resize-warnings"
PARTITIONS_LEFT_OUT = "partitions-left-out"
PARTITIONS_TAKEN_UP = "partitions-taken-up"
NAMES = (SENDS_REFUSED, RESIZE_WARNINGS, PARTITIONS_LEFT_OUT, PARTITIONS_TAKEN_UP)


class Tally:
    """Counters. Thread-safe; in a forked child they begin at 0. Not for per-record events."""

    def __init__(self) -> None:
        self._lock = InnerLock()
        self._counts: Counter[str] = Counter()

    def add(self, name: str, times: int = 1) -> None:
        """Count ``times`` more events of ``name`` (one of :data:`NAMES`)."""
        with self._lock:
            self._counts[name] += times

    def counts(self) -> Mapping[str, int]:
        """Return the count of each of :data:`NAMES`."""
        with self._lock:
            return {name: self._counts[name] for name in NAMES}

    def forget_parent(self) -> None:
        """Begin anew in a forked child: the parent may hold the lock."""
        self._lock = InnerLock()
        self._counts = Counter()


TALLY = Tally()
os.register_at_fork(after_in_child=TALLY.forget_parent)
