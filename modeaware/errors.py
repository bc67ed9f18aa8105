"""The error classes of modeaware, and the Kafka error codes that they have.

A message names what happened, on which topic and partition if there is one, and what to do next. For an error that a
broker or the controller returned, :attr:`ModeAwareError.code` is the Kafka error code.
"""

from __future__ import annotations

from copy import copy
from enum import IntEnum
from typing import Any, TypeVar

from modeaware.printable import printable, printable_lines

_E = TypeVar("_E", bound=Exception)


def without_frames(error: _E) -> _E:
    """Return a copy of ``error`` without its traceback, to be kept or raised repeatedly. A traceback's frames would
    keep objects of the callers alive, clients for example."""
    return copy(error)


class ErrorCode(IntEnum):
    """The Kafka error codes that modeaware uses, with Kafka's names and numbers."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    INVALID_TOPIC_EXCEPTION = 17
    UNKNOWN_MEMBER_ID = 25
    TOPIC_AUTHORIZATION_FAILED = 29
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    SASL_AUTHENTICATION_FAILED = 58
    REASSIGNMENT_IN_PROGRESS = 60
    GROUP_ID_NOT_FOUND = 69
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    NO_REASSIGNMENT_IN_PROGRESS = 85
    THROTTLING_QUOTA_EXCEEDED = 89
    UNKNOWN_TOPIC_ID = 100


class ModeAwareError(Exception):
    """Base class of modeaware's own errors.

    Args:
        message: what happened, on which topic and partition, and what to do. ``modeaware.printable``
            escapes the message.
        code: the Kafka error code, if there is one.
        topic: the topic concerned, if any.
        partition: the partition concerned, if any.
    """

    default_code: ErrorCode | None = None

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        topic: str | None = None,
        partition: int | None = None,
    ) -> None:
        message = printable(message)
        super().__init__(message)
        self.message = message
        self.code = code if code is not None else self.default_code
        self.topic = topic
        self.partition = partition

    def __str__(self) -> str:
        return self.message


class ConfigError(ModeAwareError, ValueError):
    """A ``modeaware.`` setting (or a controller config) is unknown or has a bad value."""


class RequestRefused(ModeAwareError):
    """A command was refused, by the controller or a broker; nothing was changed. ``code`` is the Kafka error code."""

    default_code = ErrorCode.INVALID_REQUEST


class CreatedUnderReplicated(ModeAwareError):
    """Partitions were created, but replicas are missing (KIP-409). No code: the KIP's 79 has another meaning now."""


class ModeSourceError(ModeAwareError):
    """The source of partition modes cannot be read now; the last known view stays in force."""


class NotAuthorized(ModeSourceError):
    """The principal may not read the mode log. The log may exist, so this is an error to report, not a missing log."""

    default_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class ViewTimeout(ModeSourceError):
    """No first view of the partition modes within ``modeaware.view.timeout.ms``."""

    default_code = ErrorCode.REQUEST_TIMED_OUT


class RecordError(ModeAwareError):
    """A record of the mode log cannot be used."""


class NewerRecord(RecordError):
    """A record of the mode log needs a newer reader (``min_reader``). This version does not change the record."""

    default_code = ErrorCode.UNSUPPORTED_VERSION


class PartitionRetired(ModeAwareError):
    """A record was addressed to a partition that takes no writes (ReadOnly, None, or not listed).

    Attributes:
        writable_partitions: the partitions of the topic that take writes, ascending; empty if none does.
    """

    default_code = ErrorCode.POLICY_VIOLATION
    writable_partitions: tuple[int, ...] = ()


class TopicReplaced(ModeAwareError):
    """Brokers rejected a record that was queued for an old topic before the switch.

    The rejected attempt has not stored the record. If this attempt was a retry, the outcome is unknown: an earlier
    attempt may have stored the record. The application may send the record again under the same name. Then the record
    goes to the new topic.

    Attributes:
        new_topic: the name of the new topic, if known.
    """

    default_code = ErrorCode.MESSAGE_TOO_LARGE

    def __init__(self, message: str, *, new_topic: str | None = None, **details: Any) -> None:
        super().__init__(message, **details)
        self.new_topic = new_topic


class ResizeWarning(UserWarning):
    """The number of writable partitions of a topic with keys has changed (``modeaware.on.resize`` is ``warn``)."""


class ControllerUnavailable(ModeAwareError):
    """No running controller could be reached for an admin command; as far as is known, nothing was changed."""

    default_code = ErrorCode.NOT_CONTROLLER


class ControllerFenced(ModeAwareError):
    """Another controller has taken over, or an election is under way: this controller may not append to the log."""

    default_code = ErrorCode.NOT_CONTROLLER


class ClusterError(ModeAwareError):
    """The cluster did not answer a request of modeaware, or answered with an error."""


class LocalKafkaError(ModeAwareError):
    """A local Kafka could not be installed, started, or controlled. The message may quote lines of Kafka's log."""

    def __init__(self, message: str) -> None:
        super().__init__(printable_lines(message.split("\n")))
