"""The engine lets groups through: what it appends, at which pace it checks topics, and what it reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from modeaware.cluster.observer import SnapshotTarget
from modeaware.config import ControllerConfig
from modeaware.controller.engine import Engine
from modeaware.controller.schedule import elapsed_ms
from modeaware.controller.status import Role, Snapshot
from modeaware.errors import ClusterError
from modeaware.lifecycle import reasons
from modeaware.lifecycle.facts import FenceFacts, GroupFacts, TopicFacts
from modeaware.lifecycle.replacement import FENCE_CONFIGS
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.moved import MOVED_PREFIX, MovedRecord, moved_key
from modeaware.modelog.records import (
    CLAIM_KEY,
    ClaimRecord,
    DeleteTopicPartitions,
    Replacement,
    RetiredPartition,
    TopicRecord,
)
from modeaware.monitoring.status_json import topic_status
from modeaware.notes import Note
from tests.support.lifecycle import RO, RW, group, log
from tests.support.modelog import for_newer_readers
from tests.support.simulated import MemoryLog, SimClock

OLD, NEW = "orders", "orders-v2"


def old_topic(topic: str = OLD, *, groups: tuple[str, ...] = ("g",), end: int = 10) -> TopicRecord:
    """A sealed topic of two partitions, whose name points to the new topic."""
    return TopicRecord(
        topic,
        f"id-{topic}",
        1,
        1,
        (RO, RO),
        retired={p: RetiredPartition(seal_offset=end, seal_leader_epoch=3, read_up_to=end) for p in (0, 1)},
        required_groups=groups,
        replacement=Replacement(
            f"{topic}-v2",
            2,
            0,
            new_topic_id=f"id-{topic}-v2",
            announced_ms=1,
            switched_ms=2,
            own_configs={},
            fenced_ms=3,
        ),
    )


class World:
    """Topics, their groups, and an engine that has claimed a log with ``records``. A snapshot takes ``snapshot_ms``,
    and ``cpu_ms`` of CPU time."""

    def __init__(self, *records: TopicRecord, moved: Sequence[tuple[str, bytes]] = ()) -> None:
        self.clock = SimClock()
        self.records = {record.topic: record for record in records}
        self.groups: dict[str, dict[str, GroupFacts]] = {topic: {} for topic in self.records}
        self.snapshot_ms = self.cpu_ms = 0
        self.together: int | None = None
        self.ends = {0: 10, 1: 10}
        self.snapshots: list[list[str]] = []
        self.log = MemoryLog()
        claim = ClaimRecord(1, None, "before").to_json()
        self.log.append([(CLAIM_KEY, claim), *((r.topic_id, r.to_json()) for r in records), *moved])
        brokers: Any = self
        self.engine = Engine(self.log, brokers, brokers, ControllerConfig(), self.clock)
        self.engine.claim("test")

    def observe_all(
        self, targets: Sequence[SnapshotTarget], rules: Sequence[GroupRule] = ()
    ) -> list[TopicFacts | ClusterError]:
        self.snapshots.append([target.topic for target in targets])
        self.clock.advance(self.snapshot_ms)
        self.clock.cpu_ms += self.cpu_ms
        return [self._facts(target) for target in targets]

    def _facts(self, target: SnapshotTarget) -> TopicFacts:
        if target.topic not in self.records:
            groups = self.groups.get(target.topic, {})
            return TopicFacts(target.topic, f"id-{target.topic}", 2, partitions={0: log(), 1: log()}, groups=groups)
        count = len(self.records[target.topic].modes)
        return TopicFacts(
            target.topic,
            f"id-{target.topic}",
            partition_count=count,
            partitions={p: log(self.ends[p], log_end=self.ends[p], read_up_to=self.ends[p]) for p in range(count)},
            groups=self.groups[target.topic],
            fence=FenceFacts(FENCE_CONFIGS, dict.fromkeys(range(count), 3), frozenset(range(count))),
        )

    def perform(self, effects: Sequence[object]) -> list[None]:
        return [None for _ in effects]

    def commit(self, name: str, offset: int = 10, note: Note = Note.READ, topic: str = OLD, **more: Any) -> None:
        notes = dict.fromkeys((0, 1), note) if note is not Note.NONE else {}
        facts = {"members": True, "owned": frozenset({0, 1}), **more}
        self.groups.setdefault(topic, {})[name] = group({0: offset, 1: offset}, notes=notes, **facts)

    def serve(self, for_ms: int) -> None:
        """What the controller's thread does for so long: it checks what is due."""
        until_ms = self.clock.time_ms + for_ms
        while self.clock.time_ms < until_ms:
            if due := self.engine.schedule.due(elapsed_ms(self.clock)):
                self.engine.check(self.engine.awake(due)[: self.together])
            next_ms = self.engine.schedule.next_ms()
            assert next_ms is not None
            self.clock.time_ms = min(max(next_ms, self.clock.time_ms + 1), until_ms)

    @property
    def written(self) -> list[MovedRecord | None]:
        return [
            None if value is None else MovedRecord.from_json(value)
            for key, value in self.log.entries
            if key.startswith(MOVED_PREFIX)
        ]

    @property
    def open_gates(self) -> Mapping[str, tuple[str, ...]]:
        return {record.topic_id: record.groups for record in self.log.open().moved.values()}


def test_group_that_has_read_has_an_open_gate_within_a_moment_and_not_before() -> None:
    world = World(old_topic())
    world.commit("g", 9)
    world.serve(60_000)
    assert world.written == []
    world.commit("g")
    world.serve(10_000)
    assert world.open_gates == {"id-orders": ("g",)}
    assert [record and record.version for record in world.written] == [(2, 0)]
    world.serve(60_000)
    assert len(world.written) == 1, "nothing is appended twice"


def test_looks_follow_the_pace_of_the_groups_and_their_own_cost() -> None:
    world = World(old_topic())
    world.commit("g", 5)
    world.serve(1_000)
    busy = len(world.snapshots)
    assert busy > 4
    world.serve(60_000)
    world.snapshots.clear()
    world.serve(100_000)
    assert 18 <= len(world.snapshots) <= 24, "the old and the new topic, every ten seconds"
    world.snapshot_ms = 10_000
    world.snapshots.clear()
    world.serve(400_000)
    assert 18 <= len(world.snapshots) <= 22, "a snapshot of twenty seconds, and a pause as long"
    world.snapshot_ms = world.cpu_ms = 1_000
    world.serve(100_000)
    world.snapshots.clear()
    world.serve(200_000)
    assert 14 <= len(world.snapshots) <= 22, "a snapshot of two seconds of CPU time, every twenty"


def test_first_looks_do_not_wait_for_their_own_cost() -> None:
    world = World(old_topic())
    world.cpu_ms = 100
    world.commit("g", 5)
    world.serve(300)
    world.commit("g")
    world.serve(300)
    assert world.open_gates == {"id-orders": ("g",)}


def test_all_topics_that_drain_are_looked_at_together() -> None:
    world = World(old_topic("a"), old_topic("b"))
    world.commit("g", 5, topic="a")
    world.serve(60_000)
    world.snapshots.clear()
    world.serve(30_000)
    assert {tuple(sorted(topics)) for topics in world.snapshots} == {("a", "b"), ("a-v2", "b-v2")}


def test_cost_of_looks_is_that_of_all_topics_that_drain_also_where_a_pass_has_room_for_some() -> None:
    names = list("abcd")
    world = World(*map(old_topic, names))
    for name in names:
        world.commit("g", 5, topic=name)
    world.serve(60_000)
    world.snapshot_ms, world.cpu_ms, world.together = 500, 500, 1
    world.serve(100_000)
    world.snapshots.clear()
    world.serve(400_000)
    checked = Counter(topic for topics in world.snapshots for topic in topics)
    assert {checked[name] for name in names} <= {9, 10, 11}, "four snapshots of a second each, every 40 s"


def test_topics_that_are_due_next_fill_a_pass() -> None:
    world = World(*map(old_topic, "abcd"))
    for name in "abcd":
        world.commit("g", 5, topic=name)
    world.serve(60_000)
    due = [f"id-{name}" for name in "cadb"]
    for number, topic_id in enumerate(due):
        world.engine.schedule.now(topic_id, elapsed_ms(world.clock) + 1_000 * number)
    assert world.engine.awake(due[:1]) == due


def test_arrivals_are_appended_once_a_second_and_every_ten_with_many_groups() -> None:
    names = [f"g{number:03}" for number in range(150)]
    world = World(old_topic(groups=tuple(names)))
    for name in names:
        world.commit(name, 5)
    world.serve(1_000)
    for name in names[:100]:
        world.commit(name)
        world.serve(100)
    world.serve(2_000)
    first = [len(record.groups) for record in world.written if record is not None]
    assert first[-1] == 100
    assert 8 <= len(first) <= 13
    for name in names[100:]:
        world.commit(name)
        world.serve(100)
    world.serve(12_000)
    rest = [len(record.groups) for record in world.written[len(first) :] if record is not None]
    assert rest[-1] == 150
    assert len(rest) <= 3


def test_decision_that_waits_for_its_turn_is_not_lost() -> None:
    world = World(old_topic(groups=("a", "b")))
    world.commit("a")
    world.commit("b", 5)
    world.serve(100)
    world.commit("b")
    world.serve(400)
    assert world.open_gates == {"id-orders": ("a",)}
    world.commit("b", note=Note.NONE)  # a rebalance wipes it
    world.serve(2_000)
    assert world.open_gates == {"id-orders": ("a", "b")}


def test_gates_of_a_chain_are_closed_again_from_its_last_topic_on() -> None:
    """Offsets on its first topics expire while the group reads its last one."""
    world = World(old_topic(), old_topic(NEW))
    for topic in (OLD, NEW):
        world.commit("g", topic=topic)
    world.serve(1_000)
    world.groups[OLD].clear()
    world.groups[NEW].clear()
    world.commit("g", 3, topic=f"{NEW}-v2", members=False)
    world.serve(600_000)
    assert world.open_gates == {"id-orders": ("g",), "id-orders-v2": ("g",)}
    world.groups[f"{NEW}-v2"].clear()
    world.serve(600_000)
    assert world.open_gates == {"id-orders": (), "id-orders-v2": ()}


def test_exceptions_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    world = World(old_topic())
    world.commit("g", 7, note=Note.GIVEN)
    world.serve(9_000)
    assert world.written == []
    world.serve(8_000)
    assert world.open_gates == {"id-orders": ("g",)}
    warned = [m for m in caplog.messages if "the application has not committed 6 of them" in m]
    assert len(warned) == 1


def test_groups_that_had_an_open_gate_before_a_seal_broke_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World(old_topic(groups=("a", "b", "c")))
    for name, offset in (("a", 10), ("b", 10), ("c", 5)):
        world.commit(name, offset)
    world.serve(60_000)
    assert world.open_gates == {"id-orders": ("a", "b")}
    world.ends[1] = 12
    world.serve(120_000)
    named = [message for message in caplog.messages if "gate opened for groups 'a', 'b' from 'orders'" in message]
    assert len(named) == 1
    assert "to 'orders-v2'" in named[0]
    assert "before the seals of partitions 1 broke" in named[0]
    assert world.open_gates == {"id-orders": ("a", "b")}


def test_seal_that_breaks_while_no_group_has_an_open_gate_is_no_alarm_about_groups(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(old_topic())
    world.commit("g", 5)
    world.serve(1_000)
    world.ends[1] = 12
    world.serve(120_000)
    assert any("orders-1" in message for message in caplog.messages), "the seal broke"
    assert not any("gate opened" in message for message in caplog.messages)


def test_what_is_shown_of_a_topic_has_its_groups_and_its_next_check() -> None:
    world = World(old_topic(groups=("a", "b")))
    world.commit("a")
    world.commit("b", 5)
    world.serve(100_000)
    (seen,) = world.engine.watched.seen().topics
    assert seen.moved.groups == {"a"}
    assert seen.due_ms is not None
    assert 0 <= seen.due_ms - world.clock.time_ms <= 10_000
    world.engine.check([seen.record.topic_id])
    shown = topic_status(seen, Snapshot(world.clock.time_ms, "c", Role.ACTIVE, topics=(seen,)))
    told = {group["group"]: (group["gate_open"], group["gate"]) for group in shown["groups"]}
    assert told == {"a": (True, None), "b": (False, "gate closed: it has 10 unread records in partitions 0-1")}


def test_next_controller_takes_over_what_was_decided() -> None:
    held = MovedRecord("id-orders", ("a",), controller_epoch=7, epoch=4)
    world = World(old_topic(groups=("a", "b")), moved=[(moved_key("id-orders"), held.to_json())])
    world.commit("a")
    world.commit("b")
    world.serve(10_000)
    assert world.open_gates == {"id-orders": ("a", "b")}
    assert [record and record.version for record in world.written] == [(7, 4), (8, 5)]


def test_record_for_newer_readers_is_left_alone() -> None:
    newer = for_newer_readers(MovedRecord("id-orders", ("a",), controller_epoch=1, epoch=4))
    world = World(old_topic(), moved=[(moved_key("id-orders"), newer)])
    world.commit("g")
    world.serve(60_000)
    assert [key for key, _ in world.log.entries].count(moved_key("id-orders")) == 1


def test_gates_of_a_topic_whose_record_needs_a_newer_reader_are_left_alone() -> None:
    """The topic is not gone: its own record cannot be read."""
    held = MovedRecord("id-orders", ("a",), controller_epoch=1, epoch=4)
    world = World(old_topic("clicks"), moved=[(moved_key("id-orders"), held.to_json())])
    world.log.append([("id-orders", for_newer_readers(old_topic()))])
    world.engine.claim("test")
    world.commit("g", topic="clicks")
    world.serve(60_000)
    assert world.open_gates == {"id-orders": ("a",), "id-clicks": ("g",)}
    assert [key for key, _ in world.log.entries].count(moved_key("id-orders")) == 1


def test_decision_ends_with_the_old_topic() -> None:
    held = MovedRecord("id-orders", ("g",), controller_epoch=1, epoch=0)
    record = old_topic()
    gone = replace(record, replacement=replace(record.replacing, released_ms=4, gone_ms=5), retired={})
    world = World(gone, moved=[(moved_key("id-orders"), held.to_json())])
    world.serve(1_000)
    assert world.written[-1] is None
    assert world.open_gates == {}


def test_a_shrink_that_waits_for_a_group_is_looked_at_in_its_pace() -> None:
    record = TopicRecord(
        OLD,
        "id-orders",
        1,
        1,
        (RW, RO),
        deletion=DeleteTopicPartitions(1, 0, False, 0, 2),
        retired={1: RetiredPartition(seal_offset=10, seal_leader_epoch=3)},
        required_groups=("g",),
    )
    world = World(record)
    world.commit("g", 5, note=Note.NONE)
    world.serve(900_000)
    (record,) = world.engine.records
    assert record.retired[1].reason == reasons.of_group(reasons.GROUP_LAG, "g")
    world.snapshots.clear()
    world.commit("g", note=Note.NONE)
    world.serve(10_500)
    (record,) = world.engine.records
    assert record.retired[1].reason is None, "an end is noticed within ten seconds"
    assert world.written == []


@pytest.mark.parametrize("together", [None, 1])
def test_gates_that_the_log_does_not_take_block_no_other_topic(
    caplog: pytest.LogCaptureFixture, together: int | None
) -> None:
    world = World(old_topic("a"), old_topic("b"))
    world.together, world.log.too_large = together, {moved_key("id-a")}
    for topic in ("a", "b"):
        world.commit("g", topic=topic)
    interval_ms = ControllerConfig().check_interval_ms
    world.serve(interval_ms + 10_000)
    assert world.open_gates == {"id-b": ("g",)}
    assert caplog.text.count("topic a: gates unchanged: too large") == 2, "once a check interval"
    world.log.too_large.clear()
    world.serve(interval_ms)
    assert world.open_gates == {"id-a": ("g",), "id-b": ("g",)}
    world.log.is_open, world.log.too_large = False, {moved_key("id-a")}
    world.commit("late", topic="a")
    with pytest.raises(ClusterError, match="too large"):
        world.serve(60_000)
