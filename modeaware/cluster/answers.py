"""What a broker refused, as an error of ours."""

from __future__ import annotations

from modeaware.errors import ClusterError, ErrorCode
from modeaware.librdkafka import KafkaError


def refusal(
    what: str, number: int, message: str | None = None, *, topic: str | None = None, partition: int | None = None
) -> ClusterError:
    """The error for a broker's error code.

    Args:
        what: what was asked for, as it follows "cannot".
        number: Kafka's code; it becomes the error's code where there is a name for it here.
        message: the broker's own words, where it said any.
    """
    error = KafkaError(number)
    known = number in ErrorCode.__members__.values()
    return ClusterError(
        f"cannot {what}: {message or error.str()} ({error.name()})",
        code=ErrorCode(number) if known else None,
        topic=topic,
        partition=partition,
    )
