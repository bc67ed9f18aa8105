"""Views from the mode log: the tail's records folded into views, and listeners told of each change."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.config import ClientConfig
from modeaware.errors import ErrorCode, ModeSourceError
from modeaware.modelog.reader import read_to_end
from modeaware.modelog.records import ClaimRecord
from modeaware.modelog.replay import Replay
from modeaware.modelog.stream import LogAbsent, LogRecord, LogRewound
from modeaware.modelog.tail import Tail
from modeaware.topic_view import TopicView
from modeaware.views.cache import MetadataCache
from modeaware.views.source import ViewListener

logger = logging.getLogger(__name__)

MIN_TTL_MS = 1_000
"""A client's ``topic.metadata.refresh.interval.ms`` may be tiny; the log pushes its changes anyway."""


class LogViews:
    """The views of one cluster, kept by one tail. Implements ``Views`` for its handles and ``TailSink`` for the tail.

    One lock orders everything that changes views and calls listeners; reading a view needs only the cache's.

    Args:
        conf: librdkafka settings of the client.
        config: names the log; how old views may grow.
        wanted: whether anybody still uses this; asked by the tail.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        config: ClientConfig,
        wanted: Callable[[], bool] = lambda: True,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._conf = dict(conf)
        self._topic = config.mode_log_topic
        self.wanted = wanted
        self._turn = threading.RLock()
        self._ready = threading.Event()
        self._settled = threading.Event()  # not set while the log is read from its beginning
        self._check_now = threading.Event()
        self._replay = Replay()
        self._staged: Replay | None = None  # what is read from the beginning, until its end is reached
        self._reading = 0  # counts those readings
        self._position = 0
        self._present = False
        self._older: set[str] = set()
        self._listeners: list[ViewListener] = []
        self._clock = clock
        self._cache = MetadataCache(
            self._fetch,
            ttl_ms=max(config.refresh_interval_ms, MIN_TTL_MS),
            clock=clock,
            name=f"the mode log {self._topic!r}",
        )
        self._tail = Tail(self._conf, self._topic, self, clock)

    def start(self) -> None:
        """Start the tail. Blocks on nothing."""
        self._tail.start()

    def stop(self, timeout_s: float) -> bool:
        """Stop the tail; the last views stay. Returns whether its thread has ended within ``timeout_s``."""
        return self._tail.stop(timeout_s)

    # Views

    def wait_ready(self, timeout_s: float) -> bool:
        return self._ready.wait(timeout_s)

    @property
    def ready(self) -> bool:
        return self._ready.is_set()

    def view(self, topic: str) -> TopicView:
        return self._cache.held(topic) or TopicView.unlisted(topic)

    def views(self) -> Mapping[str, TopicView]:
        return self._cache.all()

    def claim(self) -> ClaimRecord | None:
        return self._replay.claim

    def refresh(self, timeout_s: float) -> None:
        self._cache.refresh(None, timeout_s)

    def subscribe(self, listener: ViewListener) -> None:
        with self._turn:
            self._listeners.append(listener)
            if self._ready.is_set():
                self._call(listener, self._cache.all())

    def unsubscribe(self, listener: ViewListener) -> None:
        # Without the lock: a caller may hold one of its own that its running listener waits for.
        try:
            self._listeners.remove(listener)
        except ValueError:
            logger.debug("%r was not subscribed", listener)

    def error(self) -> Exception | None:
        return self._cache.error()

    def stats(self) -> dict[str, Any]:
        return {
            "source": "log",
            "ready": self._ready.is_set(),
            "log_topic": self._topic,
            "log_present": self._present,
            "log_position": self._position,
            "rejected_records": self._replay.rejected,
            "unreadable_topics": self._replay.unreadable,
            "listeners": len(self._listeners),
            **self._cache.stats(),
        }

    # TailSink: called by the tail's thread

    def begin(self) -> None:
        with self._turn:
            self._settled.clear()
            self._staged = Replay()
            self._reading += 1

    def records(self, records: Sequence[LogRecord]) -> None:
        with self._turn:
            if self._staged is None:
                self._apply(records)
                self._cache.confirmed()
            else:
                for record in records:
                    self._staged.apply(record.key, record.value)

    def reached_end(self, position: int) -> None:
        with self._turn:
            self._present = True
            if self._staged is not None:
                self._adopt(self._staged, position)
            self._position = max(self._position, position)
            self._confirm()

    def absent(self) -> None:
        with self._turn:
            if self._present:
                text = f"topic {self._topic!r} is gone; restore it, its controller keeps the whole truth there"
                self._cache.failed(ModeSourceError(f"mode log: {text}", topic=self._topic))
                return
            if not self._ready.is_set():
                logger.info("there is no mode log %r yet: every partition is ReadWrite", self._topic)
            self._position = 0
            self._confirm()

    def failed(self, error: ModeSourceError) -> None:
        self._cache.failed(error)

    def check_due(self) -> bool:
        return self._check_now.is_set() or self._cache.expired()

    # The fold; all of it under self._turn

    def _confirm(self) -> None:
        self._check_now.clear()
        self._settled.set()
        self._cache.confirmed()
        if not self._ready.is_set():
            self._ready.set()
            self._tell(self._cache.all())

    def _adopt(self, staged: Replay, position: int) -> None:
        """Put a fresh reading of the log in the place of what was held.

        A topic that it does not mention keeps its view: only a tombstone makes one go (invariant I4).
        """
        self._replay, self._staged = staged, None
        self._position = position
        gone = [view.topic for view in self._cache.all().values() if view.topic_id in staged.removed]
        self._publish({*staged.topics, *gone})

    def _apply(self, records: Sequence[LogRecord]) -> None:
        changed: set[str] = set()
        for record in records:
            if record.offset < self._position:
                continue  # a refresh was faster than the tail
            self._position = record.offset + 1
            changed |= self._replay.apply(record.key, record.value)
            if record.value is None and record.key is not None:
                changed |= self._held_under(record.key)
        self._publish(changed)

    def _held_under(self, key: bytes) -> set[str]:
        """Topics with this topic id whose view is older than the reading of the log that the fold is made from."""
        topic_id = key.decode(errors="replace")
        return {view.topic for view in self._cache.all().values() if view.topic_id == topic_id}

    def _publish(self, topics: Iterable[str]) -> None:
        views = [record.view() for topic in topics if (record := self._replay.record(topic)) is not None]
        listed = {view.topic for view in views}
        for view in views:
            held = self._cache.held(view.topic)
            older = held is not None and held.topic_id == view.topic_id and view.version < held.version
            if held is not None and older and view.topic not in self._older:
                self._older.add(view.topic)
                logger.warning(
                    "the mode log %r tells %s at version %s, older than the view held (%s); the newer view stays. "
                    "If the log was replaced on purpose, restart this client",
                    *(self._topic, view.topic, view.version, held.version),
                )
        changed = self._cache.offer(views) | self._cache.remove(topic for topic in topics if topic not in listed)
        if changed and self._ready.is_set():
            self._tell(changed)

    def _tell(self, changed: Mapping[str, TopicView]) -> None:
        for listener in list(self._listeners):
            if listener in self._listeners:  # it may have been taken away meanwhile
                self._call(listener, changed)

    def _call(self, listener: ViewListener, changed: Mapping[str, TopicView]) -> None:
        try:
            listener(changed)
        except Exception:
            logger.exception("a listener of partition modes failed: %r", listener)

    # refresh(): a second reader, in the caller's thread, from where the tail is

    def _fetch(self, _topics: Collection[str] | None, timeout_s: float) -> Iterable[TopicView]:
        deadline_s = self._clock.monotonic_s() + timeout_s
        try:
            while not self._read_on(deadline_s):
                logger.debug("the mode log %r is being read from its beginning; waiting for that", self._topic)
        except ModeSourceError:
            self._check_now.set()  # whether the log can be read at all is for the tail to say
            raise
        return ()

    def _read_on(self, deadline_s: float) -> bool:
        """Read from the tail's position to the end. False when the tail began anew meanwhile."""
        if not self._settled.wait(max(deadline_s - self._clock.monotonic_s(), 0)):
            why = self._cache.error() or "its first reading has not come to the end"
            raise ModeSourceError(
                f"mode log: {self._topic!r} was not read to its end in time: {why}", code=ErrorCode.REQUEST_TIMED_OUT
            )
        with self._turn:
            reading, start = self._reading, self._position
        current = True

        def apply(records: Sequence[LogRecord]) -> None:
            nonlocal current
            with self._turn:
                current = current and reading == self._reading
                if current:
                    self._apply(records)

        left_s = max(deadline_s - self._clock.monotonic_s(), 0)
        try:
            end = read_to_end(self._conf, self._topic, start, apply, left_s, clock=self._clock)
        except LogAbsent:
            if self._present:
                raise
            return True
        except LogRewound:
            self._settled.clear()
            self._tail.read_anew()
            return False
        with self._turn:
            if current and reading == self._reading:
                self._position = max(self._position, end)
                return True
        return False
