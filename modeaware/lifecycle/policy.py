"""Which reclaim policy holds for one partition. Pure."""

from __future__ import annotations

from modeaware.errors import ErrorCode, RequestRefused
from modeaware.modelog.records import DeleteTopicPartitions, RetiredPartition, TopicRecord


def reclaim_policy(partition: int, record: TopicRecord, retired: RetiredPartition | None = None) -> str:
    """``retention``, ``drained`` or ``immediate``.

    What an ``immediate`` shrink takes unread was counted when it was asked for. What comes after the seal, or takes the
    place of what was truncated, was not, nor were partitions that an earlier shrink has retired: they are drained
    (invariant I2).

    Args:
        retired: the partition as it is by now, where that is not what the record says.

    Raises:
        RequestRefused: partitions are retired, and the record names no deletion in force.
    """
    deletion = deletion_of(record)
    now = retired or record.retired[partition]
    beyond = now.stragglers > 0 or now.truncated_to is not None or partition >= deletion.previous_count
    return "drained" if deletion.policy == "immediate" and beyond else deletion.policy


def drains(partition: int, record: TopicRecord) -> bool:
    """Whether the partition becomes None only once groups have read it: under ``drained``, and where it is evacuated.

    Compaction never empties a partition, so that an evacuation does not wait for it under ``retention``.
    """
    return deletion_of(record).evacuate or reclaim_policy(partition, record) == "drained"


def deletion_of(record: TopicRecord) -> DeleteTopicPartitions:
    """The shrink in force.

    Raises:
        RequestRefused: there is none, and yet partitions are retired.
    """
    if record.deletion is None:
        raise RequestRefused(
            f"topic {record.topic!r}: partitions are retired, but its record names no deletion in force",
            code=ErrorCode.UNKNOWN_SERVER_ERROR,
            topic=record.topic,
        )
    return record.deletion
