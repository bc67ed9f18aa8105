"""Start offsets, over a client that answers from tables."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from itertools import count
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, KafkaError, KafkaException, TopicPartition

from modeaware.clients.gates import ANSWER_S

# Start offsets by every combination of commit, log start and resume offset: on brokers, each would take a topic.
from modeaware.clients.starts import Key, Starts, start_offset
from modeaware.confluent.consumer import Consumer
from modeaware.confluent.gates import Onlooker
from modeaware.confluent.group import Membership, Subscription
from modeaware.confluent.ownership import GroupConf
from modeaware.confluent.partitions import LibrdkafkaOffsets, Partitions
from modeaware.modes import PartitionMode
from modeaware.topic_view import TopicView
from tests.support.fake_views import FakeViews, modes_of, switch

NONE = PartitionMode.NONE
UNLISTED = TopicView.unlisted("t")


def view(
    epoch: int, count: int, writable: int, resume: dict[int, int] | None = None, topic_id: str = "id"
) -> TopicView:
    return TopicView("t", topic_id, (1, epoch), modes_of(count, writable), resume or {})


class Stock:
    """A client with an assignment; offsets of one topic's partitions: committed, first, end, position."""

    def __init__(self) -> None:
        self.committed_offsets: dict[int, int] = {}
        self.leader_epochs: dict[int, int] = {}
        self.first: dict[int, int] = defaultdict(int)
        self.end: dict[int, int] = {}
        self.positions: dict[int, int] = {}
        self.sought: dict[int, int] = {}
        self.failures: dict[str, list[int]] = defaultdict(list)
        self.silent: set[int] = set()
        self.now_s = 0.0
        self.commits: list[dict[int, int]] = []

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        self._fail("committed")
        return [
            TopicPartition("t", p.partition, p.offset, leader_epoch=self.leader_epochs.get(p.partition, -1))
            for p in self._answer(partitions, self.committed_offsets)
        ]

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return self._answer(partitions, self.positions)

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        self._fail("offsets_for_times")
        if not self.silent.isdisjoint(p.partition for p in partitions):
            self.now_s += timeout
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return [
            TopicPartition(p.topic, p.partition, (self.first if p.offset == -2 else self.end)[p.partition])
            for p in partitions
        ]

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert not asynchronous
        self._fail("commit")
        self.commits.append({p.partition: p.offset for p in offsets})
        self.committed_offsets.update(self.commits[-1])

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.positions = {}

    def pause(self, partitions: list[TopicPartition]) -> None: ...

    resume = pause

    def seek(self, partition: TopicPartition) -> None:
        self._fail("seek")
        self.sought[partition.partition] = partition.offset

    def _fail(self, method: str) -> None:
        if self.failures[method]:
            raise KafkaException(KafkaError(self.failures[method].pop(0)))

    def _answer(self, partitions: list[TopicPartition], table: dict[int, int]) -> list[TopicPartition]:
        return [TopicPartition(p.topic, p.partition, table.get(p.partition, OFFSET_INVALID)) for p in partitions]


class World:
    def __init__(self, reset: str, auto_commit: bool = True) -> None:
        self.stock = Stock()
        self.views = FakeViews()
        self.starts = Starts(self.views, reset)
        self.partitions = Partitions(self.stock, "g", self.starts, self.views.view)
        self.conf = GroupConf("g", False, True, reset, auto_commit)
        self.look_again = Mock()

    @property
    def view(self) -> TopicView:
        return self.views.view("t")

    @view.setter
    def view(self, view: TopicView) -> None:
        if view.topic_id is None:
            self.views.remove("t")
        else:
            self.views.put(view)

    def remember(self, *views: TopicView) -> None:
        """The views come into force one after the other."""
        for self.view in views:
            self.starts.remember(self.view)

    def create_again(self) -> None:
        """The cluster has another id for the name, and a record of that id is unknown."""
        self.views.live_ids["t"] = "another"
        self.views.verify(["t"], 1.0)
        self.remember(UNLISTED)

    def take_back(self, *, live_id: str | None) -> None:
        """The record is taken back, while the cluster has the topic with that id."""
        self.remember(UNLISTED)
        self.views.live_ids = {} if live_id is None else {"t": live_id}

    def resolve(self, *offsets: int) -> list[int]:
        parts = [TopicPartition("t", partition, offset) for partition, offset in enumerate(offsets)]
        return [p.offset for p in self.partitions.resolve(parts)]

    def start(self, *partitions: int, at: int = 5) -> None:
        keys = {("t", partition) for partition in partitions}
        for key in keys:
            self.starts.started(key, at)
        self.partitions.mine = self.partitions.held = keys

    def member(self, *, changed: bool = False, withheld: Iterable[Key] = ()) -> Membership:
        ownership = SimpleNamespace(
            changed=lambda topic: changed,
            before_join=lambda: None,
            assigned=lambda given: given,
            unsettled=False,
            settle=lambda *_: None,
            due_s=lambda: None,
            withheld=set(withheld),
        )
        stock: Any = self.stock
        gates = SimpleNamespace(on_assign=lambda *keys: None, due_s=lambda: None, warn_of_manual=lambda topics: None)
        membership = Membership(
            stock, self.conf, self.partitions, cast(Any, ownership), cast(Any, gates), self.views, self.look_again
        )
        membership.given = set(self.partitions.held)
        return membership

    def leave(self, *, changed: bool) -> Membership:
        """The consumer is being closed."""
        membership = self.member(changed=changed)
        membership.before_close()
        return membership


def test_committed_offsets_come_first_then_the_reset_policy() -> None:
    world = World("earliest")
    world.stock.committed_offsets = {0: 7}
    world.stock.first = {1: 3}
    assert world.resolve(OFFSET_INVALID, OFFSET_INVALID, 42) == [7, 3, 42]
    world = World("latest")
    world.stock.end = {0: 9}
    assert world.resolve(OFFSET_INVALID) == [9]


def test_a_committed_offset_keeps_the_leader_epoch_by_which_librdkafka_notices_truncation() -> None:
    world = World("latest")
    world.view = view(1, 2, 2)
    world.stock.committed_offsets, world.stock.leader_epochs = {0: 7, 1: 7}, {0: 3, 1: 3}
    world.stock.first = {0: 0, 1: 9}
    starts = world.partitions.resolve([TopicPartition("t", 0), TopicPartition("t", 1)])
    assert [(p.offset, p.leader_epoch) for p in starts] == [(7, 3), (9, None)]  # 9: raised, that epoch may end below it


def test_what_retention_deleted_beyond_a_reclaim_is_an_error_where_the_reset_says_so() -> None:
    world = World("error")
    world.view = TopicView("t", "id", (1, 2), modes_of(1, 0), {0: 40}, frozenset({0}))
    world.stock.first = {0: 60}
    for committed, start in ((50, 50), (30, 60)):
        world.stock.committed_offsets = {0: committed}
        assert world.resolve(OFFSET_INVALID) == [start]


def test_a_latest_group_never_starts_below_the_log_start_of_a_topic_with_modes() -> None:
    """Its commit may end before a transaction's marker, which went with the records; it would start at the end."""
    world = World("latest")
    world.stock.committed_offsets, world.stock.first = {0: 4}, {0: 5, 1: 8}
    assert world.resolve(OFFSET_INVALID) == [4], "a topic without modes is none of our business"
    world.view = view(3, 1, 1)
    assert world.resolve(OFFSET_INVALID) == [5]
    world.stock.end, world.view = {1: 9}, view(4, 2, 1, {1: 6})
    assert world.resolve(OFFSET_INVALID, OFFSET_INVALID) == [5, 8]


def test_an_earliest_group_reads_all_there_is_and_nothing_below_what_was_reclaimed() -> None:
    world = World("earliest")
    world.stock.first = {0: 10}
    world.view = TopicView("t", "id", (1, 2), modes_of(1, 0), {0: 20}, frozenset({0}))
    assert world.resolve(OFFSET_INVALID) == [10], "the log start is a fact of the topic, the view's offset is not (I8)"
    world.stock.first = {0: 20}
    for committed, start in ((None, 20), (15, 20), (25, 25)):
        world.stock.committed_offsets = {} if committed is None else {0: committed}
        assert world.resolve(OFFSET_INVALID) == [start]


def test_a_leader_that_moves_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{Partitions.__module__}.RETRY_S", 0.0)
    world = World("latest")
    world.stock.end = {0: 4}
    world.stock.failures["offsets_for_times"] = [
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
    ]
    assert world.resolve(OFFSET_INVALID) == [4]


def test_the_start_of_an_idle_read_only_partition_is_committed_once_it_can_be(caplog: pytest.LogCaptureFixture) -> None:
    world = World("latest")
    world.view = view(1, 4, 1)
    world.stock.positions = {2: 30}  # delivered something: its own commit will come
    world.stock.committed_offsets = {3: 8}
    world.stock.failures["commit"] = [KafkaError.ILLEGAL_GENERATION]
    world.start(*range(4))
    world.partitions.commit()
    assert "not committed" in caplog.text
    world.partitions.commit()
    world.partitions.commit()
    assert world.stock.commits == [{1: 5}]


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
    world = World(reset, auto_commit)
    world.start(0)
    world.leave(changed=changed)
    assert world.stock.commits == [], "a topic without modes is none of our business"
    world.view = view(1, 1, 1)
    world.leave(changed=changed)
    assert world.stock.commits == commits


def test_latest_does_not_decide_again_where_the_record_is_of_a_deleted_topic_of_that_name() -> None:
    world = World("latest")
    world.view = view(3, 1, 1, topic_id="old")
    world.create_again()
    world.start(0)
    world.leave(changed=True)
    assert world.stock.commits == [{0: 5}]


def test_start_is_never_raised_beyond_the_log_of_the_live_topic() -> None:
    world = World("latest")
    world.view = TopicView("t", "old", (1, 3), modes_of(1, 0), {0: 40}, frozenset({0}))
    world.stock.end = {0: 7}
    assert world.resolve(OFFSET_INVALID) == [7]
    world.stock.committed_offsets = {0: 5}
    assert world.resolve(OFFSET_INVALID) == [5]


@pytest.mark.parametrize("recorded", [False, True], ids=["no record", "a record of its own"])
def test_everything_in_a_topic_that_was_created_again_is_new_to_a_latest_group(recorded: bool) -> None:
    world = World("latest")
    world.view = view(3, 2, 1, {1: 40}, "old")
    world.starts.assigning({"t"})
    world.starts.has_commit = {("t", 1)}
    if recorded:
        world.remember(view(1, 2, 2, topic_id="new"))
    else:
        world.create_again()
    world.stock.end = {0: 7, 1: 8}
    assert world.resolve(OFFSET_INVALID, OFFSET_INVALID) == [0, 0]
    assert world.starts.has_commit == set()
    assert world.resolve(OFFSET_INVALID, OFFSET_INVALID) == [7, 8], "from then on the group reads on by itself"
    world.start(0, 1, at=0)
    world.leave(changed=True)
    assert world.resolve(OFFSET_INVALID, OFFSET_INVALID) == [0, 0], "a rebalance soon after decides nothing anew"


@pytest.mark.parametrize(
    ("live_id", "start"), [("old", 7), (None, 7), ("another", 0)], ids=["lives on", "unknown", "another"]
)
def test_record_that_was_taken_back_makes_a_topic_new_only_if_the_cluster_has_another_id(
    live_id: str | None, start: int
) -> None:
    world = World("latest")
    world.view = view(3, 1, 0, topic_id="old")
    world.starts.assigning({"t"})
    world.take_back(live_id=live_id)
    world.stock.end = {0: 7}
    assert world.resolve(OFFSET_INVALID) == [start]


def test_group_that_starts_with_a_view_of_the_old_topic_begins_at_the_end() -> None:
    world = World("latest")
    world.remember(view(3, 1, 0, {0: 40}, "old"), UNLISTED)  # nothing was assigned yet
    world.starts.assigning({"t"})
    world.stock.end = {0: 60}
    assert world.resolve(OFFSET_INVALID) == [60]


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_partition_shown_again_starts_anew_where_the_topic_was_created_again(reset: str) -> None:
    world = World(reset)
    world.view = TopicView("t", "old", (1, 3), modes_of(2, 1, NONE), {1: 40}, frozenset({1}))
    world.stock.first, world.stock.end = defaultdict(int, {1: 40}), {0: 50, 1: 40}
    world.partitions.assign([TopicPartition("t", 0)], hidden={("t", 1)})
    world.stock.positions = {1: 40}
    world.stock.first, world.stock.end = defaultdict(int), {0: 5, 1: 6}
    world.create_again()
    assert world.starts.idle({("t", 1)}, leaving=True) == {}, "a start of the old topic is not committed for the new"
    assert world.partitions.show({("t", 1)}) == set()
    assert world.stock.sought == {1: 0}
    assert world.starts.start_of(("t", 1)) == 0


def test_latest_group_skips_nothing_where_the_recreated_topic_has_lost_its_first_records() -> None:
    """An offset below the log start would be reset to the end."""
    world = World("latest")
    world.view = view(3, 1, 0, {0: 40}, "old")
    world.starts.assigning({"t"})
    world.create_again()
    world.stock.first, world.stock.end = {0: 3}, {0: 7}
    assert world.resolve(OFFSET_INVALID) == [3]


def test_topic_shrunk_after_its_assignment_and_recreated_is_another_topic() -> None:
    """As for a cooperative member that keeps its partitions: they are not assigned again when the topic is shrunk."""
    world = World("latest")
    world.stock.end = {0: 50, 1: 40}
    world.partitions.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
    world.remember(TopicView("t", "old", (1, 3), modes_of(2, 1, NONE), {1: 40}))
    world.partitions.hide({("t", 1)})
    world.stock.positions = {1: 40}
    world.stock.end = {0: 5, 1: 90}
    world.create_again()
    assert world.partitions.show({("t", 1)}) == set()
    assert world.stock.sought == {1: 0}


def test_partition_whose_log_start_is_not_known_is_shown_later() -> None:
    """Retention may have taken its first records while the gate was shut: ``latest`` would skip the others."""
    world, keys = World("latest"), {("t", 0), ("t", 1)}
    switch(world.views, "before", "t", 2)
    world.stock.end = {0: 9, 1: 9}
    world.starts.remember(world.views.view("before"))
    world.partitions.assign([], hidden=keys)
    world.partitions.hide(keys)
    world.stock.first = defaultdict(int, {0: 3, 1: 3})
    world.stock.silent = {0}
    assert world.partitions.show(keys) == {("t", 0)}, "those whose leader answers are read"
    assert world.stock.sought == {1: 3}
    assert world.partitions.held == {("t", 1)}
    world.stock.silent = set()
    assert world.partitions.show({("t", 0)}) == set()
    assert world.stock.sought == {0: 3, 1: 3}


def test_silent_leaders_hold_up_no_poll_for_long_and_starve_no_other_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    stock = Stock()
    offsets = LibrdkafkaOffsets(stock, "g")
    monkeypatch.setattr(f"{Partitions.__module__}.time", SimpleNamespace(monotonic=lambda: stock.now_s))
    stock.silent = set(range(20))
    wanted, found = {("t", partition) for partition in range(21)}, dict[Key, int]()
    for _ in range(1000):
        began_s = stock.now_s
        found |= offsets.log_starts_now(wanted)
        assert stock.now_s - began_s <= 2 * ANSWER_S
    assert found == {("t", 20): 0}


def test_partition_that_librdkafka_is_not_ready_for_is_shown_later(caplog: pytest.LogCaptureFixture) -> None:
    world, one = World("latest"), ("t", 1)
    world.stock.end = {0: 50, 1: 40}
    world.partitions.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
    world.partitions.hide({one})
    world.stock.failures["seek"] = [KafkaError._STATE, KafkaError._FATAL]
    assert world.partitions.show({one}) == {one}
    with pytest.raises(KafkaException):
        world.partitions.show({one})
    assert world.partitions.show({one}) == set()
    assert world.stock.sought == {1: 40}
    world.partitions.choose({one}, [TopicPartition("t", 9)])
    assert "t [9] is not assigned to this consumer now" in caplog.text
    assert world.partitions.held == {("t", 0)}


def test_offset_that_a_callback_chose_holds_for_a_partition_that_is_shown_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was offered to the callback once. At its own position records would be doubled, or skipped."""
    clock_s = count()
    monkeypatch.setattr(f"{Membership.__module__}.time", SimpleNamespace(monotonic=lambda: float(next(clock_s))))
    world = World("latest")
    world.view, world.stock.end = view(1, 2, 2), {0: 50, 1: 40}
    world.partitions.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
    world.stock.positions = {0: 60, 1: 45}
    world.conf = GroupConf("g", incremental=True, offset_reset="latest")
    member = world.member()
    offered: list[list[int]] = []

    def on_assign(_: object, partitions: list[TopicPartition]) -> None:
        offered.append([p.partition for p in partitions])
        member.assign([TopicPartition("t", 1, 7)], incremental=True)

    member.subscription = Subscription(("t",), on_assign)
    world.view = TopicView("t", "id", (1, 2), modes_of(2, 1, NONE))
    member.apply(None)
    world.view, world.stock.failures["seek"] = view(3, 2, 2), [KafkaError._STATE]
    member.apply(None)
    assert world.partitions.held == {("t", 0)}
    member.apply(None)
    assert world.partitions.held == {("t", 0), ("t", 1)}
    assert (world.stock.sought, offered) == ({1: 7}, [[1]])
    world.partitions.hide({("t", 1)})
    assert world.partitions.show({("t", 1)}) == set()
    assert world.stock.sought == {1: 45}, "it is chosen for once"


def test_callback_may_name_what_is_stored_for_an_offset() -> None:
    world = World("latest")
    world.view, world.stock.end = view(1, 3, 3), dict.fromkeys(range(3), 40)
    world.partitions.assign([TopicPartition("t", p) for p in range(3)])
    member = world.member()

    def on_assign(_: object, partitions: list[TopicPartition]) -> None:
        member.assign([TopicPartition("t", p.partition, OFFSET_STORED) for p in partitions], incremental=False)

    member.subscription = Subscription(("t",), on_assign)
    world.view = TopicView("t", "id", (1, 2), modes_of(3, 2, NONE))
    member.apply(None)
    assert world.partitions.held == {("t", 0), ("t", 1)}
    assert world.stock.sought == {}, "they are read on"


def test_partition_that_waits_to_be_shown_is_shown_although_another_one_is_revoked() -> None:
    world = World("latest")
    world.view, world.stock.end = view(1, 3, 3), dict.fromkeys(range(3), 40)
    world.partitions.assign([TopicPartition("t", p) for p in range(3)])
    world.conf = GroupConf("g", incremental=True, offset_reset="latest")
    member = world.member()
    member.subscription = Subscription(("t",))
    world.view = TopicView("t", "id", (1, 2), modes_of(3, 1, NONE))
    member.apply(None)
    world.view, world.stock.failures["seek"] = view(3, 3, 3), [KafkaError._STATE] * 2
    member.apply(None)
    assert world.partitions.held == {("t", 0)}
    member._revoke(world.stock, [TopicPartition("t", 2)], lost=False)
    assert member.due_s() is not None
    member._retry_s = 0.0
    member.apply(None)
    assert world.partitions.held == {("t", 0), ("t", 1)}


@pytest.mark.parametrize("ends", ["seek", "assign"])
def test_chosen_offset_ends_with_a_seek_or_another_assignment(ends: str) -> None:
    world, one = World("latest"), ("t", 1)
    world.stock.end = {1: 40}
    world.partitions.assign([TopicPartition(*one)])
    world.partitions.hide({one})
    world.stock.failures["seek"] = [KafkaError._STATE]
    assert world.partitions.choose({one}, [TopicPartition(*one, 7)]) == {one}
    if ends == "seek":
        world.partitions.seek(TopicPartition(*one, 9))
    else:
        world.partitions.assign([TopicPartition(*one)])
        world.partitions.hide({one})
    assert world.partitions.show({one}) == set()
    assert world.stock.sought == {1: 9 if ends == "seek" else 40}


@pytest.mark.parametrize(
    ("method", "code", "text"),
    [
        ("committed", KafkaError._TIMED_OUT, "committed offsets not known"),
        ("offsets_for_times", KafkaError.TOPIC_AUTHORIZATION_FAILED, "auto.offset.reset decides"),
    ],
)
def test_offsets_that_cannot_be_had_are_left_to_librdkafka_and_logged(
    caplog: pytest.LogCaptureFixture, method: str, code: int, text: str
) -> None:
    world = World("latest")
    world.stock.failures[method] = [code]
    with caplog.at_level(logging.WARNING):
        assert world.resolve(OFFSET_INVALID) == [OFFSET_INVALID]
    assert text in caplog.text


@pytest.mark.parametrize(
    ("committed", "resume", "named", "log_start", "start"),
    [
        (7, 50, None, None, 7),  # the group's commit
        (7, None, None, 9, 9),  # but not below the log start, or the reset would skip to the end
        (None, 50, 90, None, 50),  # returned, or is new: latest skips nothing
        (None, 50, 30, None, 30),  # truncated, or another topic
        (None, 50, 90, 60, 60),
        (None, None, 90, None, 90),  # what the reset names
        (None, None, None, None, None),
    ],
)
def test_start_offset(
    committed: int | None, resume: int | None, named: int | None, log_start: int | None, start: int | None
) -> None:
    assert start_offset(committed, resume, named, log_start) == start


def test_an_assignment_that_comes_while_the_consumer_is_closed_requests_nothing() -> None:
    """Nothing is sent any more then: each request would hold up the close until its timeout."""
    world = World("earliest")
    membership = world.leave(changed=False)
    world.stock.failures = defaultdict(lambda: [KafkaError._TIMED_OUT])
    membership.on_assign(world.stock, [TopicPartition("t", 0)])
    assert world.partitions.mine == set(), "librdkafka gives them back"


def test_what_is_withheld_is_not_held_and_is_looked_at_again_also_where_on_assign_raises() -> None:
    world = World("earliest")
    world.view = view(1, 2, 2)
    member = world.member(withheld={("t", 1)})
    member.subscription = Subscription(("t",), on_assign=Mock(side_effect=ValueError))
    with pytest.raises(ValueError):
        member.on_assign(world.stock, [TopicPartition("t", 0), TopicPartition("t", 1)])
    assert (world.partitions.held, world.partitions.unseen) == ({("t", 0)}, {("t", 1)})
    world.look_again.assert_called_once_with()


def test_what_was_withheld_under_a_subscription_is_read_once_the_application_assigns_it_itself() -> None:
    world = World("earliest")
    world.view = view(1, 2, 2)
    world.start(0, 1)
    world.partitions.manual = True
    world.member(withheld={("t", 1)}).apply(world.stock)
    assert world.partitions.held == {("t", 0), ("t", 1)}


def test_topics_that_are_not_assigned_are_asked_about_by_another_client() -> None:
    """librdkafka queues errors about every partition that a consumer was asked about, once its topic is deleted."""
    stock, onlooker = Mock(), Mock()
    onlooker.committed.return_value = [TopicPartition("a", 0, 5), TopicPartition("a", 1, OFFSET_INVALID)]
    offsets = LibrdkafkaOffsets(stock, "g", onlooker)
    assert offsets.committed_elsewhere([("a", 0), ("a", 1)]) == {("a", 0): 5, ("a", 1): None}
    onlooker.committed.side_effect = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    assert offsets.committed_elsewhere([("a", 0)]) == {}, "not known"
    stock.committed.assert_not_called()
    with closing(Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"})) as consumer:
        assert isinstance(consumer._partitions._offsets._onlooker, Onlooker)
