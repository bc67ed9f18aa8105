"""Admission of a growth (KIP-195): retired partitions are revived first, what is missing is created."""

from __future__ import annotations

from dataclasses import replace

from modeaware.errors import ErrorCode
from modeaware.lifecycle import reasons
from modeaware.lifecycle.admission import Admission, check_size, current_record, refusal
from modeaware.lifecycle.commands import CreatePartitionsCommand
from modeaware.lifecycle.evacuation import evacuation_of, is_evacuation_group
from modeaware.lifecycle.facts import TopicFacts
from modeaware.modelog.records import MAX_PARTITIONS, RetiredPartition, TopicRecord
from modeaware.modes import PartitionMode


def admit_create(
    command: CreatePartitionsCommand,
    record: TopicRecord | None,
    facts: TopicFacts,
    controller_epoch: int,
    now_ms: int,
) -> Admission:
    """Decide on a growth.

    Raises:
        RequestRefused: it may not be carried out.
    """
    current = current_record(record, facts, controller_epoch)
    if command.total_count <= current.writable_count:
        raise refusal(
            command,
            ErrorCode.INVALID_PARTITIONS,
            f"it has {current.writable_count} writable partitions already; {command.total_count} is not an increase",
        )
    if command.total_count > MAX_PARTITIONS:  # before a list is made of them
        raise refusal(
            command,
            ErrorCode.INVALID_PARTITIONS,
            f"{command.total_count} partitions: at most {MAX_PARTITIONS} fit its mode record",
        )
    new = max(command.total_count - facts.partition_count, 0)
    _check_assignments(command, new)
    after = _revive(current, command.total_count, now_ms)
    if command.total_count > len(after.modes):
        after = _open_new(after, command, facts, now_ms)
    if after == current:
        return Admission(None, "already under way: nothing changed")
    check_size(command, after)
    if command.validate_only:
        return Admission(None)
    return Admission(after.stamped(controller_epoch, now_ms))


def _check_assignments(command: CreatePartitionsCommand, new: int) -> None:
    if command.assignments is not None and len(command.assignments) != new:
        raise refusal(
            command,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{len(command.assignments)} replica assignments for {new} really new partitions "
            "(retired partitions are revived first, and keep their replicas)",
        )


def _revive(record: TopicRecord, total_count: int, now_ms: int) -> TopicRecord:
    """Open retired partitions for writes again, lowest id first: the writable ones stay the first (invariant I3).

    A partition that is still opening goes on opening.

    What is left of the shrink moves keys again, so its handover begins anew, and so does what is left of an evacuation.
    One that is undone hands nothing over, unless it overlaps an earlier one: keys that this has moved wait on.
    """
    revived = [p for p in sorted(record.retired) if p < total_count and not record.retired[p].opening]
    modes = list(record.modes)
    for partition in revived:
        modes[partition] = PartitionMode.READ_WRITE
    retired = {p: r for p, r in record.retired.items() if p not in revived}
    deletion = record.deletion
    if deletion is not None:
        still_retired = any(not r.opening for r in retired.values())
        # What is left to undo: grown past the count before the shrink, that is everything still retired.
        undone = total_count >= deletion.previous_count
        shrunk = replace(
            deletion,
            delete_partitions=total_count,
            previous_count=len(record.modes) if undone else deletion.previous_count,
            handed_over=undone and not deletion.earlier_counts,
            revived_ms=now_ms,
            evacuation_epoch=record.epoch + 1 if deletion.evacuate else -1,  # which this record gets
        )
        deletion = shrunk if still_retired else None
    after = replace(record, modes=tuple(modes), retired=retired, deletion=deletion, handed_over=(), handover_offsets={})
    return replace(after, required_groups=_renamed_evacuation(after))


def _renamed_evacuation(record: TopicRecord) -> tuple[str, ...]:
    """The groups that were noted, with the one that proves the evacuation from now on for the one before."""
    readers = (group for group in record.required_groups if not is_evacuation_group(record.topic, group))
    evacuation = evacuation_of(record)
    return tuple(sorted({*readers, *([evacuation] if evacuation is not None else [])}))


def _open_new(record: TopicRecord, command: CreatePartitionsCommand, facts: TopicFacts, now_ms: int) -> TopicRecord:
    """List the new partitions, closed to writes until every known group has an offset on them (KIP-1327's problem)."""
    first = len(record.modes)
    retired = dict(record.retired)
    for partition in range(first, command.total_count):
        log = facts.partitions.get(partition)  # another tool may have created it already
        retired[partition] = RetiredPartition(
            opening=True, seal_offset=log.log_start if log else 0, reason=reasons.OPENING
        )
    return replace(
        record,
        modes=record.modes + (PartitionMode.READ_ONLY,) * (command.total_count - first),
        retired=retired,
        required_groups=tuple(sorted(g for g in facts.groups if not is_evacuation_group(record.topic, g))),
        opening_since_ms=now_ms,
        opening_assignments=command.assignments or (),
    )
