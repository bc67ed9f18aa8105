"""From a topic as it is to the one that a file asks for: steps, warnings, or why not. Pure.

A topic is never deleted, nor is anything done about one that no file names. A config that the file does not name stays
as it is.
"""

from __future__ import annotations

import re
from decimal import Decimal

from modeaware.apply.desired import (
    RETENTION,
    AcceptStateLoss,
    AlterConfigs,
    Create,
    CurrentTopic,
    DesiredTopic,
    Grow,
    Shrink,
    ShrinkRules,
    Step,
    TopicPlan,
)
from modeaware.lifecycle.commands import CreatePartitionsCommand, DeletePartitionsCommand
from modeaware.lifecycle.phases import partition_phase
from modeaware.modelog.records import DeleteTopicPartitions
from modeaware.modes import format_ranges
from partitioners import share_moved

CLEANUP_POLICY = "cleanup.policy"
INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})
"""Kafka's own, there or not yet."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_HIDDEN = "its configs may not be seen: the right DESCRIBE_CONFIGS on the topic is missing"
_OLD_CLIENTS = "clients that are not mode-aware go on writing to these partitions, which then stay until that stops"
_INTERNAL = "an internal topic: its partitions and configs are its owner's business"


class _RefusedError(Exception):
    """Why, and what to do."""


def plan_topic(desired: DesiredTopic, current: CurrentTopic | None) -> TopicPlan:
    """The plan for one topic; ``current`` None: there is none of that name."""
    name, where = desired.name, desired.where
    if name in INTERNAL:
        return TopicPlan(name, where, refusal=_INTERNAL)
    if current is None:
        configs = {key: value for key, value in desired.configs.items() if value is not None}
        return TopicPlan(name, where, (Create(desired.partitions, desired.replication_factor, configs),))
    try:
        _check(desired, current)
        resize, warnings, notes = _resize(desired, current)
        alter = _configs(desired, current)
        if alter is not None and (current.in_progress or any(isinstance(step, Shrink) for step in resize)):
            _check_cleanup_policy(alter)
    except _RefusedError as refused:
        return TopicPlan(name, where, refusal=str(refused), progress=current.progress)
    others = sorted((current.overrides or {}).keys() - desired.configs.keys())
    if others:
        notes += (f"configs of its own that the file does not name stay: {', '.join(others)}",)
    steps = resize if alter is None else (*resize, alter)
    return TopicPlan(name, where, steps, warnings, notes, progress=current.progress)


def _check(desired: DesiredTopic, current: CurrentTopic) -> None:
    if current.internal:
        raise _RefusedError(_INTERNAL)
    factor = desired.replication_factor
    if factor is not None and current.replication_factors != {factor}:
        now = " and ".join(map(str, sorted(current.replication_factors)))
        raise _RefusedError(
            f"its replication factor is {now}, not {factor}: change it with modeaware reassign-partitions (--generate, "
            "--execute), or say what it is"
        )
    if desired.configs and current.overrides is None:
        raise _RefusedError(_HIDDEN)


_Resize = tuple[tuple[Step, ...], tuple[str, ...], tuple[str, ...]]


def _resize(desired: DesiredTopic, current: CurrentTopic) -> _Resize:
    if desired.partitions > current.goal:
        return _growth(desired, current)
    if current.in_progress:
        return _under_way(desired, current)
    if desired.partitions == current.goal:
        return (), (), ()
    return _shrink(desired, current)


def _growth(desired: DesiredTopic, current: CurrentTopic) -> _Resize:
    before, after, record = current.writable, desired.partitions, current.record
    if current.listed <= after < current.count:  # with nothing retired any more, those would take writes as well
        _check_added(current)
    opening = record is not None and any(retired.opening for retired in record.retired.values())
    revived = range(0) if opening else range(before, min(after, current.listed))
    created = range(max(current.listed, current.count), after)
    notes = []
    if record is not None and current.in_progress and not opening:
        notes.append(f"takes back the shrink that is in progress ({current.progress}), or a part of it")
    command = CreatePartitionsCommand(desired.name, after)
    step = Grow(before, command, revived, created, by_controller=record is not None)
    accepted = _accepted(desired, current, after)
    warnings = (keys_that_move(before, after), *(w for also in accepted for w in _state_lost(also.groups)))
    return (step, *accepted), warnings, tuple(notes)


def _under_way(desired: DesiredTopic, current: CurrentTopic) -> _Resize:
    """The target, or fewer, while something is in progress."""
    if desired.partitions != current.goal:
        undo = f", or take it back (modeaware topics --undo --topic {desired.name})"
        undo = "" if current.goal > current.writable else undo  # only a shrink can be taken back
        raise _RefusedError(
            f"a change to {current.goal} partitions is in progress ({current.progress}), and {desired.partitions} are "
            f"fewer: wait until it is done{undo}, then apply again"
        )
    deletion = current.record.deletion if current.record is not None else None
    if deletion is None or desired.shrink is None or current.goal > current.writable:
        return (), (), ()
    accepted = _accepted(desired, current, desired.partitions)
    lost = (warning for step in accepted for warning in _state_lost(step.groups))
    return accepted, (*_other_rules(desired.shrink, deletion), *lost), ()


def _accepted(desired: DesiredTopic, current: CurrentTopic, count: int) -> tuple[AcceptStateLoss, ...]:
    """For the shrink that is still in progress with ``count`` writable partitions: the groups it does not know of."""
    record = current.record
    deletion = record.deletion if record is not None else None
    if record is None or deletion is None or desired.shrink is None:
        return ()
    left = {partition_phase(record.modes[p], r) for p, r in record.retired.items() if p >= count and not r.opening}
    groups = tuple(sorted(set(desired.shrink.accept_state_loss) - set(deletion.accept_state_loss)))
    if not groups or left <= {"done"}:
        return ()
    command = DeletePartitionsCommand(  # as it began: with anything else it would be refused
        desired.name, count, deletion.delay_ms, deletion.immediate_delete, groups, deletion.evacuate
    )
    return (AcceptStateLoss(command, groups),)


def _shrink(desired: DesiredTopic, current: CurrentTopic) -> _Resize:
    before, after, rules = current.writable, desired.partitions, desired.shrink_rules
    _check_added(current)
    if current.overrides is None:  # nor is the cleanup.policy known
        raise _RefusedError(_HIDDEN)
    _check_evacuation(rules, current.cleanup_policy)
    warnings = [keys_that_move(before, after)]
    if rules.evacuate:
        warnings.append(
            "it is compacted: the shrink waits for the Spark job modeaware.spark.evacuate, once it is sealed"
        )
        if before % after:
            warnings.append(
                "keys that move from one partition that stays to another are not evacuated: their values so far stay "
                f"where they are, beside newer ones elsewhere. A number that divides {before} moves no such key"
            )
    warnings += _state_lost(rules.accept_state_loss)
    kept = rules.evacuate and (rules.policy == RETENTION or "delete" not in current.cleanup_policy)
    return (Shrink(before, rules.command(desired.name, after), kept),), tuple(warnings), (_OLD_CLIENTS,)


def _check_added(current: CurrentTopic) -> None:
    if current.count > current.listed and current.record is not None and current.record.retired:
        raise _RefusedError(
            f"it has {current.count} partitions, of which another tool than modeaware has added "
            f"{format_ranges(range(current.listed, current.count))}: grow it to {current.count} first, then apply again"
        )


def _check_evacuation(rules: ShrinkRules, cleanup_policy: str) -> None:
    compacted = cleanup_policy.strip() != "delete"
    if compacted and not rules.evacuate:
        raise _RefusedError(
            f"cleanup.policy is {cleanup_policy!r}, and the latest value of a key in a retired partition must not go: "
            "say shrink: {evacuate: true}, and run the Spark job modeaware.spark.evacuate once it is sealed"
        )
    if rules.evacuate and not compacted:
        raise _RefusedError("cleanup.policy is 'delete', there is nothing to evacuate: leave shrink.evacuate out")


def _other_rules(wanted: ShrinkRules, deletion: DeleteTopicPartitions) -> tuple[str, ...]:
    same = (deletion.delay_ms, deletion.immediate_delete, deletion.evacuate)
    if (wanted.command_delay_ms, False, wanted.evacuate) == same:
        return ()
    how = f"policy {deletion.policy}" + (f", delay_ms {deletion.delay_ms}" if deletion.policy == "drained" else "")
    told = f"{how}, {'with' if deletion.evacuate else 'without'} an evacuation"
    return (f"the shrink in progress goes on as it began ({told}): what the file says counts for the next one",)


def _state_lost(groups: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"group {group!r} loses the state of the keys that move, where it keeps any" for group in groups)


def keys_that_move(before: int, after: int) -> str:
    """What a change of the number of partitions does to keys."""
    share = f"{share_moved(before, after):.0%} of the keys move to another partition where producers hash them"
    hashes = "(murmur2 in Java and kafka-python, CRC32 in librdkafka, modulo the number of partitions)"
    few, many = sorted((before, after))
    divides = f"{few} divides {many}, it cannot be less" if many % few == 0 else f"{few} does not divide {many}"
    return f"{share} {hashes}; {divides}"


def _configs(desired: DesiredTopic, current: CurrentTopic) -> AlterConfigs | None:
    now = current.overrides or {}
    different = {key: value for key, value in desired.configs.items() if not same_value(now.get(key), value)}
    if not different:
        return None
    wanted = {key: value for key, value in different.items() if value is not None}
    removed = tuple(key for key, value in different.items() if value is None)
    return AlterConfigs(wanted, removed, {key: now[key] for key in different if key in now})


def same_value(now: str | None, wanted: str | None) -> bool:
    """Whether ``wanted`` is what the broker has. It tells ``0.5`` and ``a,b`` where ``0.50`` and ``a, b`` were set."""
    return now == wanted or (now is not None and wanted is not None and _as_told(now) == _as_told(wanted))


def _as_told(value: str) -> object:
    parts = ",".join(part.strip() for part in value.split(","))
    if _NUMBER.fullmatch(parts):
        return Decimal(parts)
    return parts.lower() if parts.lower() in ("true", "false") else parts


def _check_cleanup_policy(alter: AlterConfigs) -> None:
    if CLEANUP_POLICY in (*alter.set, *alter.remove):
        raise _RefusedError(
            "its cleanup.policy cannot be altered together with a shrink, which goes by it, nor during one: apply the "
            "one, wait until it is done, then the other"
        )
