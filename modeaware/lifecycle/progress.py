"""Progress of groups: the unread offsets of retired partitions, and whether a group has moved to a new topic. Pure.

Only this module computes these two values. The controller decides by them, and every report shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from modeaware.lifecycle import reasons
from modeaware.lifecycle.drain import Requirement, check_drain, is_evacuation_group, unread_offsets
from modeaware.lifecycle.facts import GroupFacts, MembersSeen, TopicFacts
from modeaware.lifecycle.moved import gate_texts
from modeaware.lifecycle.state import drains, moving
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import Replacement, TopicRecord
from modeaware.modes import PartitionMode
from modeaware.topic_view import Moved

# Groups that move


def not_moved(replacement: Replacement, facts: TopicFacts, requirement: Requirement) -> list[str]:
    """Return the required groups, except waived ones, that lack an offset on some partition of the new topic."""
    return [n for n in requirement.waited_for(facts.groups) if not _has_moved(n, replacement, facts)]


def not_moved_reason(replacement: Replacement, facts: TopicFacts, requirement: Requirement) -> str | None:
    """Return the reason that names the first group that has not moved, or None if all have moved or are waived."""
    groups = not_moved(replacement, facts, requirement)
    return reasons.of_group(reasons.GROUP_NOT_MOVED, groups[0]) if groups else None


def still_reading(requirement: Requirement, replacement: Replacement, facts: TopicFacts) -> Requirement:
    """Return the requirement. After the release, leave out groups that have moved and no longer use the old topic."""
    if replacement.released_ms is None:
        return requirement
    groups = (n for n in requirement.groups if n in facts.groups or not _has_moved(n, replacement, facts))
    return replace(requirement, groups=tuple(groups))


def _has_moved(name: str, replacement: Replacement, facts: TopicFacts) -> bool:
    """Return whether a group has an offset on each partition of the new topic, to skip no record (invariant I2)."""
    group = facts.new_topic.groups.get(name) if facts.new_topic is not None else None
    return group is not None and group.has_committed(replacement.num_partitions)


# Progress


@dataclass(frozen=True)
class GroupProgress:
    """One group that a drain waits for, or that uses the topic.

    Attributes:
        facts: the group's facts on the topic, or None if the brokers do not list the group there.
        kind: classic, consumer, share or streams; null for a group that the brokers do not list.
        members: the members that read the topic. During a rebalance, when that is not known: all members of the group.
        stateful: whether the group keeps state per partition.
        required: whether a drain waits for the group, unless the group is waived.
        evacuates: whether the group's commits prove the evacuation.
        unread: retired partition -> number of offsets still to consume, up to the seal (without a seal, up to the end).
            Only partitions that clients still read, and whose leader answered, are included.
        waived: partition -> reason of the waiver by which the partition need not wait for the group.
        moved: whether the group has an offset on each partition of the new topic; null if the topic's groups do not
            move.
        must_move: whether a replacement waits for the group to move.
        is_waived: whether partitions, or the replacement as a whole, need not wait for the group.
        gate_open: whether the gate of the new topic is open for the group; null if the topic's groups do not move.
        gate: why the gate is closed for the group, in words; null if it is open or the topic's groups do not move.
    """

    json_also: ClassVar[tuple[str, ...]] = ("kind", "has_members", "members", "stateful", "waived")

    group: str
    facts: GroupFacts | None = field(metadata={"json": None})
    required: bool
    evacuates: bool
    unread: Mapping[int, int]
    waivers: Mapping[int, GroupRule] = field(metadata={"json": None})
    moved: bool | None
    must_move: bool
    is_waived: bool
    gate_open: bool | None = None
    gate: str | None = None

    @property
    def kind(self) -> str | None:
        return self.facts.kind if self.facts is not None else None

    @property
    def has_members(self) -> bool:
        return self.facts is not None and self.facts.has_members

    @property
    def members(self) -> MembersSeen:
        return self.facts.members if self.facts is not None else MembersSeen()

    @property
    def stateful(self) -> bool:
        return self.facts is not None and self.facts.stateful

    @property
    def waived(self) -> dict[int, str]:
        return {partition: rule.reason for partition, rule in self.waivers.items()}

    @property
    def holding(self) -> list[int]:
        """Return the partitions that the group has still to read, unless it is waived there."""
        return [partition for partition, offsets in self.unread.items() if offsets and partition not in self.waivers]

    @property
    def behind(self) -> int:
        """Return how many offsets the group has still to read in the partitions of :attr:`holding`."""
        return sum(self.unread[partition] for partition in self.holding)


def progress_of(
    record: TopicRecord, facts: TopicFacts, requirement: Requirement, moved: Moved | None = None
) -> dict[str, GroupProgress]:
    """Return name -> progress of each group that is required or uses the topic; the evacuation's group comes first.

    Args:
        moved: the groups whose gate of the new topic is open, or None if they are not known.
    """
    replacement, groups_move = record.replacing, facts.new_topic is not None and moving(record)
    must_move = set(not_moved(replacement, facts, requirement)) if groups_move else set()
    read, required = _still_read(record, facts), set(requirement.groups)
    gates = gate_texts(record, moved, facts, requirement) if moved is not None and groups_move else {}
    through = required.difference(still_reading(requirement, replacement, facts).groups)

    def of(name: str) -> GroupProgress:
        group, evacuates = facts.groups.get(name), name == requirement.evacuation
        moves = groups_move and not evacuates
        mine = [p for p in read if name not in through and not (evacuates and record.retired[p].evacuated_to_seal)]
        spared = mine if name in required and requirement.waivers else ()
        unread = {p: unread_offsets(group, p, read[p], facts.partitions[p].log_start) for p in mine}
        waivers = {p: rule for p in spared if (rule := requirement.waiver(name, group, p)) is not None}
        return GroupProgress(
            group=name,
            facts=group,
            required=evacuates or name in required,
            evacuates=evacuates,
            unread=unread,
            waivers=waivers,
            moved=_has_moved(name, replacement, facts) if moves else None,
            must_move=name in must_move,
            is_waived=any(unread[p] for p in waivers)
            or (moves and requirement.waiver_of_topic(name, group) is not None),
            gate_open=moved.has_open_gate(name) if moves and moved is not None else None,
            gate=None if evacuates else gates.get(name),
        )

    names = sorted(n for n in {*requirement.groups, *facts.groups} if not is_evacuation_group(facts.topic, n))
    first = () if requirement.evacuation is None else (requirement.evacuation,)
    return {name: of(name) for name in (*first, *names)}


def _still_read(record: TopicRecord, facts: TopicFacts) -> dict[int, int]:
    """Return the retired partitions that clients still read -> the offset up to which they are drained."""
    ends = {}
    for partition, retired in sorted(record.retired.items()):
        log = facts.partitions.get(partition)
        if log is not None and record.modes[partition] is PartitionMode.READ_ONLY:
            ends[partition] = log.end_offset if retired.seal_offset is None else retired.seal_offset
    return ends


def held_up_by(
    group: GroupProgress, record: TopicRecord, facts: TopicFacts, requirement: Requirement
) -> dict[int, str]:
    """Return partition -> reason code, for the partitions that this group holds up; other groups do not count."""
    if not group.required:
        return {}
    groups, evacuation = ((), group.group) if group.evacuates else ((group.group,), None)
    alone = replace(requirement, groups=groups, doubt=None, evacuation=evacuation)
    reasons_by_partition = {}
    for partition, until in _still_read(record, facts).items():
        if partition in group.unread and drains(partition, record):  # policies other than drained wait for no group
            log, truncated_to = facts.partitions[partition], record.retired[partition].truncated_to
            reasons_by_partition[partition] = check_drain(partition, until, truncated_to, log, facts, alone).reason
    return {partition: reason for partition, reason in reasons_by_partition.items() if reason is not None}
