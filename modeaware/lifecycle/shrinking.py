"""Admission of a shrink (KIP-694, "Proposed Changes"): what is refused, and the record that retires the tail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from modeaware.config import ControllerConfig
from modeaware.errors import ErrorCode
from modeaware.lifecycle.admission import Admission, check_size, current_record, refusal
from modeaware.lifecycle.commands import DeletePartitionsCommand
from modeaware.lifecycle.drain import unread_offsets
from modeaware.lifecycle.evacuation import evacuation_group
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.phases import awaits_handover, in_progress
from modeaware.lifecycle.requirement import Requirement, required_of
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import RETENTION_DELAY_MS, DeleteTopicPartitions, RetiredPartition, TopicRecord
from modeaware.modes import PartitionMode, format_ranges


def admit_delete(
    command: DeletePartitionsCommand,
    record: TopicRecord | None,
    facts: TopicFacts,
    config: ControllerConfig,
    controller_epoch: int,
    now_ms: int,
    rules: Sequence[GroupRule],
) -> Admission:
    """Decide on a shrink. One at a time: whom a drain waits for is noted for one change (invariant I1).

    Raises:
        RequestRefused: it may not be carried out.
    """
    if not config.enable:
        raise refusal(command, ErrorCode.POLICY_VIOLATION, "shrinks are off (delete.topic.partition.enable=false)")
    if command.delay_ms < RETENTION_DELAY_MS:
        raise refusal(
            command, ErrorCode.INVALID_REQUEST, f"a delay of {command.delay_ms} ms: 0 or more, or none at all"
        )
    current = current_record(record, facts, controller_epoch)
    if (repeated := _repeated_delete(command, record, controller_epoch, now_ms)) is not None:
        return repeated
    _check_target(command, current.writable_count)
    if in_progress(record):
        raise refusal(
            command,
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            "the topic is currently under changes: wait for it (--describe shows what it waits for), or take it back "
            "(--undo)",
        )
    _check_cleanup_policy(command, facts)
    _check_state(command, facts)
    _check_partitions(command, current, facts)
    requirement = required_of((), facts, rules, config.ignored_groups, now_ms)
    after = _retire(command, current, facts, requirement, now_ms)
    check_size(command, after)
    return Admission(after.stamped(controller_epoch, now_ms), _unread(command, after, facts))


def _check_partitions(command: DeletePartitionsCommand, current: TopicRecord, facts: TopicFacts) -> None:
    """All partitions must be known here, and each must have a leader that answers."""
    if facts.partition_count > len(current.modes):
        raise refusal(
            command,
            ErrorCode.INVALID_PARTITIONS,
            f"it has {facts.partition_count} partitions, but only {len(current.modes)} are known here and some of them "
            "are retired: another tool has grown it. Grow it with modeaware first, so that they are opened",
        )
    missing = [p for p in range(facts.partition_count) if p not in facts.partitions]
    if missing:
        raise refusal(
            command,
            ErrorCode.LEADER_NOT_AVAILABLE,
            f"no leader available for partitions {format_ranges(missing)}; retry, or check the brokers",
        )


def _repeated_delete(
    command: DeletePartitionsCommand, record: TopicRecord | None, controller_epoch: int, now_ms: int
) -> Admission | None:
    """The same shrink asked for again is harmless; with another delay or policy it is refused.

    It may name more groups whose state may be lost: one that was not there before may hold the shrink up.
    """
    if record is None or record.deletion is None or not in_progress(record):
        return None
    now = record.deletion
    same = (command.delay_ms, command.immediate_delete, command.evacuate)
    if command.total_count != now.delete_partitions or command.total_count != record.writable_count:
        return None
    if same == (now.delay_ms, now.immediate_delete, now.evacuate):
        accepted = tuple(sorted({*now.accept_state_loss, *command.accept_state_loss}))
        if accepted == now.accept_state_loss:
            return Admission(None, "already under way: nothing changed")
        after = replace(record, deletion=replace(now, accept_state_loss=accepted))
        return Admission(
            after.stamped(controller_epoch, now_ms), "already under way: the loss of state is accepted now"
        )
    raise refusal(
        command,
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
        f"the topic is already being shrunk to {now.delete_partitions} partitions under the {now.policy!r} policy, "
        f"{'with' if now.evacuate else 'without'} an evacuation: take it back (--undo) to choose another",
    )


def _check_target(command: DeletePartitionsCommand, writable_count: int) -> None:
    if command.total_count < 1:
        raise refusal(command, ErrorCode.INVALID_PARTITIONS, f"{command.total_count} partitions: at least 1 must stay")
    if command.total_count == writable_count:
        raise refusal(command, ErrorCode.INVALID_PARTITIONS, f"it has {writable_count} writable partitions already")
    if command.total_count > writable_count:
        raise refusal(
            command,
            ErrorCode.INVALID_PARTITIONS,
            f"{command.total_count} is more than its {writable_count} writable partitions: to grow it, use "
            f"'modeaware grow {command.topic} --to {command.total_count}' or AdminClient.create_partitions",
        )


def _check_cleanup_policy(command: DeletePartitionsCommand, facts: TopicFacts) -> None:
    if facts.compacted and not command.evacuate:
        raise refusal(
            command,
            ErrorCode.POLICY_VIOLATION,
            f"cleanup.policy is {facts.cleanup_policy!r}, and the latest value of a key in a retired partition must "
            "not go: shrink it with --evacuate, and run the Spark job modeaware.spark.evacuate, which copies these "
            "values to the partitions that stay",
        )
    if command.evacuate and command.immediate_delete:
        raise refusal(
            command,
            ErrorCode.INVALID_REQUEST,
            "an evacuation has to be waited for: --evacuate and --immediate-delete exclude each other",
        )
    if command.evacuate and not facts.compacted:
        raise refusal(
            command,
            ErrorCode.INVALID_REQUEST,
            f"cleanup.policy is {facts.cleanup_policy!r}: it is not compacted, and there is nothing to evacuate. "
            "Shrink it without --evacuate",
        )


def _check_state(command: DeletePartitionsCommand, facts: TopicFacts) -> None:
    """State that is kept per partition does not move with the keys: it is given up by the group's name alone (invariant
    I1)."""
    if facts.stateful_owner is not None:
        raise refusal(
            command,
            ErrorCode.POLICY_VIOLATION,
            f"it is an internal topic of the Streams application {facts.stateful_owner!r}, whose state has a part for "
            "each partition",
        )
    stateful = {name for name, group in facts.groups.items() if group.stateful} - set(command.accept_state_loss)
    if stateful:
        names = ", ".join(sorted(stateful))
        raise refusal(
            command,
            ErrorCode.POLICY_VIOLATION,
            f"groups that keep state per partition (as Kafka Streams does) read it: {names}. The state of keys that "
            "move would stay behind; to accept that, name each with --accept-state-loss",
        )


def _retire(
    command: DeletePartitionsCommand, record: TopicRecord, facts: TopicFacts, requirement: Requirement, now_ms: int
) -> TopicRecord:
    """The record that retires the tail.

    ReadOnly comes first, so that nothing is hidden unread (invariant I2); the highest ids go, and survivors' ends are
    noted, so that keys have one place at each epoch (invariant I3); a listing in doubt is marked (invariant I1).
    """
    keep, writable = command.total_count, record.writable_count
    modes = list(record.modes)
    retired = dict(record.retired)
    epoch = record.epoch + 1  # which this record gets when it is stamped
    # Noted like a reader: a controller that knows no evacuations waits for it all the same.
    evacuation = (evacuation_group(command.topic, epoch),) if command.evacuate else ()
    for partition in range(keep, writable):
        modes[partition] = PartitionMode.READ_ONLY
        retired[partition] = RetiredPartition(
            switch_offset=facts.partitions[partition].end_offset if command.evacuate else None
        )
    return replace(
        record,
        modes=tuple(modes),
        retired=retired,
        deletion=DeleteTopicPartitions(
            delete_partitions=keep,
            delay_ms=command.delay_ms,
            immediate_delete=command.immediate_delete,
            create_timestamp_ms=now_ms,
            previous_count=writable,
            accept_state_loss=tuple(sorted(command.accept_state_loss)),
            earlier_counts=_not_handed_over(record),
            evacuate=command.evacuate,
            evacuation_epoch=epoch if command.evacuate else -1,
        ),
        switch_offsets={p: facts.partitions[p].end_offset for p in range(keep)},
        handed_over=(),
        handover_offsets={},
        required_groups=tuple(sorted({*requirement.groups, *evacuation})),
        groups_complete=requirement.doubt is None,
        waived={},
    )


def _not_handed_over(record: TopicRecord) -> tuple[int, ...]:
    """The counts before the shrinks so far that still wait for their handover."""
    deletion = record.deletion
    if deletion is None or not awaits_handover(record):
        return ()
    return tuple(sorted({*deletion.earlier_counts, deletion.previous_count}))


def _unread(command: DeletePartitionsCommand, record: TopicRecord, facts: TopicFacts) -> str | None:
    """What an immediate deletion takes from each group, in words."""
    if not command.immediate_delete:
        return None
    logs = {p: facts.partitions[p] for p in record.retired}
    losses = [
        f"group {name!r}: {count}"
        for name, group in sorted(facts.groups.items())
        if (count := sum(unread_offsets(group, p, log.end_offset, log.log_start) for p, log in logs.items())) > 0
    ]
    total = sum(log.end_offset - log.log_start for log in logs.values())
    detail = f"; unread of it: {', '.join(losses)}" if losses else "; every known group has read it all"
    return f"immediate_delete: about {total} records will be deleted without waiting for the drain{detail}"
