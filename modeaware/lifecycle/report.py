"""The report of a topic, from the record, the facts and the drain's requirement. Only this module builds it. Pure.

``topics --describe``, ``groups list``, ``certificate`` and a controller's status render the report, and add other
parts. The documented attributes are also the keys of ``--json``: their descriptions hold for the JSON as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from operator import itemgetter
from typing import ClassVar

from modeaware.durations import duration_text
from modeaware.lifecycle import reasons
from modeaware.lifecycle.drain import Requirement, evacuation_of, noted_groups, unread_offsets
from modeaware.lifecycle.facts import PartitionFacts, TopicFacts
from modeaware.lifecycle.keep_name import KeptName
from modeaware.lifecycle.moved import LATEST_MS, UNREAD_TEXT, drains_by_groups
from modeaware.lifecycle.progress import GroupProgress, progress_of
from modeaware.lifecycle.state import partition_phases, partition_state, topic_phase
from modeaware.modelog.records import (
    NO_REPLACEMENT,
    RETENTION,
    DeleteTopicPartitions,
    Reclaims,
    Replacement,
    RetiredPartition,
    Straggler,
    TopicRecord,
)
from modeaware.modes import PartitionMode, PartitionState, ReplicaState, format_ranges
from modeaware.printable import number
from modeaware.topic_view import Moved


@dataclass(frozen=True)
class PartitionReport:
    """One partition.

    Attributes:
        mode: ReadWrite, ReadOnly or None (a string).
        phase: seal, drain, reclaim, opening or done; null for a partition that is ReadWrite.
        seal_offset: null until sealed.
        log_start, log_end: the log's offsets; null when its leader does not answer.
        lag: the largest number of offsets that a group has still to consume, up to the seal (without a seal, up to the
            end). In a retired partition, waived groups do not count.
        lagging_group: the group with that lag.
        lagging_groups: the number of groups that hold up a retired partition, because they have still to consume it.
        others: the number of ``lagging_groups`` that ``reason`` does not name.
        reason: the code of what holds the partition up.
        stragglers: the number of seals that a late record broke.
        straggler: the record that broke the last of these seals, with its producer if known.
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
    others: int = 0

    @property
    def waits_for(self) -> str | None:
        if self.reason is None:
            return None
        return reasons.text(self.reason, others=self.others)


def waits_for(partitions: Iterable[PartitionReport]) -> str | None:
    """Return the text of the reason that these partitions share, with their largest number of other groups."""
    return max(partitions, key=lambda p: p.others).waits_for


def left_to_read(group: GroupProgress) -> str | None:
    """Return in words what a group has to read before its gate opens or the drain ends, or None if nothing is left."""
    if group.gate is not None:
        return group.gate
    if not group.required or not group.behind:
        return None
    return UNREAD_TEXT.format(unread=number(group.behind), partitions=format_ranges(group.holding))


def most_to_read_first(groups: Iterable[GroupProgress]) -> list[GroupProgress]:
    """Return groups in the order in which reports show them: most unread offsets first."""
    return sorted(groups, key=lambda group: (-group.behind, group.gate is None, group.group))


@dataclass(frozen=True)
class ReplacementReport(Reclaims):
    """The replacement of the topic by another one.

    Attributes:
        new_topic_id: null until the new topic exists.
        fence: config or none.
        delay_ms: the delay before the topic may be deleted; null if its own retention has to empty it first.
        announced_ms: when clients were first able to see the new topic.
        switched_ms: when producers began to write to the new topic.
        fenced_ms: since when every check has found the fence's configs on the topic.
        released_ms: when the topic was released: every required group has read the topic and may read the new topic.
        deleting_ms: when a controller began to delete the topic.
        gone_ms: when the topic was found to be gone; its name points to the new topic.
        undone_ms: when the replacement was undone.
        changed_ms: when the topic's record last changed.
        reason: the code of what holds the replacement up as a whole.
        not_moved: after the switch, the required groups that have still to move to the new topic. Waived groups are
            left out.
        waits_for: the reason in words.
    """

    json_also: ClassVar = ("waits_for",)

    new_topic: str
    new_topic_id: str | None
    num_partitions: int
    fence: str
    delay_ms: int | None
    pause_before_switch: bool
    accept_state_loss: tuple[str, ...]
    requested_ms: int
    announced_ms: int | None
    switched_ms: int | None
    fenced_ms: int | None
    released_ms: int | None
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

    @property
    def events(self) -> tuple[tuple[str, int], ...]:
        """Return the events of the replacement, in order, with their times (wall clock, ms since the epoch)."""
        times_ms = {
            "requested": self.requested_ms,
            "announced": self.announced_ms,
            "switched": self.switched_ms,
            "fenced": self.fenced_ms,
            "released": self.released_ms,
            "gone" if self.deleting_ms is None else "deleted": self.gone_ms,
            "undone": self.undone_ms,
        }
        return tuple((what, at_ms) for what, at_ms in times_ms.items() if at_ms is not None)

    @classmethod
    def of(cls, replacement: Replacement, changed_ms: int = 0, not_moved: tuple[str, ...] = ()) -> ReplacementReport:
        """Return the report of a record's replacement."""
        own = {f.name: getattr(replacement, f.name) for f in fields(cls) if hasattr(replacement, f.name)}
        return cls(**own | {"changed_ms": changed_ms, "not_moved": not_moved})


_NO_REPLACEMENT = ReplacementReport.of(NO_REPLACEMENT)


@dataclass(frozen=True)
class TopicReport:
    """One topic.

    Attributes:
        epoch: -1 for a topic that was never changed.
        phase: create, announce, seal, drain, reclaim, opening or done.
        required_groups: the groups that a shrink notes at its admission, and a replacement at its switch; incomplete if
            groups_complete is false.
        waived: group -> reason of the waiver, for the groups that at least one partition did not wait for.
        groups: the groups that a drain waits for, and the groups that use the topic now.
        groups_doubt: why a drain may have to wait for more groups.
        evacuation_group: the group whose commits prove that the latest values of a compacted topic were copied.
        replacement: null unless the topic is being replaced, or was.
        writable: the number of writable partitions.
        checks_within_ms: the time within which an active controller checks the topic's groups again; slow checks take
            longer. Null if no group holds the topic up, and no gate may open.
        kept_name: the change that keeps a name, if this topic or its name is a part of it; else null.
    """

    topic: str
    topic_id: str
    epoch: int
    phase: str
    deletion: DeleteTopicPartitions | None
    required_groups: tuple[str, ...]
    partitions: tuple[PartitionReport, ...]
    groups_complete: bool = True
    waived: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[GroupProgress, ...] = ()
    groups_doubt: str | None = None
    evacuation_group: str | None = None
    replacement: ReplacementReport | None = None
    writable: int = 0
    checks_within_ms: int | None = None
    kept_name: KeptName | None = None

    @property
    def replacing(self) -> ReplacementReport:
        """Return the topic's replacement, or an empty replacement for a topic that was never replaced."""
        return self.replacement or _NO_REPLACEMENT

    @property
    def events(self) -> tuple[tuple[str, int], ...]:
        """Return the events of the change that the record keeps, with their times."""
        if self.replacement is not None:
            return self.replacement.events
        return () if self.deletion is None else (("requested", self.deletion.create_timestamp_ms),)

    @property
    def is_paused(self) -> bool:
        """Return whether the topic's replacement waits before the switch, as requested."""
        return self.replacing.pause_before_switch and self.replacing.reason == reasons.PAUSED

    @property
    def alarm(self) -> str | None:
        """Return the text of an alarm that holds the topic up (:data:`modeaware.lifecycle.reasons.ALARMS`), or None."""
        kept = self.kept_name if self.kept_name is not None and self.kept_name.keeps else None
        whole = (part for part in (self.replacement, kept) if part is not None)
        return next((e.waits_for for e in (*whole, *self.partitions) if reasons.is_alarm(e.reason)), None)

    @property
    def is_idle(self) -> bool:
        """Return whether the topic is done, or waits only for a command or its own retention."""
        return self.phase == "done" or self.awaits_retention or self.is_paused

    @property
    def awaits_retention(self) -> bool:
        """Return whether the topic is replaced, and is deleted once its own retention has emptied it."""
        return self.phase == "reclaim" and self.replacement is not None and self.replacement.policy == RETENTION


def groups_left(topic: TopicReport, most: int | None = None) -> list[str]:
    """Return a line for each group that has records left to read, and a line about the next check. Return no line if no
    group holds the topic up and no gate is closed.

    Args:
        most: the largest number of groups with a line. If it is None, all groups have one.
    """
    holds_up = topic.checks_within_ms is not None
    lines = [
        f"group {group.group}: {text}"
        for group in most_to_read_first(topic.groups)
        if (holds_up or group.gate is not None) and (text := left_to_read(group)) is not None
    ]
    if most is not None and len(lines) > most:
        lines = [*lines[:most], f"and {len(lines) - most} more groups"]
    if topic.checks_within_ms is not None:
        lines.append(f"the active controller checks these groups about every {duration_text(topic.checks_within_ms)}")
    return lines


def report_topic(
    record: TopicRecord,
    facts: TopicFacts,
    requirement: Requirement,
    partitions: Iterable[int],
    moved: Moved | None = None,
) -> TopicReport:
    """Report a topic.

    Args:
        partitions: the partitions to report.
        moved: the groups whose gate of the new topic is open, or None if they are not known.
    """
    progress = progress_of(record, facts, requirement, moved)
    must_move = tuple(name for name, group in progress.items() if group.must_move)
    groups, view, phases = progress.values(), record.view(), partition_phases(record)
    members_wait = any(group.gate_open is False and group.has_members for group in groups)
    return TopicReport(
        topic=record.topic,
        topic_id=record.topic_id,
        epoch=record.epoch,
        phase=topic_phase(record),
        deletion=record.deletion,
        replacement=(
            ReplacementReport.of(record.replacing, record.changed_ms, must_move) if record.has_replacement else None
        ),
        required_groups=noted_groups(record),
        groups_complete=record.groups_complete,
        waived=record.waived,
        evacuation_group=evacuation_of(record),
        partitions=tuple(
            _partition(p, view.mode(p), phases.get(p), record.retired.get(p), facts.partitions.get(p), groups)
            for p in partitions
        ),
        groups=tuple(groups),
        groups_doubt=requirement.doubt.detail if requirement.doubt is not None else None,
        writable=record.writable_count,
        checks_within_ms=LATEST_MS if drains_by_groups(record, members_wait=members_wait) else None,
    )


def _partition(
    partition: int,
    mode: PartitionMode,
    phase: str | None,
    retired: RetiredPartition | None,
    log: PartitionFacts | None,
    groups: Collection[GroupProgress],
) -> PartitionReport:
    shown = retired if retired is not None else RetiredPartition()
    lags = _unread(partition, groups) if retired is not None else _behind(partition, log, groups)
    lag, behind = max(
        ((lag, group) for lag, group in lags if group.facts is not None), key=itemgetter(0), default=(None, None)
    )
    lagging = {group.group for lag, group in lags if retired is not None and group.required and lag > 0}
    return PartitionReport(
        partition=partition,
        mode=mode,
        partition_state=partition_state(mode, shown),
        replica_state=shown.replica_state,
        phase=phase,
        seal_offset=shown.seal_offset,
        log_start=log.log_start if log is not None else None,
        log_end=log.end_offset if log is not None else None,
        lag=lag,
        lagging_group=behind.group if behind is not None and lag else None,
        reason=reasons.OPENING if phase == "opening" else shown.reason,
        stragglers=shown.stragglers,
        straggler=shown.straggler,
        lagging_groups=len(lagging),
        others=len(lagging - {reasons.group_of(shown.reason or "")}),
    )


def _unread(partition: int, groups: Iterable[GroupProgress]) -> list[tuple[int, GroupProgress]]:
    """Return the unread offsets of each group in a retired partition, without waived groups."""
    return [
        (group.unread[partition], group)
        for group in groups
        if partition in group.unread and partition not in group.waivers
    ]


def _behind(
    partition: int, log: PartitionFacts | None, groups: Iterable[GroupProgress]
) -> list[tuple[int, GroupProgress]]:
    """Return how far each group is behind the end of a partition that is not retired."""
    if log is None:
        return []
    readers = (group for group in groups if not group.evacuates)
    return [(unread_offsets(group.facts, partition, log.end_offset, log.log_start), group) for group in readers]
