"""Sending records of one task through this process's producer, and knowing at the end that all have arrived."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from modeaware.confluent.errors import FirstViewPending
from modeaware.errors import ErrorCode, KeyHeld, ModeAwareError, ViewTimeout
from modeaware.librdkafka import KafkaError, KafkaException, Message
from modeaware.spark.write.errors import WriteFailed
from modeaware.spark.write.producers import borrow, give_back, key_of
from modeaware.spark.write.worker import forget_archive_finders

logger = logging.getLogger(__name__)

POLL_EVERY = 2_000
"""After how many records delivery reports are looked at: they free their place in the queue."""
FULL_POLL_S = 0.05
HELD_WARNING_S = 30.0

Headers = Iterable[tuple[str, bytes | None]]


class Sender:
    """Sends records of one task, or of one piece of work, to a topic. Use it from one thread.

    ``with Sender(topic, conf) as sender:`` finishes at the end, unless the block raises. Delivered at least once: where
    anything fails, the whole task is to be run again.

    Args:
        topic: where records go that name no topic themselves.
        conf: as for :class:`modeaware.Producer`, without ``on_delivery`` and ``transactional.id``. Where nothing in it
            speaks about that, ``enable.idempotence`` is set, so that retries keep the order, and ``linger.ms`` is 50.
            The producer of a configuration is kept in the process for the next sender.
        at_least: the :attr:`~modeaware.topic_view.TopicView.version` of the topic's modes that have to be known here
            before anything is sent; what the driver planned by.
        key: :func:`~modeaware.spark.write.producers.key_of` ``conf``, where the caller has it.

    Raises:
        ViewTimeout: the modes as of ``at_least`` cannot be had.
        ConfigError, KafkaException: as from :class:`modeaware.Producer`.
    """

    def __init__(
        self, topic: str, conf: Mapping[str, Any], *, at_least: tuple[int, int] | None = None, key: str | None = None
    ) -> None:
        self.topic = topic
        self.sent = 0
        """How many records were queued."""
        self._failure: WriteFailed | None = None
        self._key = key or key_of(conf)
        forget_archive_finders()
        self._shared = borrow(self._key, conf)
        self._open = True
        # Bound once: the attribute follows the modes (see modeaware.Producer).
        self._produce = self._shared.producer.produce
        self._poll = self._shared.producer.poll
        self._failed = self._on_delivery
        self._next_poll = POLL_EVERY
        if at_least is not None:
            try:
                self._shared.await_version(topic, at_least)
            except ModeAwareError:
                self.abandon()
                raise

    def send(
        self,
        key: bytes | None,
        value: bytes | None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
        topic: str | None = None,
    ) -> None:
        """Queue a record; waits while the queue is full.

        Args:
            key: None = a record without a key.
            value: None = a tombstone.
            partition: None = by the partitioner, among the writable ones.
            timestamp_ms: Unix time in ms; None = now. (0 is 1970, which confluent_kafka cannot say: it becomes 1.)
            headers: pairs of name and value; None or empty = none.
            topic: in place of the sender's.

        Raises:
            PartitionRetired: ``partition`` takes no records.
            ViewTimeout: the modes of partitions are not known within ``modeaware.view.timeout.ms``.
            WriteFailed: this record was refused, or an earlier one has failed.
        """
        arguments: dict[str, Any] = {"on_delivery": self._failed}
        if partition is not None:
            arguments["partition"] = partition
        if timestamp_ms is not None:
            arguments["timestamp"] = timestamp_ms or 1
        if headers:
            arguments["headers"] = headers if type(headers) is list else list(headers)
        try:
            self._produce(topic or self.topic, value, key, **arguments)
        except (BufferError, KafkaException) as error:
            self._again(error, topic or self.topic, value, key, arguments)
        self.sent += 1
        if self.sent >= self._next_poll:
            self.look()

    def send_pairs(self, pairs: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """:meth:`send` of many keys and values and nothing else, faster."""
        produce, topic, failed = self._produce, self.topic, self._failed
        left = POLL_EVERY
        for key, value in pairs:
            try:
                produce(topic, value, key, on_delivery=failed)
            except (BufferError, KafkaException) as error:
                self._again(error, topic, value, key, {"on_delivery": failed})
            left -= 1
            if not left:
                left = POLL_EVERY
                self.sent += POLL_EVERY
                self.look()
        self.sent += POLL_EVERY - left

    def look(self) -> None:
        """See what became of earlier records.

        Raises:
            WriteFailed: one was not delivered.
        """
        self._next_poll = self.sent + POLL_EVERY
        self._poll(0)
        if self._failure is not None:
            raise self._failure

    def finish(self) -> int:
        """Wait until every record is delivered, or has failed; how many were sent. The sender is closed then.

        It takes no longer than ``message.timeout.ms``, after which librdkafka gives a record up.

        Raises:
            WriteFailed: the first of those that were not delivered.
        """
        try:
            while self._shared.producer.flush(1.0) and self._failure is None:
                pass
            if self._failure is not None:
                raise self._failure
        finally:
            self.abandon()
        return self.sent

    def abandon(self) -> None:
        """Close without waiting: what is queued may still be delivered. Idempotent."""
        if self._open:
            self._open = False
            give_back(self._key, self._shared)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.abandon()

    def _again(
        self, error: Exception, topic: str, value: bytes | None, key: bytes | None, arguments: Mapping[str, Any]
    ) -> None:
        """The record was not queued because of ``error``: try until it is, or raise what cannot be waited for."""
        warn_at_s = time.monotonic() + HELD_WARNING_S
        while True:
            if not isinstance(error, BufferError) or isinstance(error, FirstViewPending):
                refusal = self._refused(error, topic)
                raise refusal from (None if refusal is error else error)
            self._poll(FULL_POLL_S)
            if self._failure is not None:
                raise self._failure
            if isinstance(error, KeyHeld) and time.monotonic() > warn_at_s:
                logger.warning("%s: still waiting: %s", topic, error)
                warn_at_s = time.monotonic() + HELD_WARNING_S
            try:
                self._produce(topic, value, key, **arguments)
            except (BufferError, KafkaException) as further:
                error = further
            else:
                return

    def _refused(self, error: Exception, topic: str) -> ModeAwareError:
        if isinstance(error, FirstViewPending):
            return ViewTimeout(f"{topic}: {error.message}", topic=topic)
        if isinstance(error, ModeAwareError):
            return error  # of a retired partition, a moved key: it says all
        return self._write_failed(error.args[0], topic, None)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._failure is None:
            self._failure = self._write_failed(error, message.topic() or self.topic, message.partition())

    def _write_failed(self, error: KafkaError, topic: str, partition: int | None) -> WriteFailed:
        if error.fatal() or error.code() == KafkaError._FATAL:  # delivery reports have the code alone
            self._shared.broken = True
        where = topic if partition is None or partition < 0 else f"partition {partition} of {topic}"
        code = next((known for known in ErrorCode if known == error.code()), None)
        return WriteFailed(
            f"{where}: a record was not delivered: {error.str()} ({error.name()}). The records of this task that were "
            "delivered come a second time when it is run again",
            code=code,
            topic=topic,
            partition=partition if partition is not None and partition >= 0 else None,
        )
