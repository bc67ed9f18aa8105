"""Errors of the clients, and librdkafka's errors after which views may be old. Each exception is a subclass of one of
our errors and of the error that the stock method raises (``KafkaException`` or ``BufferError``). So code that catches
either also catches the exception.

In a ``KafkaException``, ``error.args[0]`` is a ``KafkaError``, as usual; ``str(error)`` is the whole message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from modeaware.errors import ModeAwareError, ModeSourceError, PartitionRetired, TopicReplaced, ViewTimeout
from modeaware.librdkafka import KafkaError, KafkaException
from modeaware.views.source import Views


class _WithKafkaError(ModeAwareError):
    """Has a ``KafkaError`` where users of confluent_kafka expect one."""

    kafka_code: int

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message, **details)
        self.args = (KafkaError(self.kafka_code, self.message),)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message,), {**self.__dict__}


class RetiredPartitionChosen(_WithKafkaError, PartitionRetired, KafkaException):
    """A record was addressed to a partition that takes no writes; it was not queued.

    The ``KafkaError`` has the code ``_UNKNOWN_PARTITION``, because librdkafka's ``produce`` raises it for a partition
    that does not exist. Code that then chooses another partition handles this error, too. The attribute ``code`` is
    ``POLICY_VIOLATION``.
    """

    kafka_code = KafkaError._UNKNOWN_PARTITION


class ReplacedTopicRefused(KafkaError):
    """The error that delivery callbacks get for a record that brokers rejected because its topic was replaced.

    It has the code that the brokers returned, ``MSG_SIZE_TOO_LARGE``, and is ``retriable()``. The application may send
    the record again under the same name, if a duplicate does no harm.

    Attributes:
        error: this error as an exception, with topic, partition, and the new topic.
    """

    error: TopicReplaced

    def __init__(self, error: TopicReplaced) -> None:
        super().__init__(KafkaError.MSG_SIZE_TOO_LARGE, error.message, False, True)
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.error,)


class FirstViewTimeout(_WithKafkaError, ViewTimeout, KafkaException):
    """No first view within ``modeaware.view.timeout.ms``, and ``modeaware.on.unknown`` is ``error``.

    The ``KafkaError`` has the code ``_TIMED_OUT``.
    """

    kafka_code = KafkaError._TIMED_OUT


class FirstViewPending(ModeSourceError, BufferError):
    """No first view within ``modeaware.view.timeout.ms``, and ``modeaware.on.unknown`` is ``block``.

    It is a BufferError, which callers of ``produce`` already handle by ``poll()`` and another attempt.
    """


STALE = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.INCONSISTENT_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
    }
)
"""The codes after which a Kafka client requests metadata again."""


class StaleHints:
    """Wraps a client's ``error_cb``: errors that hint at old metadata make the source of the views refresh.

    The wrapper costs nothing per record. If the application has no ``error_cb``, none is set, because an ``error_cb``
    would silence librdkafka's log messages.

    Attributes:
        views: the client's share of the views, or None until it has one.
    """

    def __init__(self) -> None:
        self.views: Views | None = None

    def listening(self, conf: Any) -> Any:
        """Return ``conf`` with its ``error_cb`` wrapped, if it has one."""
        callback = conf.get("error_cb") if isinstance(conf, dict) else None
        return {**conf, "error_cb": self._over(callback)} if callable(callback) else conf

    def _over(self, callback: Callable[[KafkaError], Any]) -> Callable[[KafkaError], Any]:
        def error_cb(error: KafkaError) -> Any:
            if self.views is not None and error.code() in STALE:
                self.views.refresh_soon()
            return callback(error)

        return error_cb
