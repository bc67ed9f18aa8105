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
from modeaware.modelog.records import ClaimRecord, TopicRecord
from modeaware.modelog.replay import Replay
from modeaware.modelog.stream import LogAbsent, LogRecord, LogRewound
from modeaware.modelog.tail import Tail
from modeaware.topic_view import TopicView
from modeaware.views.board import Board, OnBoard

logger = logging.getLogger(__name__)

MIN_TTL_MS = 1_000
"""A client's ``topic.metadata.refresh.interval.ms`` may be tiny; the log pushes its changes anyway."""


class LogViews(OnBoard):
    """The views of one cluster, kept by one tail. ``TailSink`` for the tail; reads alone or on a board that is shared.

    Args:
        conf: librdkafka settings of the client.
        config: names the log; how old views may grow.
        wanted: whether the tail is to go on; asked by it a few times a second.
        board: where to put the views; None = one of its own.
        absence_counts: whether "there is no log" is taken for "every partition is ReadWrite" now. Where not,
            :meth:`settle_absence` is called when it is.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        config: ClientConfig,
        wanted: Callable[[], bool] = lambda: True,
        clock: Clock = SYSTEM_CLOCK,
        board: Board | None = None,
        absence_counts: Callable[[], bool] = lambda: True,
    ) -> None:
        self._conf = dict(conf)
        self._topic = config.mode_log_topic
        self.wanted = wanted
        self._absence_counts = absence_counts
        self._absent = False
        self._settled = threading.Event()  # not set while the log is read from its beginning
        self._check_now = threading.Event()
        self._replay = Replay()
        self._staged: Replay | None = None  # what is read from the beginning, until its end is reached
        self.readings = 0
        """How often the log was read from its beginning: at first, and after it was out of reach."""
        self._position = 0
        self._told_to = 0  # up to where the views in force have the log
        self._present = False
        self._older: set[str] = set()
        self._clock = clock
        ttl_ms = max(config.refresh_interval_ms, MIN_TTL_MS)
        self.board = board or Board(self.fetch, ttl_ms, clock, f"the mode log {self._topic!r}")
        self._turn = self.board.turn
        self.tail = Tail(self._conf, self._topic, self, clock)

    # Views, as far as the board does not know

    def claim(self) -> ClaimRecord | None:
        return self._replay.claim

    def removed(self, topic_ids: Iterable[str]) -> tuple[str, ...]:
        removed = self._replay.removed
        return tuple(topic_id for topic_id in topic_ids if topic_id in removed)

    def views_of(self, topic: str) -> list[TopicView]:
        """The views of all topic ids that have a record under that name; the one written last comes last."""
        with self._turn:
            return [record.view() for record in self._replay.records_of(topic)]

    def stats(self) -> dict[str, Any]:
        return {
            "source": "log",
            "log_topic": self._topic,
            "log_present": self._present,
            "log_position": self._told_to,
            "rejected_records": self._replay.rejected,
            "unreadable_topics": self._replay.unreadable,
            **self.board.stats(),
        }

    @property
    def present(self) -> bool:
        """Whether there is a log, as far as is known."""
        return self._present

    @property
    def spoke(self) -> bool:
        """Whether something is known of the log, be it that it is absent or cannot be read."""
        return self.board.ready or self._absent or self.board.cache.error() is not None

    # TailSink: called by the tail's thread

    def begin(self) -> None:
        with self._turn:
            self._settled.clear()
            self._staged = Replay()
            self.readings += 1
            self._absent = False

    def records(self, records: Sequence[LogRecord]) -> None:
        with self._turn:
            if self._staged is None:
                self._apply(records)
                self.board.cache.confirmed()
            else:
                for record in records:
                    self._staged.apply(record.key, record.value)

    def reached_end(self, position: int) -> None:
        with self._turn:
            self._present, self._absent = True, False
            if self._staged is not None:
                self._adopt(self._staged, position)
            self._position = self._told_to = max(self._position, position)
            self._confirm()

    def absent(self) -> None:
        with self._turn:
            self._absent = True
            if self._present or self.views():  # the wire told them, which has them from a log
                text = f"topic {self._topic!r} is gone; restore it, its controller keeps the whole truth there"
                self.board.failed(ModeSourceError(f"mode log: {text}", topic=self._topic))
                return
            self.settle_absence()

    def settle_absence(self) -> None:
        """Take "there is no log" as an answer, if it was the last one and counts now. In the tail's thread."""
        with self._turn:
            if not self._absent or self._present or self.views() or not self._absence_counts():
                return
            if not self.board.ready:
                logger.info("there is no mode log %r yet: every partition is ReadWrite", self._topic)
            self._position = self._told_to = 0
            self._confirm()

    def failed(self, error: ModeSourceError) -> None:
        self.board.failed(error)

    def check_due(self) -> bool:
        return self._check_now.is_set() or self.board.cache.expired()

    # The fold; all of it under self._turn

    def _confirm(self) -> None:
        self._check_now.clear()
        self._settled.set()
        self.board.confirm()

    def _adopt(self, staged: Replay, position: int) -> None:
        """Put a fresh reading of the log in the place of what was held.

        A topic that it does not mention keeps its view: only a tombstone makes one go (invariant I4).
        """
        self._replay, self._staged = staged, None
        self._position = position
        gone = [view.topic for view in self.board.cache.all().values() if view.topic_id in staged.removed]
        self._publish({topic: self._record(topic) for topic in (*staged.topics, *gone)})

    def _apply(self, records: Sequence[LogRecord]) -> None:
        """Put the next records in force, with one call of the listeners where views only go forward.

        Who deals partitions by the views that were told must see from them whether others may have known more (see
        ``possible_hidden``). So a state of a topic that would leave no trace in them is told on its own.
        """
        untold: dict[str, TopicRecord | None] = {}
        for record in records:
            if record.offset < self._position:
                continue  # a refresh was faster than the tail
            self._position = record.offset + 1
            topic_id = (record.key or b"").decode(errors="replace")
            first = topic_id not in self._replay.records
            changed = self._replay.apply(record.key, record.value)
            if record.value is None and record.key is not None:
                changed |= self._held_under(topic_id)
            for topic in changed:
                if record.value is None:
                    self.board.forget_aside(topic, topic_id)
                elif first:
                    self._leave_behind(topic, topic_id)
            now = {topic: self._record(topic) for topic in changed}
            if any(topic in untold and self._hides(topic, untold[topic], now[topic]) for topic in now):
                self._publish(untold)
                untold = {}
            untold |= now
        self._publish(untold)
        self._told_to = self._position

    def _record(self, topic: str) -> TopicRecord | None:
        """The record to go by: the one written last, but for ids that the cluster has shown not to be the topic's."""
        records = reversed(self._replay.records_of(topic))
        return next((record for record in records if not self.board.is_aside(topic, record.topic_id)), None)

    def _hides(self, topic: str, untold: TopicRecord | None, now: TopicRecord | None) -> bool:
        """Whether nobody could tell from what was and ``now`` that ``untold`` was between them."""
        if untold is None:  # the topic was gone; another topic id tells as much
            held = self.board.cache.held(topic)
            return now is not None and held is not None and held.topic_id == now.topic_id
        return now is None or now.topic_id != untold.topic_id or now.version < untold.version

    def _leave_behind(self, topic: str, first_id: str) -> None:
        """The first record of ``first_id`` came while others of that name were there: those ids are of the past. The
        order in a log that was read from its beginning proves nothing: compaction keeps the last record of each id."""
        for record in self._replay.records_of(topic):
            if record.topic_id != first_id:
                self.board.past_ids[record.topic_id] = record.version

    def _held_under(self, topic_id: str) -> frozenset[str]:
        """Topics with this topic id whose view is older than the reading of the log that the fold is made from."""
        return frozenset(view.topic for view in self.board.cache.all().values() if view.topic_id == topic_id)

    def _publish(self, records: Mapping[str, TopicRecord | None]) -> None:
        views = [record.view() for record in records.values() if record is not None]
        for view in views:
            held = self.board.cache.held(view.topic)
            older = held is not None and held.topic_id == view.topic_id and view.version < held.version
            if held is not None and older and view.topic not in self._older:
                self._older.add(view.topic)
                logger.warning(
                    "the mode log %r tells %s at version %s, older than the view held (%s); the newer view stays. "
                    "If the log was replaced on purpose, restart this client",
                    *(self._topic, view.topic, view.version, held.version),
                )
        self.board.publish(views, [topic for topic, record in records.items() if record is None])

    # refresh(): a second reader, in the caller's thread, from where the tail is

    def fetch(self, _topics: Collection[str] | None, timeout_s: float) -> Iterable[TopicView]:
        """Read on to the end of the log."""
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
            why = self.board.cache.error() or "its first reading has not come to the end"
            raise ModeSourceError(
                f"mode log: {self._topic!r} was not read to its end in time: {why}", code=ErrorCode.REQUEST_TIMED_OUT
            )
        with self._turn:
            reading, start = self.readings, self._position
        current = True

        def apply(records: Sequence[LogRecord]) -> None:
            nonlocal current
            with self._turn:
                current = current and reading == self.readings
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
            self.tail.read_anew()
            return False
        with self._turn:
            if current and reading == self.readings:
                self._position = max(self._position, end)
                return True
        return False
