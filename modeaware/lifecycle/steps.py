"""What one pass makes of one retired partition: seal it, drain it, retire it for good, watch it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from modeaware.lifecycle import reasons
from modeaware.lifecycle.drain import Drain, check_drain, seal_broken_by
from modeaware.lifecycle.facts import PartitionFacts, TopicFacts
from modeaware.lifecycle.phases import rests
from modeaware.lifecycle.policy import deletion_of, drains, reclaim_policy
from modeaware.lifecycle.requirement import Requirement
from modeaware.lifecycle.stragglers import straggler_of, transaction_alarm, unseal_alarm
from modeaware.modelog.records import RetiredPartition, TopicRecord
from modeaware.modes import PartitionMode, PartitionState, ReplicaState


@dataclass(frozen=True)
class Pass:
    """What a pass over a topic rests on."""

    record: TopicRecord
    facts: TopicFacts
    requirement: Requirement
    seal_quiet_ms: int
    now_ms: int


@dataclass(frozen=True)
class Step:
    """What one pass makes of one partition. ``waived``: the groups it did not wait for, with the waiver's reason."""

    mode: PartitionMode
    retired: RetiredPartition
    delete_up_to: int | None = None
    due_ms: int | None = None
    alarm: str | None = None
    waived: Mapping[str, str] = field(default_factory=dict)


def step_of(partition: int, now: Pass) -> Step:
    """Take one retired partition (not one that is opening) as far as the facts allow.

    Raises:
        RequestRefused: the record contradicts itself; nothing is to be done.
    """
    mode, retired = now.record.modes[partition], now.record.retired[partition]
    log = now.facts.partitions.get(partition)
    if log is None:
        # A None partition is left as it is: its proof stands in the record.
        return Step(mode, retired if mode is PartitionMode.NONE else _blocked(retired, reasons.UNAVAILABLE))
    if mode is PartitionMode.READ_ONLY:
        return _step_read_only(partition, log, now)
    return _step_none(partition, log, now)


def _step_read_only(partition: int, log: PartitionFacts, now: Pass) -> Step:
    topic, retired = now.record.topic, now.record.retired[partition]
    before, alarm = retired.reason, None
    if retired.seal_offset is not None and seal_broken_by(retired.seal_offset, log) is not None:
        retired, alarm = _unseal(topic, partition, retired, log)
    if retired.seal_offset is None:
        retired, due_ms = _seal(retired, log, deletion_of(now.record).create_timestamp_ms, now)
        if retired.reason != before:
            alarm = alarm or _alarm(topic, partition, retired.reason, log)
        if retired.seal_offset is None:
            return Step(PartitionMode.READ_ONLY, retired, due_ms=due_ms, alarm=alarm)
    drain, due_ms = _drained(partition, retired, retired.seal_offset, log, now)
    if drain.reason is not None:
        if drain.reason != before:
            alarm = alarm or _alarm(topic, partition, drain.reason, log)
        return Step(PartitionMode.READ_ONLY, _blocked(retired, drain.reason), due_ms=due_ms, alarm=alarm)
    none = replace(
        retired,
        partition_state=PartitionState.OFFLINE,
        replica_state=ReplicaState.DELETION_STARTED,
        drained=dict(drain.proof),
        resume_offset=None,
        reason=None,
        evacuated=deletion_of(now.record).evacuate,
        evacuated_to=retired.seal_offset if deletion_of(now.record).evacuate else None,
    )
    # Looked at again at once: consumers have been told by then, and the proof is taken anew before anything is deleted.
    return Step(PartitionMode.NONE, none, due_ms=now.now_ms, alarm=alarm, waived=drain.waived)


def _alarm(topic: str, partition: int, reason: str | None, log: PartitionFacts) -> str | None:
    """What a person should hear of when it becomes the reason."""
    if reason == reasons.OPEN_TRANSACTION:
        return transaction_alarm(topic, partition, log)
    if reason == reasons.STILL_WRITTEN:
        return f"{topic}-{partition}: {reasons.text(reason)}"
    return None


def _seal(
    retired: RetiredPartition, log: PartitionFacts, retired_ms: int, now: Pass
) -> tuple[RetiredPartition, int | None]:
    """Seal a partition that has been quiet since it was retired, at ``retired_ms``, at the earliest.

    An open transaction's records are not readable yet, so there is no seal behind them (invariant I2). Quiet is no
    proof; it only avoids flapping (how-it-works.md, phase "seal"). While records arrive, a last stable
    offset below the end says nothing of a transaction: it was read a moment before the end was.
    """
    quiet_from_ms = max(log.quiet_since_ms, retired_ms) + now.seal_quiet_ms
    if now.now_ms < quiet_from_ms:
        if log.moved and log.quiet_since_ms >= retired_ms + now.seal_quiet_ms:
            known = retired.reason in (reasons.STILL_WRITTEN, reasons.STRAGGLER)
            return (retired if known else _blocked(retired, reasons.STILL_WRITTEN)), quiet_from_ms
        held_up = retired.reason in (reasons.OPEN_TRANSACTION, reasons.UNAVAILABLE)
        return (replace(retired, reason=None) if held_up else retired), quiet_from_ms
    if not log.settled:
        return _blocked(retired, reasons.OPEN_TRANSACTION), None
    if retired.truncated_to is not None:  # and perhaps further since, while there was no seal
        retired = replace(retired, truncated_to=min(retired.truncated_to, log.lowest_end))
    return replace(retired, seal_offset=log.end_offset, seal_leader_epoch=log.leader_epoch, reason=None), None


def _unseal(topic: str, partition: int, retired: RetiredPartition, log: PartitionFacts) -> tuple[RetiredPartition, str]:
    """The seal is broken: a straggler arrived, or the log was truncated. Drain it again (invariant I2)."""
    assert retired.seal_offset is not None
    truncated = seal_broken_by(retired.seal_offset, log) == reasons.TRUNCATED
    # A group that never committed here (it starts at the latest) goes on at what was drained, not behind the straggler.
    resume = retired.seal_offset if retired.resume_offset is None else retired.resume_offset
    lowest = log.lowest_end if retired.truncated_to is None else min(log.lowest_end, retired.truncated_to)
    unsealed = replace(
        _unproved(retired, reasons.TRUNCATED if truncated else reasons.STRAGGLER),
        seal_offset=None,
        seal_leader_epoch=log.leader_epoch,
        resume_offset=min(log.lowest_end, resume),
        stragglers=retired.stragglers + (not truncated),
        straggler=retired.straggler if truncated else straggler_of(log),
        truncated_to=lowest if truncated else retired.truncated_to,
        evacuated_to=None if retired.evacuated_to is None else min(retired.evacuated_to, log.lowest_end),
    )
    return unsealed, unseal_alarm(topic, partition, retired.seal_offset, log, truncated=truncated)


def _drained(
    partition: int, retired: RetiredPartition, seal_offset: int, log: PartitionFacts, now: Pass
) -> tuple[Drain, int | None]:
    """Whether the reclaim policy lets the partition go (invariants I1 and I2), and when it may fall due."""
    deletion, policy = deletion_of(now.record), reclaim_policy(partition, now.record, retired)
    if not log.settled:
        return Drain(reason=reasons.OPEN_TRANSACTION), None
    if now.facts.compacted and not deletion.evacuate:
        return Drain(reason=reasons.COMPACTED), None
    if policy == "immediate":
        return Drain(), None
    if policy == "retention" and not drains(partition, now.record):
        return Drain(reason=None if log.log_start >= seal_offset else reasons.RETENTION), None
    if now.now_ms < deletion.earliest_ms:
        return Drain(reason=reasons.DELAY), deletion.earliest_ms
    return check_drain(partition, seal_offset, retired.truncated_to, log, now.facts, now.requirement), None


def _step_none(partition: int, log: PartitionFacts, now: Pass) -> Step:
    """Watch a None partition (invariant I2), and delete its records up to the recorded seal where the policy says so.

    Never to wherever the end is, and with the proof on the record first (invariant I1).
    """
    retired = now.record.retired[partition]
    if retired.seal_offset is None or seal_broken_by(retired.seal_offset, log) is not None:
        sealed = retired if retired.seal_offset is not None else replace(retired, seal_offset=0)
        retired, alarm = _unseal(now.record.topic, partition, sealed, log)
        return Step(PartitionMode.READ_ONLY, retired, alarm=alarm)
    reclaim_offset = retired.reclaim_offset
    assert reclaim_offset is not None, "it has a seal"
    if retired.evacuated and log.log_start < reclaim_offset and not _deletes(partition, now):
        return Step(PartitionMode.NONE, _left_alone(retired))
    if rests(PartitionMode.NONE, retired):  # not any more: that is on the record before anything goes
        started = replace(retired, replica_state=ReplicaState.DELETION_STARTED, reason=None)
        return Step(PartitionMode.NONE, started, due_ms=now.now_ms)
    if log.log_start >= reclaim_offset:
        gone = replace(
            retired, partition_state=PartitionState.NON_EXISTENT, replica_state=ReplicaState.DELETION_SUCCESSFUL
        )
        return Step(PartitionMode.NONE, gone)
    if retired.replica_state is ReplicaState.DELETION_SUCCESSFUL:
        # Brokers write a log start down once a minute: killed all at once, they may forget the last one. Then again.
        again = deletion_of(now.record).policy != "retention"
        return Step(PartitionMode.NONE, retired, delete_up_to=reclaim_offset if again else None)
    drain = _still_drained(partition, retired, retired.seal_offset, log, now)
    if drain.reason is not None and retired.evacuated:  # what is read would be older than what survivors hold
        return Step(PartitionMode.NONE, _left_alone(retired))
    if drain.reason is not None:
        return Step(PartitionMode.READ_ONLY, _unproved(retired, drain.reason))
    lower = min(drain.proof.values(), default=reclaim_offset) < reclaim_offset
    if lower or not drain.waived.keys() <= now.record.waived.keys():  # it is on the record before anything goes
        proof = dict(drain.proof) if lower else retired.drained
        return Step(PartitionMode.NONE, replace(retired, drained=proof), due_ms=now.now_ms, waived=drain.waived)
    return Step(PartitionMode.NONE, retired, delete_up_to=reclaim_offset)


def _deletes(partition: int, now: Pass) -> bool:
    """Whether the records of an evacuated partition are to be deleted by now, and brokers would do that."""
    due = now.now_ms >= deletion_of(now.record).earliest_ms  # a later shrink may have a delay of its own
    return due and now.facts.deletes and reclaim_policy(partition, now.record) == "drained"


def _left_alone(retired: RetiredPartition) -> RetiredPartition:
    """An evacuated partition whose records stay. (Those that come back after they were deleted do, too.)"""
    done = retired.replica_state is ReplicaState.DELETION_SUCCESSFUL
    return retired if done else _blocked(retired, reasons.COMPACTED)


def _still_drained(
    partition: int, retired: RetiredPartition, seal_offset: int, log: PartitionFacts, now: Pass
) -> Drain:
    """The proof taken anew, right before the records go. Without one they stay, and the partition is readable again
    (invariant I1).

    What was evacuated stays so, whatever becomes of the offsets of the group that proved it.
    """
    policy = reclaim_policy(partition, now.record)
    if policy == "retention":  # the log start has gone back (an unclean leader election): nothing is deleted early
        return Drain(reason=reasons.RETENTION)
    if now.facts.compacted and not retired.evacuated:
        return Drain(reason=reasons.COMPACTED)
    if policy == "drained":  # a group may have come up, or been reset, since the proof
        requirement = now.requirement.without_evacuation() if retired.evacuated else now.requirement
        return check_drain(partition, seal_offset, retired.truncated_to, log, now.facts, requirement)
    return Drain()


def _blocked(retired: RetiredPartition, reason: str | None) -> RetiredPartition:
    """KIP-694: what cannot be deleted now becomes ReplicaDeletionIneligible, and is tried again."""
    return replace(retired, replica_state=ReplicaState.DELETION_INELIGIBLE, reason=reason)


def _unproved(retired: RetiredPartition, reason: str | None) -> RetiredPartition:
    """A partition whose proof of the drain does not hold any more: readable again until there is a new one."""
    return replace(_blocked(retired, reason), drained={}, evacuated=False, partition_state=PartitionState.ONLINE)
