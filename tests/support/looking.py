"""An observer over a cluster that is a few dictionaries, and records for it to look at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from modeaware.cluster import commits
from modeaware.cluster import observer as module
from modeaware.cluster.cluster import LogOffsets, TopicShape
from modeaware.cluster.control_records import Gap
from modeaware.cluster.groups.found import GroupsFound
from modeaware.cluster.observer import Observer
from modeaware.errors import ClusterError
from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt, WriterFacts
from modeaware.modelog.records import TopicRecord
from tests.support.lifecycle import LATER_MS, TOPIC_ID, admitted, after, facts, log, shrink
from tests.support.simulated import SimClock

P = 11


class StubCluster:
    """Shows one topic, as far as it is set to."""

    def __init__(self) -> None:
        self.shape: TopicShape | None = TopicShape(TOPIC_ID, False, 12)
        self.ends = dict.fromkeys(range(12), 10)
        self.policy = "delete"
        self.brokers = None
        self.stable: int | None = None
        self.leader_epoch = 5

    def describe(self, topics: Iterable[str]) -> dict[str, TopicShape | None]:
        return dict.fromkeys(topics, self.shape)

    def cleanup_policy(self, topic: str) -> str:
        return self.policy

    def offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, LogOffsets]:
        return {
            p: LogOffsets(2, self.ends[p], self.ends[p] if self.stable is None else self.stable, self.leader_epoch)
            for p in partitions
            if p in self.ends
        }


class Looking:
    """An observer, what it looks at, and what it asked about."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.clock = SimClock()
        self.cluster = StubCluster()
        self.groups: dict[str, GroupFacts] = {}
        self.asked_for_groups = 0
        self.gaps: list[Gap] = []
        self.clear = True
        self.ids: dict[int, str | None] | ClusterError | None = None
        self.epoch_ends: dict[tuple[int, int], int] = {}
        self.asked: list[tuple[str, object]] = []
        self.observer = Observer(self.cluster, {}, self.clock)
        patch.setattr(module, "find_groups", self._find_groups)
        patch.setattr(module, "topic_ids", self._topic_ids)
        patch.setattr(module, "epoch_ends", self._epoch_ends)
        patch.setattr(module, "writers", self._writers)
        patch.setattr(module, "sample_records", self._samples)
        patch.setattr(commits, "without_records", self._without_records)

    def _find_groups(
        self, _cluster: object, _topic: str, _partitions: object, also: Sequence[str], _listed: object
    ) -> GroupsFound:
        self.asked_for_groups += 1
        self.asked.append(("also", tuple(also)))
        return GroupsFound(dict(self.groups))

    def _topic_ids(self, _brokers: object, _topic: str) -> dict[int, str | None]:
        if isinstance(self.ids, ClusterError):
            raise self.ids
        shape = self.cluster.shape
        return self.ids if self.ids is not None else {1: shape.topic_id if shape is not None else None}

    def _epoch_ends(
        self, _brokers: object, _topic: str, wanted: Iterable[tuple[int, int]]
    ) -> dict[tuple[int, int], int]:
        asked = set(wanted)
        if asked:
            self.asked.append(("epochs", asked))
        return {pair: self.epoch_ends[pair] for pair in asked if pair in self.epoch_ends}

    def _writers(self, _brokers: object, _topic: str, partitions: Iterable[int]) -> dict[int, tuple[WriterFacts, ...]]:
        return {p: (WriterFacts(77, 1),) for p in self._note("writers", partitions)}

    def _samples(self, _conf: object, _topic: str, starts: dict[int, int], _: object) -> dict[int, tuple[str, ...]]:
        return {p: (f"from {start}",) for p, start in starts.items()} if self._note("samples", starts) else {}

    def _note(self, what: str, partitions: Iterable[int]) -> set[int]:
        asked = set(partitions)
        if asked:
            self.asked.append((what, asked))
        return asked

    def _without_records(self, _conf: object, _topic: str, gaps: Iterable[Gap], _: object) -> frozenset[Gap]:
        self.gaps += gaps
        return frozenset(gaps) if self.clear else frozenset()


def draining(**fields: object) -> TopicRecord:
    """Partition 11 is sealed at 10 and waits for a group."""
    record = after(
        admitted(shrink(P, **fields)), facts(logs={P: log(10, leader_epoch=5)}, groups_doubt=GroupsDoubt("not yet"))
    )
    assert record.retired[P].seal_offset == 10
    return record


def finished() -> TopicRecord:
    return after(admitted(shrink(P)), facts(), LATER_MS, passes=3)
