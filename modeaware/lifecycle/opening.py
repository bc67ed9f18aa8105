"""New partitions: created while closed to writes, opened once every known group has an offset on them (KIP-1327)."""

from __future__ import annotations

from dataclasses import replace

from modeaware.config import ControllerConfig
from modeaware.lifecycle.effects import CommitOffsets, CreatePartitions, Effect
from modeaware.lifecycle.evacuation import is_evacuation_group
from modeaware.lifecycle.facts import TopicFacts
from modeaware.modelog.records import TopicRecord
from modeaware.modes import PartitionMode


def advance_opening(
    record: TopicRecord, facts: TopicFacts, config: ControllerConfig, now_ms: int
) -> tuple[TopicRecord, list[Effect], int | None]:
    """``(record, effects, due_ms)``: create what does not exist yet, then open all new partitions together.

    Groups without members get the open offset committed for them, so that a ``latest`` group does not skip the first
    records (invariant I2). A group that commits nothing in ``modeaware.open.timeout.ms`` holds nothing up any longer:
    it is where it would be with a stock growth.
    """
    opening = {p: r.seal_offset or 0 for p, r in record.retired.items() if r.opening}
    if not opening:
        return record, [], None
    since_ms = record.opening_since_ms if record.opening_since_ms is not None else now_ms
    if facts.partition_count < len(record.modes):
        total, assignments = len(record.modes), record.opening_assignments or None
        return record, [CreatePartitions(record.topic, record.topic_id, total, assignments)], now_ms
    deadline_ms = since_ms + config.open_timeout_ms
    effects: list[Effect] = []
    waiting = facts.groups_doubt is not None or any(p not in facts.partitions for p in opening)
    for name, group in sorted(facts.groups.items()):
        if group.kind == "share":  # it has start offsets of the brokers', which nobody commits
            continue
        if is_evacuation_group(record.topic, name):  # a proof, and no reader
            continue
        missing = {p: offset for p, offset in opening.items() if p not in group.committed}
        waiting = waiting or bool(missing)
        if missing and not group.has_members:
            effects.append(CommitOffsets(record.topic, record.topic_id, name, missing))
    if waiting and now_ms < deadline_ms:
        return record, effects, now_ms if effects else deadline_ms
    modes = tuple(PartitionMode.READ_WRITE if p in opening else mode for p, mode in enumerate(record.modes))
    retired = {p: r for p, r in record.retired.items() if p not in opening}
    opened = replace(record, modes=modes, retired=retired, opening_since_ms=None, opening_assignments=())
    return opened, [], None
