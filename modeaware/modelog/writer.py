"""Appending to the mode log, in transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from modeaware.errors import ClusterError, ControllerFenced
from modeaware.librdkafka import KafkaError, KafkaException, Producer
from modeaware.modelog.connection import connection_conf

TRANSACTION_TIMEOUT_MS = 15_000
"""How long an unfinished transaction of a dead writer may hold readers back, unless its successor opens sooner."""
OPERATION_TIMEOUT_S = 30.0

_FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.TRANSACTION_COORDINATOR_FENCED,
    }
)


class ModeLogWriter:
    """The one writer of the mode log: whoever opens it last fences those before. One thread owns it.

    Args:
        conf: librdkafka settings (``bootstrap.servers``, security settings; others are ignored).
        topic: the mode log.
        transactional_id: all controllers of one log share it, which is what fences; by default made of the log's name.
    """

    def __init__(self, conf: Mapping[str, Any], topic: str, transactional_id: str | None = None) -> None:
        self._topic = topic
        self._conf = {
            **connection_conf(conf, "modes-writer"),
            "transactional.id": transactional_id or f"modeaware-controller.{topic}",
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "acks": "all",
            "linger.ms": 0,
        }
        self._producer: Producer | None = None

    def open(self) -> None:
        """Fence every writer before this one and finish what it left open. Always begins with a new producer.

        Raises:
            ClusterError: no broker answered in time, or this user may not use the transactional id.
        """
        self.close()
        producer = Producer(self._conf)
        try:
            producer.init_transactions(OPERATION_TIMEOUT_S)
        except KafkaException as error:
            raise self._to_error(error.args[0], "cannot be opened for writing") from error
        self._producer = producer

    def append(self, records: Sequence[tuple[str, bytes | None]]) -> None:
        """Append ``(key, value)`` records as one transaction: all or none. A value of None is a tombstone.

        Readers see the records a few milliseconds after this returns.

        Raises:
            ControllerFenced: another writer was opened since; nothing was appended, and this one is closed.
            ClusterError: nothing was appended, or that is not known. Unless :attr:`is_open` says otherwise the writer
                is closed: open it again and read the log to its end before the next append.
        """
        if self._producer is None:
            raise ClusterError(f"mode log: the writer of topic {self._topic!r} is not open", topic=self._topic)
        if not records:
            return
        producer = self._producer
        try:
            producer.begin_transaction()
            for key, value in records:
                producer.produce(self._topic, value=value, key=key.encode(), partition=0)
            producer.commit_transaction(OPERATION_TIMEOUT_S)
        except BufferError as error:
            self._abort(producer)
            raise ClusterError(
                f"mode log: {len(records)} records are too many for one transaction on {self._topic!r}",
                topic=self._topic,
            ) from error
        except KafkaException as error:
            cause = error.args[0]
            # librdkafka lacks KIP-890: a transaction that timed out (or failed for good) leaves a producer whose next
            # transaction could carry its records. It is thrown away; so is one that is fenced.
            if cause.fatal() or cause.code() in _FENCED or cause.code() == KafkaError._TIMED_OUT or cause.retriable():
                self.close()
            else:
                self._abort(producer)
            raise self._to_error(cause, "was not appended to, as far as is known") from error

    @property
    def is_open(self) -> bool:
        """Whether :meth:`append` may be called."""
        return self._producer is not None

    def close(self) -> None:
        """Let the producer go; an open transaction is left to its successor, or to its timeout. Idempotent."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.flush(0)

    def _abort(self, producer: Producer) -> None:
        try:
            producer.abort_transaction(OPERATION_TIMEOUT_S)
        except KafkaException:
            self.close()  # the error that led here is the one to report; the next open() aborts what is left

    def _to_error(self, cause: KafkaError, what: str) -> ClusterError | ControllerFenced:
        if cause.code() in _FENCED:
            return ControllerFenced(
                f"mode log: another controller has opened topic {self._topic!r} for writing ({cause.str()})",
                topic=self._topic,
            )
        text = f"mode log: topic {self._topic!r} {what} ({cause.name()}: {cause.str()})"
        return ClusterError(text, topic=self._topic)
