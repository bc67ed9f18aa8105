"""What ``--describe`` prints: text for people, in ranges of partitions, and JSON for programs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from modeaware.clock import utc
from modeaware.modelog.records import DeleteTopicPartitions, Straggler
from modeaware.modes import format_ranges
from modeaware.printable import printable_lines
from modeaware.reports.describe import HandoverDescription, PartitionDescription, TopicDescription, straggler_json
from modeaware.reports.table import table

JSON_HELP = """\
--describe --json prints one object:
  {"topics": [{"topic", "topic_id", "epoch", "phase", "writable", "deletion", "required_groups", "groups_complete",
   "waived", "groups", "groups_doubt", "handover", "evacuation_group", "gone_ids",
   "partitions"}]}
epoch is -1 for a topic that was never changed; phase is seal, drain, reclaim, opening or done. deletion is null, or
  {"delete_partitions", "policy", "delay_ms", "immediate_delete", "create_timestamp_ms", "previous_count",
   "accept_state_loss", "evacuate"}
with policy retention, drained or immediate, and delay_ms null for retention. required_groups are those noted when the
change was admitted (not all, if groups_complete is false); waived gives the reason of the waiver for each group that a
partition did not wait for. groups are those that use the topic now, groups_doubt why there may be more, or null:
  {"group", "kind", "has_members", "stateful"}
with kind classic, consumer, share or streams. handover says how far keys that moved in a shrink are handed over to
their new partitions, and is null where all are:
  {"previous_count", "handed_over", "unread_by"}
handed_over are partitions below previous_count, unread_by groups that others wait for. evacuation_group is the one
whose commits prove that retired partitions are evacuated, or null. gone_ids are the topic ids of records that were
written for deleted topics of that name and apply to nothing. partitions has one object a partition:
  {"partition", "mode", "partition_state", "replica_state", "phase", "seal_offset", "log_start", "log_end", "lag",
   "lagging_group", "reason", "waits_for", "stragglers", "straggler"}
with mode ReadWrite, ReadOnly or None (a string). stragglers counts how often a record arrived at or after a seal;
straggler is the last one, {"offset", "producer_id", "producer_epoch", "timestamp_ms"}. Null stands for what does not
apply or is not known. Fields may be added.
"""

_HEADINGS = ("Partitions", "Mode", "State", "Replica", "Seal", "Log start", "Log end", "Lag", "Waits for")
_RIGHT = {"Seal", "Log start", "Log end", "Lag"}


def describe_text(descriptions: Iterable[TopicDescription], *, expand: bool) -> str:
    """All topics, as text: partitions that are alike in one line, or each in its own (``expand``)."""
    blocks = [printable_lines(_topic_lines(description, expand)) for description in descriptions]
    return "\n\n".join(blocks) if blocks else "No topic has been changed: every partition of every topic is ReadWrite."


def describe_json(descriptions: Iterable[TopicDescription]) -> dict[str, Any]:
    """All topics, as :data:`JSON_HELP` documents it."""
    return {"topics": [_topic_json(description) for description in descriptions]}


def alike(
    partitions: Sequence[PartitionDescription], key: Callable[[PartitionDescription], Hashable]
) -> list[list[PartitionDescription]]:
    """Partitions in groups of equal ``key``, the groups in the order of their first partition."""
    groups: dict[Hashable, list[PartitionDescription]] = {}
    for partition in partitions:
        groups.setdefault(key(partition), []).append(partition)
    return list(groups.values())


def number(value: int) -> str:
    """With thousands apart: ``1 234 567``."""
    return f"{value:,}".replace(",", " ")


def policy_text(deletion: DeleteTopicPartitions) -> str:
    """The reclaim policy in words."""
    if deletion.policy == "immediate":
        return "immediate: records are deleted without waiting for consumers"
    if deletion.policy == "retention":
        stay = ", where it does" if deletion.evacuate else ""
        return f"retention: records go when the topic's own retention removes them{stay}"
    return f"drained: records are deleted once every group has consumed them, not before {utc(deletion.earliest_ms)}"


def _topic_lines(description: TopicDescription, expand: bool) -> list[str]:
    writable = sum(mode.writable for mode in description.modes)
    head = {
        "Topic": description.topic,
        "Id": description.topic_id,
        "Epoch": str(description.epoch) if description.epoch >= 0 else "-",
        "Partitions": f"{len(description.partitions)} ({writable} writable)",
        "Phase": description.phase,
    }
    lines = ["  ".join(f"{name}: {value}" for name, value in head.items())]
    lines += [f"  {line}" for line in gone_lines(description.gone_ids)]
    deletion = description.deletion
    if deletion is not None and deletion.delete_partitions < deletion.previous_count:
        lines.append(
            f"  Shrink from {deletion.previous_count} to {deletion.delete_partitions}, asked for "
            f"{utc(deletion.create_timestamp_ms)}"
        )
        lines.append(f"  Policy {policy_text(deletion)}")
    if description.evacuation is not None and description.phase != "done":
        lines.append(f"  Evacuated first (modeaware.spark.evacuate), which group {description.evacuation} proves")
    lines += [f"  {line}" for line in _handover_lines(description)]
    if description.required_groups and description.phase != "done":
        lines.append(f"  Required groups: {', '.join(description.required_groups)}")
    lines += ["  " + line for line in _group_lines(description) + _straggler_lines(description)]
    groups = [[p] for p in description.partitions] if expand else alike(description.partitions, _looks)
    rows = [_row(group) for group in groups]
    return lines + ["  " + line for line in table(_HEADINGS, rows, _RIGHT)]


def gone_lines(gone_ids: Iterable[str]) -> list[str]:
    """What is said of records that were written for deleted topics of the same name."""
    return [
        f"Mode record of topic id {gone}: that topic was deleted; the record applies to nothing" for gone in gone_ids
    ]


def _handover_lines(description: TopicDescription) -> list[str]:
    handover = description.handover
    if handover is None:
        return []
    behind = f"; unread by {', '.join(handover.unread_by)}" if handover.unread_by else ""
    count = len(handover.handed_over)
    return [f"Keys that moved: handed over {count} of {handover.previous_count} partitions{behind}"]


def _group_lines(description: TopicDescription) -> list[str]:
    """What is out of the ordinary about groups."""
    lines = []
    if not description.groups_complete and description.phase != "done":
        lines.append("(There may be more: not every group could be seen when the change was admitted.)")
    special = [
        f"{name} ({group.kind}{', keeps state per partition' if group.stateful else ''})"
        for name, group in sorted(description.groups.items())
        if group.stateful or group.kind in ("share", "streams")
    ]
    if special:
        lines.append(f"Of special kinds: {', '.join(special)}")
    if description.deletion is not None and description.deletion.accept_state_loss:
        lines.append(f"Loss of state accepted: {', '.join(description.deletion.accept_state_loss)}")
    lines += [f"Not waited for: {name} (waived: {reason})" for name, reason in sorted(description.waived.items())]
    if description.groups_doubt is not None and description.phase not in ("done", "opening"):
        lines.append(f"Which groups use it is not certain: {description.groups_doubt}")
    return lines


def _straggler_lines(description: TopicDescription) -> list[str]:
    return [
        f"Straggler in partition {p.partition}: offset {number(p.straggler.offset)}, {writer_text(p.straggler)}"
        + (f"; the last of {p.stragglers} times" if p.stragglers > 1 else "")
        for p in description.partitions
        if p.straggler is not None
    ]


def writer_text(straggler: Straggler) -> str:
    """What is known of the producer of a straggler."""
    if straggler.producer_id < 0:
        return "from a producer without an id (not idempotent)"
    when = f", last wrote {utc(straggler.timestamp_ms)}" if straggler.timestamp_ms >= 0 else ""
    return f"producer id {straggler.producer_id} epoch {straggler.producer_epoch}{when}"


def _looks(partition: PartitionDescription) -> Hashable:
    p = partition
    return p.mode, p.partition_state, p.replica_state, p.phase, p.reason, p.seal_offset is None, p.log_end is None


def _row(group: Sequence[PartitionDescription]) -> tuple[str, ...]:
    first = group[0]
    return (
        format_ranges(p.partition for p in group),
        first.mode.label,
        first.partition_state.value,
        first.replica_state.value,
        _span(p.seal_offset for p in group),
        _span(p.log_start for p in group),
        _span(p.log_end for p in group),
        _lag(group),
        first.waits_for or "-",
    )


def _span(offsets: Iterable[int | None]) -> str:
    known = [offset for offset in offsets if offset is not None]
    if not known:
        return "-"
    low, high = min(known), max(known)
    return number(low) if low == high else f"{number(low)}..{number(high)}"


def _lag(group: Sequence[PartitionDescription]) -> str:
    known = [partition.lag for partition in group if partition.lag is not None]
    if not known:
        return "-"
    behind = sorted({p.lagging_group for p in group if p.lagging_group is not None})
    return f"{number(sum(known))} ({', '.join(behind)})" if behind else number(sum(known))


def _topic_json(description: TopicDescription) -> dict[str, Any]:
    return {
        "topic": description.topic,
        "topic_id": description.topic_id,
        "epoch": description.epoch,
        "phase": description.phase,
        "writable": sum(mode.writable for mode in description.modes),
        "deletion": _deletion_json(description.deletion) if description.deletion is not None else None,
        "required_groups": list(description.required_groups),
        "groups_complete": description.groups_complete,
        "waived": dict(description.waived),
        "groups": [
            {"group": name, "kind": group.kind, "has_members": group.has_members, "stateful": group.stateful}
            for name, group in sorted(description.groups.items())
        ],
        "groups_doubt": description.groups_doubt,
        "handover": _handover_json(description.handover) if description.handover is not None else None,
        "evacuation_group": description.evacuation,
        "gone_ids": list(description.gone_ids),
        "partitions": [_partition_json(partition) for partition in description.partitions],
    }


def _handover_json(handover: HandoverDescription) -> dict[str, Any]:
    return {
        "previous_count": handover.previous_count,
        "handed_over": list(handover.handed_over),
        "unread_by": list(handover.unread_by),
    }


def _deletion_json(deletion: DeleteTopicPartitions) -> dict[str, Any]:
    return {
        "delete_partitions": deletion.delete_partitions,
        "policy": deletion.policy,
        "delay_ms": None if deletion.policy == "retention" else deletion.delay_ms,
        "immediate_delete": deletion.immediate_delete,
        "create_timestamp_ms": deletion.create_timestamp_ms,
        "previous_count": deletion.previous_count,
        "accept_state_loss": list(deletion.accept_state_loss),
        "evacuate": deletion.evacuate,
    }


def _partition_json(partition: PartitionDescription) -> dict[str, Any]:
    return {
        "partition": partition.partition,
        "mode": partition.mode.label,
        "partition_state": partition.partition_state.value,
        "replica_state": partition.replica_state.value,
        "phase": partition.phase,
        "seal_offset": partition.seal_offset,
        "log_start": partition.log_start,
        "log_end": partition.log_end,
        "lag": partition.lag,
        "lagging_group": partition.lagging_group,
        "reason": partition.reason,
        "waits_for": partition.waits_for,
        "stragglers": partition.stragglers,
        "straggler": straggler_json(partition.straggler),
    }
