"""What a committed offset on a sealed partition is worth: lag that is none, and commits on a log that was truncated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from modeaware.cluster.control_records import only_control_records
from modeaware.cluster.groups.found import GroupsFound
from modeaware.cluster.partition_leaders import epoch_ends
from modeaware.lifecycle.facts import GroupFacts, PartitionFacts
from modeaware.lifecycle.policy import reclaim_policy
from modeaware.modelog.records import TopicRecord
from modeaware.wire.brokers.client import Brokers


@dataclass(frozen=True)
class CommitsChecked:
    """The groups with ``caught_up`` and ``truncated`` noted; ``unavailable`` partitions could not be checked."""

    groups: Mapping[str, GroupFacts]
    unavailable: frozenset[int] = frozenset()


def check_commits(
    conf: Mapping[str, Any],
    brokers: Brokers,
    record: TopicRecord,
    partitions: Mapping[int, PartitionFacts],
    found: GroupsFound,
    monotonic_s: Callable[[], float],
) -> CommitsChecked:
    """Check the commits on sealed partitions, where they decide anything.

    Raises:
        ClusterError: no broker answered.
    """
    if record.deletion is None:
        return CommitsChecked(found.groups)
    seals = {
        p: retired.seal_offset
        for p, retired in record.retired.items()
        if p in partitions and retired.seal_offset is not None and not retired.opening
        if reclaim_policy(p, record) == "drained"
    }
    if not seals:
        return CommitsChecked(found.groups)
    gaps = _Gaps(conf, record.topic, monotonic_s)
    truncated, unavailable = _truncated(brokers, seals, partitions, found, gaps)
    groups = {}
    for name, group in found.groups.items():
        caught_up = set()
        for partition, seal_offset in seals.items():
            start = max(group.committed.get(partition, 0), partitions[partition].log_start)
            if start < seal_offset and gaps.clear(partition, start, seal_offset):
                caught_up.add(partition)
        groups[name] = replace(group, caught_up=frozenset(caught_up), truncated=truncated.get(name, frozenset()))
    return CommitsChecked(groups, unavailable)


def _truncated(
    brokers: Brokers,
    seals: Mapping[int, int],
    partitions: Mapping[int, PartitionFacts],
    found: GroupsFound,
    gaps: _Gaps,
) -> tuple[dict[str, frozenset[int]], frozenset[int]]:
    """Group -> the partitions where its commit lies beyond where the leader's log ends for the commit's leader epoch.

    What follows there was written later and is not what the group has read. Where it is only control records, the group
    has missed nothing: some clients commit past a marker under the epoch of the record before it.
    """
    earlier = [
        (name, partition, epoch)
        for name, epochs in found.epochs.items()
        for partition, epoch in epochs.items()
        if partition in seals and epoch != partitions[partition].leader_epoch
    ]
    ends = epoch_ends(brokers, gaps.topic, {(partition, epoch) for _, partition, epoch in earlier})
    truncated: dict[str, set[int]] = {}
    unavailable = set()
    for name, partition, epoch in earlier:
        end = ends.get((partition, epoch))
        if end is None:
            unavailable.add(partition)
            continue
        committed = found.groups[name].committed[partition]
        start = max(end, partitions[partition].log_start)
        if start < committed and (end < 0 or not gaps.clear(partition, start, committed)):
            truncated.setdefault(name, set()).add(partition)
    return {name: frozenset(where) for name, where in truncated.items()}, frozenset(unavailable)


class _Gaps:
    """Stretches of a topic's partitions, each read once to see whether there is anything in it for a consumer."""

    def __init__(self, conf: Mapping[str, Any], topic: str, monotonic_s: Callable[[], float]) -> None:
        self.topic = topic
        self._conf = conf
        self._monotonic_s = monotonic_s
        self._known: dict[tuple[int, int, int], bool] = {}

    def clear(self, partition: int, start: int, end: int) -> bool:
        """Whether only control records or aborted records lie from ``start`` up to ``end``."""
        gap = (partition, start, end)
        if gap not in self._known:
            self._known[gap] = only_control_records(self._conf, self.topic, *gap, self._monotonic_s)
        return self._known[gap]
