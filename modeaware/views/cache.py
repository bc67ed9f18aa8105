"""The metadata cache: topic -> the last view of its modes, and how far it can be trusted.

It serves sources that push (the tail of the mode log, which offers what it reads and confirms that it is up to date)
and sources that are asked (Metadata over the wire). What it holds never goes back (invariant I4) and outlives a source
that fails (invariant I6): a view that has grown old is asked for again, and served as it is when there is no answer.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Collection, Iterable
from typing import Any

from cachetools import LRUCache, TTLCache

from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.errors import ErrorCode, ModeSourceError
from modeaware.topic_view import TopicView

logger = logging.getLogger(__name__)

Fetch = Callable[[Collection[str] | None, float], Iterable[TopicView]]
"""Asks the source for the views of some topics (None = of all) within so many seconds; raises ModeSourceError.

A source that offers what it finds to the cache itself returns nothing.
"""

_ALL = None


class SourceStopped(ModeSourceError):
    """The source was stopped while it was asked: no failure of it, and nothing to report."""


class _Flight:
    """One call of the source, for everybody who waits for it. Guarded by the cache's lock."""

    def __init__(self) -> None:
        self.topics: set[str] | None = set()
        self.deadline_s = -math.inf
        self.done = False
        self.error: ModeSourceError | None = None

    def add(self, topics: Collection[str] | None) -> None:
        self.topics = None if topics is None or self.topics is None else self.topics | set(topics)

    def covers(self, topics: Collection[str] | None) -> bool:
        return self.topics is None or (topics is not None and self.topics.issuperset(topics))


class MetadataCache:
    """The last view of every topic asked for. Thread-safe; the source is asked outside the lock, one call at a time.

    Args:
        fetch: asks the source.
        ttl_ms: how old a view may grow before its source is asked again (``topic.metadata.refresh.interval.ms``).
        clock: its monotonic time measures ages.
        max_topics: how many topics are held, the least recently used go first; None = all, for a source that cannot be
            asked again for a single topic.
        name: of the source, for the log.
    """

    def __init__(
        self,
        fetch: Fetch,
        *,
        ttl_ms: int,
        clock: Clock = SYSTEM_CLOCK,
        max_topics: int | None = None,
        name: str = "the mode source",
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._name = name
        size = math.inf if max_topics is None else max_topics
        self._held: LRUCache[str, TopicView] = LRUCache(size)
        # Who is in here was confirmed less than a TTL ago; the value is when. The key None stands for all topics.
        self._confirmed: TTLCache[str | None, float] = TTLCache(size, ttl_ms / 1000, timer=clock.monotonic_s)
        self._last_confirmed_s: float | None = None
        self._changed = threading.Condition()
        self._current: _Flight | None = None
        self._next: _Flight | None = None
        self._error: ModeSourceError | None = None
        self._failing_since_s = 0.0
        self._failures = 0

    def held(self, topic: str) -> TopicView | None:
        """The last view, however old; None for a topic that has none. Never asks the source."""
        with self._changed:
            return self._held.get(topic)

    def all(self) -> dict[str, TopicView]:
        """All views that are held."""
        with self._changed:
            return dict(self._held)

    def get(self, topic: str, timeout_s: float) -> TopicView:
        """The view of ``topic``, asked for when it is missing or older than the TTL; the last one where that fails.

        Callers that come while the source is being asked for the topic wait for the same answer.

        Raises:
            ModeSourceError: the source fails and there is no view to fall back on.
        """
        if self.expired(topic):
            try:
                self._ask((topic,), timeout_s, join=True)
            except ModeSourceError:
                view = self.held(topic)
                if view is None:
                    raise
                return view  # reported by failed()
        return self.held(topic) or TopicView.unlisted(topic)

    def refresh(self, topics: Collection[str] | None, timeout_s: float) -> None:
        """Ask the source now (None = for all topics); concurrent callers share one question, asked after the last of
        them came, so each gets what was true when it called, or newer.

        Raises:
            ModeSourceError: no answer within ``timeout_s``; the views that are held stay.
        """
        self._ask(topics, timeout_s, join=False)

    def offer(self, views: Iterable[TopicView]) -> dict[str, TopicView]:
        """Take in views that the source tells; those of an older version of the same topic id are passed over.

        Returns:
            The ones that are now in force and were not before.
        """
        taken = {}
        with self._changed:
            for view in views:
                before = self._held.get(view.topic)
                if before == view or (
                    before is not None and before.topic_id == view.topic_id and view.version < before.version
                ):
                    continue
                self._held[view.topic] = view
                taken[view.topic] = view
        return taken

    def remove(self, topics: Iterable[str]) -> dict[str, TopicView]:
        """Let topics go on the source's word that they are gone.

        Returns:
            For each that was held, the view now in force: unlisted.
        """
        with self._changed:
            return {topic: TopicView.unlisted(topic) for topic in topics if self._held.pop(topic, None) is not None}

    def confirmed(self, topics: Collection[str] | None = _ALL) -> None:
        """The source works, and what is held of ``topics`` (None = of all) is what it says now."""
        now_s = self._clock.monotonic_s()
        with self._changed:
            for topic in (_ALL,) if topics is None else topics:
                self._confirmed[topic] = now_s
            self._last_confirmed_s = now_s
            error, self._error = self._error, None
            failing_s = now_s - self._failing_since_s
        if error is not None:
            logger.warning("%s can be read again after %.1f s", self._name, failing_s)

    def failed(self, error: ModeSourceError) -> None:
        """The source cannot be read now. Said in the log when that begins, not again until it works."""
        with self._changed:
            self._failures += 1
            begins = self._error is None
            self._error = error
            if begins:
                self._failing_since_s = self._clock.monotonic_s()
            held = len(self._held)
        if begins:
            logger.warning("%s; the last views stay in force (%d topics)", error, held)

    def error(self) -> ModeSourceError | None:
        """Why the source cannot be read now; None while it works."""
        return self._error

    def expired(self, topic: str | None = _ALL) -> bool:
        """Whether the view of ``topic`` (None = of all) is missing or was last confirmed a TTL ago or more."""
        with self._changed:
            if _ALL in self._confirmed:
                return False
            return topic not in self._confirmed or topic not in self._held

    def stats(self) -> dict[str, Any]:
        """``topics``, ``view_age_ms`` (since the source last confirmed them; -1 = never), ``stale`` (the source fails,
        or the views are older than the TTL), ``refresh_failures``, ``error``.
        """
        with self._changed:
            last_s = self._last_confirmed_s
            age_ms = -1 if last_s is None else round((self._clock.monotonic_s() - last_s) * 1000)
            return {
                "topics": len(self._held),
                "view_age_ms": age_ms,
                "stale": self._error is not None or (last_s is not None and len(self._confirmed) == 0),
                "refresh_failures": self._failures,
                "error": None if self._error is None else str(self._error),
            }

    def _ask(self, topics: Collection[str] | None, timeout_s: float, *, join: bool) -> None:
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            flight = self._board(topics, deadline_s, join=join)
            if self._await_turn(flight, deadline_s):
                self._fly(flight, deadline_s)
            error = flight.error
            if error is None:
                return
            if flight.deadline_s >= deadline_s or self._clock.monotonic_s() >= deadline_s:
                raise error
            # It failed under a caller with less patience: this one still has time.

    def _board(self, topics: Collection[str] | None, deadline_s: float, *, join: bool) -> _Flight:
        with self._changed:
            if join and self._current is not None and self._current.covers(topics):
                return self._current
            if self._next is None:
                self._next = _Flight()
            self._next.add(topics)
            return self._next

    def _await_turn(self, flight: _Flight, deadline_s: float) -> bool:
        """Wait for the end of ``flight`` (False), or until it is this thread's turn to fly it (True)."""
        with self._changed:
            while not flight.done:
                if self._current is None and flight is self._next:
                    self._current, self._next = flight, None
                    flight.deadline_s = deadline_s
                    return True
                left_s = deadline_s - self._clock.monotonic_s()
                if left_s <= 0 or not self._changed.wait(left_s):
                    raise ModeSourceError(
                        f"{self._name}: another question to it has not been answered in time",
                        code=ErrorCode.REQUEST_TIMED_OUT,
                    )
            return False

    def _fly(self, flight: _Flight, deadline_s: float) -> None:
        error: ModeSourceError | None = ModeSourceError(f"{self._name}: asking it was broken off")
        try:
            self.offer(self._fetch(flight.topics, deadline_s - self._clock.monotonic_s()))
            self.confirmed(flight.topics)
            error = None
        except ModeSourceError as raised:
            if not isinstance(raised, SourceStopped):
                self.failed(raised)
            error = raised
        finally:
            with self._changed:
                flight.error = error
                flight.done = True
                self._current = None
                self._changed.notify_all()
