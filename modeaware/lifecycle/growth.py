"""Growth (KIP-195): retired partitions are revived first. New partitions are created for the rest, and open later.

If a new partition took writes at once, groups that start at the latest offset would skip its first records (KIP-1327).
So a new partition is listed as ReadOnly (*opening*) before it is created. It becomes ReadWrite once every group (except
share groups) has a committed offset on it. Mode-aware consumers commit such an offset; for groups without members, the
controller commits it. After ``modeaware.open.timeout.ms`` the partition opens in any case: groups may then skip
records, as without modeaware.
"""

from __future__ import annotations

from dataclasses import replace

from modeaware.lifecycle.commands import CommitOffsets, CreatePartitions, CreatePartitionsCommand, Effect
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.passes import Advance, Pass
from modeaware.modelog.records import OpeningPartition, TopicRecord
from modeaware.modes import PartitionMode


def grow(record: TopicRecord, command: CreatePartitionsCommand, facts: TopicFacts, now_ms: int) -> TopicRecord:
    """Return the record with the command's count: retired partitions revived, missing partitions listed as opening."""
    after = revived_to(record, command.total_count)
    return _open_new(after, command, facts, now_ms) if command.total_count > len(after.modes) else after


def revived_to(record: TopicRecord, total_count: int) -> TopicRecord:
    """Return the record with the retired partitions below ``total_count`` ReadWrite again, so that the writable
    partitions have the lowest ids (invariant I3)."""
    revived = [p for p in sorted(record.retired) if p < total_count]
    modes = tuple(PartitionMode.READ_WRITE if p in revived else mode for p, mode in enumerate(record.modes))
    retired = {p: r for p, r in record.retired.items() if p not in revived}
    deletion = record.deletion
    if deletion is not None:
        # If the growth undoes the shrink in force, the next undo revives the partitions of earlier shrinks.
        undone = total_count >= deletion.previous_count
        shrunk = replace(
            deletion,
            delete_partitions=total_count,
            previous_count=len(record.modes) if undone else deletion.previous_count,
        )
        deletion = shrunk if retired else None
    return replace(record, modes=modes, retired=retired, deletion=deletion)


def _open_new(record: TopicRecord, command: CreatePartitionsCommand, facts: TopicFacts, now_ms: int) -> TopicRecord:
    """Return the record with the new partitions listed, closed to writes."""
    first = len(record.modes)
    opening = dict(record.opening)
    for partition in range(first, command.total_count):
        log = facts.partitions.get(partition)  # another tool may have created it already
        opening[partition] = OpeningPartition(log.log_start if log else 0)
    return replace(
        record,
        modes=record.modes + (PartitionMode.READ_ONLY,) * (command.total_count - first),
        opening=opening,
        required_groups=tuple(sorted(facts.groups)),
        opening_since_ms=now_ms,
        opening_assignments=command.assignments or (),
    )


def advance_opening(this: Pass) -> Advance:
    """Create missing partitions, then open all new partitions together.

    For groups without members, the start of each new partition is committed. Otherwise a group that starts at the
    latest offset would skip the partition's first records (invariant I2).
    """
    record, facts, opening = this.record, this.facts, this.record.opening
    if not opening:
        return Advance(record)
    if facts.partition_count < len(record.modes):
        total, assignments = len(record.modes), record.opening_assignments or None
        creation = CreatePartitions(record.topic, record.topic_id, total, assignments)
        return Advance(record, effects=(creation,), due_ms=this.now_ms)
    effects: list[Effect] = []
    waiting = this.requirement.doubt is not None or any(p not in facts.partitions for p in opening)
    for name, group in sorted(facts.groups.items()):
        if group.kind == "share":  # a share group commits no offsets: brokers keep its start
            continue
        missing = {p: partition.offset for p, partition in opening.items() if p not in group.committed}
        waiting = waiting or bool(missing)
        if missing and not group.has_members:
            effects.append(CommitOffsets(record.topic, record.topic_id, name, missing))
    since_ms = this.now_ms if record.opening_since_ms is None else record.opening_since_ms
    deadline_ms = since_ms + this.config.open_timeout_ms
    if waiting and this.now_ms < deadline_ms:
        return Advance(record, effects=tuple(effects), due_ms=this.now_ms if effects else deadline_ms)
    modes = tuple(PartitionMode.READ_WRITE if p in opening else mode for p, mode in enumerate(record.modes))
    return Advance(replace(record, modes=modes, opening={}, opening_since_ms=None, opening_assignments=()))


def give_up_opening(record: TopicRecord, facts: TopicFacts) -> TopicRecord:
    """Return the record without the new partitions that do not exist, after brokers rejected their creation."""
    kept = {p: partition for p, partition in record.opening.items() if p < facts.partition_count}
    modes = record.modes[: len(record.modes) - (len(record.opening) - len(kept))]
    since_ms = record.opening_since_ms if kept else None
    return replace(record, modes=modes, opening=kept, opening_since_ms=since_ms, opening_assignments=())
