"""Where kafka-python's consumer starts to read, and the wait for the first view."""

from __future__ import annotations

import pytest

from modeaware.kafka_python._gateway import OffsetAndMetadata, TopicPartition
from modeaware.kafka_python._starts import Starts, start_offset
from modeaware.modes import PartitionMode
from modeaware.topic_view import TopicView
from tests.support.fake_views import modes_of

VIEW = TopicView("t", "id", (1, 3), modes_of(2, 1), {1: 50})
RECLAIMED = TopicView("t", "id", (1, 3), modes_of(2, 1, PartitionMode.NONE), {1: 50}, frozenset({1}))


@pytest.mark.parametrize(
    ("view", "committed", "resume", "named", "log_start", "start"),
    [
        (VIEW, 7, 50, None, None, 7),  # the group's commit
        (VIEW, 7, None, None, 9, 9),  # but not below the log start, or the reset would skip to the end
        (VIEW, None, 50, 90, None, 50),  # came back, or is new: latest skips nothing
        (VIEW, None, 50, 30, None, 30),  # truncated, or another topic
        (VIEW, None, 50, 90, 60, 60),
        (VIEW, None, None, 90, None, 90),  # what the reset names
        (VIEW, None, None, None, None, None),
        (RECLAIMED, 7, None, None, None, 50),  # nothing below is there
        (RECLAIMED, 70, None, None, None, 70),
        (RECLAIMED, None, None, 0, None, 50),
    ],
)
def test_start_offset(
    view: TopicView,
    committed: int | None,
    resume: int | None,
    named: int | None,
    log_start: int | None,
    start: int | None,
) -> None:
    assert start_offset(view, 1, committed, resume, named, log_start) == start


def test_resume_offsets_outlive_the_view_that_told_them_for_one_assignment() -> None:
    views = {"t": VIEW}
    starts = Starts(lambda topic: views[topic], "latest")
    starts.remember(VIEW, TopicPartition)
    starts.remember(TopicView("t", "id", (1, 4), modes_of(2, 1), {1: 60}), TopicPartition)
    views["t"] = TopicView("t", "id", (1, 5), modes_of(2, 2))
    one = TopicPartition("t", 1)

    class Stock:
        def fetch_committed(self, partitions: object, timeout_ms: object) -> dict[TopicPartition, object]:
            return {}

        def beginning_offsets(self, partitions: set[TopicPartition], timeout_ms: object) -> dict[TopicPartition, int]:
            return dict.fromkeys(partitions, 0)

        def end_offsets(self, partitions: set[TopicPartition], timeout_ms: object) -> dict[TopicPartition, int]:
            return dict.fromkeys(partitions, 99)

    assert starts.find([one], Stock(), None, group=True).starts == {one: 50}, "the oldest"
    assert starts.find([one], Stock(), None, group=True).starts == {one: 99}
    starts.remember(TopicView("t", "other", (1, 6), modes_of(2, 1), {1: 70}), TopicPartition)
    assert starts.find([one], Stock(), None, group=True).starts == {one: 99}, "of another topic with the name"
    views["t"] = TopicView("t", "other", (1, 7), modes_of(2, 2))
    starts.remember(TopicView("t", "other", (1, 6), modes_of(2, 1), {1: 70}), TopicPartition)
    assert starts.find([one], Stock(), None, group=True).starts == {one: 70}
    assert Starts(lambda topic: VIEW, "earliest").find([one], Stock(), None, group=False).starts == {one: 0}
    assert Starts(lambda topic: VIEW, "none").find([one], Stock(), None, group=True).starts == {}


def test_a_partition_whose_leader_is_away_waits_alone() -> None:
    zero, one, two = (TopicPartition("t", number) for number in range(3))
    lists: dict[str, dict[TopicPartition, int]] = {"begin": {zero: 5}, "end": {one: 99}}

    class Stock:
        def fetch_committed(self, partitions: object, timeout_ms: object) -> dict[TopicPartition, OffsetAndMetadata]:
            return {zero: OffsetAndMetadata(3, "", -1)}

        def beginning_offsets(self, partitions: set[TopicPartition], timeout_ms: float) -> dict[TopicPartition, int]:
            assert timeout_ms >= 1000, "within a poll(0) as well"
            return {p: lists["begin"][p] for p in partitions & lists["begin"].keys()}

        def end_offsets(self, partitions: set[TopicPartition], timeout_ms: float) -> dict[TopicPartition, int]:
            return {p: lists["end"][p] for p in partitions & lists["end"].keys()}

    everything = [zero, one, two]
    starts = Starts(lambda topic: TopicView("t", "id", (1, 1), modes_of(3, 3)), "LATEST")
    assert starts.find(everything, Stock(), 0, group=True) == ({zero: 5, one: 99}, {two})
    lists["begin"].clear()
    assert starts.find(everything, Stock(), 0, group=True) == ({one: 99}, {zero, two}), (
        "it might be below its log start"
    )
    lists["begin"], lists["end"] = {zero: 0}, {one: 99, two: 7}
    assert starts.find(everything, Stock(), 0, group=True) == ({zero: 3, one: 99, two: 7}, set())
