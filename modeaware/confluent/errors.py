"""What the clients raise: errors that are ours and confluent_kafka's at once, so that code written for either catches
them.

``error.args[0]`` is a ``KafkaError``, as in every ``KafkaException``; ``str(error)`` is the whole message.
"""

from __future__ import annotations

from typing import Any

from modeaware.errors import KeyMoved, ModeAwareError, ModeSourceError, PartitionRetired, ViewTimeout
from modeaware.librdkafka import KafkaError, KafkaException


class _WithKafkaError(ModeAwareError):
    """Puts a ``KafkaError`` where confluent_kafka's users look for one."""

    kafka_code: int

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message, **details)
        self.args = (KafkaError(self.kafka_code, self.message),)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message,), {"code": self.code, "topic": self.topic, "partition": self.partition}


class RetiredPartitionChosen(_WithKafkaError, PartitionRetired, KafkaException):
    """A record was addressed to a partition that takes no writes; it was not queued.

    The ``KafkaError`` has the code ``_UNKNOWN_PARTITION``: what librdkafka's ``produce`` raises for a partition that
    does not exist, so whoever handles that (by choosing anew) handles this. ``code`` is ``POLICY_VIOLATION``.
    """

    kafka_code = KafkaError._UNKNOWN_PARTITION


class MovedKeyRefused(_WithKafkaError, KeyMoved, KafkaException):
    """A key has moved to another partition, and ``modeaware.on.resize`` is ``error``; the record was not queued.

    The ``KafkaError`` has the code ``_CONFLICT``.
    """

    kafka_code = KafkaError._CONFLICT


class FirstViewTimeout(_WithKafkaError, ViewTimeout, KafkaException):
    """No first view within ``modeaware.view.timeout.ms``, and ``modeaware.on.unknown`` is ``error``.

    The ``KafkaError`` has the code ``_TIMED_OUT``.
    """

    kafka_code = KafkaError._TIMED_OUT


class FirstViewPending(ModeSourceError, BufferError):
    """No first view within ``modeaware.view.timeout.ms``, and ``modeaware.on.unknown`` is ``block``.

    A BufferError, which callers of ``produce`` already answer with ``poll()`` and another try.
    """
