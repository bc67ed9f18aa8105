"""What an evacuation raises beside the errors of :mod:`modeaware.errors`."""

from __future__ import annotations

from modeaware.errors import ErrorCode, ModeAwareError


class NothingToEvacuate(ModeAwareError):
    """No shrink of the topic is in force that asks for an evacuation."""

    default_code = ErrorCode.INVALID_REQUEST


class NotSealed(ModeAwareError):
    """Retired partitions were not sealed in time; nothing was written."""

    default_code = ErrorCode.REQUEST_TIMED_OUT


class OtherPartitioner(ModeAwareError):
    """The keys do not lie where the configured partitioner puts them; nothing was written."""

    default_code = ErrorCode.POLICY_VIOLATION


class EvacuationFailed(ModeAwareError):
    """The evacuation did not come to its end, and no proof is recorded. What was copied is right, and stays: run it
    again."""
