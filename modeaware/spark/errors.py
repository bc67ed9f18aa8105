"""Errors of Spark jobs, in addition to those of :mod:`modeaware.errors`."""

from __future__ import annotations

from modeaware.errors import ErrorCode, ModeAwareError
from modeaware.librdkafka import KafkaError


def error_code(error: KafkaError) -> ErrorCode | None:
    """Return the code of an error of librdkafka's; None if it is not in :class:`~modeaware.errors.ErrorCode`."""
    return next((code for code in ErrorCode if code == error.code()), None)


class WriteFailed(ModeAwareError):
    """Records were not delivered, so the task fails: Spark runs it again, or fails the job.

    ``code`` is None if the failure's code is not in :class:`~modeaware.errors.ErrorCode`; the message has its name.
    """


class EpochMoved(ModeAwareError):
    """A topic's modes changed during every attempt to write a micro-batch. The query fails; its restart writes the
    batch again."""

    default_code = ErrorCode.REASSIGNMENT_IN_PROGRESS


class RecordsLost(ModeAwareError):
    """Records that a query had yet to read were deleted, and ``failOnDataLoss`` is true."""


class NothingToEvacuate(ModeAwareError):
    """No replacement of the topic that requires an evacuation is in force."""

    default_code = ErrorCode.INVALID_REQUEST


class NotSealed(ModeAwareError):
    """The topic's partitions were not sealed in time; nothing was copied."""

    default_code = ErrorCode.REQUEST_TIMED_OUT


class OtherPartitioner(ModeAwareError):
    """The keys are not where the configured partitioner places them; nothing was copied."""

    default_code = ErrorCode.POLICY_VIOLATION


class EvacuationFailed(ModeAwareError):
    """The evacuation did not finish, and no proof was committed. Copies made so far are valid; run it again."""
