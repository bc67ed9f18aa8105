"""What a committed offset is worth: lag that is none, and commits on a log that was truncated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from modeaware.clock import Clock
from modeaware.cluster.control_records import Gap, without_records
from modeaware.cluster.groups.found import GroupsFound
from modeaware.cluster.partition_leaders import epoch_ends
from modeaware.lifecycle.facts import GroupFacts, PartitionFacts
from modeaware.lifecycle.handover import read_up_to, waits_for_groups
from modeaware.lifecycle.phases import in_progress, rests
from modeaware.lifecycle.policy import drains
from modeaware.modelog.records import TopicRecord
from modeaware.modes import PartitionMode
from modeaware.wire.brokers.client import Brokers

_GapsByGroup = dict[str, dict[int, Gap | None]]
"""Group -> partition -> a stretch of it; None: it cannot be told."""


@dataclass(frozen=True)
class CommitsChecked:
    """The groups with ``caught_up``, ``truncated`` and ``epochless`` noted; ``unavailable`` partitions could not be
    checked."""

    groups: Mapping[str, GroupFacts]
    unavailable: frozenset[int] = frozenset()


def check_commits(
    conf: Mapping[str, Any],
    brokers: Brokers,
    record: TopicRecord,
    partitions: Mapping[int, PartitionFacts],
    found: GroupsFound,
    clock: Clock,
    before_due: bool = False,
) -> CommitsChecked:
    """Check the commits on retired partitions, and on survivors of a shrink, where they decide anything.

    Where the delay of the shrink has not passed, and a partition is handed over, nothing rests on lag yet: no gap is
    read, so all of it counts. Where a commit decides a handover alone and cannot be checked, it counts as truncated:
    the partition is there for all else.

    Args:
        before_due: read gaps nevertheless.

    Raises:
        ClusterError: no broker answered, or a gap cannot be read at all.
    """
    if record.deletion is None:
        return CommitsChecked(found.groups)
    drained = {
        p for p, r in record.retired.items()
        if p in partitions and not r.opening and in_progress(record) and drains(p, record)
        and not rests(record.modes[p], r)
    }  # fmt: skip
    handover = partitions.keys() & waits_for_groups(record)
    wanted = drained | handover
    if not wanted:
        return CommitsChecked(found.groups)
    rewritten, unanswered = _rewritten(brokers, record, wanted, partitions, found)
    epochless = _epochless(record, wanted, partitions, found)
    behind = _behind(record, wanted, partitions, found)
    due = wanted
    if clock.now_ms() < record.deletion.earliest_ms and not before_due:
        none = {p for p in drained if record.modes[p] is PartitionMode.NONE}  # its proof is taken anew at every look
        due = handover | none
    gaps = {
        gap
        for each in (rewritten, epochless, behind)
        for by_partition in each.values()
        for gap in by_partition.values()
        if gap is not None and gap.partition in due
    }
    clear = without_records(conf, record.topic, gaps, clock.monotonic_s)
    groups = {
        name: replace(
            group,
            caught_up=frozenset(p for p, gap in behind[name].items() if gap in clear),
            truncated=frozenset(p for p, gap in rewritten[name].items() if gap not in clear),
            epochless=frozenset(p for p, gap in epochless[name].items() if gap not in clear),
        )
        for name, group in found.groups.items()
    }
    return CommitsChecked(groups, unanswered & drained)


def _behind(
    record: TopicRecord, wanted: set[int], partitions: Mapping[int, PartitionFacts], found: GroupsFound
) -> _GapsByGroup:
    """What lies between what each group has committed (else the log start) and the seal, or what stands for it."""
    gaps: _GapsByGroup = {}
    for name, group in found.groups.items():
        gaps[name] = {}
        for partition in wanted:
            until = read_up_to(partition, record, partitions[partition].end_offset)
            start = max(group.committed.get(partition, 0), partitions[partition].log_start)
            if until is not None and start < until:
                gaps[name][partition] = Gap(partition, start, until)
    return gaps


def _rewritten(
    brokers: Brokers,
    record: TopicRecord,
    wanted: set[int],
    partitions: Mapping[int, PartitionFacts],
    found: GroupsFound,
) -> tuple[_GapsByGroup, frozenset[int]]:
    """What lies between where the leader's log ends for a commit's leader epoch, and the commit, if that is beyond it.

    What is there was written later and is not what the group has read. Where it is only control records, the group
    has missed nothing: some clients commit past a marker under the epoch of the record before it.
    """
    earlier = [
        (name, partition, epoch)
        for name, epochs in found.epochs.items()
        for partition, epoch in epochs.items()
        if partition in wanted and epoch != partitions[partition].leader_epoch
    ]
    ends = epoch_ends(brokers, record.topic, {(partition, epoch) for _, partition, epoch in earlier})
    gaps: _GapsByGroup = {name: {} for name in found.groups}
    unanswered = set()
    for name, partition, epoch in earlier:
        end = ends.get((partition, epoch))
        if end is None:
            unanswered.add(partition)
            gaps[name][partition] = None
            continue
        committed = found.groups[name].committed[partition]
        start = max(end, partitions[partition].log_start)
        if start < committed:
            gaps[name][partition] = Gap(partition, start, committed) if end >= 0 else None
    return gaps, frozenset(unanswered)


def _epochless(
    record: TopicRecord, wanted: set[int], partitions: Mapping[int, PartitionFacts], found: GroupsFound
) -> _GapsByGroup:
    """Commits that name no leader epoch: what lies before them and was written since the log was truncated."""
    gaps: _GapsByGroup = {name: {} for name in found.groups}
    for name, group in found.groups.items():
        for partition in wanted & (group.committed.keys() - found.epochs.get(name, {}).keys()):
            retired, committed = record.retired.get(partition), group.committed[partition]
            truncated_to = retired.truncated_to if retired is not None else None
            start = max(truncated_to or 0, partitions[partition].log_start)
            known = truncated_to is not None and start < committed
            gaps[name][partition] = Gap(partition, start, committed) if known else None
    return gaps
