"""Errors of these clients. Each is one of ours and one of kafka-python's, so that code written for either catches
it."""

from __future__ import annotations

from modeaware.errors import ModeSourceError, PartitionRetired, TopicReplaced, ViewTimeout
from modeaware.kafka_python._gateway import KafkaError, KafkaTimeoutError, MessageSizeTooLargeError


class RetiredPartitionError(PartitionRetired, KafkaError, ValueError):  # type: ignore[misc,unused-ignore]  # untyped
    """A record was addressed to a partition that takes no writes; it was not queued.

    Also a ValueError, as kafka-python's ``send`` raises for a partition that does not exist. So code that handles that
    by choosing again also handles this error. ``code`` is ``POLICY_VIOLATION``.
    """


class FirstViewTimeout(ViewTimeout, KafkaError):  # type: ignore[misc,unused-ignore]  # untyped
    """No first view within ``modeaware_view_timeout_ms``, and ``modeaware_on_unknown`` is ``error``."""


class FirstViewPending(ModeSourceError, KafkaTimeoutError, BufferError):  # type: ignore[misc,unused-ignore]  # untyped
    """No first view within ``modeaware_view_timeout_ms``, and ``modeaware_on_unknown`` is ``block``: try again.

    A ``KafkaTimeoutError`` (retriable), which callers of kafka-python's ``send`` already retry, and a BufferError, as
    with confluent_kafka.
    """


class ReplacedTopicError(TopicReplaced, MessageSizeTooLargeError):  # type: ignore[misc,unused-ignore]  # untyped
    """The exception of a record's future if brokers rejected the record because its topic was replaced.

    A ``MessageSizeTooLargeError``, as the brokers return it. ``retriable``: the application may send the record again
    under the same name; it decides whether a record that is stored twice does harm.
    """

    retriable = True
