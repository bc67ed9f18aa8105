"""The mode log as a source of views.

The *tail* follows the log. It reads the log from its beginning into a fresh *replay* (the last record of each key). At
the log's end the fresh replay takes the place of the old one. From then on each record changes views as it arrives.
After a failure, another log may have taken the log's place. So the tail reads from the beginning again; views that are
newer than the log's records stay (invariant I4). A *refresh* reads from the tail's position to the end, in the caller's
thread. The tail then reads these records again, but does not apply them twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from modeaware.callouts import get_logger
from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.config import ClientConfig
from modeaware.errors import ErrorCode, ModeSourceError
from modeaware.modelog.moved import topic_id_of
from modeaware.modelog.reader import LogAbsent, LogRecord, LogRewound, Tail, read_to_end
from modeaware.modelog.records import ClaimRecord, TopicRecord
from modeaware.modelog.replay import Replay
from modeaware.topic_view import TopicView
from modeaware.views.store import ViewStore, keeps_name
from modeaware.wire.retries import Deadline

logger = get_logger(__name__)


class LogSource:
    """Publishes the mode log's records as views. It is the ``TailSink`` of its ``tail``, which the owner runs.

    Args:
        conf: librdkafka settings of the client.
        config: names the log.
        store: where the views are published.
        wanted: returns whether the tail is to continue; the tail calls it a few times a second.
        absence_counts: returns whether an absent log means now that every partition is ReadWrite. When that becomes
            true, the owner calls :meth:`confirm_absence`.

    Attributes:
        readings: how often the tail began to read the log from its beginning.
        present: whether the log exists, by the last response.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        config: ClientConfig,
        store: ViewStore,
        wanted: Callable[[], bool] = lambda: True,
        clock: Clock = SYSTEM_CLOCK,
        absence_counts: Callable[[], bool] = lambda: True,
    ) -> None:
        self._conf = dict(conf)
        self._topic = config.mode_log_topic
        self._store = store
        self.wanted = wanted
        self._clock = clock
        self._absence_counts = absence_counts
        self.readings = 0
        self.present = False
        self._absent = False  # whether the tail found no log, even if the absence does not count
        self._caught_up = threading.Event()  # not set while the log is read from its beginning
        self._ended = False
        self._check_now = threading.Event()
        self._replay = Replay()
        self._staged: Replay | None = None  # the fresh replay, until the end of the log is reached
        self._position = 0
        self._published_to = 0
        self._older: set[str] = set()
        self.tail = Tail(self._conf, self._topic, self, clock)

    @property
    def has_answered(self) -> bool:
        """Return whether a response about the log has arrived; also if the log is absent, or cannot be read."""
        return self._store.ready or self._absent or self._store.error() is not None

    # For handles: see ``Views``

    def claim(self) -> ClaimRecord | None:
        return self._replay.claim

    def removed(self, topic_ids: Iterable[str]) -> tuple[str, ...]:
        removed = self._replay.removed
        return tuple(topic_id for topic_id in topic_ids if topic_id in removed)

    def views_of(self, topic: str) -> list[TopicView]:
        """Return the views of all topic ids that have a record under that name, in the order of their last records."""
        with self._store.turn:
            return [self._replay.view_of(record) for record in self._replay.records_of(topic)]

    def stats(self) -> dict[str, Any]:
        return {
            "log_topic": self._topic,
            "log_present": self.present,
            "log_position": self._published_to,
            "rejected_records": self._replay.rejected,
            "unreadable_topics": self._replay.unreadable,
        }

    def end(self) -> None:
        """Stop the tail: a refresh no longer waits for the tail's first reading."""
        self.tail.stop()
        with self._store.turn:
            self._ended = True
            self._caught_up.set()

    # TailSink: called by the tail's thread

    def begin(self) -> None:
        with self._store.turn:
            if not self._ended:
                self._caught_up.clear()
            self._staged = Replay()
            self.readings += 1
            self._absent = False

    def records(self, records: Sequence[LogRecord]) -> None:
        with self._store.turn:
            if self._staged is None:
                self._apply(records)
                if self._store.ready:
                    self._store.confirm()
            else:
                for record in records:
                    self._staged.apply(record.key, record.value)

    def reached_end(self, position: int) -> None:
        with self._store.turn:
            self.present, self._absent = True, False
            if self._staged is not None:
                self._adopt(self._staged, position)
            self._confirm(max(self._position, position))

    def absent(self) -> None:
        with self._store.turn:
            self._absent = True
            if self.present or self._store.views():  # views that came over the wire prove that a log existed, too
                text = f"topic {self._topic!r} is gone; restore it: all partition modes are stored there"
                self.failed(ModeSourceError(f"mode log: {text}", topic=self._topic))
            else:
                self.confirm_absence()

    def confirm_absence(self) -> None:
        """Confirm that no topic has modes, if the log is absent by the last response, and its absence counts now. For
        the tail's thread."""
        with self._store.turn:
            if not self._absent or self.present or self._store.views() or not self._absence_counts():
                return
            if not self._store.ready:
                logger.info("there is no mode log %r yet: every partition is ReadWrite", self._topic)
            self._confirm(0)

    def failed(self, error: ModeSourceError) -> None:
        self._store.failed(error)

    def check_due(self) -> bool:
        return self._check_now.is_set() or self._store.expired()

    # The fold, while the store's turn is held

    def _confirm(self, position: int) -> None:
        self._position = self._published_to = position
        self._check_now.clear()
        self._caught_up.set()
        self._store.confirm()

    def _adopt(self, staged: Replay, position: int) -> None:
        """Replace the replay by ``staged``, the fresh one.

        A topic without a record in the fresh reading keeps its view: only a tombstone (a record without a value)
        removes a view (invariant I4).
        """
        self._replay, self._staged = staged, None
        self._position = position
        gone = [view.topic for view in self._store.views().values() if view.topic_id in staged.removed]
        self._publish({topic: self._record(topic) for topic in (*staged.topics, *gone)})

    def _apply(self, records: Sequence[LogRecord]) -> None:
        """Publish the next records, with one call of the listeners if this hides no state.

        A consumer group assigns partitions by the views that its members have seen. A member must detect from its own
        views whether another member may have seen different ones (``assignment.possible_hidden``). So if a state of a
        topic would leave no trace in later views, this state is published by itself.
        """
        pending: dict[str, TopicRecord | None] = {}
        for record in records:
            if record.offset < self._position:
                continue  # a refresh has already applied this record
            self._position = record.offset + 1
            current = {topic: self._record(topic) for topic in self._fold(record)}
            if any(topic in pending and self._hides(topic, pending[topic], current[topic]) for topic in current):
                self._publish(pending)
                pending = {}
            pending |= current
        self._publish(pending)
        self._published_to = self._position

    def _fold(self, record: LogRecord) -> frozenset[str]:
        """Apply one record to the replay; return the topics that may have changed."""
        topic_id = (record.key or b"").decode(errors="replace")
        first = topic_id not in self._replay.records
        changed = self._replay.apply(record.key, record.value)
        if topic_id_of(topic_id) is not None:  # a record about groups, which adds no topic id
            return changed
        if record.value is None and record.key is not None:
            self._store.forget_aside(topic_id)
            # The store may have a view of the id that this replay never had.
            changed |= {view.topic for view in self._store.views().values() if view.topic_id == topic_id}
        elif first:
            # When a name gets a new id, its other ids are past ids. During the first reading of a log, the order of ids
            # proves nothing, because compaction keeps only the last record of each id.
            for past in (past for topic in changed for past in self._replay.records_of(topic)):
                if past.topic_id != topic_id:
                    self._store.past_ids[past.topic_id] = past.version
        return changed

    def _record(self, topic: str) -> TopicRecord | None:
        """Return the topic's record that counts: the last one whose view keeps the name, or is not set aside."""
        for record in reversed(self._replay.records_of(topic)):
            if not self._store.is_aside(record.topic_id) or keeps_name(self._replay.view_of(record)):
                return record
        return None

    def _hides(self, topic: str, pending: TopicRecord | None, current: TopicRecord | None) -> bool:
        """Return whether ``pending``, a record between the held view and ``current``, leaves no trace in these two."""
        if pending is None:  # the topic was gone in between; another topic id would be a trace of that
            held = self._store.held(topic)
            return current is not None and held is not None and held.topic_id == current.topic_id
        return current is None or current.topic_id != pending.topic_id or current.version < pending.version

    def _publish(self, records: Mapping[str, TopicRecord | None]) -> None:
        views = [self._replay.view_of(record) for record in records.values() if record is not None]
        for view in views:
            held = self._store.held(view.topic)
            if held is not None and view.is_older_than(held) and view.topic not in self._older:
                self._older.add(view.topic)
                logger.warning(
                    "mode log %r: the record of %s has version %s, but this client already has the newer version %s, "
                    "and keeps it. If the log was replaced on purpose, restart this client",
                    *(self._topic, view.topic, view.version, held.version),
                )
        self._store.publish(views, [topic for topic, record in records.items() if record is None])

    # A refresh: a second reader, in the caller's thread, from the tail's position

    def fetch(self, timeout_s: float) -> None:
        """Read to the log's present end, and publish the views.

        Raises:
            ModeSourceError: the end was not reached in time, or the log cannot be read.
        """
        deadline = Deadline(timeout_s, self._clock)
        try:
            while not self._read_on(deadline):
                logger.debug("the mode log %r is being read from its beginning; waiting for that", self._topic)
        except ModeSourceError:
            self._check_now.set()  # makes the tail check whether the log can be read
            raise

    def _read_on(self, deadline: Deadline) -> bool:
        """Read from the tail's position to the end; return False if the tail has begun anew meanwhile."""
        caught_up = self._caught_up.wait(deadline.left_s())
        if not caught_up or (self._ended and (self._staged is not None or not self.readings)):
            why = self._store.error() or "the first read has not reached the end"
            raise ModeSourceError(
                f"mode log: {self._topic!r} was not read to its end in time: {why}", code=ErrorCode.REQUEST_TIMED_OUT
            )
        with self._store.turn:
            reading, start = self.readings, self._position

        def apply(records: Sequence[LogRecord]) -> None:
            with self._store.turn:
                if reading == self.readings:
                    self._apply(records)

        try:
            end = read_to_end(self._conf, self._topic, start, apply, deadline.left_s(), clock=self._clock)
        except LogAbsent:
            if self.present:
                raise
            return True
        except LogRewound:
            self._caught_up.clear()
            self.tail.read_anew()
            return False
        with self._store.turn:
            if reading == self.readings:
                self._position = max(self._position, end)
        return reading == self.readings
