"""The phase a retired partition, or a whole topic, is in: one word for logs, the CLI and reports."""

from __future__ import annotations

from modeaware.modelog.records import RetiredPartition, TopicRecord
from modeaware.modes import PartitionMode, ReplicaState

PHASES = ("seal", "drain", "reclaim", "opening", "done")


def partition_phase(mode: PartitionMode, retired: RetiredPartition) -> str:
    """``seal`` (ReadOnly, waits for quiet), ``drain`` (sealed), ``reclaim`` (None), ``done``, or ``opening`` (new).

    One that :func:`rests` is done.
    """
    if retired.opening:
        return "opening"
    if mode is PartitionMode.READ_ONLY:
        return "seal" if retired.seal_offset is None else "drain"
    finished = retired.replica_state is ReplicaState.DELETION_SUCCESSFUL or rests(mode, retired)
    return "done" if finished else "reclaim"


def rests(mode: PartitionMode, retired: RetiredPartition) -> bool:
    """Whether the partition is evacuated and None, and its records are not to be deleted: they stay, unread."""
    ineligible = retired.replica_state is ReplicaState.DELETION_INELIGIBLE
    return mode is PartitionMode.NONE and retired.evacuated and ineligible


def held_up(record: TopicRecord) -> dict[str, list[int]]:
    """Reason -> the partitions that wait for it, in order. One that :func:`rests` waits for nothing."""
    waiting: dict[str, list[int]] = {}
    for partition, retired in sorted(record.retired.items()):
        if retired.reason is not None and not rests(record.modes[partition], retired):
            waiting.setdefault(retired.reason, []).append(partition)
    return waiting


def topic_phase(record: TopicRecord) -> str:
    """The phase of the partition that is furthest behind; ``done`` when no change is in progress."""
    present = {partition_phase(record.modes[p], retired) for p, retired in record.retired.items()}
    return next((phase for phase in PHASES if phase in present), "done")


def in_progress(record: TopicRecord | None) -> bool:
    """Whether a shrink or a growth of the topic has not finished."""
    return record is not None and topic_phase(record) != "done"


def awaits_handover(record: TopicRecord | None) -> bool:
    """Whether groups may still have to read what was written to partitions before a shrink's switch."""
    return record is not None and record.deletion is not None and not record.deletion.handed_over


def is_settled(record: TopicRecord | None) -> bool:
    """Whether nothing of the topic waits for anything: no change is in progress, and the last one is handed over."""
    return not in_progress(record) and not awaits_handover(record)
