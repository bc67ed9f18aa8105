"""Errors of Spark jobs, in addition to those of :mod:`modeaware.errors`."""

from __future__ import annotations

from modeaware.errors import ErrorCode, ModeAwareError
from modeaware.librdkafka import KafkaError


def error_code(error: KafkaError) -> ErrorCode | None:
    """Return the code of a librdkafka error, or None if :class:`~modeaware.errors.ErrorCode` does not have the code."""
    return next((code for code in ErrorCode if code == error.code()), None)


def spark_errors() -> tuple[type[Exception], ...]:
    """Return the errors that Spark itself raises on the driver. A client of Spark Connect may have no py4j."""
    from pyspark.errors import PySparkException

    try:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
    except ImportError:
        return (PySparkException,)
    return (PySparkException, Py4JError)


class WriteFailed(ModeAwareError):
    """Records were not delivered, so the task fails: Spark runs the task again, or fails the job.

    ``code`` is None if :class:`~modeaware.errors.ErrorCode` does not have the failure's code; the message names it.
    """


class EpochMoved(ModeAwareError):
    """A topic's modes changed during every attempt to write a micro-batch. The query fails; its restart writes the
    batch again."""

    default_code = ErrorCode.REASSIGNMENT_IN_PROGRESS


class RecordsLost(ModeAwareError):
    """Records that a query had yet to read were deleted, and ``failOnDataLoss`` is true."""


class NothingToEvacuate(ModeAwareError):
    """The topic is not being replaced with ``--evacuate``, so no evacuation is required."""

    default_code = ErrorCode.INVALID_REQUEST


class NotSealed(ModeAwareError):
    """The topic's partitions were not sealed in time; nothing was copied."""

    default_code = ErrorCode.REQUEST_TIMED_OUT


class OtherPartitioner(ModeAwareError):
    """The keys are not where the configured partitioner places them; nothing was copied."""

    default_code = ErrorCode.POLICY_VIOLATION


class EvacuationFailed(ModeAwareError):
    """The evacuation did not finish, and no proof was committed. Run it again; the copies made so far stay valid."""
