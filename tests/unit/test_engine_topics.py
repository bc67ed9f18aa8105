"""The engine and several topics in one pass: each has its own outcome, whatever becomes of another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from modeaware.cluster.observer import SnapshotTarget
from modeaware.config import ControllerConfig
from modeaware.controller.engine import Engine
from modeaware.errors import ClusterError, ErrorCode
from modeaware.lifecycle.commands import (
    Command,
    CommandResult,
    CreatePartitions,
    CreatePartitionsCommand,
    DeletePartitionsCommand,
    Effect,
)
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.state import topic_phase
from modeaware.modelog.group_rules import GroupRule
from tests.support.engine_world import QUIET_MS
from tests.support.simulated import MemoryLog, SimClock, SimCluster, SimGroup

A, B, C = "a", "b", "c"
NO_ANSWER = ClusterError("no answer", code=ErrorCode.REQUEST_TIMED_OUT)
REFUSED = ClusterError("no", code=ErrorCode.INVALID_REPLICA_ASSIGNMENT)


class Topics:
    """Topics of 6 partitions, each on a simulated cluster of its own: the engine's observer, and its effects.

    A snapshot and a round of effects ends with an unexpected error where the topic ``odd`` takes part.
    """

    def __init__(self) -> None:
        self.clock = SimClock()
        self.log = MemoryLog()
        self.clusters = {topic: SimCluster(self.clock, topic, 6) for topic in (A, B, C)}
        for cluster in self.clusters.values():
            cluster.produce(5, 3)
        self.odd, self.snapshots_fail = "", True
        self.snapshots: list[int] = []
        self.resting: set[str] = set()
        self.engine = Engine(self.log, self, self, ControllerConfig(seal_quiet_ms=QUIET_MS), self.clock)
        self.engine.claim("test")

    def _beware(self, topics: Sequence[str]) -> None:
        if self.odd in topics:
            raise ValueError(f"{self.odd} is odd")

    def observe_all(
        self, targets: Sequence[SnapshotTarget], rules: Sequence[GroupRule] = ()
    ) -> list[TopicFacts | ClusterError]:
        self.snapshots.append(len(targets))
        if self.snapshots_fail:
            self._beware([topic for topic, *_ in targets])
        return [self.clusters[topic].observe(topic, record) for topic, record, *_ in targets]

    def unchanged(self, topic_ids: Iterable[str]) -> bool:
        self.resting = set(topic_ids)
        before = [cluster.unchanged(topic_ids) for cluster in self.clusters.values()]
        return all(before)

    def perform(self, effects: Sequence[Effect]) -> list[ClusterError | None]:
        self._beware([effect.topic for effect in effects])
        return [failure for effect in effects for failure in self.clusters[effect.topic].perform([effect])]

    def validate(self, effects: Sequence[CreatePartitions]) -> list[ClusterError | None]:
        self._beware([effect.topic for effect in effects])
        return [failure for effect in effects for failure in self.clusters[effect.topic].validate([effect])]

    def execute(self, commands: Sequence[Command]) -> list[CommandResult]:
        """As the controller does it, which begins again with those that were not begun."""
        results: list[CommandResult] = []
        while len(results) < len(commands):
            results += self.engine.execute(commands[len(results) :])
        return results

    def shrink(self) -> dict[str, ErrorCode]:
        results = self.execute([DeletePartitionsCommand(topic, 2, 0) for topic in self.clusters])
        return {result.topic: result.code for result in results}

    def grow(self) -> dict[str, ErrorCode]:
        results = self.execute([CreatePartitionsCommand(topic, 8) for topic in self.clusters])
        return {result.topic: result.code for result in results}

    def check(self) -> list[str]:
        """Check what is due; return the topics that are due right after that."""
        self.engine.check(self.engine.awake(self.engine.schedule.due(self.clock.now_ms())))
        names = {record.topic_id: record.topic for record in self.engine.records}
        return sorted(names[topic_id] for topic_id in self.engine.schedule.due(self.clock.now_ms()))

    def run(self, for_ms: int = QUIET_MS + 3_000) -> dict[str, str]:
        """Check what is due, twice a second; return the phases."""
        for _ in range(for_ms // 500):
            for _ in range(20):
                if not self.engine.schedule.due(self.clock.now_ms()):
                    break
                self.check()
            self.clock.advance(500)
        return self.phases

    @property
    def phases(self) -> dict[str, str]:
        return {record.topic: topic_phase(record) for record in self.engine.records}


@pytest.fixture
def topics() -> Topics:
    return Topics()


def test_all_are_looked_at_and_appended_together(topics: Topics) -> None:
    topics.clusters[B].groups["slow"] = SimGroup({5: 1})
    assert set(topics.shrink().values()) == {ErrorCode.NONE}
    assert topics.run() == {A: "done", B: "drain", C: "done"}
    assert set(topics.snapshots[:4]) == {3}
    assert topics.clusters[B].partitions[5].log_start == 0
    topics.clusters[B].consume("slow", 5)
    assert topics.run(30_000)[B] == "done"


def test_a_look_that_fails_is_made_with_fewer(topics: Topics) -> None:
    topics.odd = B
    codes = topics.shrink()
    assert codes == {A: ErrorCode.NONE, B: ErrorCode.UNKNOWN_SERVER_ERROR, C: ErrorCode.NONE}
    topics.odd = ""
    topics.shrink()
    topics.odd = B
    assert topics.run() == {A: "done", B: "seal", C: "done"}
    topics.odd = ""
    assert topics.run(30_000)[B] == "done"


def test_an_effect_that_fails_is_repeated_alone(topics: Topics) -> None:
    topics.shrink()
    topics.check()
    topics.clock.advance(QUIET_MS)
    topics.clusters[B].refuses = NO_ANSWER
    due = [A, B, C]
    while due == [A, B, C]:
        due = topics.check()
    assert due == [A, C], "they show at once what was done; the other waits before it is done again"
    assert topics.run(1_000) == {A: "done", B: "reclaim", C: "done"}
    topics.clusters[B].refuses = None
    assert topics.run(30_000)[B] == "done"


def test_effects_that_end_unexpectedly_are_done_apart(topics: Topics) -> None:
    topics.shrink()
    topics.check()
    topics.clock.advance(QUIET_MS)
    topics.snapshots_fail = False
    topics.odd = B
    assert topics.run() == {A: "done", B: "reclaim", C: "done"}
    topics.odd = ""
    assert topics.run(30_000)[B] == "done"


class TestTooLarge:
    def test_together(self, topics: Topics) -> None:
        topics.log.most = 1
        assert set(topics.shrink().values()) == {ErrorCode.NONE}
        assert topics.run() == {A: "done", B: "done", C: "done"}

    def test_one_of_a_command(self, topics: Topics) -> None:
        topics.log.too_large = {"id-of-b-1"}
        assert topics.shrink() == {A: ErrorCode.NONE, B: ErrorCode.MESSAGE_TOO_LARGE, C: ErrorCode.NONE}
        assert sorted(topics.phases) == [A, C]

    def test_one_of_a_check(self, topics: Topics) -> None:
        """Nothing that would follow from its record is done, and it is tried again less and less often."""
        topics.clusters[B].groups["slow"] = SimGroup({5: 1})
        topics.shrink()
        assert topics.run() == {A: "done", B: "drain", C: "done"}
        topics.clusters[B].consume("slow", 5)
        topics.log.too_large = {"id-of-b-1"}
        topics.snapshots.clear()
        assert topics.run(60_000)[B] == "drain"
        assert topics.clusters[B].performed == []
        assert len(topics.snapshots) < 10
        topics.log.too_large = set()
        assert topics.run(60_000)[B] == "done"


def test_growths_of_several(topics: Topics) -> None:
    """One is refused before anything is appended, one after that, one is done."""
    topics.clusters[A].refuses_checks = topics.clusters[B].refuses = REFUSED
    refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert topics.grow() == {A: refused, B: refused, C: ErrorCode.NONE}
    modes = {record.topic: len(record.modes) for record in topics.engine.records}
    assert modes == {B: 6, C: 8}
    assert [len(cluster.partitions) for cluster in topics.clusters.values()] == [6, 6, 8]


def test_a_topic_whose_record_is_removed_does_not_keep_others_from_resting(topics: Topics) -> None:
    topics.shrink()
    assert set(topics.run().values()) == {"done"}
    interval_ms = ControllerConfig().check_interval_ms
    topics.run(3 * interval_ms)
    topics.engine.remove([record.topic_id for record in topics.engine.records if record.topic == B])
    assert set(topics.run(3 * interval_ms)) == {A, C}
    before = len(topics.snapshots)
    topics.run(3 * interval_ms)
    assert len(topics.snapshots) == before
    assert topics.resting == {record.topic_id for record in topics.engine.records}
