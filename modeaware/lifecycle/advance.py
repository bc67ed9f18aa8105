"""One pass over a topic: from its record and what the cluster shows, the next record, effects, and when to look again.

Pure: no IO, no clock. Every pass starts from the record and the facts alone, so a controller that crashed between any
two steps goes on where it stood, and an effect that was lost is asked for again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from modeaware.config import ControllerConfig
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.admit import MAX_RECORD_BYTES
from modeaware.lifecycle.drain import check_drain
from modeaware.lifecycle.effects import DeleteRecords, Effect
from modeaware.lifecycle.facts import PartitionFacts, TopicFacts
from modeaware.lifecycle.opening import advance_opening
from modeaware.modelog.records import DeleteTopicPartitions, RetiredPartition, TopicRecord
from modeaware.modes import MODE_TRANSITIONS, REPLICA_TRANSITIONS, PartitionMode, PartitionState, ReplicaState


@dataclass(frozen=True)
class Step:
    """What one pass makes of one partition."""

    mode: PartitionMode
    retired: RetiredPartition
    delete_up_to: int | None = None
    due_ms: int | None = None
    alarm: str | None = None


@dataclass(frozen=True)
class Advance:
    """What one pass makes of a topic.

    Attributes:
        record: the record to append; None when nothing changed.
        tombstone: the topic is gone, and so is its record.
        effects: to be done after the record is on the log.
        due_ms: the earliest wall-clock time at which something is known to fall due; None: look at the check interval.
        alarms: what a person should hear of (stragglers, truncation).
    """

    record: TopicRecord | None = None
    tombstone: bool = False
    effects: tuple[Effect, ...] = ()
    due_ms: int | None = None
    alarms: tuple[str, ...] = field(default=())


def advance(
    record: TopicRecord, facts: TopicFacts, config: ControllerConfig, controller_epoch: int, now_ms: int
) -> Advance:
    """Take every retired partition of the topic as far as the facts allow."""
    if facts.gone:
        return Advance(tombstone=True, alarms=(f"topic {record.topic!r} is gone: its mode record is removed",))
    if facts.topic_id != record.topic_id:
        return Advance()  # not confirmed yet: a stale broker's word changes nothing (invariant I4)
    steps = {
        partition: _step(partition, record, facts, config, now_ms)
        for partition, retired in sorted(record.retired.items())
        if not retired.opening
    }
    after = _apply(record, steps)
    after, opening_effects, opening_due_ms = advance_opening(after, facts, config, now_ms)
    effects: list[Effect] = list(opening_effects)
    if after != record and len(after.to_json()) > MAX_RECORD_BYTES:
        # Groups that came up after the admission made the proof too long. Their number falls as they expire.
        return Advance(alarms=(f"topic {record.topic!r}: its mode record would not fit the mode log: it waits",))
    offsets = {p: step.delete_up_to for p, step in steps.items() if step.delete_up_to is not None}
    if offsets:
        effects.append(DeleteRecords(record.topic, record.topic_id, offsets))
    return Advance(
        record=after.stamped(controller_epoch, now_ms) if after != record else None,
        effects=tuple(effects),
        due_ms=_earliest([opening_due_ms, *(step.due_ms for step in steps.values())]),
        alarms=tuple(step.alarm for step in steps.values() if step.alarm),
    )


def give_up_opening(record: TopicRecord, facts: TopicFacts, controller_epoch: int, now_ms: int) -> TopicRecord:
    """The record after the brokers refused to create its new partitions: those that do not exist are listed no more."""
    kept = {p: r for p, r in record.retired.items() if not r.opening or p < facts.partition_count}
    count = len(record.modes) - (len(record.retired) - len(kept))
    after = replace(record, modes=record.modes[:count], retired=kept, opening_assignments=())
    if not any(r.opening for r in kept.values()):
        after = replace(after, opening_since_ms=None)
    return after.stamped(controller_epoch, now_ms)


def _apply(record: TopicRecord, steps: dict[int, Step]) -> TopicRecord:
    modes = list(record.modes)
    retired = dict(record.retired)
    for partition, step in steps.items():
        _check_transition(record, partition, step)
        modes[partition] = step.mode
        retired[partition] = step.retired
    if tuple(modes) == record.modes and retired == record.retired:
        return record
    return replace(record, modes=tuple(modes), retired=retired)


def _check_transition(record: TopicRecord, partition: int, step: Step) -> None:
    """The tables in :mod:`modeaware.modes` are the law; a step outside them is a bug, and changes nothing."""
    mode, state = record.modes[partition], record.retired[partition].replica_state
    bad_mode = step.mode is not mode and step.mode not in MODE_TRANSITIONS[mode]
    bad_state = step.retired.replica_state is not state and step.retired.replica_state not in REPLICA_TRANSITIONS[state]
    if bad_mode or bad_state:
        raise RequestRefused(
            f"{record.topic}-{partition}: no transition {mode.label}/{state.value} -> "
            f"{step.mode.label}/{step.retired.replica_state.value}",
            code=ErrorCode.UNKNOWN_SERVER_ERROR,
            topic=record.topic,
            partition=partition,
        )


def _step(partition: int, record: TopicRecord, facts: TopicFacts, config: ControllerConfig, now_ms: int) -> Step:
    mode, retired = record.modes[partition], record.retired[partition]
    log = facts.partitions.get(partition)
    if log is None:
        # A None partition is left as it is: its proof stands in the record.
        return Step(mode, retired if mode is PartitionMode.NONE else _blocked(retired, reasons.UNAVAILABLE))
    if mode is PartitionMode.READ_ONLY:
        return _step_read_only(partition, record, log, facts, config, now_ms)
    return _step_none(partition, record, log, facts)


def _step_read_only(
    partition: int,
    record: TopicRecord,
    log: PartitionFacts,
    facts: TopicFacts,
    config: ControllerConfig,
    now_ms: int,
) -> Step:
    retired = record.retired[partition]
    alarm = None
    if retired.seal_offset is not None and log.end_offset != retired.seal_offset:
        retired, alarm = _unseal(record.topic, partition, retired, log)
    if retired.seal_offset is None:
        before = retired.reason
        retired, due_ms = _seal(retired, log, _deletion(record).create_timestamp_ms, config, now_ms)
        if retired.reason == reasons.STILL_WRITTEN != before:
            alarm = f"{record.topic}-{partition}: {reasons.text(reasons.STILL_WRITTEN)}"
        if retired.seal_offset is None:
            return Step(PartitionMode.READ_ONLY, retired, due_ms=due_ms, alarm=alarm)
    reason, due_ms, proof = _drained(partition, retired.seal_offset, record, log, facts, now_ms)
    if reason is not None:
        return Step(PartitionMode.READ_ONLY, _blocked(retired, reason), due_ms=due_ms, alarm=alarm)
    none = replace(
        retired,
        partition_state=PartitionState.OFFLINE,
        replica_state=ReplicaState.DELETION_STARTED,
        drained=proof,
        resume_offset=None,
        reason=None,
    )
    # Looked at again at once: consumers have been told by then, and the proof is taken anew before anything is deleted.
    return Step(PartitionMode.NONE, none, due_ms=now_ms, alarm=alarm)


def _seal(
    retired: RetiredPartition, log: PartitionFacts, retired_ms: int, config: ControllerConfig, now_ms: int
) -> tuple[RetiredPartition, int | None]:
    """Seal a partition that has been quiet since it was retired, at ``retired_ms``, at the earliest.

    Quiet is no proof; it only avoids flapping (DESIGN, phase 3). While records arrive, a last stable offset below the
    end says nothing of a transaction: it was read a moment before the end was.
    """
    quiet_from_ms = max(log.quiet_since_ms, retired_ms) + config.seal_quiet_ms
    if now_ms < quiet_from_ms:
        if log.moved and log.quiet_since_ms >= retired_ms + config.seal_quiet_ms:
            known = retired.reason in (reasons.STILL_WRITTEN, reasons.STRAGGLER)
            return (retired if known else _blocked(retired, reasons.STILL_WRITTEN)), quiet_from_ms
        held_up = retired.reason in (reasons.OPEN_TRANSACTION, reasons.UNAVAILABLE)
        return (replace(retired, reason=None) if held_up else retired), quiet_from_ms
    if not log.settled:
        return _blocked(retired, reasons.OPEN_TRANSACTION), None
    return replace(retired, seal_offset=log.end_offset, seal_leader_epoch=log.leader_epoch, reason=None), None


def _unseal(topic: str, partition: int, retired: RetiredPartition, log: PartitionFacts) -> tuple[RetiredPartition, str]:
    """The end offset is not the sealed one: a straggler arrived, or the log was truncated. Drain it again (I2)."""
    assert retired.seal_offset is not None
    if log.end_offset > retired.seal_offset:
        count = log.end_offset - retired.seal_offset
        reason, stragglers = reasons.STRAGGLER, retired.stragglers + 1
        alarm = (
            f"{topic}-{partition}: {count} offset(s) written at or after the seal {retired.seal_offset}. Some producer "
            "does not honour modes; the partition is ReadOnly and is drained again"
        )
    else:
        reason, stragglers = reasons.TRUNCATED, retired.stragglers
        alarm = (
            f"{topic}-{partition}: the log ends at {log.end_offset}, before its seal {retired.seal_offset} (unclean "
            "leader election?); the partition is ReadOnly and is drained again"
        )
    # A group that never committed here (it starts at the latest) goes on at what was drained, not behind the straggler.
    resume_offset = min(log.end_offset, retired.seal_offset if retired.resume_offset is None else retired.resume_offset)
    unsealed = replace(
        _unproved(retired, reason),
        seal_offset=None,
        seal_leader_epoch=None,
        resume_offset=resume_offset,
        stragglers=stragglers,
    )
    return unsealed, alarm


def _drained(
    partition: int, seal_offset: int, record: TopicRecord, log: PartitionFacts, facts: TopicFacts, now_ms: int
) -> tuple[str | None, int | None, dict[str, int]]:
    """Whether the reclaim policy lets the partition go: ``(reason it does not, when it may fall due, proof)``."""
    deletion = _deletion(record)
    if not log.settled:
        return reasons.OPEN_TRANSACTION, None, {}
    if deletion.policy == "immediate":
        return None, None, {}
    if deletion.policy == "retention":
        return (None if log.log_start >= seal_offset else reasons.RETENTION), None, {}
    if now_ms < deletion.earliest_ms:
        return reasons.DELAY, deletion.earliest_ms, {}
    drain = check_drain(partition, seal_offset, log, facts, record.required_groups)
    return drain.reason, None, dict(drain.proof)


def _step_none(partition: int, record: TopicRecord, log: PartitionFacts, facts: TopicFacts) -> Step:
    """Watch a None partition, and delete its records up to the recorded seal where the policy says so."""
    retired = record.retired[partition]
    if retired.seal_offset is None or log.end_offset != retired.seal_offset:
        sealed = retired if retired.seal_offset is not None else replace(retired, seal_offset=0)
        retired, alarm = _unseal(record.topic, partition, sealed, log)
        return Step(PartitionMode.READ_ONLY, retired, alarm=alarm)
    if log.log_start >= retired.seal_offset:
        gone = replace(
            retired, partition_state=PartitionState.NON_EXISTENT, replica_state=ReplicaState.DELETION_SUCCESSFUL
        )
        return Step(PartitionMode.NONE, gone)
    if retired.replica_state is ReplicaState.DELETION_SUCCESSFUL:
        return Step(PartitionMode.NONE, retired)
    policy = _deletion(record).policy
    if policy == "retention":  # the log start has gone back (an unclean leader election): nothing is deleted early
        return Step(PartitionMode.READ_ONLY, _unproved(retired, reasons.RETENTION))
    if policy == "drained":
        drain = check_drain(partition, retired.seal_offset, log, facts, record.required_groups)
        if not drain.done:  # a group came up, or was reset, since the proof: readable again until it holds
            return Step(PartitionMode.READ_ONLY, _unproved(retired, drain.reason))
    return Step(PartitionMode.NONE, retired, delete_up_to=retired.seal_offset)


def _blocked(retired: RetiredPartition, reason: str | None) -> RetiredPartition:
    """KIP-694: what cannot be deleted now becomes ReplicaDeletionIneligible, and is tried again."""
    return replace(retired, replica_state=ReplicaState.DELETION_INELIGIBLE, reason=reason)


def _unproved(retired: RetiredPartition, reason: str | None) -> RetiredPartition:
    """A partition whose proof of the drain does not hold any more: readable again until there is a new one."""
    return replace(_blocked(retired, reason), drained={}, partition_state=PartitionState.ONLINE)


def _deletion(record: TopicRecord) -> DeleteTopicPartitions:
    if record.deletion is None:
        raise RequestRefused(
            f"topic {record.topic!r}: partitions are retired, but its record names no deletion in force",
            code=ErrorCode.UNKNOWN_SERVER_ERROR,
            topic=record.topic,
        )
    return record.deletion


def _earliest(times: Iterable[int | None]) -> int | None:
    return min((time for time in times if time is not None), default=None)
