"""Admission: whether a command may change a topic, and the record that does it. Pure; a refusal changes nothing.

KIP-694 "Proposed Changes" and KIP-195 "Anticipated errors" give the checks and the error codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from modeaware.config import ControllerConfig
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import Command, CreatePartitionsCommand, DeletePartitionsCommand
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.phases import in_progress
from modeaware.modelog.records import (
    MAX_PARTITIONS,
    RETENTION_DELAY_MS,
    DeleteTopicPartitions,
    RetiredPartition,
    TopicRecord,
)
from modeaware.modes import PartitionMode, format_ranges

MAX_RECORD_BYTES = 900_000
"""A record must fit a stock broker's ``message.max.bytes`` (1 048 588) with room for the envelope."""


@dataclass(frozen=True)
class Admission:
    """The record to append (None: nothing to change) and what to tell the caller."""

    record: TopicRecord | None
    message: str | None = None


def admit(
    command: Command,
    record: TopicRecord | None,
    facts: TopicFacts,
    config: ControllerConfig,
    controller_epoch: int,
    now_ms: int,
) -> Admission:
    """Decide on a command.

    Raises:
        RequestRefused: the command may not be carried out; ``code`` and the message say why and what to do.
    """
    _check_topic(command.topic, facts, config)
    if record is not None and record.topic_id != facts.topic_id:
        record = None  # recreated under its name: a new topic, with a record of its own
    if isinstance(command, DeletePartitionsCommand):
        return _admit_delete(command, record, facts, config, controller_epoch, now_ms)
    return _admit_create(command, record, facts, controller_epoch, now_ms)


def _check_topic(topic: str, facts: TopicFacts, config: ControllerConfig) -> None:
    if facts.topic_id is None:
        raise RequestRefused(f"topic {topic!r} does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=topic)
    if facts.internal or topic == config.mode_log_topic:
        raise RequestRefused(
            f"topic {topic!r} is internal: its partition count is its owner's business",
            code=ErrorCode.INVALID_TOPIC_EXCEPTION,
            topic=topic,
        )


def _admit_delete(
    command: DeletePartitionsCommand,
    record: TopicRecord | None,
    facts: TopicFacts,
    config: ControllerConfig,
    controller_epoch: int,
    now_ms: int,
) -> Admission:
    if not config.enable:
        raise _refuse(command, ErrorCode.POLICY_VIOLATION, "shrinks are off (delete.topic.partition.enable=false)")
    if command.delay_ms < RETENTION_DELAY_MS:
        raise _refuse(
            command, ErrorCode.INVALID_REQUEST, f"a delay of {command.delay_ms} ms: 0 or more, or none at all"
        )
    current = _current(record, facts, controller_epoch)
    repeated = _repeated_delete(command, record)
    if repeated is not None:
        return repeated
    _check_target(command, current.writable_count)
    if in_progress(record):
        raise _refuse(
            command,
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            "the topic is currently under changes: wait for it (--describe shows what it waits for), or take it back "
            "(--undo)",
        )
    _check_cleanup_policy(command, facts)
    if facts.partition_count > len(current.modes):
        raise _refuse(
            command,
            ErrorCode.INVALID_PARTITIONS,
            f"it has {facts.partition_count} partitions, but only {len(current.modes)} are known here and some of them "
            "are retired: another tool has grown it. Grow it with modeaware first, so that they are opened",
        )
    missing = [p for p in range(facts.partition_count) if p not in facts.partitions]
    if missing:
        raise _refuse(
            command,
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"partitions {format_ranges(missing)} have no leader that answers: try again when they are back",
        )
    after = _retire(command, current, facts, now_ms)
    _check_size(command, after)
    return Admission(after.stamped(controller_epoch, now_ms), _unread(command, after, facts))


def _repeated_delete(command: DeletePartitionsCommand, record: TopicRecord | None) -> Admission | None:
    """The same shrink asked for again is harmless; with another delay or policy it is refused."""
    if record is None or record.deletion is None or not in_progress(record):
        return None
    now = record.deletion
    if command.total_count != now.delete_partitions or command.total_count != record.writable_count:
        return None
    if (command.delay_ms, command.immediate_delete) == (now.delay_ms, now.immediate_delete):
        return Admission(None, "already under way: nothing changed")
    raise _refuse(
        command,
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
        f"the topic is already being shrunk to {now.delete_partitions} partitions under the {now.policy!r} policy: "
        "take it back (--undo) to choose another",
    )


def _check_target(command: DeletePartitionsCommand, writable_count: int) -> None:
    if command.total_count < 1:
        raise _refuse(command, ErrorCode.INVALID_PARTITIONS, f"{command.total_count} partitions: at least 1 must stay")
    if command.total_count == writable_count:
        raise _refuse(command, ErrorCode.INVALID_PARTITIONS, f"it has {writable_count} writable partitions already")
    if command.total_count > writable_count:
        raise _refuse(
            command,
            ErrorCode.INVALID_PARTITIONS,
            f"{command.total_count} is more than its {writable_count} writable partitions: to grow it, use "
            f"'modeaware grow {command.topic} --to {command.total_count}' or AdminClient.create_partitions",
        )


def _check_cleanup_policy(command: DeletePartitionsCommand, facts: TopicFacts) -> None:
    if facts.cleanup_policy.strip() != "delete":
        raise _refuse(
            command,
            ErrorCode.POLICY_VIOLATION,
            f"cleanup.policy is {facts.cleanup_policy!r}: only topics with cleanup.policy=delete can be shrunk, "
            "because the latest value of a key in a retired partition must not go",
        )


def _current(record: TopicRecord | None, facts: TopicFacts, controller_epoch: int) -> TopicRecord:
    """The topic as it is before the command: its record, or a first one that lists every partition as ReadWrite.

    Partitions that another tool added are writable while no listed one is retired (``TopicView.mode``): they are listed
    as that. Ids of writable partitions stay dense.
    """
    if record is None:
        assert facts.topic_id is not None
        modes = (PartitionMode.READ_WRITE,) * facts.partition_count
        return TopicRecord(facts.topic, facts.topic_id, epoch=-1, controller_epoch=controller_epoch, modes=modes)
    added = max(facts.partition_count - len(record.modes), 0) if not record.retired else 0
    return replace(record, modes=record.modes + (PartitionMode.READ_WRITE,) * added)


def _retire(command: DeletePartitionsCommand, record: TopicRecord, facts: TopicFacts, now_ms: int) -> TopicRecord:
    keep, writable = command.total_count, record.writable_count
    modes = list(record.modes)
    retired = dict(record.retired)
    for partition in range(keep, writable):
        modes[partition] = PartitionMode.READ_ONLY
        retired[partition] = RetiredPartition()
    return replace(
        record,
        modes=tuple(modes),
        retired=retired,
        deletion=DeleteTopicPartitions(keep, command.delay_ms, command.immediate_delete, now_ms, writable),
        switch_offsets={p: facts.partitions[p].end_offset for p in range(keep)},
        required_groups=tuple(sorted(facts.groups)),
    )


def _check_size(command: Command, record: TopicRecord) -> None:
    """The record must still fit when every retired partition carries its proof."""
    proof = dict.fromkeys(record.required_groups, 2**62)
    full = {
        p: replace(r, seal_offset=2**62, drained=proof, reason="x" * 40, stragglers=9)
        for p, r in record.retired.items()
    }
    size = len(replace(record, retired=full).to_json())
    if size > MAX_RECORD_BYTES:
        raise _refuse(
            command,
            ErrorCode.MESSAGE_TOO_LARGE,
            f"its mode record could grow to {size} bytes, more than the {MAX_RECORD_BYTES} that fit the mode log: "
            "change it in smaller steps",
        )


def _unread(command: DeletePartitionsCommand, record: TopicRecord, facts: TopicFacts) -> str | None:
    """What an immediate deletion takes from each group, in words."""
    if not command.immediate_delete:
        return None
    losses = [
        f"group {name!r}: {count}"
        for name, group in sorted(facts.groups.items())
        if (count := unread_records(group.committed, record.retired, facts)) > 0
    ]
    total = sum(facts.partitions[p].end_offset - facts.partitions[p].log_start for p in record.retired)
    detail = f"; unread of it: {', '.join(losses)}" if losses else "; every known group has read it all"
    return f"immediate_delete: about {total} records will be deleted without waiting for the drain{detail}"


def unread_records(committed: Mapping[int, int], partitions: Mapping[int, object], facts: TopicFacts) -> int:
    """How many offsets of ``partitions`` lie between what is ``committed`` (else the log start) and the end."""
    count = 0
    for partition in partitions:
        log = facts.partitions.get(partition)
        if log is not None:
            count += max(log.end_offset - max(committed.get(partition, 0), log.log_start), 0)
    return count


def _admit_create(
    command: CreatePartitionsCommand,
    record: TopicRecord | None,
    facts: TopicFacts,
    controller_epoch: int,
    now_ms: int,
) -> Admission:
    current = _current(record, facts, controller_epoch)
    if command.total_count <= current.writable_count:
        raise _refuse(
            command,
            ErrorCode.INVALID_PARTITIONS,
            f"it has {current.writable_count} writable partitions already; {command.total_count} is not an increase",
        )
    if command.total_count > MAX_PARTITIONS:  # before a list is made of them
        raise _refuse(
            command,
            ErrorCode.INVALID_PARTITIONS,
            f"{command.total_count} partitions: at most {MAX_PARTITIONS} fit its mode record",
        )
    new = max(command.total_count - facts.partition_count, 0)
    _check_assignments(command, new)
    after = _revive(current, command.total_count, facts)
    if command.total_count > len(after.modes):
        after = _open_new(after, command, facts, now_ms)
    if after == current:
        return Admission(None, "already under way: nothing changed")
    _check_size(command, after)
    if command.validate_only:
        return Admission(None)
    return Admission(after.stamped(controller_epoch, now_ms))


def _check_assignments(command: CreatePartitionsCommand, new: int) -> None:
    if command.assignments is not None and len(command.assignments) != new:
        raise _refuse(
            command,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{len(command.assignments)} replica assignments for {new} really new partitions "
            "(retired partitions are revived first, and keep their replicas)",
        )


def _revive(record: TopicRecord, total_count: int, facts: TopicFacts) -> TopicRecord:
    """Open retired partitions for writes again, lowest id first. A partition that is still opening goes on opening."""
    revived = [p for p in sorted(record.retired) if p < total_count and not record.retired[p].opening]
    modes = list(record.modes)
    for partition in revived:
        modes[partition] = PartitionMode.READ_WRITE
    retired = {p: r for p, r in record.retired.items() if p not in revived}
    deletion = record.deletion
    if deletion is not None:
        still_retired = any(not r.opening for r in retired.values())
        # What is left to undo: grown past the count before the shrink, that is everything still retired.
        previous = deletion.previous_count if total_count < deletion.previous_count else len(record.modes)
        shrunk = replace(deletion, delete_partitions=total_count, previous_count=previous)
        deletion = shrunk if still_retired else None
    return replace(record, modes=tuple(modes), retired=retired, deletion=deletion)


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
        required_groups=tuple(sorted(facts.groups)),
        opening_since_ms=now_ms,
        opening_assignments=command.assignments or (),
    )


def _refuse(command: Command, code: ErrorCode, why: str) -> RequestRefused:
    return RequestRefused(f"topic {command.topic!r}: {why}", code=code, topic=command.topic)
