"""Reading the mode log: one consumer on its partition, and reading to its end once.

What may go wrong decides what a client believes. Only the cluster's plain word that the topic does not exist makes the
log *absent*. A refusal is an error to report. A log that is shorter than what was read of it was truncated, or deleted
and made again: it is read from its beginning. Everything else, codes that are not known included, means that it is out
of reach for now.

The end of the log is known from an empty answer alone, which a broker may hold back, so a stream that reads to the end
has short fetch waits and one that follows the log has long ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.errors import ErrorCode, ModeSourceError, NotAuthorized
from modeaware.librdkafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from modeaware.modelog.connection import tail_conf
from modeaware.modelog.replay import Replay

BATCH = 500
READ_WAIT_MS = 10
"""``fetch.wait.max.ms`` of a stream that reads to the end: what the end costs."""
SLICE_S = 0.1
SILENCE_S = 1.0
"""A log without records or an end for this long is asked for the reason."""


class LogAbsent(ModeSourceError):
    """The cluster says that there is no such topic; a broker may lag behind its creation."""

    default_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class LogUnreachable(ModeSourceError):
    """No broker that has the log can be reached, or the connection to one has just been lost."""


class LogRewound(ModeSourceError):
    """The log is shorter than what was read of it: it was truncated, or deleted and made again."""


_KINDS: dict[int, type[ModeSourceError] | None] = {
    # The group is a formality: an assigned partition is read without its coordinator.
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
    LogRewound: "topic {!r} was truncated or made again ({})",
    LogUnreachable: "topic {!r} cannot be read now ({})",
}


def to_error(topic: str, code: int, text: str) -> ModeSourceError | None:
    """Return the exception for an error of the consumer (Kafka's code, or librdkafka's below 0); None where it does not
    matter for reading the log."""
    kind = _KINDS.get(code, LogUnreachable)
    return None if kind is None else kind("mode log: " + _TEXTS[kind].format(topic, text), topic=topic)


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record of the log as it lies there."""

    offset: int
    key: bytes | None
    value: bytes | None


class LogStream:
    """Reads the log from ``start`` on. For one thread; closing it is that thread's business too.

    Args:
        conf: librdkafka settings of the client it serves.
        topic: the mode log.
        start: the first offset to read; 0 is the beginning, wherever that lies.
        wait_ms: see :func:`~modeaware.modelog.connection.tail_conf`.

    Attributes:
        position: the offset after all that was returned, control records before the end included.
        end: the end of the log when it was last reached; None before that, and again while there is more to read.
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
        # librdkafka calls it in poll() only, that is in our thread.
        try:
            self._consumer = Consumer({**tail_conf(conf, fetch_wait_ms=wait_ms), "error_cb": self._events.append})
        except KafkaException as error:
            raise ModeSourceError(f"mode log: no consumer can be made ({error.args[0].str()})", topic=topic) from error
        # An explicit offset: OFFSET_BEGINNING costs half a second at the start.
        self._partition = TopicPartition(topic, 0, start)
        self._consumer.assign([self._partition])
        self.position = start
        self.end: int | None = None
        self.at_end = False
        self._trouble = ""

    def poll(self, timeout_s: float) -> list[LogRecord]:
        """Return the next records; none within ``timeout_s`` seconds gives an empty list, and so does the end.

        Raises:
            LogAbsent, LogUnreachable, LogRewound, NotAuthorized: the stream may still recover from the first two by
                itself: poll again, or close it.
        """
        self.at_end = False
        first = self._consumer.poll(timeout_s)
        # consume(n, timeout) would wait until it has n: so wait for one, then take what is there.
        messages = [] if first is None else [first, *self._consumer.consume(BATCH, 0)]
        records = [record for record in map(self._sort, messages) if record is not None]
        if not records:  # errors come with the next call, after what was read before them
            self._raise_events()
        return records

    def poll_or_ask(self, timeout_s: float) -> list[LogRecord]:
        """Like :meth:`poll`; and ask the cluster for the reason after :data:`SILENCE_S` without records and an end:
        brokers keep silent towards a consumer that may not even describe the topic."""
        try:
            records = self.poll(timeout_s)
        except LogUnreachable:
            self._heard_s = self._clock.monotonic_s()  # asking would tell no more
            raise
        now_s = self._clock.monotonic_s()
        if records or self.end is not None:
            self._heard_s = now_s
        elif now_s - self._heard_s > SILENCE_S:
            self._heard_s = now_s
            self._ask_access(SILENCE_S)
        return records

    def committed_end(self, timeout_s: float) -> int:
        """Return an offset at or past every record that was appended, and is committed, when this is called.

        Blocks for up to ``timeout_s``; only for a stream with a short ``wait_ms``, once it has an ``end``.

        Raises:
            ModeSourceError: the leader did not answer.
        """
        try:
            # The leader's answer to ListOffsets is right after a fail-over too (KIP-207) but ends before a transaction
            # whose commit is acknowledged and not yet marked; the fetched high watermark (no IO) does not.
            _, stable = self._consumer.get_watermark_offsets(self._partition, timeout=timeout_s)
            _, high = self._consumer.get_watermark_offsets(self._partition, cached=True)
        except KafkaException as error:
            raise self._convert(error) from error
        return max(stable, high)

    def close(self) -> None:
        """Close the connections. Takes about a millisecond."""
        self._consumer.close()

    def _ask_access(self, timeout_s: float) -> None:
        try:
            topic = self._consumer.list_topics(self._topic, timeout=timeout_s).topics[self._topic]
        except KafkaException as error:
            raise self._convert(error) from error
        if topic.error is not None:
            found = to_error(self._topic, topic.error.code(), topic.error.str())
            if found is not None:
                raise found

    def _sort(self, message: Message) -> LogRecord | None:
        error = message.error()
        offset = message.offset()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            self._events.append(error)
            return None
        assert offset is not None, "records and the end have offsets"
        if offset < self.position:
            raise LogRewound(
                f"mode log: topic {self._topic!r} ends or continues at offset {offset}, and was read up to "
                f"{self.position} before: it was truncated or made again",
                topic=self._topic,
            )
        self.at_end = error is not None
        self.position = offset if self.at_end else offset + 1
        self.end = offset if self.at_end else None
        return None if self.at_end else LogRecord(offset, message.key(), message.value())

    def _raise_events(self) -> None:
        """Raise the gravest of the errors that were reported since the last call; the others say the same or less."""
        errors = [to_error(self._topic, event.code(), event.str()) for event in self._events]
        self._events.clear()
        self._trouble = next((str(e) for e in errors if isinstance(e, LogUnreachable)), self._trouble)
        for kind in (LogRewound, NotAuthorized, LogAbsent, LogUnreachable):
            for error in errors:
                if isinstance(error, kind):
                    raise error

    def _convert(self, error: KafkaException) -> ModeSourceError:
        cause = error.args[0]
        known = to_error(self._topic, cause.code(), cause.str())
        if known is None or isinstance(known, LogUnreachable):
            # What was reported before says more: "connection refused" instead of "no answer".
            return LogUnreachable(self._trouble or f"mode log: {cause.str()}", topic=self._topic)
        return known


def read_mode_log(conf: Mapping[str, Any], topic: str, timeout_s: float, *, must_exist: bool = False) -> Replay:
    """Read the mode log to its end: everything that was appended and committed before this is called.

    Args:
        conf: librdkafka settings (``bootstrap.servers``, security settings; others are ignored).
        topic: the mode log.
        timeout_s: in seconds, for all of it.
        must_exist: the log is known to exist, so a broker that says otherwise lags behind: wait for it. By default an
            absent log reads as an empty one.

    Raises:
        NotAuthorized: the user may not read it.
        ModeSourceError: it could not be read to its end within ``timeout_s``.
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
    """Pass all records from offset ``start`` on to ``apply``, in batches, up to the end as it is when this is called.

    Returns:
        The offset at which the log continues.

    Raises:
        LogAbsent, LogRewound, NotAuthorized: what the cluster says of the log (LogAbsent with ``must_exist``: only at
            the timeout).
        ModeSourceError: the end was not reached within ``timeout_s``; names the last thing that went wrong.
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
                if stream.end is not None and target is None:
                    target = stream.committed_end(left_s)
            except LogUnreachable as error:
                last = error
            except LogAbsent as error:
                if not must_exist:
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
