"""When each topic is checked again, and for which topics a small snapshot (of their logs only) is enough. Pure."""

from __future__ import annotations

from modeaware.clock import Clock

FIRST_RETRY_MS = 1_000
MOST_SMALL_SNAPSHOTS = 72
"""The maximum number of small snapshots in a row: six hours at the default interval."""


def elapsed_ms(clock: Clock) -> int:
    """Return the monotonic time for a schedule. (By the wall clock, setting the clock back would delay every check.)"""
    return round(clock.monotonic_s() * 1000)


class Schedule:
    """The due times of topics, by topic id, in the time of :func:`elapsed_ms`. Pure.

    A topic without progress is checked after 1 s, 2 s, 4 s, ... and at the latest after the check interval
    (``delete.topic.partition.check.interval.ms``). Progress restarts the series at 1 s.
    """

    def __init__(self, check_interval_ms: int) -> None:
        self._check_interval_ms = check_interval_ms
        self._due_ms: dict[str, int] = {}
        self._next_ms: int | None = None
        """The earliest due time, cached because it is read twice a second; None if it has to be computed."""
        self._retry_ms: dict[str, int] = {}

    def now(self, topic_id: str, elapsed_ms: int) -> None:
        self._set(topic_id, elapsed_ms)
        self._retry_ms.pop(topic_id, None)

    def after_check(
        self,
        topic_id: str,
        elapsed_ms: int,
        *,
        progress: bool,
        idle: bool,
        due_in_ms: int | None = None,
        pace_ms: int | None = None,
    ) -> None:
        """Plan the next check: for an ``idle`` topic after the check interval; for any other topic after the next wait
        of the series, or after ``due_in_ms`` if that is earlier.

        Args:
            pace_ms: when the progress of the topic's groups calls for the next check. It replaces the wait of the
                series; the check interval stays the limit.
        """
        if progress:
            self._retry_ms.pop(topic_id, None)
        wait_ms = self._check_interval_ms
        if pace_ms is not None:
            wait_ms = min(wait_ms, pace_ms)
        elif not idle:
            wait_ms = min(wait_ms, self._retry_ms.get(topic_id, FIRST_RETRY_MS))
            self._retry_ms[topic_id] = wait_ms * 2
        if due_in_ms is not None and not idle:
            wait_ms = max(min(wait_ms, due_in_ms), 0)
        self._set(topic_id, elapsed_ms + wait_ms)

    def forget(self, topic_id: str) -> None:
        self._due_ms.pop(topic_id, None)
        self._retry_ms.pop(topic_id, None)
        self._next_ms = None

    def _set(self, topic_id: str, due_ms: int) -> None:
        self._due_ms[topic_id] = due_ms
        self._next_ms = None

    def due(self, elapsed_ms: int) -> list[str]:
        next_ms = self.next_ms()
        if next_ms is None or next_ms > elapsed_ms:
            return []
        return sorted((t for t, due_ms in self._due_ms.items() if due_ms <= elapsed_ms), key=lambda t: self._due_ms[t])

    def due_ms(self, topic_id: str) -> int | None:
        """Return when a topic is due; None for an unknown topic."""
        return self._due_ms.get(topic_id)

    def next_ms(self) -> int | None:
        if self._next_ms is None:
            self._next_ms = min(self._due_ms.values(), default=None)
        return self._next_ms


class Resting:
    """Topics at rest: while nothing changes, a *small snapshot* (starts and ends of their logs) is enough. Pure.

    A topic is *at rest* if its last whole snapshot (logs, groups, configs) left nothing to do, and only a change of its
    logs can lead to a step. Each small snapshot is compared with the small one before it, so any change of the logs is
    found. A whole snapshot *counts* until a comparison finds a change. A topic that begins or ceases to rest is a
    change, too. A whole snapshot counts for at most :data:`MOST_SMALL_SNAPSHOTS` small snapshots.
    """

    def __init__(self) -> None:
        self.topic_ids: set[str] = set()
        self._counting: set[str] = set()
        self._small_snapshots = 0

    def after_small_snapshot(self, *, unchanged: bool) -> frozenset[str]:
        """Note a small snapshot of all topics at rest; return the topics that need no whole snapshot now. After a
        change, every topic needs a whole snapshot (invariant I2)."""
        self._small_snapshots += 1
        if not unchanged or self._small_snapshots > MOST_SMALL_SNAPSHOTS:
            self._counting.clear()
            self._small_snapshots = 0
        return frozenset(self._counting)

    def add(self, topic_id: str) -> None:
        """Note a whole snapshot that led to no step."""
        self.topic_ids.add(topic_id)
        self._counting.add(topic_id)

    def discard(self, topic_id: str) -> None:
        """Note that the topic needs a whole snapshot."""
        self.topic_ids.discard(topic_id)
        self._counting.discard(topic_id)
