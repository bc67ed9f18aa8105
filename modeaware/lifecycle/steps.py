"""The steps of a pass: over a topic, and over each of its retired partitions. Pure.

A pass takes a partition as far through its phases (:mod:`modeaware.lifecycle.state`) as the facts allow. Records are
deleted in a later pass, which checks the drain again. If the topic's next record would be too large for the mode log,
no drain counts, because the record could not hold its proof.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import DeleteRecords
from modeaware.lifecycle.drain import Drain, check_drain, without_noted
from modeaware.lifecycle.facts import PartitionFacts
from modeaware.lifecycle.growth import advance_opening
from modeaware.lifecycle.passes import Advance, Pass, earliest_ms, with_groups
from modeaware.lifecycle.record_size import TOO_MANY, fits, fitted
from modeaware.lifecycle.replacement import advance_replacement
from modeaware.lifecycle.seal import break_seal, reason_alarm, seal_broken_by, seal_partition
from modeaware.lifecycle.state import (
    MODE_TRANSITIONS,
    REPLICA_TRANSITIONS,
    blocked,
    deletion_of,
    reclaim_policy,
    unproved,
)
from modeaware.modelog.records import DRAINED, IMMEDIATE, RETENTION, Replaced, RetiredPartition, TopicRecord
from modeaware.modes import PartitionMode, ReplicaState


def advance(this: Pass) -> Advance:
    """Take a topic as far as the facts and the operator's rules allow.

    Raises:
        ClusterError, RequestRefused: the record contradicts itself.
    """
    step = _advance(this)
    if step.record is None or step.record == this.record:
        return replace(step, record=None)
    if not fits(step.record):
        step = _advance(replace(this, requirement=replace(this.requirement, doubt=TOO_MANY)))
    after = None if step.record is None else fitted(step.record)
    return replace(step, record=None if after == this.record else after)


def _advance(this: Pass) -> Advance:
    """Advance the topic, or remove its record once the topic's absence is confirmed (invariant I4)."""
    record, facts = this.record, this.facts
    if record.has_replacement:
        return _advance_replaced(this, Replaced(record, record.replacing))
    if facts.gone:
        return Advance(tombstone=True, alarms=(f"topic {record.topic!r} is gone: its mode record is removed",))
    if facts.topic_id != record.topic_id:
        return Advance()  # unconfirmed: one broker's metadata may be stale
    return _advance_partitions(this)


def _advance_replaced(this: Pass, topic: Replaced) -> Advance:
    """Advance an old topic. Until the switch, which retires all partitions, also advance the partitions that an earlier
    shrink has retired (invariant I2)."""
    record, replacement = topic
    watched = Advance()
    if replacement.switched_ms is None and record.retired and this.facts.topic_id == record.topic_id:
        accepted = record.deletion.accept_state_loss if record.deletion is not None else ()
        requirement = replace(this.requirement, accept_state_loss=accepted, evacuation=None)
        watched = _advance_partitions(replace(this, record=replace(record, replacement=None), requirement=requirement))
    if watched.record is not None:
        topic = Replaced(replace(watched.record, replacement=replacement), replacement)
    if replacement.switched_ms is None:  # the groups of that shrink need not be those of the replacement
        this = replace(this, requirement=without_noted(this.requirement, this.facts, this.config.ignored_groups))
    step = advance_replacement(topic, replace(this, record=topic.record))
    return replace(
        step,
        record=topic.record if step.record is None else step.record,
        effects=(*watched.effects, *step.effects),
        due_ms=earliest_ms(watched.due_ms, step.due_ms),
        alarms=(*watched.alarms, *step.alarms),
    )


def _advance_partitions(this: Pass) -> Advance:
    """Take one step with every retired partition of the topic, and with every new one that still opens."""
    this = replace(this, record=with_groups(this.record, this))
    steps = {p: _step_of(p, this) for p in sorted(this.record.retired)}
    opened = advance_opening(replace(this, record=_apply(this.record, steps)))
    effects = list(opened.effects)
    if offsets := {p: step.delete_up_to for p, step in steps.items() if step.delete_up_to is not None}:
        epochs = {partition: this.facts.partitions[partition].leader_epoch for partition in offsets}
        effects.append(DeleteRecords(this.record.topic, this.record.topic_id, offsets, epochs))
    return Advance(
        record=opened.record,
        effects=tuple(effects),
        due_ms=earliest_ms(opened.due_ms, *(step.due_ms for step in steps.values())),
        alarms=tuple(step.alarm for step in steps.values() if step.alarm),
    )


@dataclass(frozen=True)
class _Step:
    """The outcome of a pass for one partition.

    ``drain`` is the proof by which the partition becomes or stays None. Its groups and waivers go into the record.
    """

    mode: PartitionMode
    retired: RetiredPartition
    delete_up_to: int | None = None
    due_ms: int | None = None
    alarm: str | None = None
    drain: Drain = field(default_factory=Drain)


def _apply(record: TopicRecord, steps: Mapping[int, _Step]) -> TopicRecord:
    """Return the record with the steps applied. A step outside the transition tables is a bug: RequestRefused."""
    modes, retired, waived = list(record.modes), dict(record.retired), dict(record.waived)
    names: set[str] = set(record.drained_groups or ())
    for partition, step in steps.items():
        mode, state, new_state = modes[partition], retired[partition].replica_state, step.retired.replica_state
        if step.mode not in {mode, *MODE_TRANSITIONS[mode]} or new_state not in {state, *REPLICA_TRANSITIONS[state]}:
            raise RequestRefused(
                f"{record.topic}-{partition}: no transition {mode.label}/{state.value} -> "
                f"{step.mode.label}/{new_state.value}",
                code=ErrorCode.UNKNOWN_SERVER_ERROR,
                topic=record.topic,
                partition=partition,
            )
        modes[partition], retired[partition] = step.mode, step.retired
        waived |= step.drain.waived
        names.update(step.drain.proof)
    if tuple(modes) == record.modes and retired == record.retired and waived == record.waived:
        return record
    drained_groups = None if record.drained_groups is None else tuple(sorted(names))
    return replace(record, modes=tuple(modes), retired=retired, waived=waived, drained_groups=drained_groups)


def _step_of(partition: int, this: Pass) -> _Step:
    """Take one retired partition as far through its phases as the facts allow."""
    mode, retired = this.record.modes[partition], this.record.retired[partition]
    log = this.facts.partitions.get(partition)
    if log is None:
        # A partition that is None keeps its state: the record has the proof of its drain.
        return _Step(mode, retired if mode is PartitionMode.NONE else blocked(retired, reasons.UNAVAILABLE))
    if mode is PartitionMode.READ_ONLY:
        return _step_read_only(partition, log, this)
    return _step_none(partition, log, this)


# A ReadOnly partition: seal, drain


def _step_read_only(partition: int, log: PartitionFacts, this: Pass) -> _Step:
    topic, deletion, before = this.record.topic, deletion_of(this.record), this.record.retired[partition]
    retired, alarm, due_ms, drain = before, None, None, None
    if retired.seal_offset is not None and seal_broken_by(retired.seal_offset, log) is not None:
        retired, alarm = break_seal(topic, partition, retired, log)
    if retired.seal_offset is None:
        since_ms, quiet_ms = deletion.create_timestamp_ms, this.config.seal_quiet_ms
        retired, due_ms = seal_partition(retired, log, since_ms, quiet_ms, this.now_ms)
    if retired.seal_offset is not None:
        drain, due_ms = _drained(partition, retired, retired.seal_offset, log, this)
        if drain.reason is not None:
            retired = blocked(retired, drain.reason)
    if retired.reason != before.reason:
        alarm = alarm or reason_alarm(topic, partition, retired.reason, log)
    if drain is None or drain.reason is not None:
        return _Step(PartitionMode.READ_ONLY, retired, due_ms=due_ms, alarm=alarm)
    assert retired.seal_offset is not None, "it is drained"
    none = replace(
        retired,
        replica_state=ReplicaState.DELETION_STARTED,
        drained_by=len(drain.proof),
        lowest_commit=drain.lowest_commit(retired.seal_offset),
        resume_offset=None,
        reason=None,
    )
    # The next pass is due at once. By then the mode is on the log, and the drain is checked again before the deletion.
    return _Step(PartitionMode.NONE, none, due_ms=this.now_ms, alarm=alarm, drain=drain)


def _drained(
    partition: int, retired: RetiredPartition, seal_offset: int, log: PartitionFacts, this: Pass
) -> tuple[Drain, int | None]:
    """Return the drain by which the partition may become None under its reclaim policy, or the reason why it may not
    (invariants I1 and I2). While the requested delay lasts, also return when it ends; else None."""
    deletion, policy = deletion_of(this.record), reclaim_policy(partition, this.record, retired)
    if not log.is_stable:
        return Drain(reason=reasons.OPEN_TRANSACTION), None
    if this.facts.compacted:
        return Drain(reason=reasons.COMPACTED), None
    if policy == IMMEDIATE:
        return Drain(), None
    if policy == RETENTION:
        return Drain(reason=None if log.log_start >= seal_offset else reasons.RETENTION), None
    if this.now_ms < deletion.earliest_ms:
        return Drain(reason=reasons.DELAY), deletion.earliest_ms
    if (waits := _waits_for_earlier_topic(this)) is not None:
        return waits, None
    return check_drain(partition, seal_offset, retired.truncated_to, log, this.facts, this.requirement), None


# A partition that is None: reclaim, watch


def _step_none(partition: int, log: PartitionFacts, this: Pass) -> _Step:
    """Watch a partition that is None (invariant I2), and delete its records if the policy requires that.

    Delete up to the recorded offset, never to the current end, and only if the record has the proof (invariant I1).
    """
    retired = this.record.retired[partition]
    if retired.seal_offset is None or seal_broken_by(retired.seal_offset, log) is not None:
        broken, alarm = break_seal(this.record.topic, partition, retired, log)
        return _Step(PartitionMode.READ_ONLY, broken, alarm=alarm)
    reclaim_offset = retired.reclaim_offset
    assert reclaim_offset is not None, "it has a seal"
    if log.log_start >= reclaim_offset:
        return _Step(PartitionMode.NONE, replace(retired, replica_state=ReplicaState.DELETION_SUCCESSFUL))
    if retired.replica_state is ReplicaState.DELETION_SUCCESSFUL:
        # Brokers checkpoint log starts once a minute. If all brokers are killed, the last may be lost: delete again.
        again = deletion_of(this.record).policy != RETENTION
        return _Step(PartitionMode.NONE, retired, delete_up_to=reclaim_offset if again else None)
    drain = _still_drained(partition, retired, retired.seal_offset, log, this)
    if drain.reason is not None:
        return _Step(PartitionMode.READ_ONLY, unproved(retired, drain.reason))
    lower = drain.lowest_commit(reclaim_offset)
    if lower is not None or not drain.waived.keys() <= this.record.waived.keys():  # recorded before anything is deleted
        if lower is not None:
            retired = replace(retired, drained_by=len(drain.proof), lowest_commit=lower)
        return _Step(PartitionMode.NONE, retired, due_ms=this.now_ms, drain=drain)
    return _Step(PartitionMode.NONE, retired, delete_up_to=reclaim_offset)


def _still_drained(
    partition: int, retired: RetiredPartition, seal_offset: int, log: PartitionFacts, this: Pass
) -> Drain:
    """Check the drain again, right before the records are deleted (invariant I1)."""
    policy = reclaim_policy(partition, this.record)
    if policy == RETENTION:  # the log start is lower than before (unclean leader election): retention has to delete
        return Drain(reason=reasons.RETENTION)
    if this.facts.compacted:
        return Drain(reason=reasons.COMPACTED)
    if policy == DRAINED:  # a group may have appeared, or been reset, since the proof
        if (waits := _waits_for_earlier_topic(this)) is not None:
            return waits
        return check_drain(partition, seal_offset, retired.truncated_to, log, this.facts, this.requirement)
    return Drain()


def _waits_for_earlier_topic(this: Pass) -> Drain | None:
    """Return a drain that waits if an earlier topic of the chain exists (again). A group that still reads the earlier
    topic need not be among the groups of this topic (invariant I1). New shrinks of this topic are refused meanwhile."""
    topic = this.facts.earlier_topic
    return None if topic is None else Drain(reason=reasons.of_group(reasons.EARLIER_TOPIC_FIRST, topic))
