"""Errors of these clients. Each class is a subclass of one of our errors and of one of kafka-python's, so code that
catches either also catches it."""

from __future__ import annotations

from modeaware.errors import ModeSourceError, PartitionRetired, TopicReplaced, ViewTimeout
from modeaware.kafka_python._gateway import KafkaError, KafkaTimeoutError, MessageSizeTooLargeError


class RetiredPartitionError(PartitionRetired, KafkaError, ValueError):  # type: ignore[misc,unused-ignore]  # untyped
    """A record was addressed to a partition that takes no writes; it was not queued.

    It is also a ValueError, because kafka-python's ``send`` raises ValueError for a partition that does not exist. Code
    that then chooses another partition handles this error, too. ``code`` is ``POLICY_VIOLATION``.
    """


class FirstViewTimeout(ViewTimeout, KafkaError):  # type: ignore[misc,unused-ignore]  # untyped
    """No first view within ``modeaware_view_timeout_ms``, and ``modeaware_on_unknown`` is ``error``."""


class FirstViewPending(ModeSourceError, KafkaTimeoutError, BufferError):  # type: ignore[misc,unused-ignore]  # untyped
    """No first view within ``modeaware_view_timeout_ms``, and ``modeaware_on_unknown`` is ``block``: try again.

    It is a ``KafkaTimeoutError`` (retriable), which callers of kafka-python's ``send`` already retry. It is also a
    BufferError, like the error of our confluent_kafka producer.
    """


class ReplacedTopicError(TopicReplaced, MessageSizeTooLargeError):  # type: ignore[misc,unused-ignore]  # untyped
    """The exception of a record's future if brokers rejected the record because its topic was replaced.

    It is a ``MessageSizeTooLargeError``, as brokers return it, but ``retriable``: the application may send the record
    again under the same name, if a duplicate does no harm.
    """

    retriable = True
