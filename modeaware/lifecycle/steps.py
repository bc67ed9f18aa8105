"""One pass over a topic: from its record and fresh facts to the next record, effects, alarms, and the next due time.

Pure. Every pass starts from the record and the facts alone, so a controller that crashed between two steps continues
from the record, and an effect that was lost is requested again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from modeaware.config import ControllerConfig
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import Advance, DeleteRecords, Effect
from modeaware.lifecycle.drain import Drain, Requirement, check_drain, requirement_of, using_groups
from modeaware.lifecycle.facts import PartitionFacts, TopicFacts
from modeaware.lifecycle.growth import advance_opening
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
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import DRAINED, IMMEDIATE, RETENTION, Replaced, RetiredPartition, TopicRecord
from modeaware.modes import PartitionMode, ReplicaState


def advance(
    record: TopicRecord,
    facts: TopicFacts,
    config: ControllerConfig,
    controller_epoch: int,
    now_ms: int,
    rules: Sequence[GroupRule] = (),
) -> Advance:
    """Take every retired partition of the topic as far as the facts and the operator's rules allow.

    The topic's record is removed only once the topic's absence is confirmed (invariant I4).

    Raises:
        RequestRefused: the record contradicts itself.
    """
    if record.replacement is not None:
        topic = Replaced(record, record.replacement)
        is_watched = record.replacing.switched_ms is None and record.retired and facts.topic_id == record.topic_id
        found = _advance_retired(topic, facts, config, controller_epoch, now_ms, rules) if is_watched else Advance()
        base = topic if found.record is None else topic._replace(record=found.record)
        step = advance_replacement(base, facts, config, controller_epoch, now_ms, rules)
        due_ms = min((each for each in (found.due_ms, step.due_ms) if each is not None), default=None)
        return replace(
            step,
            record=step.record or found.record,
            effects=(*found.effects, *step.effects),
            due_ms=due_ms,
            alarms=(*found.alarms, *step.alarms),
        )
    if facts.gone:
        return Advance(tombstone=True, alarms=(f"topic {record.topic!r} is gone: its mode record is removed",))
    if facts.topic_id != record.topic_id:
        return Advance()  # not confirmed yet: one broker's metadata may be stale
    requirement = requirement_of(record, facts, rules, config.ignored_groups, now_ms)
    after, steps = _stepped(record, facts, config, requirement, now_ms)
    if after is not record and not fits(after):
        after, steps = _stepped(record, facts, config, replace(requirement, doubt=TOO_MANY), now_ms)
    after, opening_effects, opening_due_ms = advance_opening(after, facts, config, requirement, now_ms)
    effects: list[Effect] = list(opening_effects)
    after = fitted(after) if after is not record else record
    if offsets := {p: step.delete_up_to for p, step in steps.items() if step.delete_up_to is not None}:
        epochs = {partition: facts.partitions[partition].leader_epoch for partition in offsets}
        effects.append(DeleteRecords(record.topic, record.topic_id, offsets, epochs))
    due = [opening_due_ms, *(step.due_ms for step in steps.values())]
    return Advance(
        record=after.stamped(controller_epoch, now_ms) if after != record else None,
        effects=tuple(effects),
        due_ms=min((due_ms for due_ms in due if due_ms is not None), default=None),
        alarms=tuple(step.alarm for step in steps.values() if step.alarm),
    )


def _advance_retired(
    topic: Replaced,
    facts: TopicFacts,
    config: ControllerConfig,
    controller_epoch: int,
    now_ms: int,
    rules: Sequence[GroupRule],
) -> Advance:
    """Watch the partitions that an earlier shrink has retired, until the switch of a replacement retires all of them
    (invariant I2)."""
    found = advance(replace(topic.record, replacement=None), facts, config, controller_epoch, now_ms, rules)
    if found.record is None:
        return found
    return replace(found, record=replace(found.record, replacement=topic.replacement))


def _stepped(
    record: TopicRecord, facts: TopicFacts, config: ControllerConfig, requirement: Requirement, now_ms: int
) -> tuple[TopicRecord, dict[int, _Step]]:
    """Return the record after one step of every retired partition, and the steps."""
    noted = _note_groups(record, facts, config, requirement)
    now = _Pass(noted, facts, requirement, config.seal_quiet_ms, now_ms)
    steps = {p: _step_of(p, now) for p in sorted(record.retired)}
    return _apply(noted, steps), steps


def _note_groups(
    record: TopicRecord, facts: TopicFacts, config: ControllerConfig, requirement: Requirement
) -> TopicRecord:
    """Return the record with its required groups completed by the first certain listing, where the one of the admission
    was uncertain (invariant I1)."""
    if record.groups_complete or requirement.doubt is not None:
        return record
    using = using_groups(facts, config.ignored_groups, requirement.registered)
    return replace(record, groups_complete=True, required_groups=tuple(sorted({*record.required_groups, *using})))


@dataclass(frozen=True)
class _Pass:
    record: TopicRecord
    facts: TopicFacts
    requirement: Requirement
    seal_quiet_ms: int
    now_ms: int


@dataclass(frozen=True)
class _Step:
    """The outcome of a pass for one partition.

    ``drain`` is what it took to be None, or to stay so: its groups and waivers are put on the record.
    """

    mode: PartitionMode
    retired: RetiredPartition
    delete_up_to: int | None = None
    due_ms: int | None = None
    alarm: str | None = None
    drain: Drain = field(default_factory=Drain)


def _apply(record: TopicRecord, steps: Mapping[int, _Step]) -> TopicRecord:
    """Return the record with the steps taken. A step outside the transition tables is a bug, and changes nothing."""
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


def _step_of(partition: int, now: _Pass) -> _Step:
    """Take one retired partition (not one that is opening) as far as the facts allow."""
    mode, retired = now.record.modes[partition], now.record.retired[partition]
    log = now.facts.partitions.get(partition)
    if log is None:
        # A None partition keeps its state: its proof is on the record.
        return _Step(mode, retired if mode is PartitionMode.NONE else blocked(retired, reasons.UNAVAILABLE))
    if mode is PartitionMode.READ_ONLY:
        return _step_read_only(partition, log, now)
    return _step_none(partition, log, now)


# ReadOnly: seal, drain


def _step_read_only(partition: int, log: PartitionFacts, now: _Pass) -> _Step:
    topic, deletion, before = now.record.topic, deletion_of(now.record), now.record.retired[partition]
    retired, alarm, due_ms, drain = before, None, None, None
    if retired.seal_offset is not None and seal_broken_by(retired.seal_offset, log) is not None:
        retired, alarm = break_seal(topic, partition, retired, log)
    if retired.seal_offset is None:
        retired, due_ms = seal_partition(retired, log, deletion.create_timestamp_ms, now.seal_quiet_ms, now.now_ms)
    if retired.seal_offset is not None:
        drain, due_ms = _drained(partition, retired, retired.seal_offset, log, now)
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
    # Due at once: by then consumers have the new mode, and the proof is taken anew before anything is deleted.
    return _Step(PartitionMode.NONE, none, due_ms=now.now_ms, alarm=alarm, drain=drain)


def _drained(
    partition: int, retired: RetiredPartition, seal_offset: int, log: PartitionFacts, now: _Pass
) -> tuple[Drain, int | None]:
    """Return whether the partition may become None by its reclaim policy (invariants I1 and I2), and when it is due."""
    deletion, policy = deletion_of(now.record), reclaim_policy(partition, now.record, retired)
    if not log.settled:
        return Drain(reason=reasons.OPEN_TRANSACTION), None
    if now.facts.compacted:
        return Drain(reason=reasons.COMPACTED), None
    if policy == IMMEDIATE:
        return Drain(), None
    if policy == RETENTION:
        return Drain(reason=None if log.log_start >= seal_offset else reasons.RETENTION), None
    if now.now_ms < deletion.earliest_ms:
        return Drain(reason=reasons.DELAY), deletion.earliest_ms
    if (waits := _waits_for_predecessor(now)) is not None:
        return waits, None
    return check_drain(partition, seal_offset, retired.truncated_to, log, now.facts, now.requirement), None


# None: reclaim, watch


def _step_none(partition: int, log: PartitionFacts, now: _Pass) -> _Step:
    """Watch a None partition (invariant I2), and delete its records up to the recorded seal where the policy says so.

    Never up to the present end, and with the proof on the record first (invariant I1).
    """
    retired = now.record.retired[partition]
    if retired.seal_offset is None or seal_broken_by(retired.seal_offset, log) is not None:
        broken, alarm = break_seal(now.record.topic, partition, retired, log)
        return _Step(PartitionMode.READ_ONLY, broken, alarm=alarm)
    reclaim_offset = retired.reclaim_offset
    assert reclaim_offset is not None, "it has a seal"
    if log.log_start >= reclaim_offset:
        return _Step(PartitionMode.NONE, replace(retired, replica_state=ReplicaState.DELETION_SUCCESSFUL))
    if retired.replica_state is ReplicaState.DELETION_SUCCESSFUL:
        # Brokers checkpoint log starts once a minute; killed all at once, they may lose the last one. Delete again.
        again = deletion_of(now.record).policy != RETENTION
        return _Step(PartitionMode.NONE, retired, delete_up_to=reclaim_offset if again else None)
    drain = _still_drained(partition, retired, retired.seal_offset, log, now)
    if drain.reason is not None:
        return _Step(PartitionMode.READ_ONLY, unproved(retired, drain.reason))
    lower = drain.lowest_commit(reclaim_offset)
    if lower is not None or not drain.waived.keys() <= now.record.waived.keys():  # recorded before anything is deleted
        if lower is not None:
            retired = replace(retired, drained_by=len(drain.proof), lowest_commit=lower)
        return _Step(PartitionMode.NONE, retired, due_ms=now.now_ms, drain=drain)
    return _Step(PartitionMode.NONE, retired, delete_up_to=reclaim_offset)


def _still_drained(
    partition: int, retired: RetiredPartition, seal_offset: int, log: PartitionFacts, now: _Pass
) -> Drain:
    """Take the proof anew, right before the records are deleted (invariant I1)."""
    policy = reclaim_policy(partition, now.record)
    if policy == RETENTION:  # the log start has moved back (an unclean leader election): nothing is deleted early
        return Drain(reason=reasons.RETENTION)
    if now.facts.compacted:
        return Drain(reason=reasons.COMPACTED)
    if policy == DRAINED:  # a group may have appeared, or been reset, since the proof
        if (waits := _waits_for_predecessor(now)) is not None:
            return waits
        return check_drain(partition, seal_offset, retired.truncated_to, log, now.facts, now.requirement)
    return Drain()


def _waits_for_predecessor(now: _Pass) -> Drain | None:
    """A topic that this one has replaced is there (again): a group that still has to come from it does not show here
    (invariant I1). New shrinks are refused meanwhile."""
    predecessor = now.facts.predecessor
    return None if predecessor is None else Drain(reason=reasons.of_group(reasons.PREDECESSOR_FIRST, predecessor))
