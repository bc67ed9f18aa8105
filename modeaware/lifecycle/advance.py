"""One pass over a topic: from its record and what the cluster shows, the next record, effects, and when to look again.

Pure: no IO, no clock. Every pass starts from the record and the facts alone, so a controller that crashed between any
two steps goes on where it stood, and an effect that was lost is asked for again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from modeaware.config import ControllerConfig
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle.admission import MAX_RECORD_BYTES
from modeaware.lifecycle.effects import DeleteRecords, Effect
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.handover import advance_handover, survivors_to_watch
from modeaware.lifecycle.opening import advance_opening
from modeaware.lifecycle.phases import awaits_handover
from modeaware.lifecycle.requirement import Requirement, handover_requirement, requirement_of, using_groups
from modeaware.lifecycle.steps import Pass, Step, step_of
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import TopicRecord
from modeaware.modes import MODE_TRANSITIONS, REPLICA_TRANSITIONS


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
    record: TopicRecord,
    facts: TopicFacts,
    config: ControllerConfig,
    controller_epoch: int,
    now_ms: int,
    rules: Sequence[GroupRule] = (),
) -> Advance:
    """Take every retired partition of the topic as far as the facts and the operator's rules allow.

    The topic's record goes only when brokers confirm that it is gone (invariant I4).
    """
    if facts.gone:
        return Advance(tombstone=True, alarms=(f"topic {record.topic!r} is gone: its mode record is removed",))
    if facts.topic_id != record.topic_id:
        return Advance()  # not confirmed yet: a stale broker's word changes nothing
    requirement = requirement_of(record, facts, rules, config.ignored_groups, now_ms)
    noted = _note_groups(record, facts, config, requirement)
    now = Pass(noted, facts, requirement, config.seal_quiet_ms, now_ms)
    steps = {
        partition: step_of(partition, now)
        for partition, retired in sorted(record.retired.items())
        if not retired.opening
    }
    after = _apply(noted, steps)
    after, opening_effects, opening_due_ms = advance_opening(after, facts, config, now_ms)
    effects: list[Effect] = list(opening_effects)
    if after != record and len(after.to_json()) > MAX_RECORD_BYTES:
        # Groups that came up after the admission made the proof too long. Their number falls as they expire.
        return Advance(alarms=(f"topic {record.topic!r}: its mode record would not fit the mode log: it waits",))
    groups = handover_requirement(after, facts, rules, config.ignored_groups, now_ms)
    after = _hand_over(replace(now, record=after, requirement=groups))
    offsets = {p: step.delete_up_to for p, step in steps.items() if step.delete_up_to is not None}
    if offsets:
        epochs = {partition: facts.partitions[partition].leader_epoch for partition in offsets}
        effects.append(DeleteRecords(record.topic, record.topic_id, offsets, epochs))
    return Advance(
        record=after.stamped(controller_epoch, now_ms) if after != record else None,
        effects=tuple(effects),
        due_ms=_earliest(
            [opening_due_ms, _handover_due_ms(record, after, now_ms), *(s.due_ms for s in steps.values())]
        ),
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


def _note_groups(
    record: TopicRecord, facts: TopicFacts, config: ControllerConfig, requirement: Requirement
) -> TopicRecord:
    """Where the groups could not be noted for sure at the admission, the first sure listing completes them (invariant
    I1)."""
    if record.groups_complete or requirement.doubt is not None:
        return record
    using = using_groups(facts, config.ignored_groups, requirement.registered)
    return replace(record, groups_complete=True, required_groups=tuple(sorted({*record.required_groups, *using})))


def _hand_over(now: Pass) -> TopicRecord:
    """With what is handed over, where that fits the record: it holds nothing else up."""
    if not awaits_handover(now.record):
        return now.record
    handed = advance_handover(now, MAX_RECORD_BYTES - len(now.record.to_json()))
    return handed if len(handed.to_json()) <= MAX_RECORD_BYTES else now.record


def _handover_due_ms(record: TopicRecord, after: TopicRecord, now_ms: int) -> int | None:
    """Where the last seal is new, survivors are looked at from now on."""
    return now_ms if survivors_to_watch(after) and not survivors_to_watch(record) else None


def _apply(record: TopicRecord, steps: dict[int, Step]) -> TopicRecord:
    modes = list(record.modes)
    retired = dict(record.retired)
    waived = dict(record.waived)
    for partition, step in steps.items():
        _check_transition(record, partition, step)
        modes[partition] = step.mode
        retired[partition] = step.retired
        waived |= step.waived
    if tuple(modes) == record.modes and retired == record.retired and waived == record.waived:
        return record
    return replace(record, modes=tuple(modes), retired=retired, waived=waived)


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


def _earliest(times: Iterable[int | None]) -> int | None:
    return min((time for time in times if time is not None), default=None)
