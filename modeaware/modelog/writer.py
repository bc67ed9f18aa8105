"""Appending to the mode log, in transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from modeaware.cluster.group_listing import election_group
from modeaware.errors import ClusterError, ConfigError, ControllerFenced, ErrorCode
from modeaware.librdkafka import KafkaError, KafkaException, Producer, TopicPartition
from modeaware.modelog.connection import connection_conf, is_transient
from modeaware.wire.retries import Deadline

TRANSACTION_TIMEOUT_MS = 15_000
"""How long an unfinished transaction of a dead writer may block readers. The next writer's ``open`` ends it earlier."""
OPEN_TIMEOUT_S = 15.0
APPEND_TIMEOUT_S = 10.0
"""An append takes milliseconds; after this time the caller opens a new producer."""
_ABORT_AT_LEAST_S = 1.0
_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
_FENCED = (
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.TRANSACTION_COORDINATOR_FENCED,
)
# The group's coordinator returns these codes to a member that has been replaced, or is being replaced.
_NOT_ELECTED = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
)


class ModeLogWriter:
    """Writes the mode log. When a writer opens, it fences all earlier writers (invariant I5), so there is only one. One
    thread owns a writer.

    Args:
        conf: librdkafka settings (``bootstrap.servers``, security settings; others are ignored).
        topic: the mode log.
    """

    def __init__(self, conf: Mapping[str, Any], topic: str) -> None:
        self._topic = topic
        connection = connection_conf(conf, "modes-writer")
        self._conf = {
            **connection,
            # librdkafka requires a socket timeout that is at most the transaction's timeout.
            "socket.timeout.ms": min(int(connection["socket.timeout.ms"]), TRANSACTION_TIMEOUT_MS),
            "transactional.id": election_group(topic),  # shared by all controllers of a log: it fences
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "acks": "all",
            # Brokers would create a lost log with their defaults; ensure_mode_log alone creates it.
            "allow.auto.create.topics": False,
            "linger.ms": 0,
            # The JSON of a large topic shrinks to a tenth; every librdkafka has lz4.
            "compression.type": "lz4",
            # Brokers reject batches by size. Records that fit one by one must not be too large together.
            "batch.num.messages": 1,
            # The pause between requests to the coordinator while it completes the previous transaction.
            "retry.backoff.ms": 20,
            # librdkafka's send_offsets_to_transaction has no timeout. After a restart of the group coordinator the call
            # hangs until the state of any connection changes (librdkafka issues 5456, 5511). Closing idle connections
            # is such a change.
            "connections.max.idle.ms": 3_000,
        }
        self._producer: Producer | None = None
        self._sequence_gap = False

    def open(self) -> None:
        """Fence every earlier writer and end its open transaction. Always begins with a new producer.

        Raises:
            ConfigError: librdkafka rejects a setting, or cannot read the file that a setting names.
            ClusterError: no broker answered in time (code REQUEST_TIMED_OUT), or this user may not use the
                transactional id.
        """
        self.close()
        try:
            producer = Producer(self._conf)
        except KafkaException as error:
            raise ConfigError(f"client settings: {error.args[0].str()}") from error
        try:
            producer.init_transactions(OPEN_TIMEOUT_S)
        except KafkaException as error:
            raise self._to_error(error.args[0], "cannot be opened for writing") from error
        self._producer = producer
        self._sequence_gap = False

    def append(
        self,
        records: Sequence[tuple[str, bytes | None]],
        membership: bytes | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Append ``(key, value)`` records as one transaction: all or none. A value of None is a tombstone.

        Readers see the records a few milliseconds after this returns.

        Args:
            membership: a consumer's ``consumer_group_metadata()``. The transaction then also commits an offset of that
                group (always 0, for the mode log's partition; it is never read). The group's coordinator accepts the
                offset only from a member of the current generation (KIP-447). The offset is sent before the records, so
                if it is rejected, no record has been sent.
            timeout_s: the time limit of the whole append, in seconds; :data:`APPEND_TIMEOUT_S` by default. An abort at
                the last moment may take a second more.

        Raises:
            ControllerFenced: another writer was opened later, the transaction took too long, or the member's generation
                is over. This writer is closed. Usually nothing was appended; but the commit may have succeeded if its
                answer was lost.
            ClusterError: nothing was appended, or the outcome is unknown. If :attr:`is_open` is False, open the writer
                again and read the log to its end before the next append. With code MESSAGE_TOO_LARGE nothing was
                appended, and an append of the same records would fail again.
        """
        if self._producer is None:
            raise ClusterError(f"mode log: the writer of topic {self._topic!r} is not open", topic=self._topic)
        if not records:
            return
        producer = self._producer
        deadline = Deadline(APPEND_TIMEOUT_S if timeout_s is None else timeout_s)
        try:
            producer.begin_transaction()
            if membership is not None:
                fence = [TopicPartition(self._topic, 0, 0)]
                producer.send_offsets_to_transaction(fence, membership, deadline.left_s())
            for key, value in records:
                producer.produce(self._topic, value=value, key=key.encode(), partition=0)
            producer.commit_transaction(deadline.left_s())
        except BufferError as error:
            self._abort(producer, deadline)
            raise ClusterError(
                f"mode log: {len(records)} records are too many for one transaction on {self._topic!r}",
                code=ErrorCode.MESSAGE_TOO_LARGE,
                topic=self._topic,
            ) from error
        except KafkaException as error:
            cause = error.args[0]
            # librdkafka lacks KIP-890: after a transaction that timed out (or failed permanently), the producer's next
            # transaction could include records of the failed one. So the producer is closed, as after a fence.
            fenced = cause.code() in (*_FENCED, *_NOT_ELECTED)
            if fenced or cause.fatal() or cause.code() == KafkaError._TIMED_OUT or cause.retriable():
                self.close()
            else:
                self._abort(producer, deadline)
            # A batch that a broker rejects leaves a gap in librdkafka's sequence numbers: the next transaction fails
            # once. The append is then repeated.
            gap, self._sequence_gap = self._sequence_gap, cause.code() in _TOO_LARGE
            if gap and self.is_open and cause.code() == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER:
                self.append(records, membership, deadline.left_s())
                return
            raise self._to_error(cause, "could not be appended to; the outcome is unknown") from error

    @property
    def is_open(self) -> bool:
        return self._producer is not None

    def close(self) -> None:
        """Drop the producer. An open transaction ends when the next writer opens, or times out. Idempotent."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            with suppress(KafkaException):  # a fenced producer raises its error again
                producer.flush(0)

    def _abort(self, producer: Producer, deadline: Deadline) -> None:
        try:
            producer.abort_transaction(max(deadline.left_s(), _ABORT_AT_LEAST_S))
        except KafkaException:
            self.close()  # the caller reports its own error; the next open() aborts the transaction

    def _to_error(self, cause: KafkaError, what: str) -> ClusterError | ControllerFenced:
        if cause.code() in _NOT_ELECTED:
            return ControllerFenced(
                f"mode log: nothing was appended to topic {self._topic!r}, because this controller is no longer "
                f"elected ({cause.str()})",
                topic=self._topic,
            )
        if cause.code() in _FENCED:
            return ControllerFenced(
                f"mode log: another controller has opened topic {self._topic!r} for writing, or the transaction took "
                f"longer than {TRANSACTION_TIMEOUT_MS} ms ({cause.str()})",
                topic=self._topic,
            )
        text = f"mode log: topic {self._topic!r} {what} ({cause.name()}: {cause.str()})"
        code = ErrorCode.MESSAGE_TOO_LARGE if cause.code() in _TOO_LARGE else None
        if is_transient(cause):
            code = ErrorCode.REQUEST_TIMED_OUT
        return ClusterError(text, code=code, topic=self._topic)
