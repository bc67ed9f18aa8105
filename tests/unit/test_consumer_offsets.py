"""Start offsets, over a client that answers from tables."""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

# Start offsets by every combination of commit, log start and resume offset: on brokers, each would take a topic.
from modeaware.confluent._group_conf import GroupConf
from modeaware.confluent._holding import Holding
from modeaware.confluent._offsets import StartOffsets
from modeaware.modes import PartitionMode
from modeaware.topic_view import TopicView
from tests.support.fake_views import modes_of


class Stock:
    """Offsets of one topic's partitions: committed, first, end, position."""

    def __init__(self) -> None:
        self.committed_offsets: dict[int, int] = {}
        self.first: dict[int, int] = defaultdict(int)
        self.end: dict[int, int] = {}
        self.positions: dict[int, int] = {}
        self.failures: list[Exception] = []
        self.commits: list[dict[int, int]] = []
        self.asked = 0

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return self._answer(partitions, self.committed_offsets)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return self._answer(partitions, self.positions)

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        self.asked += 1
        if self.failures:
            raise self.failures.pop(0)
        return [
            TopicPartition(p.topic, p.partition, (self.first if p.offset == -2 else self.end)[p.partition])
            for p in partitions
        ]

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert not asynchronous
        if self.failures:
            raise self.failures.pop(0)
        self.commits.append({p.partition: p.offset for p in offsets})
        self.committed_offsets.update(self.commits[-1])

    def _answer(self, partitions: list[TopicPartition], table: dict[int, int]) -> list[TopicPartition]:
        if self.failures:
            raise self.failures.pop(0)
        return [TopicPartition(p.topic, p.partition, table.get(p.partition, OFFSET_INVALID)) for p in partitions]


class World:
    def __init__(self, reset: str) -> None:
        self.stock = Stock()
        self.view = TopicView.unlisted("t")
        self.offsets = StartOffsets(self.stock, GroupConf("g", offset_reset=reset), lambda _: self.view)

    def resolve(self, *offsets: int) -> list[int]:
        parts = [TopicPartition("t", partition, offset) for partition, offset in enumerate(offsets)]
        return [p.offset for p in self.offsets.resolve(parts)]


def failure(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


def test_committed_offsets_come_first_then_the_reset_policy() -> None:
    world = World("earliest")
    world.stock.committed_offsets = {0: 7}
    world.stock.first = {1: 3}
    assert world.resolve(OFFSET_INVALID, OFFSET_INVALID, 42) == [7, 3, 42]
    world = World("latest")
    world.stock.end = {0: 9}
    assert world.resolve(OFFSET_INVALID) == [9]


def test_a_latest_group_reads_a_returning_or_new_partition_from_its_resume_offset() -> None:
    world = World("latest")
    world.stock.end = {0: 50}
    world.view = TopicView("t", "id", (1, 1), modes_of(1, 0), {0: 20})
    assert world.resolve(OFFSET_INVALID) == [20]


def test_a_resume_offset_is_remembered_after_the_view_stops_telling_it_but_used_once() -> None:
    world = World("latest")
    world.stock.end = {0: 50}
    world.offsets.remember(TopicView("t", "id", (1, 1), modes_of(1, 0, PartitionMode.NONE), {0: 20}))
    world.view = TopicView("t", "id", (1, 2), modes_of(1, 1))
    assert world.resolve(OFFSET_INVALID) == [20]
    assert world.resolve(OFFSET_INVALID) == [50]


def test_a_resume_offset_that_the_log_no_longer_reaches() -> None:
    """It was truncated, or is another topic's by now: what is written from its end on is not skipped."""
    world = World("latest")
    world.stock.end = {0: 12}
    world.view = TopicView("t", "id", (1, 1), modes_of(1, 0), {0: 20})
    assert world.resolve(OFFSET_INVALID) == [12]


def test_of_two_resume_offsets_the_older_one_counts() -> None:
    """Revived and retired again while the consumer did not poll: what came in between is not skipped."""
    world = World("latest")
    world.stock.end = {0: 6}
    world.offsets.remember(TopicView("t", "id", (1, 1), modes_of(1, 0, PartitionMode.NONE), {0: 2}))
    world.offsets.remember(TopicView("t", "id", (1, 2), modes_of(1, 1)))
    world.view = TopicView("t", "id", (1, 3), modes_of(1, 0), {0: 6})
    world.offsets.remember(world.view)
    assert world.resolve(OFFSET_INVALID) == [2]


def test_a_resume_offset_of_an_earlier_topic_of_that_name() -> None:
    world = World("latest")
    world.stock.end = {0: 50}
    world.offsets.remember(TopicView("t", "old", (1, 1), modes_of(1, 0), {0: 20}))
    world.view = TopicView("t", "new", (1, 2), modes_of(1, 1))
    assert world.resolve(OFFSET_INVALID) == [50]


def test_a_latest_group_never_starts_below_the_log_start_of_a_topic_with_modes() -> None:
    """Its commit may end before a transaction's marker, which went with the records; it would start at the end."""
    world = World("latest")
    world.stock.committed_offsets, world.stock.first = {0: 4}, {0: 5, 1: 8}
    assert world.resolve(OFFSET_INVALID) == [4], "a topic without modes is none of our business"
    world.view = TopicView("t", "id", (1, 3), modes_of(1, 1))
    assert world.resolve(OFFSET_INVALID) == [5]
    world.stock.first = {0: 2, 1: 8}
    assert world.resolve(OFFSET_INVALID) == [4]
    world.stock.end, world.view = {1: 9}, TopicView("t", "id", (1, 4), modes_of(2, 1), {1: 6})
    assert world.resolve(OFFSET_INVALID, OFFSET_INVALID) == [4, 8]


def test_an_earliest_group_reads_all_there_is_and_nothing_below_what_was_reclaimed() -> None:
    world = World("earliest")
    world.stock.first = {0: 10}
    world.view = TopicView("t", "id", (1, 1), modes_of(1, 0), {0: 20})
    assert world.resolve(OFFSET_INVALID) == [10]
    world.view = TopicView("t", "id", (1, 2), modes_of(1, 0), {0: 20}, frozenset({0}))
    assert world.resolve(OFFSET_INVALID) == [10], "the log start is a fact of the topic, the view's offset is not (I8)"
    world.stock.first = {0: 20}
    assert world.resolve(OFFSET_INVALID) == [20]
    world.stock.committed_offsets = {0: 15}
    assert world.resolve(OFFSET_INVALID) == [20]
    world.stock.committed_offsets = {0: 25}
    assert world.resolve(OFFSET_INVALID) == [25]


def test_a_leader_that_moves_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{StartOffsets.__module__}.RETRY_S", 0.0)
    world = World("latest")
    world.stock.end = {0: 4}
    asked = world.stock.offsets_for_times
    errors = [failure(KafkaError.NOT_LEADER_FOR_PARTITION), failure(KafkaError.LEADER_NOT_AVAILABLE)]

    def moving(partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        if errors:
            raise errors.pop()
        return asked(partitions, timeout)

    world.stock.offsets_for_times = moving  # type: ignore[method-assign] # that is the fault injected here
    assert world.resolve(OFFSET_INVALID) == [4]


def test_the_start_of_an_idle_read_only_partition_is_committed_once() -> None:
    world = World("latest")
    world.view = TopicView("t", "id", (1, 1), modes_of(4, 1))
    world.stock.positions = {2: 30}  # delivered something: its own commit will come
    world.stock.committed_offsets = {3: 8}
    starts = {("t", partition): 5 for partition in range(4)}
    world.offsets.commit_read_only(starts)
    world.offsets.commit_read_only(starts)
    assert world.stock.commits == [{1: 5}]


def test_a_start_that_could_not_be_committed_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    world = World("latest")
    world.view = TopicView("t", "id", (1, 1), modes_of(1, 0))
    world.stock.failures = []
    commit = world.stock.commit

    def refused(offsets: list[TopicPartition], asynchronous: bool) -> None:
        raise failure(KafkaError.ILLEGAL_GENERATION)

    world.stock.commit = refused  # type: ignore[method-assign] # that is the fault injected here
    world.offsets.commit_read_only({("t", 0): 5})
    assert "not committed" in caplog.text
    world.stock.commit = commit  # type: ignore[method-assign] # and its end
    world.offsets.commit_read_only({("t", 0): 5})
    assert world.stock.commits == [{0: 5}]


@pytest.mark.parametrize(
    ("reset", "auto_commit", "changed", "commits"),
    [
        ("latest", True, False, [{0: 5}]),
        ("latest", False, True, [{0: 5}]),
        ("latest", False, False, []),
        ("earliest", True, True, []),
    ],
)
def test_latest_does_not_decide_again_for_an_idle_partition_that_moves(
    reset: str, auto_commit: bool, changed: bool, commits: list[dict[int, int]]
) -> None:
    world = World(reset)
    world.offsets = StartOffsets(world.stock, GroupConf("g", False, True, reset, auto_commit), lambda _: world.view)
    world.offsets.commit_before_leaving({("t", 0): 5}, lambda _: changed)
    assert world.stock.commits == [], "a topic without modes is none of our business"
    world.view = TopicView("t", "id", (1, 1), modes_of(1, 1))
    world.offsets.commit_before_leaving({("t", 0): 5}, lambda _: changed)
    assert world.stock.commits == commits


def test_start_is_never_raised_beyond_the_log_of_the_live_topic() -> None:
    world = World("latest")
    world.view = TopicView("t", "old", (1, 3), modes_of(1, 0), {0: 40}, frozenset({0}))
    world.stock.end = {0: 7}
    assert world.resolve(OFFSET_INVALID) == [7]
    world.stock.committed_offsets = {0: 5}
    assert world.resolve(OFFSET_INVALID) == [5]


@pytest.mark.parametrize("now", [None, "new"])
def test_everything_in_a_topic_that_was_created_again_is_new_to_a_latest_group(now: str | None) -> None:
    world = World("latest")
    old = TopicView("t", "old", (1, 3), modes_of(2, 1), {1: 40})
    world.view = old
    world.offsets.assigning("t")
    world.offsets.has_commit = {("t", 1)}
    world.view = TopicView.unlisted("t") if now is None else TopicView("t", now, (1, 1), modes_of(2, 2))
    world.offsets.remember(world.view)
    assert world.offsets.resume == {}
    assert world.offsets.has_commit == set()
    world.stock.end = {0: 7, 1: 8}
    assert world.resolve(OFFSET_INVALID, OFFSET_INVALID) == [0, 0]
    assert world.resolve(OFFSET_INVALID, OFFSET_INVALID) == [7, 8], "from then on the group reads on by itself"


def test_latest_does_not_decide_again_for_an_idle_partition_of_a_topic_that_was_created_again() -> None:
    """A rebalance soon after it was taken up: the topic has more partitions now, say."""
    world = World("latest")
    world.offsets = StartOffsets(world.stock, GroupConf("g", False, True, "latest", True), lambda _: world.view)
    world.view = TopicView("t", "old", (1, 3), modes_of(2, 1), {1: 40})
    world.offsets.assigning("t")
    world.view = TopicView.unlisted("t")
    world.offsets.remember(world.view)
    world.stock.end = {0: 7, 1: 8}
    starts = dict(enumerate(world.resolve(OFFSET_INVALID, OFFSET_INVALID)))
    world.offsets.commit_before_leaving(
        {("t", partition): start for partition, start in starts.items()}, lambda _: True
    )
    assert world.resolve(OFFSET_INVALID, OFFSET_INVALID) == [0, 0]


def test_group_that_starts_with_a_view_of_the_old_topic_begins_at_the_end() -> None:
    world = World("latest")
    world.offsets.remember(TopicView("t", "old", (1, 3), modes_of(1, 0), {0: 40}))  # nothing was assigned yet
    world.view = TopicView.unlisted("t")
    world.offsets.remember(world.view)
    world.offsets.assigning("t")
    world.stock.end = {0: 60}
    assert world.resolve(OFFSET_INVALID) == [60]


class Assigned(Stock):
    """A client with an assignment."""

    def __init__(self) -> None:
        super().__init__()
        self.sought: dict[int, int] = {}

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.positions = {}

    def pause(self, partitions: list[TopicPartition]) -> None: ...

    def resume(self, partitions: list[TopicPartition]) -> None: ...

    def seek(self, partition: TopicPartition) -> None:
        self.sought[partition.partition] = partition.offset


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_partition_shown_again_starts_anew_where_the_topic_was_created_again(reset: str) -> None:
    world = World(reset)
    stock = world.stock = Assigned()
    world.offsets = StartOffsets(stock, GroupConf("g", offset_reset=reset), lambda _: world.view)
    holding = Holding(stock, world.offsets, lambda _: world.view)
    world.view = TopicView("t", "old", (1, 3), modes_of(2, 1, PartitionMode.NONE), {1: 40}, frozenset({1}))
    stock.first, stock.end = defaultdict(int, {1: 40}), {0: 50, 1: 40}
    holding.assign([TopicPartition("t", 0)], hidden=[("t", 1)])
    stock.positions = {1: 40}
    stock.first, stock.end = defaultdict(int), {0: 5, 1: 6}
    world.view = TopicView.unlisted("t")
    world.offsets.remember(world.view)
    assert holding.starts == {}, "a start of the old topic is not committed for the new one"
    assert holding.show({("t", 1)}) == set()
    assert stock.sought == {1: 0}
    assert holding.starts == {("t", 1): 0}


def test_latest_group_skips_nothing_where_the_recreated_topic_has_lost_its_first_records() -> None:
    """An offset below the log start would be reset to the end."""
    world = World("latest")
    world.view = TopicView("t", "old", (1, 3), modes_of(1, 0), {0: 40})
    world.offsets.assigning("t")
    world.view = TopicView.unlisted("t")
    world.offsets.remember(world.view)
    world.stock.first, world.stock.end = {0: 3}, {0: 7}
    assert world.resolve(OFFSET_INVALID) == [3]


def test_topic_shrunk_after_its_assignment_and_recreated_is_another_topic() -> None:
    """As for a cooperative member that keeps its partitions: they are not assigned again when the topic is shrunk."""
    world = World("latest")
    stock = world.stock = Assigned()
    world.offsets = StartOffsets(stock, GroupConf("g", offset_reset="latest"), lambda _: world.view)
    holding = Holding(stock, world.offsets, lambda _: world.view)
    stock.end = {0: 50, 1: 40}
    holding.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
    world.view = TopicView("t", "old", (1, 3), modes_of(2, 1, PartitionMode.NONE), {1: 40})
    world.offsets.remember(world.view)
    holding.hide({("t", 1)})
    stock.positions = {1: 40}
    stock.end = {0: 5, 1: 90}
    world.view = TopicView.unlisted("t")
    world.offsets.remember(world.view)
    assert holding.show({("t", 1)}) == set()
    assert stock.sought == {1: 0}


def test_offsets_that_cannot_be_had_are_left_to_librdkafka_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    world = World("latest")
    world.stock.failures = [failure(KafkaError._TIMED_OUT)]
    with caplog.at_level(logging.WARNING):
        assert world.resolve(OFFSET_INVALID) == [OFFSET_INVALID]
    assert "committed offsets not known" in caplog.text
    world.stock.failures = []
    world.offsets = StartOffsets(_Committing(world.stock), GroupConf("g", offset_reset="latest"), lambda _: world.view)
    with caplog.at_level(logging.WARNING):
        assert world.resolve(OFFSET_INVALID) == [OFFSET_INVALID]
    assert "auto.offset.reset decides" in caplog.text


class _Committing:
    """Knows committed offsets, may not list others."""

    def __init__(self, stock: Stock) -> None:
        self.committed = stock.committed

    def offsets_for_times(self, *_: Any, **__: Any) -> list[TopicPartition]:
        raise failure(KafkaError.TOPIC_AUTHORIZATION_FAILED)
