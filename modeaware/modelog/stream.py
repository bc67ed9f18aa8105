"""One consumer on the mode log: its records in order, its end, and what goes wrong as exceptions."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from modeaware.errors import ErrorCode, ModeSourceError, NotAuthorized
from modeaware.librdkafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from modeaware.modelog.connection import tail_conf

BATCH = 500
READ_WAIT_MS = 10
"""``fetch.wait.max.ms`` of a stream that reads to the end: what the end costs."""


class LogAbsent(ModeSourceError):
    """The cluster says that there is no such topic; a broker may lag behind its creation."""

    default_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class LogUnreachable(ModeSourceError):
    """No broker that has the log can be reached, or the connection to one has just been lost."""


class LogRewound(ModeSourceError):
    """The log is shorter than what was read of it: it was truncated, or deleted and made again."""


class Verdict(Enum):
    """What an error of the consumer means for reading the log."""

    IGNORE = "ignore"
    ABSENT = "absent"
    DENIED = "denied"
    REWOUND = "rewound"
    UNREACHABLE = "unreachable"


_VERDICTS: dict[int, Verdict] = {
    # The group is a formality: an assigned partition is read without its coordinator.
    KafkaError.GROUP_AUTHORIZATION_FAILED: Verdict.IGNORE,
    KafkaError.COORDINATOR_NOT_AVAILABLE: Verdict.IGNORE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS: Verdict.IGNORE,
    KafkaError.NOT_COORDINATOR: Verdict.IGNORE,
    KafkaError._MAX_POLL_EXCEEDED: Verdict.IGNORE,
    KafkaError.UNKNOWN_TOPIC_OR_PART: Verdict.ABSENT,
    KafkaError.UNKNOWN_TOPIC_ID: Verdict.ABSENT,
    KafkaError.INCONSISTENT_TOPIC_ID: Verdict.ABSENT,
    KafkaError._UNKNOWN_TOPIC: Verdict.ABSENT,
    KafkaError._UNKNOWN_PARTITION: Verdict.ABSENT,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Verdict.DENIED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: Verdict.DENIED,
    KafkaError.OFFSET_OUT_OF_RANGE: Verdict.REWOUND,
    KafkaError._AUTO_OFFSET_RESET: Verdict.REWOUND,
    KafkaError._LOG_TRUNCATION: Verdict.REWOUND,
}


def judge(code: int) -> Verdict:
    """What the error ``code`` (Kafka's, or librdkafka's own below 0) means. One that is not known means "unreachable":

    only the cluster's plain word that the topic does not exist counts as that.
    """
    return _VERDICTS.get(code, Verdict.UNREACHABLE)


def to_error(topic: str, code: int, text: str) -> ModeSourceError | None:
    """The exception for an error of the consumer; None where it does not matter."""
    match judge(code):
        case Verdict.IGNORE:
            return None
        case Verdict.ABSENT:
            return LogAbsent(f"mode log: topic {topic!r} does not exist ({text})", topic=topic)
        case Verdict.DENIED:
            return NotAuthorized(
                f"mode log: not authorised to read topic {topic!r} ({text}); grant this user READ and DESCRIBE on it",
                topic=topic,
            )
        case Verdict.REWOUND:
            return LogRewound(f"mode log: topic {topic!r} was truncated or made again ({text})", topic=topic)
        case Verdict.UNREACHABLE:
            return LogUnreachable(f"mode log: topic {topic!r} cannot be read now ({text})", topic=topic)


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
        told_end: whether the last :meth:`poll` was told that this is the end.
    """

    def __init__(self, conf: Mapping[str, Any], topic: str, start: int, *, wait_ms: int = READ_WAIT_MS) -> None:
        self._topic = topic
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
        self.told_end = False
        self._trouble = ""

    def poll(self, timeout_s: float) -> list[LogRecord]:
        """The next records; none within ``timeout_s`` seconds gives an empty list, and so does the end.

        Raises:
            LogAbsent, LogUnreachable, LogRewound, NotAuthorized: the stream may still recover from the first two by
                itself: poll again, or close it.
        """
        self.told_end = False
        first = self._consumer.poll(timeout_s)
        # consume(n, timeout) would wait until it has n: so wait for one, then take what is there.
        messages = [] if first is None else [first, *self._consumer.consume(BATCH, 0)]
        records = [record for record in map(self._sort, messages) if record is not None]
        if records:
            return records  # errors come with the next call, after what was read before them
        self._raise_events()
        return records

    def committed_end(self, timeout_s: float) -> int:
        """An offset at or past every record that was appended, and is committed, when this is called.

        Blocks for up to ``timeout_s``; only to be asked of a stream with a short ``wait_ms``, once it has an ``end``.

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

    def ask_access(self, timeout_s: float) -> None:
        """Ask why nothing comes: brokers keep silent towards a consumer that may not even describe the topic.

        Raises:
            LogAbsent, LogUnreachable, NotAuthorized: what the cluster says of the topic.
        """
        try:
            topic = self._consumer.list_topics(self._topic, timeout=timeout_s).topics[self._topic]
        except KafkaException as error:
            raise self._convert(error) from error
        if topic.error is not None:
            found = to_error(self._topic, topic.error.code(), topic.error.str())
            if found is not None:
                raise found

    def close(self) -> None:
        """Let the connections go. Takes about a millisecond."""
        self._consumer.close()

    def _sort(self, message: Message) -> LogRecord | None:
        error = message.error()
        offset = message.offset()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            self._events.append(error)
            return None
        assert offset is not None, "records and the end have offsets"
        if offset < self.position:
            raise LogRewound(
                f"mode log: topic {self._topic!r} ends or goes on at offset {offset}, and was read up to "
                f"{self.position} before: it was truncated or made again",
                topic=self._topic,
            )
        if error is not None:
            self.position = self.end = offset
            self.told_end = True
            return None
        self.position = offset + 1
        self.end = None
        self.told_end = False
        return LogRecord(offset, message.key(), message.value())

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
