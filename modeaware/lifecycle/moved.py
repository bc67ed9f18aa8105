"""The gates: for which groups the new topic of a replacement is open. Pure.

A gate hides the new topic from a group. The gate opens once the group's application has handled the old topic to the
*end* of each partition (the offset behind the last record that readers receive). So the records of each key stay in
order. A member cannot see the progress of other members. So the controller decides, by snapshots of the group's commits
and members, and appends the decision to the mode log (:mod:`modeaware.modelog.moved`). Only this decision opens the
gate in clients. The decision does not expire.

*A gate opens when every partition of the old topic counts* as handled, in one of these ways (:class:`Way`). *Notes* are
metadata of commits (:mod:`modeaware.notes`). *Warned*: the controller logs a warning, because order may be lost.

==========  ============================================================================================  =======
way         what a snapshot shows                                                                         warned
==========  ============================================================================================  =======
EMPTIED     the partition's log starts at the end or behind the end: all earlier records are deleted
SAID        a commit at the end, with the note ``read`` or with the application's own metadata
LEFT        a commit at the end, and no members: two snapshots in a row show this, with the same offset
UNNOTED     a commit at the end without ``read``, ``busy`` or own metadata, unchanged for ``unnoted_ms``  yes
GIVEN       a commit short of the end with the note ``given``, unchanged for ``gate_timeout_ms``          yes
UNOWNED     the group has members, and none of them has owned the partition for ``unnoted_ms``            yes
WAIVED      the operator has waived the group on the partition                                            yes
==========  ============================================================================================  =======

*Why a commit is not enough.* Client libraries commit by a timer, so the application may not have handled the committed
records yet. A mode-aware member notes ``read`` when the application polls again. Two kinds of members commit
without a note: stock members, and members that have not yet seen the new topic. Such a member has handled its records,
or has left the group, after its ``max.poll.interval.ms``. So ``unnoted_ms`` has to be the largest
``max.poll.interval.ms`` in the group. Subscriptions decide nothing: a member may subscribe to the new topic too early.
A partition whose commit lies on a truncated part of the log, or beyond the log's end, counts only as EMPTIED or WAIVED.

*Why two snapshots for LEFT.* A snapshot lists the members, then reads offsets; in between a member may join and commit.
The second snapshot lists members after the first has read the offsets. So if the second snapshot shows no members, the
member that committed these offsets is gone. The work of that member is done, or lost with it, as always in Kafka.

*Batch committers* (``GIVEN``) commit after a number of records, or some time after a record. A closed gate withholds
the records that would cause the next commit. So the gate opens without that commit. But the old topic is not deleted
before the commit (:mod:`modeaware.lifecycle.drain`).

*Opened at once*: a gate that was open before, if a restored mode log lacks the decision. The group's commits on the new
topic prove that the gate was open: every partition has a commit, and one commit has the note ``opened`` or is above the
log start. For a group that begins anew (below) these commits prove nothing.

*Closed again*: the gate of a group that begins anew. Two snapshots show no members, and the group has not read the old
topic by the rules above. In addition, the group has no commit on the new topic, or was set back on both topics. A
missing commit may only have expired: if the group has an open gate to a later topic of the chain, the gate stays open.

A seal that breaks later closes no gate: records of the new topic cannot be taken back from a group. A warning names the
groups. If the operator has closed the list of groups, the release opens the gate for ``all`` groups.

*Many groups.* A record has room for some thousands of names. A replacement is refused if the names of the groups that
use the topic do not fit. Later groups whose names do not fit wait until the gate is open for every required group. Then
the gate opens for ``all`` groups, with a warning.

*Time.* The controller measures on its monotonic clock how long a commit has been unchanged. No record contains these
times, so the next controller measures anew.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from modeaware.lifecycle import reasons
from modeaware.lifecycle.drain import Requirement, is_evacuation_group
from modeaware.lifecycle.facts import GroupFacts, PartitionFacts, TopicFacts
from modeaware.lifecycle.passes import earliest_ms
from modeaware.lifecycle.state import held_up, moving
from modeaware.modelog.moved import MovedRecord
from modeaware.modelog.records import MAX_RECORD_BYTES, RetiredPartition, TopicRecord
from modeaware.modes import format_ranges
from modeaware.notes import Note
from modeaware.printable import number
from modeaware.topic_view import NONE_MOVED, Moved

SOONEST_MS, LATEST_MS = 100, 10_000
"""The shortest and the longest time between two passes over a topic that drains. Expensive passes make it longer."""
COST_FACTOR, BURST_MS = 10, 1_000
"""When passes over draining topics have used more CPU time than a burst, a pause follows: the excess times this factor.
So these passes take about a tenth of a core at most."""
MANY_GROUPS = 100
APPEND_MS, MANY_APPEND_MS = 1_000, 10_000
"""The shortest time between two records about a topic's gates; the second is for over :data:`MANY_GROUPS` groups."""


class Way(Enum):
    """Why a partition counts as handled by a group; see the table of the module."""

    EMPTIED = "emptied"
    SAID = "said"
    LEFT = "left"
    UNNOTED = "unnoted"
    GIVEN = "given"
    UNOWNED = "unowned"
    WAIVED = "waived"


class Wait(Enum):
    """What a partition waits for before it counts."""

    UNREAD = "unread"
    INVALID = "invalid"
    GIVEN = "given"
    BUSY = "busy"
    UNNOTED = "unnoted"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Limits:
    """The times in the table of the module."""

    unnoted_ms: int
    gate_timeout_ms: int


# What snapshots have shown


@dataclass(frozen=True)
class PartitionSeen:
    """A group's commit on one partition of the old topic.

    Attributes:
        committed: the committed offset, or None if there is no commit.
        note: the note in the commit's metadata.
        since_ms: the time of the first snapshot with this offset and note.
        unowned_since_ms: since when snapshots have shown members, but no owner of the partition. A snapshot during a
            rebalance changes nothing. None if the partition has an owner, or the group has no members.
        empty_snapshots: the number of snapshots in a row with this offset and no members. The count ends at two.
    """

    committed: int | None
    note: Note
    since_ms: int
    unowned_since_ms: int | None = None
    empty_snapshots: int = 0


@dataclass(frozen=True)
class Seen:
    """What snapshots have shown of the groups of one draining topic.

    Attributes:
        groups: group -> partition -> what was seen.
        changed_ms: the time of the last snapshot that showed another offset, note, membership or ownership.
    """

    groups: Mapping[str, Mapping[int, PartitionSeen]] = field(default_factory=dict)
    changed_ms: int = 0


def observe(
    before: Seen | None, facts: TopicFacts, names: Iterable[str], partitions: Collection[int], at_ms: int
) -> Seen:
    """Return what is known after one more snapshot.

    Args:
        names: the groups to note. One that ``facts`` lacks has no commits or members, unless :func:`is_unclear`.
        at_ms: the time of the snapshot, on a monotonic clock.
    """
    known = before.groups if before is not None else {}
    groups: dict[str, Mapping[int, PartitionSeen]] = {}
    for name in names:
        if is_unclear(name, facts):  # the snapshot adds nothing
            groups |= {name: known[name]} if name in known else {}
            continue
        group, earlier = facts.groups.get(name, _NO_GROUP), known.get(name, {})
        groups[name] = {p: _observed(earlier.get(p), p, group, at_ms) for p in partitions}
    is_same = before is not None and _shape(groups) == _shape(before.groups)
    return Seen(groups, before.changed_ms if is_same and before is not None else at_ms)


_NO_GROUP = GroupFacts()


def is_unclear(name: str, facts: TopicFacts) -> bool:
    """Return whether the snapshot proves nothing about a group: the snapshot may lack the group, or its offsets."""
    return name in facts.unclear_groups or (name not in facts.groups and facts.groups_doubt is not None)


def _observed(before: PartitionSeen | None, partition: int, group: GroupFacts, at_ms: int) -> PartitionSeen:
    committed, note = group.committed.get(partition), group.notes.get(partition, Note.NONE)
    is_same = before is not None and (before.committed, before.note) == (committed, note)
    unowned = before.unowned_since_ms if before is not None else None
    if not group.has_members or (group.owned is not None and partition in group.owned):
        unowned = None
    elif group.owned is not None and unowned is None:
        unowned = at_ms
    empty_snapshots = 0
    if not group.has_members:
        empty_snapshots = 1 if before is None or before.committed != committed else min(before.empty_snapshots + 1, 2)
    since_ms = before.since_ms if before is not None and is_same else at_ms
    return PartitionSeen(committed, note, since_ms, unowned, empty_snapshots)


def _shape(groups: Mapping[str, Mapping[int, PartitionSeen]]) -> object:
    return {
        name: [(p, s.committed, s.note, s.empty_snapshots, s.unowned_since_ms) for p, s in seen.items()]
        for name, seen in groups.items()
    }


# The rule


@dataclass(frozen=True)
class PartitionVerdict:
    """Whether a partition counts (``way``), or what it waits for (``wait``).

    ``due_ms``: when the partition will count if nothing changes, or None if it counts only after a change.
    """

    way: Way | None = None
    wait: Wait | None = None
    due_ms: int | None = None


@dataclass(frozen=True)
class GroupVerdict:
    """Whether the gate may open for a group: each partition counts, or the gate was open before.

    Attributes:
        partitions: partition -> the verdict on it.
        is_proved: commits on the new topic prove that the gate was open before.
        begins_anew: whether the group begins anew, so that an open gate is closed again.
    """

    partitions: Mapping[int, PartitionVerdict]
    is_proved: bool = False
    begins_anew: bool = False

    @property
    def has_read(self) -> bool:
        return all(verdict.way is not None for verdict in self.partitions.values())

    @property
    def due_ms(self) -> int | None:
        """Return when the next of the group's partitions counts if nothing changes."""
        return earliest_ms(*(verdict.due_ms for verdict in self.partitions.values()))

    @property
    def may_open(self) -> bool:
        return self.has_read or (self.is_proved and not self.begins_anew)

    def where(self, what: Way | Wait) -> list[int]:
        """Return the partitions with this way, or with this wait."""
        return [p for p, verdict in self.partitions.items() if what in (verdict.way, verdict.wait)]


def ends_of(record: TopicRecord) -> dict[int, int] | None:
    """Return the end of each partition of an old topic, or None if an end is unknown or the topic is not
    :func:`~modeaware.lifecycle.state.moving`."""
    if not moving(record):
        return None
    ends = {p: retired.read_up_to for p, retired in record.retired.items() if retired.read_up_to is not None}
    return ends if len(ends) == len(record.modes) else None


def verdict_on_partition(
    end: int, log: PartitionFacts | None, seen: PartitionSeen | None, limits: Limits, at_ms: int
) -> PartitionVerdict:
    """Return whether a partition of the old topic counts for a group (invariant I9).

    Args:
        log: the partition's log, or None if its leader did not answer.
        seen: what snapshots have shown of the group there, or None if they have shown nothing.
    """
    if log is not None and log.log_start >= end:
        return PartitionVerdict(Way.EMPTIED)
    if seen is None:
        return PartitionVerdict(wait=Wait.UNKNOWN)
    verdict = _by_commit(end, seen, limits, at_ms)
    if verdict.way is None and seen.unowned_since_ms is not None:
        due_ms = seen.unowned_since_ms + limits.unnoted_ms
        if at_ms >= due_ms:
            return PartitionVerdict(Way.UNOWNED)
        return replace(verdict, due_ms=earliest_ms(verdict.due_ms, due_ms))
    return verdict


def _by_commit(end: int, seen: PartitionSeen, limits: Limits, at_ms: int) -> PartitionVerdict:
    if seen.committed is None or seen.committed < end:
        if seen.note is not Note.GIVEN:
            return PartitionVerdict(wait=Wait.BUSY if seen.note is Note.BUSY else Wait.UNREAD)
        return _after(seen.since_ms + limits.gate_timeout_ms, Way.GIVEN, Wait.GIVEN, at_ms)
    if seen.note in (Note.READ, Note.FOREIGN):
        return PartitionVerdict(Way.SAID)
    if seen.empty_snapshots >= 2:
        return PartitionVerdict(Way.LEFT)
    if seen.note is Note.BUSY:
        return PartitionVerdict(wait=Wait.BUSY)
    return _after(seen.since_ms + limits.unnoted_ms, Way.UNNOTED, Wait.UNNOTED, at_ms)


def _after(due_ms: int, way: Way, wait: Wait, at_ms: int) -> PartitionVerdict:
    return PartitionVerdict(way) if at_ms >= due_ms else PartitionVerdict(wait=wait, due_ms=due_ms)


def verdict_on_group(
    name: str,
    record: TopicRecord,
    ends: Mapping[int, int],
    facts: TopicFacts,
    requirement: Requirement,
    seen: Seen,
    limits: Limits,
    at_ms: int,
    further: Moved = NONE_MOVED,
) -> GroupVerdict:
    """Return whether the gate may open for a group.

    Args:
        ends: :func:`ends_of`.
        further: the open gates to the next topic, if the new topic was itself replaced.
    """
    group = facts.groups.get(name)
    of_group = {} if is_unclear(name, facts) else seen.groups.get(name, {})
    partitions = {}
    for partition, end in ends.items():
        log = facts.partitions.get(partition)
        verdict = verdict_on_partition(end, log, of_group.get(partition), limits, at_ms)
        if verdict.way is not Way.EMPTIED and group is not None and _proves_nothing(group, partition, log):
            verdict = PartitionVerdict(wait=Wait.INVALID)  # the records that replaced the truncated ones are unread
        if verdict.way is None and requirement.waiver(name, group, partition) is not None:
            verdict = PartitionVerdict(Way.WAIVED)
        partitions[partition] = verdict
    whole = GroupVerdict(partitions, is_proved=_is_proved(name, record, facts))
    return replace(whole, begins_anew=not whole.has_read and _begins_anew(name, ends, facts, of_group, further))


def _proves_nothing(group: GroupFacts, partition: int, log: PartitionFacts | None) -> bool:
    """Return whether the group's commit lies on a truncated part of the log, or beyond the log's end.

    The end is read before the commits, so a valid commit may be beyond that end. Only markers and stragglers still move
    the end, so the next snapshot shows an end that is not below a valid commit.
    """
    return partition in group.truncated or (log is not None and group.committed.get(partition, 0) > log.end_offset)


def _is_proved(name: str, record: TopicRecord, facts: TopicFacts) -> bool:
    """Return whether the group's commits on the new topic prove that its gate was open before."""
    new, count = facts.new_topic, record.replacing.num_partitions
    group = new.groups.get(name) if new is not None else None
    if new is None or group is None or not group.has_committed(count):
        return False
    return any(group.notes.get(p) is Note.OPENED for p in range(count)) or _is_behind_start(group, new)


def _is_behind_start(group: GroupFacts, new: TopicFacts) -> bool:
    starts = {p: log.log_start for p, log in new.partitions.items()}
    return any(p in starts and offset > starts[p] for p, offset in group.committed.items())


def _begins_anew(
    name: str,
    ends: Mapping[int, int],
    facts: TopicFacts,
    seen: Mapping[int, PartitionSeen],
    further: Moved,
) -> bool:
    """Return whether a group begins anew. Two snapshots show no members. In addition, the group has no commit on the
    new topic, or was set back on both topics."""
    new = facts.new_topic
    if new is None or is_unclear(name, facts) or is_unclear(name, new) or not seen:
        return False
    if any(partition.empty_snapshots < 2 for partition in seen.values()):
        return False
    group = new.groups.get(name, _NO_GROUP)
    was_set_back = any(
        (partition.committed or 0) < ends[p] for p, partition in seen.items() if partition.committed is not None
    )
    if not group.committed:
        return not further.has_open_gate(name)
    return was_set_back and not _is_behind_start(group, new)


# The decision


@dataclass(frozen=True)
class Decision:
    """The decision after one snapshot of an old topic.

    Attributes:
        record: the record to append, not stamped yet; None if nothing changes.
        verdicts: group -> the verdict on the group, for the groups whose gate is still closed.
        due_ms: when the next partition will count if nothing changes, on the monotonic clock.
        alarms: warnings for the operator.
    """

    record: MovedRecord | None = None
    verdicts: Mapping[str, GroupVerdict] = field(default_factory=dict)
    due_ms: int | None = None
    alarms: tuple[str, ...] = ()


def groups_that_matter(record: TopicRecord, facts: TopicFacts, requirement: Requirement) -> list[str]:
    """Return the groups of an old topic that have a gate, sorted."""
    names = {*requirement.groups, *facts.groups, *record.required_groups}
    return sorted(name for name in names if not is_evacuation_group(record.topic, name))


def decide(
    record: TopicRecord,
    held: MovedRecord | None,
    facts: TopicFacts,
    requirement: Requirement,
    seen: Seen,
    limits: Limits,
    at_ms: int,
    further: Moved = NONE_MOVED,
) -> Decision:
    """Decide for which groups of an old topic the gate is open.

    Args:
        record: the topic's record, as this pass leaves it.
        held: the last decision, if any; its record may not be appended yet.
        seen: what snapshots have shown, up to this one.
        further: the open gates to the next topic, if the new topic was itself replaced.
    """
    before = held or MovedRecord(record.topic_id)
    ends = ends_of(record)
    if before.all or ends is None or facts.topic_id != record.topic_id:
        return Decision()
    names, moved = groups_that_matter(record, facts, requirement), set(before.groups)
    verdicts = {
        name: verdict_on_group(name, record, ends, facts, requirement, seen, limits, at_ms, further)
        for name in {*names, *moved}
        if name not in moved or name in seen.groups
    }
    closed_again = {name for name in moved if name in verdicts and verdicts[name].begins_anew}
    may = {name for name in names if name not in moved and verdicts[name].may_open}
    left = replace(before, groups=tuple(sorted(moved - closed_again)))
    after = _with_room(left, may, record, requirement, facts)
    alarms = [_closed_again_alarm(record, name) for name in sorted(closed_again)]
    through = after.moved
    for name in sorted(filter(through.has_open_gate, may)):
        alarms += _alarms(record, name, verdicts[name], facts, ends)
    if after.all:
        alarms.append(_no_room_alarm(record))
    if requirement.is_closed and record.replacing.released_ms is not None:
        after = replace(after, groups=(), all=True)
        through = after.moved
    waiting = {name: verdict for name, verdict in verdicts.items() if not through.has_open_gate(name)}
    due_ms = earliest_ms(*(verdict.due_ms for verdict in waiting.values()))
    return Decision(None if after == before else after, waiting, due_ms, tuple(alarms))


def _with_room(
    held: MovedRecord, may: Collection[str], record: TopicRecord, requirement: Requirement, facts: TopicFacts
) -> MovedRecord:
    """Return the record with the groups whose gate ``may`` open now. If these names do not fit, return ``all`` if the
    gate may open for every required group. Otherwise return as many names as fit, groups noted at the switch first.

    Room is kept for the groups noted at the switch. Their names fit this record, because they fit into the topic's own
    record together with other fields (:mod:`modeaware.lifecycle.record_size`).
    """
    whole, noted = _added(held, may), set(record.required_groups)
    if _fits(_added(whole, noted)):
        return whole
    if set(requirement.waited_for(facts.groups)) <= set(whole.groups):
        return replace(whole, groups=(), all=True)
    in_order = sorted(may, key=lambda name: (name not in noted, name))
    kept = _added(held, noted) if _fits(_added(held, noted)) else held  # a later list may have noted more groups
    room = bisect_left(range(len(in_order)), True, key=lambda last: not _fits(_added(kept, in_order[: last + 1])))
    return _added(held, in_order[:room])


def _added(held: MovedRecord, names: Iterable[str]) -> MovedRecord:
    return replace(held, groups=tuple(sorted({*held.groups, *names})))


def _fits(record: MovedRecord) -> bool:
    return len(record.to_json()) <= MAX_RECORD_BYTES


# When a topic is due again


def drains_by_groups(record: TopicRecord, *, members_wait: bool) -> bool:
    """Return whether a topic is due at the pace of its groups: groups hold up a drain (of a shrink or a replacement),
    or a gate may still open.

    Args:
        members_wait: whether a group whose gate is closed has members.
    """
    if any(reasons.code_of(reason) in reasons.OF_READERS for reason in held_up(record)):
        return True
    return ends_of(record) is not None and (members_wait or record.replacing.released_ms is None)


def append_due_ms(appended_ms: int, groups: int) -> int:
    """Return when the next record about a topic's gates may be appended: one per second, fewer with many groups.

    Args:
        appended_ms: when the last record was appended.
    """
    return appended_ms + (MANY_APPEND_MS if groups > MANY_GROUPS else APPEND_MS)


def check_due_ms(changed_ms: int, cost_ms: float, took_ms: int, due_ms: int | None, at_ms: int) -> int:
    """Return when a draining topic is due next, on the monotonic clock.

    The wait is half the time since the last change, so the pace follows the group's own commits. The wait stays within
    :data:`SOONEST_MS` and :data:`LATEST_MS`, and ends earlier at ``due_ms``. The pauses for ``cost_ms`` and ``took_ms``
    may make the wait longer.

    Args:
        changed_ms: as in :class:`Seen`.
        cost_ms: the CPU time of passes over draining topics that a pause has to pay off.
        took_ms: how long the last pass over this topic took. The wait is not shorter, so that slow brokers get a pause.
        due_ms: when the next partition will count if nothing changes.
    """
    pace_ms = min(max((at_ms - changed_ms) // 2, SOONEST_MS), LATEST_MS)
    if due_ms is not None:
        pace_ms = min(pace_ms, max(due_ms - at_ms, SOONEST_MS))
    return at_ms + max(pace_ms, round(COST_FACTOR * cost_ms), took_ms)


# Warnings and texts for operators


def _alarms(
    record: TopicRecord, name: str, verdict: GroupVerdict, facts: TopicFacts, ends: Mapping[int, int]
) -> Iterable[str]:
    """Yield a warning for each way by which order may be lost (invariant I9)."""
    if verdict.is_proved:
        return
    opened = f"gate opened for group {name!r} from {record.topic!r} to {record.replacing.new_topic!r}"
    for way, why in _WARNED.items():
        if partitions := verdict.where(way):
            unread = _unread(name, partitions, facts, ends)
            yield f"{opened}: {why.format(partitions=format_ranges(partitions), unread=unread)}"


_WARNED = {
    Way.UNNOTED: "its commits reach the end of partitions {partitions}, but no client has confirmed that all records "
    "were handled (stock clients?)",
    Way.GIVEN: "all records of partitions {partitions} are delivered, but the application has not committed {unread} "
    "of them. After a crash these are delivered again, after newer records",
    Way.UNOWNED: "no member owns partitions {partitions}, which have {unread} unread records",
    Way.WAIVED: "the group is waived on partitions {partitions}, which have {unread} unread records",
}


def gate_texts(record: TopicRecord, moved: Moved, facts: TopicFacts, requirement: Requirement) -> dict[str, str]:
    """Return group -> why its gate is closed, for the groups whose gate is closed. One snapshot decides.

    Args:
        moved: the groups whose gate is open.
    """
    ends = ends_of(record)
    names = [name for name in groups_that_matter(record, facts, requirement) if not moved.has_open_gate(name)]
    if ends is None:
        return dict.fromkeys(names, f"{_CLOSED}: the end of the old topic is not known yet")
    seen = observe(None, facts, names, sorted(ends), 0)
    texts = {}
    for name in names:
        verdict = verdict_on_group(name, record, ends, facts, requirement, seen, _BY_ONE_SNAPSHOT, 0)
        parts = []
        for wait, what in _WAITS.items():
            if partitions := verdict.where(wait):
                unread = _unread(name, partitions, facts, ends)
                parts.append(what.format(partitions=format_ranges(partitions), unread=number(unread)))
        texts[name] = f"{_CLOSED}: {'; '.join(parts) or 'it has read all records; the gate is about to open'}"
    return texts


UNREAD_TEXT = "it has {unread} unread records in partitions {partitions}"
_CLOSED = "gate closed"
_BY_ONE_SNAPSHOT = Limits(unnoted_ms=1, gate_timeout_ms=1)
_WAITS = {
    Wait.UNREAD: UNREAD_TEXT,
    Wait.INVALID: "its commits on partitions {partitions} lie beyond the end of the log, or on a part that was "
    "truncated: reset them",
    Wait.GIVEN: "all records of partitions {partitions} are delivered, but the application has not committed {unread} "
    "of them",
    Wait.BUSY: "the application has paused partitions {partitions}, or has sought back in them",
    Wait.UNNOTED: "all records of partitions {partitions} are committed, but no client has confirmed that the records "
    "were handled",
    Wait.UNKNOWN: "its commits are not known",
}


def _unread(name: str, partitions: Iterable[int], facts: TopicFacts, ends: Mapping[int, int]) -> int:
    group = facts.groups.get(name, _NO_GROUP)
    starts = {p: facts.partitions[p].log_start for p in partitions if p in facts.partitions}
    return sum(max(ends[p] - max(group.committed.get(p, 0), start), 0) for p, start in starts.items())


def broken_seal_alarm(before: TopicRecord, after: TopicRecord, held: MovedRecord | None) -> str | None:
    """Return the warning that a gate was opened before a seal broke (invariant I9), or None if this did not happen.

    Args:
        before, after: the record of the old topic before and after the pass.
        held: the groups whose gate was open before the pass.
    """
    if held is None or not (held.all or held.groups):
        return None
    broken = [p for p, was in before.retired.items() if p in after.retired and _is_broken(was, after.retired[p])]
    if not broken:
        return None
    more = f" and {len(held.groups) - _NAMED} more" if len(held.groups) > _NAMED else ""
    some = f"groups {', '.join(map(repr, held.groups[:_NAMED]))}{more}"
    names = f"{'every group' if held.all else some} from {before.topic!r} to {before.replacing.new_topic!r}"
    when = f"before the seals of partitions {format_ranges(sorted(broken))} broke"
    return f"gate opened for {names} {when}: late records may be read after newer records of the same keys"


_NAMED = 20
"""The most groups that a warning names."""


def _is_broken(before: RetiredPartition, after: RetiredPartition) -> bool:
    """Return whether a seal broke in a pass; the same pass may have set a new one. A seal that moved behind markers has
    not broken."""
    if before.seal_offset is None:
        return False
    if after.seal_offset is None or after.seal_offset < before.seal_offset:
        return True
    return (before.stragglers, before.truncated_to) != (after.stragglers, after.truncated_to)


def _no_room_alarm(record: TopicRecord) -> str:
    """Return the warning that the gate opens for later groups that have read nothing (invariant I9)."""
    topics = f"from {record.topic!r} to {record.replacing.new_topic!r}"
    why = "their names do not fit into one record, and every required group has read the old topic"
    return f"gate opened for every group {topics}, and for later groups: {why}"


def _closed_again_alarm(record: TopicRecord, name: str) -> str:
    return (
        f"gate closed again for group {name!r}: it has no members, and its offsets on {record.replacing.new_topic!r} "
        f"are missing or were reset. When the group returns, it reads {record.topic!r} first"
    )
