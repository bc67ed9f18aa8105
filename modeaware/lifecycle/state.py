"""The state machine of a retiring partition: its theory, its tables, and how a record shows the state.

A shrink takes the partitions with the highest ids through four phases. Each transition is a record on the mode log.
Every pass starts from the record and from fresh facts alone, so a controller that crashes between two steps loses
nothing.

========  ========  =========================  ====================================================  =========
phase     mode      replica state              ends when                                             module
========  ========  =========================  ====================================================  =========
seal      ReadOnly  OnlineReplica              its end offset has not moved for a while, with no     ``seal``
                                               open transaction: this offset becomes the seal
drain     ReadOnly  ReplicaDeletionIneligible  the reclaim policy is satisfied: usually, all         ``drain``
                                               required groups have consumed it to the seal
reclaim   None      ReplicaDeletionStarted     its log start has reached the recorded offset         ``steps``
done      None      ReplicaDeletionSuccessful  its end offset differs from the seal                  ``seal``
========  ========  =========================  ====================================================  =========

In phase *seal*, a reason for waiting, or a broken seal, makes the replica state ReplicaDeletionIneligible. A straggler
(a record at or after the seal) or a truncation takes a partition from any phase back to *seal*. An undo or a growth
(``growth``) makes the partition ReadWrite again. A new partition starts as ReadOnly, in the phase *opening*, and
becomes ReadWrite once groups have an offset on it. A replacement has phases of its own (``replacement``).

The *reclaim policy* of a shrink decides when records are deleted. ``retention``: only when the topic's own retention
deletes them. ``drained``: once every required group has read them and the requested delay is over. ``immediate``: once
the partition is sealed, without waiting for groups or a delay.
"""

from __future__ import annotations

from dataclasses import replace

from modeaware.errors import ClusterError, ErrorCode
from modeaware.lifecycle import reasons
from modeaware.modelog.records import (
    DRAINED,
    IMMEDIATE,
    DeleteTopicPartitions,
    Replacement,
    RetiredPartition,
    TopicRecord,
)
from modeaware.modes import PartitionMode, PartitionState, ReplicaState

MODE_TRANSITIONS: dict[PartitionMode, frozenset[PartitionMode]] = {
    # ReadWrite never becomes None directly: consumers drain the partition first. An immediate_delete passes through
    # ReadOnly as well: mode-aware producers stop writing before records are deleted.
    PartitionMode.READ_WRITE: frozenset({PartitionMode.READ_ONLY}),
    PartitionMode.READ_ONLY: frozenset({PartitionMode.READ_WRITE, PartitionMode.NONE}),
    PartitionMode.NONE: frozenset({PartitionMode.READ_ONLY, PartitionMode.READ_WRITE}),
}
REPLICA_TRANSITIONS: dict[ReplicaState, frozenset[ReplicaState]] = {
    ReplicaState.ONLINE: frozenset({ReplicaState.DELETION_INELIGIBLE, ReplicaState.DELETION_STARTED}),
    ReplicaState.DELETION_INELIGIBLE: frozenset({ReplicaState.ONLINE, ReplicaState.DELETION_STARTED}),
    ReplicaState.DELETION_STARTED: frozenset({ReplicaState.DELETION_SUCCESSFUL, ReplicaState.DELETION_INELIGIBLE}),
    ReplicaState.DELETION_SUCCESSFUL: frozenset({ReplicaState.DELETION_INELIGIBLE}),
    # KIP-694 puts OfflineReplica before ReplicaDeletionStarted. A stock broker keeps the replica online, so the
    # controller never records this state. Its name is here because readers of the log accept all states of the KIP.
    ReplicaState.OFFLINE: frozenset({ReplicaState.DELETION_STARTED}),
}
PHASES = ("create", "announce", "seal", "drain", "reclaim", "opening", "done")


def blocked(retired: RetiredPartition, reason: str | None) -> RetiredPartition:
    """Return the partition as ReplicaDeletionIneligible (KIP-694), for another attempt in a later pass."""
    return replace(retired, replica_state=ReplicaState.DELETION_INELIGIBLE, reason=reason)


def unproved(retired: RetiredPartition, reason: str | None) -> RetiredPartition:
    """Return the partition without the proof of its drain: clients read the partition until the next proof."""
    return replace(blocked(retired, reason), drained_by=0, lowest_commit=None)


def partition_state(mode: PartitionMode, retired: RetiredPartition) -> PartitionState:
    """Return KIP-694's state of a retired partition."""
    if mode is not PartitionMode.NONE:
        return PartitionState.ONLINE
    gone = retired.replica_state is ReplicaState.DELETION_SUCCESSFUL
    return PartitionState.NON_EXISTENT if gone else PartitionState.OFFLINE


def carried(before: RetiredPartition | None) -> RetiredPartition:
    """Return the state of a partition at the switch, when the partition stops taking writes. If an earlier shrink has
    retired it, keep the facts about its log, and the offset at which groups without a commit resume."""
    if before is None:
        return RetiredPartition()
    return RetiredPartition(
        resume_offset=before.seal_offset if before.resume_offset is None else before.resume_offset,
        stragglers=before.stragglers,
        straggler=before.straggler,
        truncated_to=before.truncated_to,
    )


def current_record(record: TopicRecord | None, topic: str, topic_id: str, count: int) -> TopicRecord:
    """Return the current record of a topic that has ``count`` partitions on the brokers.

    Without a record the topic was never changed: every partition is ReadWrite, and the epoch is -1. Partitions that
    another tool has added are listed as ReadWrite if no partition is retired (:meth:`TopicView.mode`). If a partition
    is retired, the added ones are not listed, because groups may not read them yet.
    """
    record = record or TopicRecord(topic, topic_id, -1, -1, ())
    added = 0 if record.closed else max(count - len(record.modes), 0)
    return replace(record, modes=record.modes + (PartitionMode.READ_WRITE,) * added)


def all_retired(record: TopicRecord, count: int) -> TopicRecord:
    """Return the record after the switch, with partitions that another tool has added: these are retired as well."""
    if count <= len(record.modes):
        return record
    new = range(len(record.modes), count)
    return replace(
        record,
        modes=(*record.modes, *(PartitionMode.READ_ONLY for _ in new)),
        retired={**record.retired, **{p: RetiredPartition() for p in new}},
    )


def partition_phase(mode: PartitionMode, retired: RetiredPartition) -> str:
    """Return the phase of a retired partition, one of :data:`PHASES`."""
    if mode is PartitionMode.READ_ONLY:
        return "seal" if retired.seal_offset is None else "drain"
    return "done" if retired.replica_state is ReplicaState.DELETION_SUCCESSFUL else "reclaim"


def partition_phases(record: TopicRecord) -> dict[int, str]:
    """Return the phase of each partition that takes no writes, ascending. A new partition is ``opening``; all
    partitions of a released topic are ``done``."""
    if record.replacing.released_ms is not None:
        return dict.fromkeys(record.closed, "done")
    retired = record.retired
    return {p: partition_phase(record.modes[p], retired[p]) if p in retired else "opening" for p in record.closed}


def topic_phase(record: TopicRecord) -> str:
    """Return the phase of the partition that is furthest behind; ``done`` when no change is in progress."""
    if record.has_replacement:
        return replacement_phase(record, record.replacing)
    present = set(partition_phases(record).values())
    return next((phase for phase in PHASES if phase in present), "done")


def replacement_phase(record: TopicRecord, replacement: Replacement) -> str:
    """Return the phase of an old topic: ``create``, ``announce``, ``seal``, ``drain``, ``reclaim`` (until the topic is
    deleted) or ``done``."""
    if replacement.switched_ms is None:
        return "create" if replacement.new_topic_id is None else "announce"
    if replacement.released_ms is not None:
        return "reclaim" if replacement.has_fence and replacement.gone_ms is None else "done"
    return "seal" if any(retired.seal_offset is None for retired in record.retired.values()) else "drain"


def held_up(record: TopicRecord) -> dict[str, list[int]]:
    """Return reason -> the partitions that it holds up. A reason of the whole replacement has an empty list."""
    waiting: dict[str, list[int]] = {}
    if (whole := record.replacing.reason) is not None:
        waiting[whole] = []
    for partition, retired in sorted(record.retired.items()):
        if retired.reason is not None:
            waiting.setdefault(retired.reason, []).append(partition)
    if record.opening:
        waiting[reasons.OPENING] = sorted(record.opening)
    return waiting


def in_progress(record: TopicRecord | None) -> bool:
    """Return whether the topic has a shrink, a growth or a replacement that is not complete."""
    return record is not None and topic_phase(record) != "done"


def deletion_of(record: TopicRecord) -> DeleteTopicPartitions:
    """Return the shrink in force. If the record has none, raise ClusterError: other software wrote the record, and only
    its topic waits."""
    if record.deletion is None:
        raise ClusterError(
            f"topic {record.topic!r}: its record has retired partitions but no deletion; the record is inconsistent",
            code=ErrorCode.UNKNOWN_SERVER_ERROR,
            topic=record.topic,
        )
    return record.deletion


def reclaim_policy(partition: int, record: TopicRecord, retired: RetiredPartition | None = None) -> str:
    """Return the reclaim policy of a shrink for a partition: ``retention``, ``drained`` or ``immediate``.

    An ``immediate`` shrink deletes the unread records before the first seal: those that the response to the request
    counted, and those that arrived between the response and the seal. Stragglers, records that replaced truncated ones,
    and partitions that an earlier shrink retired are drained (invariant I2).

    Args:
        retired: the state of the partition, if it is newer than the state in ``record``.

    Raises:
        ClusterError: as in :func:`deletion_of`.
    """
    deletion = deletion_of(record)
    state = retired or record.retired[partition]
    uncounted = state.stragglers > 0 or state.truncated_to is not None or partition >= deletion.previous_count
    return DRAINED if deletion.policy == IMMEDIATE and uncounted else deletion.policy


def drains(partition: int, record: TopicRecord) -> bool:
    """Return whether groups have to read the partition before it becomes None, or before its topic is deleted."""
    return record.has_replacement or reclaim_policy(partition, record) == DRAINED


def needs_groups(record: TopicRecord) -> bool:
    """Return whether decisions about the topic need its groups. An old topic without a fence is done at its release,
    but gates may still open."""
    return in_progress(record) or moving(record)


def moving(record: TopicRecord) -> bool:
    """Return whether the groups of an old topic have to move: from the switch until the topic is gone."""
    return record.replacing.switched_ms is not None and not record.is_alias
