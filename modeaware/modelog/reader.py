"""Reading the mode log with one consumer on its only partition: once to its end, or on and on as the log grows.

The kind of a failure decides in which state the log is. Only the cluster's response that the topic does not exist makes
the log *absent*. A missing right is an error to report. A log that is shorter than the part already read was truncated,
or deleted and created again: the log is read from its beginning. Any other error, unknown codes included, means that
the log is unreachable for now.

Only an empty fetch response shows the end of the log, and a broker may delay that response. So a stream that reads to
the end has short fetch waits. A stream that follows the log has long waits. :class:`Tail` reads to the end, then
follows. If the log was absent, shorter or unreachable, another log may have taken its place. So the tail reads from the
beginning again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

from modeaware import os_threads
from modeaware.callouts import get_logger
from modeaware.clock import SYSTEM_CLOCK, Backoff, Clock
from modeaware.errors import ErrorCode, ModeSourceError, NotAuthorized, without_frames
from modeaware.librdkafka import RENEW_S, Consumer, KafkaError, KafkaException, Message, TopicPartition
from modeaware.modelog.connection import tail_conf
from modeaware.modelog.replay import Replay

logger = get_logger(__name__)

BATCH = 500
READ_WAIT_MS = 10
"""``fetch.wait.max.ms`` of a stream that reads to the end: the longest time to detect the end."""
FOLLOW_WAIT_MS = 5_000
"""``fetch.wait.max.ms`` while following: long, as thousands of clients wait at one leader. A record ends the wait."""
SLICE_S = 0.1
FOLLOW_SLICE_S = 0.3
"""The maximum time of one poll while following, and so the time until a stop takes effect."""
FIRST_SLICE_S = 0.02
"""The maximum time of a poll in the first second. An error, such as an unknown topic, does not end a poll early."""
SILENCE_S = 1.0
"""After this long without records or the log's end, the reason is requested from the cluster."""
GRACE_S = 1.0
"""A shorter time without access to the log is not reported: a broker may be down, or a leader may be moving."""
MARKER_WAIT_S = 1.0
"""How long a reader waits for the records behind an open transaction. A broker acknowledges a commit a moment before it
writes the commit's marker, and the reader must not miss that commit. The wait is short because a transaction may never
end."""
FIRST_BACKOFF_S, LAST_BACKOFF_S = 1.0, 30.0


class LogAbsent(ModeSourceError):
    """The cluster reports that the topic does not exist; a broker may do so shortly after the topic's creation."""

    default_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class LogUnreachable(ModeSourceError):
    """No broker that has the log can be reached, or the connection to such a broker has just been lost."""


class LogRewound(ModeSourceError):
    """The log is shorter than the part already read: the log was truncated, or deleted and created again."""


_KINDS: dict[int, type[ModeSourceError] | None] = {
    # The group is not used: an assigned partition is read without the group's coordinator.
    KafkaError.GROUP_AUTHORIZATION_FAILED: None,
    KafkaError.COORDINATOR_NOT_AVAILABLE: None,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS: None,
    KafkaError.NOT_COORDINATOR: None,
    KafkaError._MAX_POLL_EXCEEDED: None,
    KafkaError.UNKNOWN_TOPIC_OR_PART: LogAbsent,
    KafkaError.UNKNOWN_TOPIC_ID: LogAbsent,
    KafkaError.INCONSISTENT_TOPIC_ID: LogAbsent,
    KafkaError._UNKNOWN_TOPIC: LogAbsent,
    KafkaError._UNKNOWN_PARTITION: LogAbsent,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: NotAuthorized,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: NotAuthorized,
    KafkaError.OFFSET_OUT_OF_RANGE: LogRewound,
    KafkaError._AUTO_OFFSET_RESET: LogRewound,
    KafkaError._LOG_TRUNCATION: LogRewound,
}
_TEXTS = {
    LogAbsent: "topic {!r} does not exist ({})",
    NotAuthorized: "not authorized to read topic {!r} ({}); grant this user READ and DESCRIBE on it",
    LogRewound: "topic {!r} was truncated or created again ({})",
    LogUnreachable: "topic {!r} cannot be read now ({})",
}


def to_error(topic: str, code: int, text: str) -> ModeSourceError | None:
    """Return the exception for an error code of the consumer (Kafka's, or librdkafka's below 0). Return None for an
    error that does not affect reading the log."""
    kind = _KINDS.get(code, LogUnreachable)
    return None if kind is None else kind("mode log: " + _TEXTS[kind].format(topic, text), topic=topic)


@dataclass(frozen=True, slots=True)
class LogRecord:
    offset: int
    key: bytes | None
    value: bytes | None


class LogStream:
    """Reads the log from ``start`` on. For one thread, which also closes the stream.

    Attributes:
        position: the offset after all returned records, and after any control records between these and the end.
        end: the end of the log when it was last reached, or None if records have followed or it was never reached.
        at_end: whether the last :meth:`poll` has reached the end.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        topic: str,
        start: int,
        *,
        wait_ms: int = READ_WAIT_MS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._topic = topic
        self._clock = clock
        self._heard_s = clock.monotonic_s()
        self._events: deque[KafkaError] = deque(maxlen=100)
        # librdkafka calls error_cb in poll() only, so in our thread.
        try:
            self._consumer = os_threads.call(
                Consumer, {**tail_conf(conf, fetch_wait_ms=wait_ms), "error_cb": self._events.append}
            )
        except KafkaException as error:
            raise ModeSourceError(f"mode log: no consumer can be made ({error.args[0].str()})", topic=topic) from error
        # An explicit offset: OFFSET_BEGINNING costs half a second at the start.
        self._partition = TopicPartition(topic, 0, start)
        self._consumer.assign([self._partition])
        self.position = start
        self.end: int | None = None
        self.at_end = False
        self._trouble = ""
        self._target: int | None = None

    def poll(self, timeout_s: float) -> list[LogRecord]:
        """Return the next records. At the end, or after ``timeout_s`` seconds without records, return none."""
        self.at_end = False
        first = os_threads.call(self._consumer.poll, timeout_s)
        # consume(n, timeout) would wait for n messages. So wait for one message, then take those that have arrived.
        messages = [] if first is None else [first, *self._consumer.consume(BATCH, 0)]
        records = [record for record in map(self._sort, messages) if record is not None]
        if not records:  # errors come with the next call, after the records before them
            self._raise_events()
        return records

    def poll_or_ask(self, timeout_s: float) -> list[LogRecord]:
        """Like :meth:`poll`. After :data:`SILENCE_S` with neither records nor the end, request the topic's metadata:
        brokers return no error to a consumer that is not authorized to describe the topic."""
        try:
            records = self.poll(timeout_s)
        except LogUnreachable:
            self._heard_s = self._clock.monotonic_s()  # a metadata request would not show more
            raise
        now_s = self._clock.monotonic_s()
        if records or self.end is not None:
            self._heard_s = now_s
        elif now_s - self._heard_s > SILENCE_S:
            self._heard_s = now_s
            self._ask_access(SILENCE_S)
        return records

    def target(self, timeout_s: float) -> int | None:
        """Return an offset at or past every record that was committed when the end was first reached. Return None until
        the end is reached.

        Blocks for up to ``timeout_s`` the first time. Only for a stream with a short ``wait_ms``.
        """
        if self._target is not None or self.end is None:
            return self._target
        try:
            # ListOffsets returns the last stable offset, also right after a fail-over (KIP-207). A transaction whose
            # commit is acknowledged, but has no marker yet, ends behind this offset, but below the high watermark.
            _, stable = os_threads.call(self._consumer.get_watermark_offsets, self._partition, timeout=timeout_s)
            _, high = self._consumer.get_watermark_offsets(self._partition, cached=True)
        except KafkaException as error:
            raise self._convert(error) from error
        self._target = max(stable, high)
        return self._target

    def close(self) -> None:
        os_threads.call(self._consumer.close)

    def _ask_access(self, timeout_s: float) -> None:
        try:
            topic = os_threads.call(self._consumer.list_topics, self._topic, timeout=timeout_s).topics[self._topic]
        except KafkaException as error:
            raise self._convert(error) from error
        if topic.error is not None:
            failure = to_error(self._topic, topic.error.code(), topic.error.str())
            if failure is not None:
                raise without_frames(failure)  # a copy, as in _raise_events()

    def _sort(self, message: Message) -> LogRecord | None:
        error = message.error()
        offset = message.offset()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            self._events.append(error)
            return None
        assert offset is not None, "records and the end have offsets"
        if offset < self.position:
            raise LogRewound(
                f"mode log: the topic {self._topic!r} was truncated, or deleted and created again: the next record has "
                f"offset {offset}, but the topic was read up to offset {self.position} before",
                topic=self._topic,
            )
        self.at_end = error is not None
        self.position = offset if self.at_end else offset + 1
        self.end = offset if self.at_end else None
        return None if self.at_end else LogRecord(offset, message.key(), message.value())

    def _raise_events(self) -> None:
        """Raise the most severe of the errors reported since the last call; drop the others."""
        errors = [to_error(self._topic, event.code(), event.str()) for event in self._events]
        self._events.clear()
        self._trouble = next((str(e) for e in errors if isinstance(e, LogUnreachable)), self._trouble)
        for kind in (LogRewound, NotAuthorized, LogAbsent, LogUnreachable):
            for error in errors:
                if isinstance(error, kind):
                    raise without_frames(error)  # a copy, so that no cycle of references keeps this frame

    def _convert(self, error: KafkaException) -> ModeSourceError:
        cause = error.args[0]
        known = to_error(self._topic, cause.code(), cause.str())
        if known is None or isinstance(known, LogUnreachable):
            # The earlier error is more precise: "connection refused" instead of "no answer".
            return LogUnreachable(self._trouble or f"mode log: {cause.str()}", topic=self._topic)
        return known


def read_mode_log(conf: Mapping[str, Any], topic: str, timeout_s: float, *, must_exist: bool = False) -> Replay:
    """Read the mode log to its end: all records that were committed before the call.

    Without ``must_exist``, an absent log is an empty log.

    Raises:
        NotAuthorized: the user may not read the log.
        ModeSourceError: the end was not reached within ``timeout_s``.
    """
    replay = Replay()

    def apply(records: Sequence[LogRecord]) -> None:
        for record in records:
            replay.apply(record.key, record.value)

    try:
        read_to_end(conf, topic, 0, apply, timeout_s, must_exist=must_exist)
    except LogAbsent:
        if must_exist:
            raise
    return replay


def read_to_end(
    conf: Mapping[str, Any],
    topic: str,
    start: int,
    apply: Callable[[Sequence[LogRecord]], None],
    timeout_s: float,
    *,
    must_exist: bool = False,
    clock: Clock = SYSTEM_CLOCK,
) -> int:
    """Call ``apply`` with batches of all records from offset ``start`` to the log's end at the time of the call.

    Returns:
        The offset at which the log continues.

    Raises:
        LogAbsent, LogRewound, NotAuthorized: the cluster reports this state of the log. With ``must_exist``, LogAbsent
            is raised at the timeout only.
        ModeSourceError: the end was not reached within ``timeout_s``; the message has the last error.
    """
    deadline_s = clock.monotonic_s() + timeout_s
    last: ModeSourceError | None = None
    with closing(LogStream(conf, topic, start, clock=clock)) as stream:
        target: int | None = None
        while (left_s := deadline_s - clock.monotonic_s()) > 0:
            try:
                records = stream.poll_or_ask(min(SLICE_S, left_s))
                if records:
                    apply(records)
                target = stream.target(left_s)
            except (LogUnreachable, LogAbsent) as error:
                if isinstance(error, LogAbsent) and not must_exist:
                    raise
                last = error
            if target is not None and stream.position >= target:
                return stream.position
    if isinstance(last, LogAbsent):
        raise last
    if last is None and target is not None:
        last = ModeSourceError(f"a transaction is open before offset {target}")
    raise ModeSourceError(
        f"mode log: the end of topic {topic!r} was not reached within {timeout_s:g} s" + (f": {last}" if last else ""),
        code=ErrorCode.REQUEST_TIMED_OUT,
        topic=topic,
    )


class TailSink(Protocol):
    """Receives the records that the tail reads; the tail's thread makes every call, in the order of the log."""

    def begin(self) -> None:
        """The tail reads from the beginning of the log: its first records come next, then :meth:`reached_end`."""

    def records(self, records: Sequence[LogRecord]) -> None:
        """The next records."""

    def reached_end(self, position: int) -> None:
        """All committed records below ``position`` have been passed on."""

    def absent(self) -> None:
        """The cluster has responded that the log does not exist."""

    def failed(self, error: ModeSourceError) -> None:
        """The log cannot be read now. The call is repeated until :meth:`reached_end` or :meth:`absent`."""

    def check_due(self) -> bool:
        """Return whether the log has been silent for so long that the tail must request its end."""

    def wanted(self) -> bool:
        """Return whether the tail is to continue. Called a few times a second; must be fast."""


class Tail:
    """Follows the mode log while the sink's ``wanted()`` is true."""

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
        """End :meth:`run` for good, within a second even while it waits for a dead broker. From any thread."""
        self._stopping.set()

    def read_anew(self) -> None:
        """Make :meth:`run` read from the beginning: the log may be another log now, or was not followed for a while.
        From any thread."""
        self._anew.set()

    def run(self) -> None:
        """Follow the log until :meth:`stop`, or until the sink's ``wanted()`` is false. One thread at a time."""
        while not self._stopped():
            try:
                if self._catch_up():
                    self._follow()
            except LogRewound as error:
                self._anew.set()
                logger.warning("%s; reading the mode log again from its beginning. Newer views stay in force", error)
            except ModeSourceError as error:
                self._anew.set()
                self._sink.failed(error)
                self._stopping.wait(FIRST_BACKOFF_S)
            except Exception as error:
                self._anew.set()
                logger.exception("following the mode log %r failed unexpectedly; starting again", self._topic)
                self._sink.failed(ModeSourceError(f"mode log: {type(error).__name__}: {error}", topic=self._topic))
                self._stopping.wait(self._backoff.next_s())

    def _catch_up(self) -> bool:
        """Read to the end; return False when stopped before the end."""
        anew = self._anew.is_set()
        if anew:
            self._anew.clear()
            self._position = 0
            self._sink.begin()
        marked_by_s = 0.0
        heard_s = self._clock.monotonic_s()
        fresh_until_s = heard_s + GRACE_S
        with closing(LogStream(self._conf, self._topic, self._position, clock=self._clock)) as stream:
            while not self._stopped():
                young = self._clock.monotonic_s() < fresh_until_s
                try:
                    records = stream.poll_or_ask(FIRST_SLICE_S if young else FOLLOW_SLICE_S)
                except (LogAbsent, LogUnreachable) as error:
                    if isinstance(error, LogUnreachable) and self._clock.monotonic_s() < fresh_until_s:
                        continue
                    if not anew or stream.position > 0:
                        raise
                    if isinstance(error, LogAbsent):
                        self._sink.absent()  # librdkafka retries every second, and continues when the log exists
                        heard_s = self._clock.monotonic_s()
                    elif self._clock.monotonic_s() - heard_s > RENEW_S:
                        raise
                    else:
                        self._sink.failed(error)
                    continue
                self._pass_on(stream, records)
                heard_s = self._clock.monotonic_s() if records else heard_s
                try:
                    target = stream.target(MARKER_WAIT_S)
                except LogUnreachable as error:
                    if self._clock.monotonic_s() - heard_s > RENEW_S:
                        raise
                    logger.debug("%s; retrying", error)
                    continue
                if target is None:
                    continue
                marked_by_s = marked_by_s or self._clock.monotonic_s() + MARKER_WAIT_S
                if stream.position >= target or self._clock.monotonic_s() > marked_by_s:
                    self._sink.reached_end(stream.position)
                    return True
        return False

    def _follow(self) -> None:
        """Follow the log until :meth:`_catch_up` is needed again."""
        began_s = self._clock.monotonic_s()
        shaken = False
        with closing(LogStream(self._conf, self._topic, self._position, wait_ms=FOLLOW_WAIT_MS)) as stream:
            while not (self._stopped() or self._anew.is_set() or self._sink.check_due()):
                try:
                    self._pass_on(stream, stream.poll(FOLLOW_SLICE_S))
                    if stream.at_end:
                        self._sink.reached_end(stream.position)
                except LogUnreachable as error:
                    logger.debug("%s", error)
                    shaken = True  # a connection was lost; reading to the end shows whether the log can be read
                except LogAbsent:
                    self._anew.set()
                lasted_s = self._clock.monotonic_s() - began_s
                if shaken and lasted_s > self._backoff.now_s:
                    # A bootstrap server that is down for good fails in every new stream, so return after growing times.
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
