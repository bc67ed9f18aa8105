"""When to look at which topic again. Pure: the time is passed in, in ms of a clock that is never set."""

from __future__ import annotations

from modeaware.clock import Clock

FIRST_RETRY_MS = 1_000


class Schedule:
    """Due times by topic id, on the time of :func:`elapsed_ms`.

    A topic that does not get on is looked at after 1 s, 2 s, 4 s, ... and at the latest after the check interval
    (``delete.topic.partition.check.interval.ms``); progress starts that series afresh.
    """

    def __init__(self, check_interval_ms: int) -> None:
        self._check_interval_ms = check_interval_ms
        self._due_ms: dict[str, int] = {}
        self._retry_ms: dict[str, int] = {}

    def now(self, topic_id: str, elapsed_ms: int) -> None:
        """Look at the topic at once."""
        self._due_ms[topic_id] = elapsed_ms
        self._retry_ms.pop(topic_id, None)

    def after_check(
        self, topic_id: str, elapsed_ms: int, *, progress: bool, settled: bool, due_in_ms: int | None = None
    ) -> None:
        """Plan the next look: a ``settled`` topic is only watched; another is retried, at the latest in
        ``due_in_ms``."""
        if progress:
            self._retry_ms.pop(topic_id, None)
        if settled:
            self._due_ms[topic_id] = elapsed_ms + self._check_interval_ms
            return
        retry_ms = min(self._retry_ms.get(topic_id, FIRST_RETRY_MS), self._check_interval_ms)
        self._retry_ms[topic_id] = min(retry_ms * 2, self._check_interval_ms)
        self._due_ms[topic_id] = elapsed_ms + (retry_ms if due_in_ms is None else max(min(retry_ms, due_in_ms), 0))

    def forget(self, topic_id: str) -> None:
        """The topic is gone."""
        self._due_ms.pop(topic_id, None)
        self._retry_ms.pop(topic_id, None)

    def due(self, elapsed_ms: int) -> list[str]:
        """The topic ids that are due, the longest due first."""
        return sorted((t for t, due_ms in self._due_ms.items() if due_ms <= elapsed_ms), key=lambda t: self._due_ms[t])

    def next_ms(self) -> int | None:
        """The earliest due time; None when nothing is planned."""
        return min(self._due_ms.values(), default=None)


def elapsed_ms(clock: Clock) -> int:
    """The time a schedule is kept by: a wall clock that is set back would put off every look by as much."""
    return round(clock.monotonic_s() * 1000)
