"""The tail of the mode log: reads it to its end, then follows it, in the thread that runs it.

It reads to the end with short fetch waits (only an empty answer marks the end), then follows with long ones. After
anything that could hide a change of the log itself (it is gone, shorter, was out of reach) it is read anew.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Protocol

from modeaware.clock import SYSTEM_CLOCK, Backoff, Clock
from modeaware.errors import ModeSourceError
from modeaware.modelog.reader import LogAbsent, LogRecord, LogRewound, LogStream, LogUnreachable

logger = logging.getLogger(__name__)

FOLLOW_WAIT_MS = 5_000
"""``fetch.wait.max.ms`` while following: thousands of clients wait at one leader. Records end the wait at once."""
SLICE_S = 0.2
"""How long a poll lasts at most, and with it a stop."""
FIRST_SLICE_S = 0.02
"""The same in the first second of a reading: an error, such as "there is no such topic", does not end a poll."""
GRACE_S = 1.0
"""A log that is out of reach for less is not reported: a broker of several may be down, or a leader be moving."""
MARKER_WAIT_S = 1.0
"""How long a reading waits for what lies behind an open transaction. A commit is acknowledged a moment before it is
marked in the log, and must not be missed; a transaction that is never ended must not hold up a start."""
FIRST_BACKOFF_S, LAST_BACKOFF_S = 1.0, 30.0


class TailSink(Protocol):
    """Takes in what the tail reads; every call comes from the thread that runs the tail, in the order of the log."""

    def begin(self) -> None:
        """The log is read from its beginning (again): its first records come next, then :meth:`reached_end`."""

    def records(self, records: Sequence[LogRecord]) -> None:
        """The next records."""

    def reached_end(self, position: int) -> None:
        """All that was committed below ``position`` has been passed on."""

    def absent(self) -> None:
        """The cluster says that there is no log."""

    def failed(self, error: ModeSourceError) -> None:
        """The log cannot be read now; repeated while that lasts. :meth:`reached_end` or :meth:`absent` ends it."""

    def check_due(self) -> bool:
        """Whether the log has been silent for so long that it has to be asked for its end."""

    def wanted(self) -> bool:
        """Whether the tail is to continue. Called a few times a second; must not take long."""


class Tail:
    """Follows the mode log for as long as it is wanted.

    Args:
        conf: librdkafka settings of the client it serves.
        topic: the mode log.
        sink: takes in what is read.
    """

    def __init__(self, conf: Mapping[str, Any], topic: str, sink: TailSink, clock: Clock = SYSTEM_CLOCK) -> None:
        self._conf = conf
        self._topic = topic
        self._sink = sink
        self._clock = clock
        self._stopping = threading.Event()
        self._anew = threading.Event()
        self._anew.set()
        self._position = 0
        self._backoff = Backoff(FIRST_BACKOFF_S, LAST_BACKOFF_S)

    def stop(self) -> None:
        """End :meth:`run` soon, and for good: within a second, where it waits for a dead broker's answer. From any
        thread."""
        self._stopping.set()

    def read_anew(self) -> None:
        """Read the log from its beginning: it turned out to be another one, or was not followed for a while. Returns at
        once. From any thread."""
        self._anew.set()

    def run(self) -> None:
        """Follow the log until :meth:`stop`, or until the sink does not want it any more. One thread at a time."""
        while not self._stopped():
            try:
                if self._catch_up():
                    self._follow()
            except LogRewound as error:
                self._anew.set()
                logger.warning("%s; it is read again from its beginning, and newer views stay", error)
            except ModeSourceError as error:
                self._anew.set()
                self._sink.failed(error)
                self._stopping.wait(FIRST_BACKOFF_S)
            except Exception as error:
                self._anew.set()
                logger.exception("the tail of the mode log %r failed; starting again", self._topic)
                self._sink.failed(ModeSourceError(f"mode log: {type(error).__name__}: {error}", topic=self._topic))
                self._stopping.wait(self._backoff.next_s())

    def _catch_up(self) -> bool:
        """Read to the end; False when stopped before.

        Raises:
            ModeSourceError: it has to be read anew: it was out of reach, and may be another one now.
        """
        anew = self._anew.is_set()
        if anew:
            self._anew.clear()
            self._position = 0
            self._sink.begin()
        marked_by_s = 0.0
        fresh_until_s = self._clock.monotonic_s() + GRACE_S
        with closing(LogStream(self._conf, self._topic, self._position, clock=self._clock)) as stream:
            target: int | None = None
            while not self._stopped():
                young = self._clock.monotonic_s() < fresh_until_s
                try:
                    records = stream.poll_or_ask(FIRST_SLICE_S if young else SLICE_S)
                except (LogAbsent, LogUnreachable) as error:
                    if isinstance(error, LogUnreachable) and self._clock.monotonic_s() < fresh_until_s:
                        continue
                    if not anew or stream.position > 0:
                        raise
                    if isinstance(error, LogAbsent):
                        self._sink.absent()  # librdkafka asks again every second, and continues when there is one
                    else:
                        self._sink.failed(error)
                    continue
                self._pass_on(stream, records)
                if target is None and stream.end is not None:
                    target = _committed_end(stream)
                    marked_by_s = self._clock.monotonic_s() + MARKER_WAIT_S
                if target is not None and (stream.position >= target or self._clock.monotonic_s() > marked_by_s):
                    self._sink.reached_end(stream.position)
                    return True
        return False

    def _follow(self) -> None:
        """Follow the log until it has to be caught up with again."""
        began_s = self._clock.monotonic_s()
        shaken = False
        with closing(LogStream(self._conf, self._topic, self._position, wait_ms=FOLLOW_WAIT_MS)) as stream:
            while not (self._stopped() or self._anew.is_set() or self._sink.check_due()):
                try:
                    self._pass_on(stream, stream.poll(SLICE_S))
                    if stream.at_end:
                        self._sink.reached_end(stream.position)
                except LogUnreachable as error:
                    logger.debug("%s", error)
                    shaken = True  # a connection was lost: whether that matters shows when the end is asked for
                except LogAbsent:
                    self._anew.set()
                lasted_s = self._clock.monotonic_s() - began_s
                if shaken and lasted_s > self._backoff.now_s:
                    # A bootstrap server that is down for good shakes every new stream: ask less and less often.
                    self._backoff.next_s()
                    return
                if lasted_s > 2 * LAST_BACKOFF_S:
                    self._backoff.reset()

    def _pass_on(self, stream: LogStream, records: Sequence[LogRecord]) -> None:
        if records:
            self._sink.records(records)
        self._position = stream.position

    def _stopped(self) -> bool:
        return self._stopping.is_set() or not self._sink.wanted()


def _committed_end(stream: LogStream) -> int | None:
    try:
        return stream.committed_end(MARKER_WAIT_S)
    except LogUnreachable as error:
        logger.debug("%s; asked again", error)
        return None
