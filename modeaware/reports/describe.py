"""What ``modeaware topics --describe`` shows: modes from the mode log, offsets and lag from the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from modeaware.cluster.cluster import Cluster, LogOffsets, TopicShape
from modeaware.cluster.groups.found import find_groups
from modeaware.errors import ErrorCode, RecordError, RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.drain import unread_offsets
from modeaware.lifecycle.evacuation import evacuation_of, is_evacuation_group
from modeaware.lifecycle.facts import GroupFacts
from modeaware.lifecycle.handover import read_up_to
from modeaware.lifecycle.phases import partition_phase, topic_phase
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import DeleteTopicPartitions, RetiredPartition, Straggler, TopicRecord
from modeaware.modelog.replay import Replay
from modeaware.modes import PartitionMode, PartitionState, ReplicaState

READ_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class PartitionDescription:
    """One partition.

    Attributes:
        phase: the phase it is in (see :mod:`modeaware.lifecycle.phases`); None for one that is ReadWrite.
        seal_offset: its seal; None until sealed, and for one that is ReadWrite.
        log_start, log_end: the log's offsets; None when its leader does not answer.
        lag: the largest number of offsets a group has still to consume, up to the seal (else the end); None without
            groups.
        lagging_group: the group with that lag, where it is above 0.
        reason: the reason code for which it does not go on; ``waits_for`` says it in words.
        stragglers: how often a record arrived at or after a seal; ``straggler``: the last one, and what its leader knew
            of its producer.
    """

    partition: int
    mode: PartitionMode
    partition_state: PartitionState
    replica_state: ReplicaState
    phase: str | None
    seal_offset: int | None
    log_start: int | None
    log_end: int | None
    lag: int | None
    lagging_group: str | None
    reason: str | None
    stragglers: int = 0
    straggler: Straggler | None = None

    @property
    def waits_for(self) -> str | None:
        """The reason in words a person can act on."""
        return reasons.text(self.reason, rests=self.phase == "done") if self.reason is not None else None


@dataclass(frozen=True)
class HandoverDescription:
    """How far keys that moved in a shrink are handed over.

    Attributes:
        previous_count: how many partitions have to be: all that were writable before.
        handed_over: those that are.
        unread_by: the groups with offsets to read in one of the others, as far as it is known up to where.
    """

    previous_count: int
    handed_over: tuple[int, ...] = ()
    unread_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class TopicDescription:
    """One topic. ``epoch`` is -1 and ``deletion`` None for a topic without a record: every partition is ReadWrite.

    Attributes:
        required_groups: the groups that were noted when the change was admitted; not all of them, where
            ``groups_complete`` is False.
        waived: the groups that a partition did not wait for when it became None, with the waiver's reason.
        groups: the groups that use the topic now.
        groups_doubt: why there may be more.
        handover: None where all is handed over, and where there is nothing to be.
        evacuation: the group that has to prove the evacuation, or has; None where nothing is evacuated.
        gone_ids: the topic ids of records in the mode log of deleted topics of that name; they apply to nothing.
    """

    topic: str
    topic_id: str
    epoch: int
    phase: str
    deletion: DeleteTopicPartitions | None
    required_groups: tuple[str, ...]
    partitions: tuple[PartitionDescription, ...]
    groups_complete: bool = True
    waived: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, GroupFacts] = field(default_factory=dict)
    groups_doubt: str | None = None
    handover: HandoverDescription | None = None
    evacuation: str | None = None
    gone_ids: tuple[str, ...] = ()

    @property
    def modes(self) -> tuple[PartitionMode, ...]:
        return tuple(partition.mode for partition in self.partitions)


def describe_topics(
    conf: Mapping[str, Any], mode_log_topic: str, topics: Iterable[str] | None = None
) -> list[TopicDescription]:
    """Describe ``topics``, or every topic that has a record in the mode log.

    Args:
        conf: librdkafka configuration (``bootstrap.servers``, security settings).

    Raises:
        RequestRefused: UNKNOWN_TOPIC_OR_PARTITION, for a topic that was named and does not exist.
        RecordError: for a topic that was named and whose latest record cannot be used; others like it are left out.
        ClusterError, ModeSourceError: the brokers did not answer, or refused.
    """
    replay = read_mode_log(conf, mode_log_topic, READ_TIMEOUT_S)
    records = {record.topic_id: record for record in replay.records.values()}
    named = sorted(set(topics)) if topics is not None else sorted({record.topic for record in records.values()})
    cluster = Cluster(conf)
    descriptions = []
    for topic, shape in cluster.describe(named).items():
        if shape is not None:
            unusable = unusable_record(replay, mode_log_topic, topic, shape.topic_id)
            if unusable is None:
                described = _describe(cluster, topic, shape, records.get(shape.topic_id))
                descriptions.append(replace(described, gone_ids=gone_ids(replay, topic, shape.topic_id)))
            elif topics is not None:
                raise unusable
        elif topics is not None:
            raise RequestRefused(
                f"topic {topic!r} does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=topic
            )
    return descriptions


def gone_ids(replay: Replay, topic: str, topic_id: str) -> tuple[str, ...]:
    """The ids of records that were written for deleted topics of that name: they apply to nothing.

    Args:
        topic_id: the live topic's.
    """
    return tuple(record.topic_id for record in replay.records_of(topic) if record.topic_id != topic_id)


def unusable_record(replay: Replay, mode_log_topic: str, topic: str, topic_id: str) -> RecordError | None:
    """The error to raise where the latest record of a topic could not be read: what holds now is not known here."""
    if not replay.is_unreadable(topic_id) and topic not in replay.unreadable:
        return None
    return RecordError(
        f"topic {topic!r}: its latest record in {mode_log_topic!r} cannot be used here (rubbish, or a newer version); "
        "upgrade modeaware, or look at the log. Nothing is changed",
        topic=topic,
    )


def straggler_json(straggler: Straggler | None) -> dict[str, int | None] | None:
    """A straggler as JSON, with null for what is not known."""
    if straggler is None:
        return None
    return {name: None if value < 0 else int(value) for name, value in asdict(straggler).items()}


def _describe(cluster: Cluster, topic: str, shape: TopicShape, record: TopicRecord | None) -> TopicDescription:
    count = shape.partition_count
    logs = cluster.offsets(topic, range(count))
    evacuation = evacuation_of(record)
    found = find_groups(cluster, topic, range(count), [evacuation] if evacuation is not None else [])
    groups = {n: g for n, g in found.groups.items() if n == evacuation or not is_evacuation_group(topic, n)}
    partitions = [
        _partition(p, record, logs.get(p), groups) for p in range(max(count, len(record.modes) if record else 0))
    ]
    return TopicDescription(
        topic=topic,
        topic_id=shape.topic_id,
        epoch=record.epoch if record is not None else -1,
        phase=topic_phase(record) if record is not None else "done",
        deletion=record.deletion if record is not None else None,
        required_groups=record.required_groups if record is not None else (),
        partitions=tuple(partitions),
        groups_complete=record.groups_complete if record is not None else True,
        waived=record.waived if record is not None else {},
        groups=groups,
        groups_doubt=found.doubt.detail if found.doubt is not None else None,
        handover=describe_handover(record, logs, groups) if record is not None else None,
        evacuation=evacuation,
    )


def describe_handover(
    record: TopicRecord, logs: Mapping[int, LogOffsets], groups: Mapping[str, GroupFacts]
) -> HandoverDescription | None:
    """How far the shrink in force is handed over; None where nothing is waited for."""
    view = record.view()
    if view.previous_count is None:
        return None
    unread_by = set()
    evacuation = evacuation_of(record)
    for partition in set(range(view.previous_count)) & logs.keys() - view.handed_over:
        log = logs[partition]
        until = read_up_to(partition, record, log.end_offset)
        # A survivor is not evacuated.
        for name in {*record.required_groups, *groups} - ({evacuation} if partition not in record.retired else set()):
            if until is not None and unread_offsets(groups.get(name), partition, until, log.log_start) > 0:
                unread_by.add(name)
    return HandoverDescription(view.previous_count, tuple(sorted(view.handed_over)), tuple(sorted(unread_by)))


def _partition(
    partition: int, record: TopicRecord | None, log: LogOffsets | None, groups: Mapping[str, GroupFacts]
) -> PartitionDescription:
    mode = record.view().mode(partition) if record is not None else PartitionMode.READ_WRITE
    retired = record.retired.get(partition) if record is not None else None
    shown = retired if retired is not None else RetiredPartition()
    if retired is None or retired.evacuated:
        groups = {name: group for name, group in groups.items() if name != evacuation_of(record)}
    lag, lagging_group = _lag(partition, shown.seal_offset, log, groups)
    return PartitionDescription(
        partition=partition,
        mode=mode,
        partition_state=shown.partition_state,
        replica_state=shown.replica_state,
        phase=partition_phase(mode, retired) if retired is not None else None,
        seal_offset=shown.seal_offset,
        log_start=log.log_start if log is not None else None,
        log_end=log.end_offset if log is not None else None,
        lag=lag,
        lagging_group=lagging_group,
        reason=shown.reason,
        stragglers=shown.stragglers,
        straggler=shown.straggler,
    )


def _lag(
    partition: int, seal_offset: int | None, log: LogOffsets | None, groups: Mapping[str, GroupFacts]
) -> tuple[int | None, str | None]:
    if log is None or not groups:
        return None, None
    until = seal_offset if seal_offset is not None else log.end_offset
    lags = {name: unread_offsets(group, partition, until, log.log_start) for name, group in groups.items()}
    worst = max(sorted(lags), key=lambda name: lags[name])
    return lags[worst], worst if lags[worst] > 0 else None
