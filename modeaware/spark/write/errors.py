"""What writing raises beside the errors of :mod:`modeaware.errors`."""

from __future__ import annotations

from modeaware.errors import ErrorCode, ModeAwareError


class WriteFailed(ModeAwareError):
    """Records could not be written, so the task fails: Spark runs it again, or fails the job.

    ``code`` is None where the failure has no code among :class:`~modeaware.errors.ErrorCode`; the message names it.
    """


class EpochMoved(ModeAwareError):
    """A topic's modes changed again each time a micro-batch was written; the query fails, and its restart writes the
    batch again."""

    default_code = ErrorCode.REASSIGNMENT_IN_PROGRESS
