"""The output of ``modeaware topics --describe``: modes from the mode log, offsets and lag from the brokers.

A change that keeps a name has two halves. First an interim topic replaces the old topic, then a topic of the old name
replaces the interim topic.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from modeaware.clock import utc
from modeaware.errors import RecordError
from modeaware.lifecycle.commands import DeletePartitionsCommand
from modeaware.lifecycle.drain import requirement_of
from modeaware.lifecycle.keep_name import KeptName
from modeaware.lifecycle.report import (
    PartitionReport,
    ReplacementReport,
    TopicReport,
    groups_left,
    report_topic,
    waits_for,
)
from modeaware.lifecycle.state import current_record
from modeaware.modelog.records import DRAINED, IMMEDIATE, RETENTION, DeleteTopicPartitions, Reclaims
from modeaware.modes import format_ranges
from modeaware.printable import number, printable_lines, table
from modeaware.reports.session import ModeLog, Session


@dataclass(frozen=True, kw_only=True)
class TopicDescription(TopicReport):
    """One topic, with all its partitions, and the mode log's records of its name.

    Attributes:
        gone_ids: the topic ids in records of deleted topics of the same name. These records have no effect.
        points_to: the topic that replaced a deleted topic of this name. Clients use that topic, not the one described
            here.
        replaces: the old topic that this topic has replaced; null if there is none.
    """

    gone_ids: tuple[str, ...] = ()
    points_to: str | None = None
    replaces: str | None = None


@dataclass(frozen=True)
class Description:
    """The output of ``--describe --json``."""

    topics: tuple[TopicDescription, ...]


def describe_topics(
    session: Session, topics: Iterable[str] | None = None, log: ModeLog | None = None, *, named: bool = True
) -> list[TopicDescription]:
    """Describe ``topics``, or all topics with a usable record in the mode log. Without ``log``, read the mode log.

    Args:
        named: an unusable record of one of ``topics`` is an error; otherwise the topic is left out.
    """
    log = session.read_log() if log is None else log
    wanted = {record.topic for record in log.replay.records.values()} if topics is None else set(topics)
    try:
        rules = log.rules
    except RecordError:  # without the rules, the report shows waived groups as required
        rules = ()
    snapshot = session.snapshot(log, wanted, rules, named=named and topics is not None)
    now_ms = session.clock.now_ms()
    described = []
    for record, facts in snapshot:
        topic, topic_id, count = facts.topic, facts.topic_id or "", facts.partition_count
        record = current_record(record, topic, topic_id, count)
        requirement = requirement_of(record, facts, rules, session.controller.ignored_groups, now_ms)
        listed = range(max(count, len(record.modes)) if count else 0)
        about_name = TopicDescription(
            **vars(report_topic(record, facts, requirement, listed, log.replay.moved_of(topic_id)))
            | {"kept_name": log.kept_names.get(topic)},
            gone_ids=log.gone_ids(topic, topic_id),
            points_to=log.points_to(topic, topic_id),
            replaces=log.replaces.get(topic_id),
        )
        described.append(about_name)
    return described


def describe_text(descriptions: Iterable[TopicDescription], *, expand: bool) -> str:
    """Return all topics as text. Similar partitions share a line; with ``expand``, each partition has its own."""
    blocks = [printable_lines(_topic_lines(description, expand)) for description in descriptions]
    return "\n\n".join(blocks) if blocks else "No topic has been changed: every partition of every topic is ReadWrite."


def alike(
    partitions: Sequence[PartitionReport], key: Callable[[PartitionReport], Hashable]
) -> list[list[PartitionReport]]:
    """Return partitions grouped by ``key``; the groups are in the order of their first partitions."""
    groups: dict[Hashable, list[PartitionReport]] = {}
    for partition in partitions:
        groups.setdefault(key(partition), []).append(partition)
    return list(groups.values())


def _topic_lines(topic: TopicDescription, expand: bool) -> list[str]:
    lines = [
        (
            f"Topic: {topic.topic}  Id: {topic.topic_id}  Epoch: {topic.epoch if topic.epoch >= 0 else '-'}  "
            f"Partitions: {len(topic.partitions)} ({topic.writable} writable)  Phase: {topic.phase}"
        )
    ]
    gone = gone_lines(topic.gone_ids, topic.points_to)
    lines += [f"  {line}" for line in (*gone, *_change_lines(topic), *_group_lines(topic))]
    lines += [
        f"  Straggler in partition {p.partition}: offset {number(p.straggler.offset)}"
        + (f", {utc(p.straggler.timestamp_ms)}" if p.straggler.timestamp_ms >= 0 else "")
        + f", from {p.straggler.producer}"
        + (f"; {p.stragglers} seals broken so far" if p.stragglers > 1 else "")
        for p in topic.partitions
        if p.straggler is not None
    ]
    groups = [[p] for p in topic.partitions] if expand else alike(topic.partitions, _appearance)
    headings = ("Partitions", "Mode", "State", "Replica", "Seal", "Log start", "Log end", "Lag", "Waits for")
    rows = table(headings, [_row(group) for group in groups], {"Seal", "Log start", "Log end", "Lag"})
    return lines + ["  " + line for line in rows]


def gone_lines(gone_ids: Iterable[str], points_to: str | None) -> list[str]:
    """Return a line for each id in ``gone_ids``, and a line if the name points to a new topic."""
    lines = [f"Mode record of topic id {gone}: that topic was deleted; the record has no effect" for gone in gone_ids]
    if points_to is not None:
        lines.append(
            f"The name points to {points_to}, which has replaced a deleted topic: clients do not use the topic "
            "described here"
        )
    return lines


def _change_lines(topic: TopicDescription) -> list[str]:
    lines, deletion = [], topic.deletion
    if deletion is not None and deletion.delete_partitions < deletion.previous_count:
        lines += [
            (
                f"Shrink from {deletion.previous_count} to {deletion.delete_partitions}, requested "
                f"{utc(deletion.create_timestamp_ms)}"
            ),
            f"Policy {_policy(deletion)}",
        ]
    if topic.evacuation_group is not None and topic.phase != "done":
        lines.append(f"Evacuated first (modeaware.spark.evacuate); commits of group {topic.evacuation_group} prove it")
    if topic.replaces is not None:
        lines.append(f"Replaces {topic.replaces}")
    if topic.kept_name is not None:
        lines += _kept_name_lines(topic.kept_name, topic.replacing)
    return [*lines, *(_replacement_lines(topic.replacement) if topic.replacement is not None else ())]


def describe_changes(session: Session, topics: Iterable[str]) -> list[TopicDescription]:
    """Describe ``topics``, to wait until their changes end. In the second half of a change that keeps a name, describe
    the interim topic instead, under the kept name."""
    log = session.read_log()
    described = []
    for topic in describe_topics(session, topics, log):
        part = _part(topic.kept_name) if topic.kept_name is not None else None
        if part is not None and part != topic.topic:
            (interim,) = describe_topics(session, [part], log)
            topic = replace(interim, topic=topic.topic)
        described.append(topic)
    return described


def describe_all_parts(session: Session, topics: Sequence[str] | None, log: ModeLog) -> list[TopicDescription]:
    """Describe ``topics`` and, for changes that keep a name and are in the second half, the topic of :func:`_part`. If
    ``topics`` is None, describe all changed topics. Include changes whose kept name has no topic at present."""
    described = describe_topics(session, topics, log)
    changes = [topic.kept_name for topic in described]
    if topics is None:
        changes += log.kept_names.values()
    parts = {_part(change) for change in changes if change is not None} - {topic.topic for topic in described}
    others = sorted(part for part in parts if part is not None)
    return described + (describe_topics(session, others, log) if others else [])


def _part(change: KeptName) -> str | None:
    """Return the name whose record shows what the second half of a change waits for. Until that half begins, this is
    the kept name (an alias), then the interim topic. Return None if the change is in its first half, is done, or no
    longer keeps the name."""
    if change.half == 1 or not change.keeps or change.phase == "done":
        return None
    return change.name if change.waits_between_halves else change.interim


def _kept_name_lines(kept: KeptName, replacement: ReplacementReport) -> list[str]:
    times = {
        "first switch": kept.first_switched_ms,
        "old topic deleted": kept.first_gone_ms,
        "second switch": kept.second_switched_ms,
        "interim topic deleted": kept.second_gone_ms,
    }
    since = ", ".join(f"{word} {utc(ms)}" for word, ms in times.items() if ms is not None)
    how = f"Keeps the name {kept.name}, via {kept.interim}" if kept.keeps else f"Stays on {kept.interim}"
    lines = [f"{how}: half {kept.half} of 2, phase {kept.phase}{f'; {since}' if since else ''}"]
    shown_below = replacement.reason == kept.reason
    return lines if kept.reason is None or shown_below else [*lines, f"Waits: {kept.waits_for}"]


def _replacement_lines(replacement: ReplacementReport) -> list[str]:
    since = ", ".join(f"{word} {utc(ms)}" for word, ms in replacement.events)
    known = f"id {replacement.new_topic_id}, " if replacement.new_topic_id is not None else ""
    lines = [f"Replaced by {replacement.new_topic} ({known}{replacement.num_partitions} partitions): {since}"]
    if replacement.fence != "config":
        lines.append(f"Fence {replacement.fence}: brokers refuse no data for the topic, and the topic is not deleted")
    if replacement.waits_for is not None:
        lines.append(f"Waits: {replacement.waits_for}")
    if replacement.not_moved:
        lines.append(f"Not on the new topic yet: {', '.join(replacement.not_moved)}")
    if replacement.accept_state_loss:
        lines.append(f"Loss of state accepted: {', '.join(replacement.accept_state_loss)}")
    return lines


_POLICIES = {
    IMMEDIATE: "immediate: records are deleted without waiting for consumers",
    RETENTION: "retention: the topic's own retention deletes the records",
    DRAINED: "drained: records are deleted once every group has consumed them, not before {earliest}",
}
_RECLAIM = {
    IMMEDIATE: "their records are deleted WITHOUT waiting for consumers (--immediate-delete)",
    RETENTION: "the topic's own retention deletes their records (with a delay, they are deleted once consumed)",
    DRAINED: "their records are deleted once every group has consumed them{earliest}",
}
_END = {
    RETENTION: "deleted once its own retention has emptied it, and every group has moved",
    DRAINED: "DELETED once every group has moved, {delay} from now at the earliest",
}


def _policy(deletion: DeleteTopicPartitions) -> str:
    return _POLICIES[deletion.policy].format(earliest=utc(deletion.earliest_ms))


def reclaim_text(command: DeletePartitionsCommand) -> str:
    """Return the policy for the records of retired partitions, in words."""
    earliest = f", {command.delay_text} from now at the earliest" if command.delay_ms else ""
    return _RECLAIM[command.policy].format(earliest=earliest)


def end_text(topic: str, fence: str, change: Reclaims) -> str:
    """Return when an old topic is deleted, in words."""
    if fence == "none":
        return f"{topic} is never deleted (--fence none)"
    return f"{topic} is {_END[change.policy].format(delay=change.delay_text)}"


def _group_lines(topic: TopicDescription) -> list[str]:
    lines = []
    if topic.phase != "done" and topic.required_groups:
        lines.append(f"Required groups: {', '.join(topic.required_groups)}")
    if topic.phase != "done" and not topic.groups_complete:
        lines.append("(There may be more: not every group was visible when the change was admitted.)")
    special = [
        f"{group.group} ({group.kind}{', keeps state per partition' if group.stateful else ''})"
        for group in topic.groups
        if group.stateful or group.kind in ("share", "streams")
    ]
    if special:
        lines.append(f"Groups of special kinds: {', '.join(special)}")
    if topic.deletion is not None and topic.deletion.accept_state_loss:
        lines.append(f"Loss of state accepted: {', '.join(topic.deletion.accept_state_loss)}")
    if through := [group.group for group in topic.groups if group.gate_open]:
        lines.append(f"Gate open to: {', '.join(through)}")
    lines += [line[0].upper() + line[1:] for line in groups_left(topic)]
    lines += [f"Not waited for: {name} (waived: {reason})" for name, reason in sorted(topic.waived.items())]
    if topic.groups_doubt is not None and topic.phase not in ("done", "opening"):
        lines.append(f"The list of groups may be incomplete: {topic.groups_doubt}")
    return lines


def _appearance(p: PartitionReport) -> Hashable:
    return p.mode, p.partition_state, p.replica_state, p.phase, p.reason, p.seal_offset is None, p.log_end is None


def _row(group: Sequence[PartitionReport]) -> tuple[str, ...]:
    first = group[0]
    lags = [p.lag for p in group if p.lag is not None]
    behind = sorted({p.lagging_group for p in group if p.lagging_group is not None})
    return (
        format_ranges(p.partition for p in group),
        first.mode.label,
        first.partition_state.value,
        first.replica_state.value,
        _span(p.seal_offset for p in group),
        _span(p.log_start for p in group),
        _span(p.log_end for p in group),
        (number(sum(lags)) if lags else "-") + (f" ({', '.join(behind)})" if behind else ""),
        waits_for(group) or "-",
    )


def _span(offsets: Iterable[int | None]) -> str:
    known = [offset for offset in offsets if offset is not None]
    if not known:
        return "-"
    low, high = min(known), max(known)
    return number(low) if low == high else f"{number(low)}..{number(high)}"
