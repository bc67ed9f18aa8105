"""What ``modeaware topics --describe`` shows: modes from the mode log, offsets and lag from the brokers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar

from modeaware.clock import utc
from modeaware.cluster.cluster import LogOffsets, TopicShape
from modeaware.cluster.groups import GroupsFound, find_groups
from modeaware.errors import RecordError
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import DeletePartitionsCommand
from modeaware.lifecycle.drain import Requirement, evacuation_of, is_evacuation_group, requirement_of, unread_offsets
from modeaware.lifecycle.facts import GroupFacts, TopicFacts
from modeaware.lifecycle.replacement import is_followed
from modeaware.lifecycle.state import partition_phase, partition_state, topic_phase
from modeaware.modelog.records import (
    DeleteTopicPartitions,
    Replacement,
    RetiredPartition,
    Straggler,
    TopicRecord,
)
from modeaware.modes import PartitionMode, PartitionState, ReplicaState, format_ranges
from modeaware.printable import number, printable_lines, table
from modeaware.reports.session import Session


@dataclass(frozen=True)
class PartitionDescription:
    """One partition.

    Attributes:
        mode: ReadWrite, ReadOnly or None (a string).
        phase: seal, drain, reclaim, opening or done; null for a partition that is ReadWrite.
        seal_offset: null until sealed.
        log_start, log_end: the log's offsets; null when its leader does not answer.
        lag: the most offsets a group has still to consume, up to the seal (else the end). Groups that are waived do not
            count in a retired partition.
        lagging_group: the group with that lag.
        lagging_groups: how many groups a retired partition waits for that have still to consume.
        reason: the code of what holds the partition up.
        stragglers: how often a record arrived at or after a seal.
        straggler: the record that broke the last of these seals, with its producer where it is known.
        waits_for: the reason in words.
    """

    json_also: ClassVar = ("waits_for",)

    partition: int
    mode: PartitionMode
    partition_state: PartitionState
    replica_state: ReplicaState
    phase: str | None
    seal_offset: int | None
    log_start: int | None
    log_end: int | None
    lag: int | None
    lagging_group: str | None
    reason: str | None
    stragglers: int = 0
    straggler: Straggler | None = None
    lagging_groups: int = 0

    @property
    def waits_for(self) -> str | None:
        others = max(self.lagging_groups - 1, 0)
        return reasons.text(self.reason, rests=self.phase == "done", others=others) if self.reason is not None else None


@dataclass(frozen=True)
class GroupDescription:
    """A group that uses the topic.

    Attributes:
        kind: classic, consumer, share or streams.
        stateful: it keeps state per partition.
    """

    group: str
    kind: str
    has_members: bool
    stateful: bool


@dataclass(frozen=True)
class ShrinkDescription:
    """The shrink in force.

    Attributes:
        delete_partitions: the partition count to keep.
        policy: retention, drained or immediate.
        delay_ms: null for retention.
        previous_count: the number that was writable before, which an undo restores.
        accept_state_loss: groups whose loss of state was accepted.
        evacuate: the latest values of a compacted topic are copied first.
    """

    delete_partitions: int
    policy: str
    delay_ms: int | None
    immediate_delete: bool
    create_timestamp_ms: int
    previous_count: int
    accept_state_loss: tuple[str, ...]
    evacuate: bool

    @classmethod
    def of(cls, deletion: DeleteTopicPartitions | None) -> ShrinkDescription | None:
        """Describe the shrink of a topic's record."""
        if deletion is None:
            return None
        own = {f.name: getattr(deletion, f.name) for f in fields(cls)}
        return cls(**own)


@dataclass(frozen=True)
class ReplacementDescription:
    """The replacement of the topic by another one.

    Attributes:
        successor_id: null until the successor exists.
        fence: config or none.
        delay_ms: null: the topic is not deleted before its own retention has emptied it.
        announced_ms: when clients were first able to see the successor.
        switched_ms: since when producers write to the successor.
        fenced_ms: since when brokers are seen to refuse data for the topic.
        let_go_ms: since when every required group has read the topic and may read the successor.
        deleting_ms: since when a controller is deleting the topic, or has.
        gone_ms: when the topic itself was found to be gone; its name leads to the successor.
        undone_ms: when it was undone.
        changed_ms: when any of this last changed.
        reason: the code of what holds it up as a whole.
        not_moved: required groups without a committed offset on each partition of the successor, since the switch;
            without those that are waived.
        waits_for: the reason in words.
    """

    json_also: ClassVar = ("waits_for",)

    successor: str
    successor_id: str | None
    num_partitions: int
    fence: str
    delay_ms: int | None
    pause_before_switch: bool
    accept_state_loss: tuple[str, ...]
    requested_ms: int
    announced_ms: int | None
    switched_ms: int | None
    fenced_ms: int | None
    let_go_ms: int | None
    deleting_ms: int | None
    gone_ms: int | None
    undone_ms: int | None
    reason: str | None
    changed_ms: int = 0
    not_moved: tuple[str, ...] = ()

    @property
    def waits_for(self) -> str | None:
        if self.reason is None:
            return None
        return reasons.text(self.reason, others=len(set(self.not_moved) - {reasons.group_of(self.reason)}))

    @classmethod
    def of(
        cls, record: TopicRecord, moved: Mapping[str, GroupFacts] | None, waived: Collection[str] = ()
    ) -> ReplacementDescription | None:
        """Describe the replacement of a record's topic; ``moved``: the successor's groups, where that was looked at."""
        replacement = record.replacement
        if replacement is None:
            return None
        own = {f.name: getattr(replacement, f.name) for f in fields(cls) if hasattr(replacement, f.name)}
        count, groups = replacement.num_partitions, {} if moved is None else moved
        through = {name for name, group in groups.items() if group.has_committed(count)}
        left = [] if moved is None else sorted(set(record.required_groups) - through - set(waived))
        return cls(**own | {"changed_ms": record.changed_ms, "not_moved": tuple(left)})


@dataclass(frozen=True)
class TopicDescription:
    """One topic.

    Attributes:
        epoch: -1 for a topic that was never changed.
        phase: create, announce, seal, drain, reclaim, opening or done.
        required_groups: noted when the change was admitted; not all, if groups_complete is false.
        waived: group -> reason of the waiver, for each group that a partition did not wait for.
        groups: those that use the topic now.
        groups_doubt: why there may be more.
        evacuation_group: the group whose commits prove that retired partitions are evacuated.
        gone_ids: ids of records written for deleted topics of that name; they apply to nothing.
        leads_to: the topic that has replaced another one of this name: clients use that, and not this one.
        replacement: null where the topic is not being replaced, and was not.
        replaces: the topic whose successor this one is; null for others.
        writable: the number of writable partitions.
    """

    json_also: ClassVar = ("writable",)

    topic: str
    topic_id: str
    epoch: int
    phase: str
    deletion: ShrinkDescription | None
    required_groups: tuple[str, ...]
    partitions: tuple[PartitionDescription, ...]
    groups_complete: bool = True
    waived: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[GroupDescription, ...] = ()
    groups_doubt: str | None = None
    evacuation_group: str | None = None
    gone_ids: tuple[str, ...] = ()
    leads_to: str | None = None
    replacement: ReplacementDescription | None = None
    replaces: str | None = None

    @property
    def writable(self) -> int:
        return sum(partition.mode.writable for partition in self.partitions)


@dataclass(frozen=True)
class Description:
    """What ``--describe --json`` prints."""

    topics: tuple[TopicDescription, ...]


def describe_topics(session: Session, topics: Iterable[str] | None = None) -> list[TopicDescription]:
    """Describe ``topics``; None: every topic that has a usable record in the mode log."""
    log = session.read_log()
    wanted = {record.topic for record in log.replay.records.values()} if topics is None else set(topics)
    each = list(session.records(log, wanted, named=topics is not None))
    counts = {topic: range(shape.partition_count) for topic, shape, _ in each}
    logs: dict[str, dict[int, LogOffsets]] = {topic: {} for topic in counts}
    for (topic, p), offsets in session.cluster.offsets((t, p) for t, some in counts.items() for p in some).items():
        logs[topic][p] = offsets
    also = {topic: [group] for topic, _, record in each if (group := evacuation_of(record)) is not None}
    moving = [now for _, _, record in each if (now := groups_move(record)) is not None]
    used = {now.successor: range(now.num_partitions) for now in moving}
    found = find_groups(session.cluster, used | counts, also, mode_log=session.config.mode_log_topic) if counts else {}
    try:
        rules = log.rules
    except RecordError:  # of a newer version, say: then waived groups stand among the others
        rules = ()
    ignored, now_ms = session.controller.ignored_groups, session.clock.now_ms()
    described = []
    for topic, shape, record in each:
        groups, seen = found[topic].groups, found[topic]
        facts = TopicFacts(
            topic,
            shape.topic_id,
            shape.partition_count,
            groups=groups,
            groups_doubt=seen.doubt,
            unclear_groups=seen.unclear,
        )
        asked = requirement_of(record, facts, rules, ignored, now_ms)
        replacement = None
        if record is not None:
            waived = [name for name in record.required_groups if asked.waiver_of_topic(name, groups.get(name))]
            replacement = ReplacementDescription.of(record, _moved(record, found), waived)
        described.append(
            replace(
                _describe(shape, record, logs[topic], facts, asked, log.gone_ids(topic, shape.topic_id)),
                leads_to=log.leads_to(topic, shape.topic_id),
                replacement=replacement,
                replaces=log.replaces.get(shape.topic_id),
            )
        )
    return described


def groups_move(record: TopicRecord | None) -> Replacement | None:
    """Return the replacement of a topic whose groups are to move to the successor."""
    now = is_followed(record)
    return None if now is None or now.switched_ms is None or now.let_go_ms is not None else now


def _moved(record: TopicRecord, found: Mapping[str, GroupsFound]) -> Mapping[str, GroupFacts] | None:
    """Return the groups of the successor, while groups are to move to it."""
    now = groups_move(record)
    return None if now is None else found[now.successor].groups


def _describe(
    shape: TopicShape,
    record: TopicRecord | None,
    logs: Mapping[int, LogOffsets],
    facts: TopicFacts,
    asked: Requirement,
    gone_ids: tuple[str, ...],
) -> TopicDescription:
    topic = facts.topic
    if record is None:
        record = TopicRecord.unchanged(topic, shape.topic_id, shape.partition_count)
    view, evacuation = record.view(), evacuation_of(record)
    groups = {n: g for n, g in facts.groups.items() if n == evacuation or not is_evacuation_group(topic, n)}
    listed = range(max(shape.partition_count, len(record.modes)) if shape.partition_count else 0)
    return TopicDescription(
        topic=topic,
        topic_id=shape.topic_id,
        epoch=record.epoch,
        phase=topic_phase(record),
        deletion=ShrinkDescription.of(record.deletion),
        required_groups=record.required_groups,
        partitions=tuple(_partition(p, view.mode(p), record, logs.get(p), groups, asked) for p in listed),
        groups_complete=record.groups_complete,
        waived=record.waived,
        groups=tuple(GroupDescription(n, g.kind, g.has_members, g.stateful) for n, g in sorted(groups.items())),
        groups_doubt=asked.doubt.detail if asked.doubt is not None else None,
        evacuation_group=evacuation,
        gone_ids=gone_ids,
    )


def _partition(
    partition: int,
    mode: PartitionMode,
    record: TopicRecord,
    log: LogOffsets | None,
    groups: Mapping[str, GroupFacts],
    asked: Requirement,
) -> PartitionDescription:
    retired = record.retired.get(partition)
    shown = retired if retired is not None else RetiredPartition()
    if retired is None or retired.evacuated_to_seal:
        groups = {name: group for name, group in groups.items() if name != evacuation_of(record)}
    lag, lagging_group, lagging_groups = None, None, 0
    if log is not None:
        until = shown.seal_offset if shown.seal_offset is not None else log.end_offset
        names = {*groups, *asked.groups} if retired is not None else groups.keys()
        lags = {
            name: unread_offsets(groups.get(name), partition, until, log.log_start)
            for name in sorted(names)
            if retired is None or asked.waiver(name, groups.get(name), partition) is None
        }
        lagging_group = max((name for name in lags if name in groups), key=lags.__getitem__, default=None)
        lag = lags[lagging_group] if lagging_group is not None else None
        if retired is not None and mode is PartitionMode.READ_ONLY:
            lagging_groups = sum(lags[name] > 0 for name in lags.keys() & set(asked.groups))
    return PartitionDescription(
        partition=partition,
        mode=mode,
        partition_state=partition_state(mode, shown),
        replica_state=shown.replica_state,
        phase=_phase(mode, retired, record.replacement) if retired is not None else None,
        seal_offset=shown.seal_offset,
        log_start=log.log_start if log is not None else None,
        log_end=log.end_offset if log is not None else None,
        lag=lag,
        lagging_group=lagging_group if lag else None,
        reason=shown.reason,
        stragglers=shown.stragglers,
        straggler=shown.straggler,
        lagging_groups=lagging_groups,
    )


def _phase(mode: PartitionMode, retired: RetiredPartition, replacement: Replacement | None) -> str:
    let_go = replacement is not None and replacement.let_go_ms is not None
    return "done" if let_go else partition_phase(mode, retired)


def describe_text(descriptions: Iterable[TopicDescription], *, expand: bool) -> str:
    """Return all topics as text: partitions that are alike in one line, or each in its own (``expand``)."""
    blocks = [printable_lines(_topic_lines(description, expand)) for description in descriptions]
    return "\n\n".join(blocks) if blocks else "No topic has been changed: every partition of every topic is ReadWrite."


def alike(
    partitions: Sequence[PartitionDescription], key: Callable[[PartitionDescription], Hashable]
) -> list[list[PartitionDescription]]:
    """Return partitions in groups of equal ``key``, the groups in the order of their first partition."""
    groups: dict[Hashable, list[PartitionDescription]] = {}
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
    gone = gone_lines(topic.gone_ids, topic.leads_to)
    lines += [f"  {line}" for line in (*gone, *_change_lines(topic), *_group_lines(topic))]
    lines += [
        f"  Straggler in partition {p.partition}: offset {number(p.straggler.offset)}"
        + (f", {utc(p.straggler.timestamp_ms)}" if p.straggler.timestamp_ms >= 0 else "")
        + f", from {p.straggler.producer}"
        + (f"; the last of {p.stragglers} times" if p.stragglers > 1 else "")
        for p in topic.partitions
        if p.straggler is not None
    ]
    groups = [[p] for p in topic.partitions] if expand else alike(topic.partitions, _appearance)
    headings = ("Partitions", "Mode", "State", "Replica", "Seal", "Log start", "Log end", "Lag", "Waits for")
    rows = table(headings, [_row(group) for group in groups], {"Seal", "Log start", "Log end", "Lag"})
    return lines + ["  " + line for line in rows]


def gone_lines(gone_ids: Iterable[str], leads_to: str | None) -> list[str]:
    """Return a line for each record that was written for a deleted topic of the same name."""
    lines = [
        f"Mode record of topic id {gone}: that topic was deleted; the record applies to nothing" for gone in gone_ids
    ]
    if leads_to is not None:
        lines.append(f"The name leads to {leads_to}, which has replaced a deleted topic: clients do not use this one")
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
        lines.append(f"Evacuated first (modeaware.spark.evacuate), which group {topic.evacuation_group} proves")
    if topic.replaces is not None:
        lines.append(f"Successor of {topic.replaces}")
    return [*lines, *(_replacement_lines(topic.replacement) if topic.replacement is not None else ())]


def _replacement_lines(now: ReplacementDescription) -> list[str]:
    times = {
        "requested": now.requested_ms,
        "announced": now.announced_ms,
        "switched": now.switched_ms,
        "fenced": now.fenced_ms,
        "let go": now.let_go_ms,
        "gone" if now.deleting_ms is None else "deleted": now.gone_ms,
        "undone": now.undone_ms,
    }
    since = ", ".join(f"{word} {utc(ms)}" for word, ms in times.items() if ms is not None)
    known = f"id {now.successor_id}, " if now.successor_id is not None else ""
    lines = [f"Replaced by {now.successor} ({known}{now.num_partitions} partitions): {since}"]
    if now.fence != "config":
        lines.append(f"Fence {now.fence}: brokers still take data for it")
    if now.waits_for is not None:
        lines.append(f"Waits: {now.waits_for}")
    if now.not_moved:
        lines.append(f"Not on the successor yet: {', '.join(now.not_moved)}")
    if now.accept_state_loss:
        lines.append(f"Loss of state accepted: {', '.join(now.accept_state_loss)}")
    return lines


def _policy(deletion: ShrinkDescription) -> str:
    if deletion.policy == "immediate":
        return "immediate: records are deleted without waiting for consumers"
    if deletion.policy == "retention":
        stay = ", where it does" if deletion.evacuate else ""
        return f"retention: records go when the topic's own retention removes them{stay}"
    earliest = utc(deletion.create_timestamp_ms + (deletion.delay_ms or 0))
    return f"drained: records are deleted once every group has consumed them, not before {earliest}"


NOT_EVACUATED = (
    "keys that move from one partition that stays to another are not evacuated: their values so far stay where they "
    "are, beside newer ones elsewhere"
)


def reclaim_text(command: DeletePartitionsCommand, deletes: bool) -> str:
    """Return what becomes of the records of retired partitions; ``deletes``: cleanup.policy has ``delete``."""
    if command.immediate_delete:
        return "their records are deleted WITHOUT waiting for consumers (--immediate-delete)"
    retention = command.delay_ms is None
    if command.evacuate and (retention or not deletes):
        return "their records stay on the brokers, and no client reads them any more"
    if retention:
        return "their records stay until the topic's own retention removes them (a delay deletes them once consumed)"
    earliest = f", {command.delay_ms} ms from now at the earliest" if command.delay_ms else ""
    return f"their records are deleted once every group has consumed them{earliest}"


def end_text(topic: str, fence: str, delay_ms: int | None) -> str:
    """Return what becomes of a topic that is replaced; ``delay_ms`` None: its own retention decides."""
    if fence == "none":
        return f"{topic} is never deleted (--fence none)"
    if delay_ms is None:
        return f"{topic} is deleted once its own retention has emptied it, and every group has moved"
    return f"{topic} is DELETED once every group has moved, {delay_ms} ms from now at the earliest"


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
        lines.append(f"Of special kinds: {', '.join(special)}")
    if topic.deletion is not None and topic.deletion.accept_state_loss:
        lines.append(f"Loss of state accepted: {', '.join(topic.deletion.accept_state_loss)}")
    lines += [f"Not waited for: {name} (waived: {reason})" for name, reason in sorted(topic.waived.items())]
    if topic.groups_doubt is not None and topic.phase not in ("done", "opening"):
        lines.append(f"Which groups use it is not certain: {topic.groups_doubt}")
    return lines


def _appearance(p: PartitionDescription) -> Hashable:
    return p.mode, p.partition_state, p.replica_state, p.phase, p.reason, p.seal_offset is None, p.log_end is None


def waits_for(partitions: Iterable[PartitionDescription]) -> str | None:
    """Return what partitions wait for that have the same reason."""
    return max(partitions, key=lambda p: p.lagging_groups).waits_for


def _row(group: Sequence[PartitionDescription]) -> tuple[str, ...]:
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
