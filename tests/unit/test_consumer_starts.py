"""Where a member starts to read, and where it goes on with what was hidden, over a client that answers from tables."""

from __future__ import annotations

import logging
from collections import defaultdict
from contextlib import closing, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    KafkaError,
    KafkaException,
    TopicPartition,
)

# Start offsets by every combination of commit, log start and resume offset: on brokers, each would take a topic.
from modeaware.clients.actions import Committed
from modeaware.clients.partition import Partition
from modeaware.clients.places import restart_of
from modeaware.clients.starts import Key, Starts, start_offset
from modeaware.confluent.commits import CommitNotes
from modeaware.confluent.consumer import Consumer
from modeaware.confluent.group import Subscription
from modeaware.confluent.offsets import ANSWER_S, LibrdkafkaOffsets, NonMember, key_of
from modeaware.confluent.retarget import Target
from modeaware.modes import PartitionMode
from modeaware.topic_view import Moved, ReplacedBy, TopicView
from tests.support.fake_views import FakeViews, modes_of
from tests.support.librdkafka_member import Stock, World

NONE = PartitionMode.NONE
UNLISTED = TopicView.unlisted("t")
T0, T1, T2 = ("t", 0), ("t", 1), ("t", 2)


def view(
    epoch: int, count: int, writable: int, resume: dict[int, int] | None = None, topic_id: str = "id"
) -> TopicView:
    return TopicView("t", topic_id, (1, epoch), modes_of(count, writable), resume or {})


def hiding(*partitions: int, count: int = 2, epoch: int = 2) -> TopicView:
    """Partitions are in mode None."""
    modes = [NONE if each in partitions else PartitionMode.READ_WRITE for each in range(count)]
    return TopicView("t", "id", (1, epoch), tuple(modes))


class Reader(World):
    """It reads topic t."""

    def __init__(self, reset: str, **conf: Any) -> None:
        super().__init__(reset, "t", **conf)

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
        """The group assigns partitions 0, 1, ...; the application chooses these offsets. Return where they start."""
        keys = [("t", partition) for partition in range(len(offsets))]
        chosen = [TopicPartition(*key, at) for key, at in zip(keys, offsets, strict=True)]
        self.membership.subscription = Subscription(("t",), lambda _, parts: self.membership.assign(chosen))
        self.assign(*keys)
        self.membership.subscription = Subscription(("t",))
        return self.starts_at(keys)

    def ends(self, *ends: int) -> None:
        self.stock.end |= {("t", partition): end for partition, end in enumerate(ends)}

    def begins(self, *firsts: int) -> None:
        self.stock.first |= {("t", partition): first for partition, first in enumerate(firsts)}

    def commits(self, **offsets: int) -> None:
        """``t0=7``"""
        self.stock.committed_offsets = {(name[0], int(name[1])): (at, "") for name, at in offsets.items()}

    def leave(self, *, changed: bool) -> list[dict[Key, int]]:
        """All is revoked; return what is committed for the next owners."""
        self.ownership.changed = lambda topic: changed
        self.stock.commits.clear()
        self.revoke(*self.member.partitions)
        return self.stock.commits


def test_committed_offsets_come_first_then_the_reset_policy() -> None:
    world = Reader("earliest")
    world.commits(t0=7)
    world.begins(0, 3)
    assert world.resolve(OFFSET_INVALID, OFFSET_INVALID, 42) == [7, 3, 42]
    world = Reader("latest")
    world.ends(9)
    assert world.resolve(OFFSET_INVALID) == [9]


def test_a_committed_offset_keeps_the_leader_epoch_by_which_librdkafka_notices_truncation() -> None:
    world = Reader("latest")
    world.view = view(1, 2, 2)
    world.commits(t0=7, t1=7)
    world.stock.leader_epochs = {T0: 3, T1: 3}
    world.begins(0, 9)
    assert world.resolve(OFFSET_INVALID, OFFSET_INVALID) == [7, 9]
    epochs = [world.stock.placed[key].leader_epoch for key in (T0, T1)]
    assert epochs == [3, None], "one that was raised has none: that epoch may end below it"


def test_what_retention_deleted_beyond_a_reclaim_is_an_error_where_the_reset_says_so() -> None:
    world = Reader("error")
    world.view = TopicView("t", "id", (1, 2), modes_of(1, 0), {0: 40}, frozenset({0}))
    world.begins(60)
    for committed, start in ((50, 50), (30, 60)):
        world.commits(t0=committed)
        assert world.resolve(OFFSET_INVALID) == [start]


def test_a_latest_group_never_starts_below_the_log_start_of_a_topic_with_modes() -> None:
    """Its commit may end before a transaction's marker, which went with the records; it would start at the end."""
    world = Reader("latest")
    world.commits(t0=4)
    world.begins(5, 8)
    assert world.resolve(OFFSET_INVALID) == [4], "a topic without modes is none of our business"
    world.view = view(3, 1, 1)
    assert world.resolve(OFFSET_INVALID) == [5]
    world.ends(0, 9)
    world.view = view(4, 2, 1, {1: 6})
    assert world.resolve(OFFSET_INVALID, OFFSET_INVALID) == [5, 8]


def test_an_earliest_group_reads_all_there_is_and_nothing_below_what_was_reclaimed() -> None:
    world = Reader("earliest")
    world.begins(10)
    world.view = TopicView("t", "id", (1, 2), modes_of(1, 0), {0: 20}, frozenset({0}))
    assert world.resolve(OFFSET_INVALID) == [10], "the log start is a fact of the topic, the view's offset is not (I8)"
    world.begins(20)
    for committed, start in ((None, 20), (15, 20), (25, 25)):
        world.commits(**({} if committed is None else {"t0": committed}))
        assert world.resolve(OFFSET_INVALID) == [start]


def test_a_leader_that_moves_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{LibrdkafkaOffsets.__module__}.RETRY_S", 0.0)
    world = Reader("latest")
    world.ends(4)
    world.stock.failures["offsets_for_times"] = [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE]
    assert world.resolve(OFFSET_INVALID) == [4]


def test_the_start_of_an_idle_read_only_partition_is_committed_once_it_can_be(caplog: pytest.LogCaptureFixture) -> None:
    world = Reader("latest")
    world.view = view(1, 4, 4)
    world.ends(5, 5, 5, 5)
    world.commits(t3=8)
    world.resolve(*[OFFSET_INVALID] * 4)
    world.view = view(2, 4, 1, dict.fromkeys((1, 2, 3), 5))
    world.stock.positions = {T2: 6}  # delivered something: its own commit will come
    world.stock.failures["commit"] = [KafkaError.ILLEGAL_GENERATION]
    world.poll()
    assert "not committed" in caplog.text
    for _ in range(3):
        world.poll(1.0)
    assert world.stock.commits == [{T1: 5}]


@pytest.mark.parametrize(
    ("reset", "auto_commit", "changed", "commits"),
    [
        ("latest", True, False, [{T0: 5}]),
        ("latest", False, True, [{T0: 5}]),
        ("latest", False, False, []),
        ("earliest", True, True, []),
    ],
)
def test_latest_does_not_decide_again_for_an_idle_partition_that_moves(
    reset: str, auto_commit: bool, changed: bool, commits: list[dict[Key, int]]
) -> None:
    world = Reader(reset, auto_commit=auto_commit)
    world.ends(5)
    world.resolve(OFFSET_INVALID)
    assert world.leave(changed=changed) == [], "a topic without modes is none of our business"
    world.view = view(1, 1, 1)
    world.resolve(OFFSET_INVALID)
    assert world.leave(changed=changed) == commits


def test_member_that_owns_nothing_of_what_it_is_given_reads_nothing() -> None:
    world = Reader("latest")
    world.ownership.assigned = lambda given: set()
    world.assign(T0, T1)
    assert world.stock.placed == {}


def test_latest_does_not_decide_again_for_a_withheld_partition_that_moves() -> None:
    """A doubt about owners ends with a rebalance; what was written meanwhile is not skipped."""
    world = Reader("latest")
    world.view = view(1, 2, 2)
    world.ends(5, 6)
    world.ownership.withheld, world.ownership.unowned = {T0, T1}, {T0}
    world.resolve(OFFSET_INVALID, OFFSET_INVALID)
    assert world.held() == set()
    assert world.leave(changed=True) == [{T0: 5}], "another member may read the other one"


@pytest.mark.parametrize("unowned", [False, True])
def test_consumer_that_closes_commits_the_starts_of_idle_partitions_and_waits_for_that(unowned: bool) -> None:
    world = Reader("latest")
    world.view = view(1, 1, 1)
    world.ends(5)
    if unowned:
        world.ownership.withheld = world.ownership.unowned = {T0}
    world.resolve(OFFSET_INVALID)
    world.membership.before_close()
    assert (world.stock.commits, world.stock.results) == ([{T0: 5}], [])


def test_latest_does_not_decide_again_where_the_record_is_of_a_deleted_topic_of_that_name() -> None:
    world = Reader("latest")
    world.view = view(3, 1, 1, topic_id="old")
    world.create_again()
    world.ends(5)
    world.resolve(OFFSET_INVALID)
    assert world.leave(changed=True) == [{T0: 5}]


def test_start_is_never_raised_beyond_the_log_of_the_live_topic() -> None:
    world = Reader("latest")
    world.view = TopicView("t", "old", (1, 3), modes_of(1, 0), {0: 40}, frozenset({0}))
    world.ends(7)
    assert world.resolve(OFFSET_INVALID) == [7]
    world.commits(t0=5)
    assert world.resolve(OFFSET_INVALID) == [5]


@pytest.mark.parametrize("recorded", [False, True], ids=["no record", "a record of its own"])
def test_latest_group_reads_all_records_of_a_recreated_topic(recorded: bool) -> None:
    world = Reader("latest")
    world.view = view(3, 2, 1, {1: 40}, "old")
    world.starts.assigning({"t"})
    world.starts.has_commit = {T1}
    if recorded:
        world.remember(view(1, 2, 2, topic_id="new"))
    else:
        world.create_again()
    world.ends(7, 8)
    assert world.resolve(OFFSET_INVALID, OFFSET_INVALID) == [0, 0]
    assert world.starts.has_commit == set()
    assert world.resolve(OFFSET_INVALID, OFFSET_INVALID) == [7, 8], "from then on the group reads on by itself"


def test_rebalance_soon_after_a_topic_was_created_again_decides_nothing_anew() -> None:
    world = Reader("latest")
    world.view = view(3, 2, 1, {1: 40}, "old")
    world.starts.assigning({"t"})
    world.create_again()
    world.ends(7, 8)
    assert world.resolve(OFFSET_INVALID, OFFSET_INVALID) == [0, 0]
    world.leave(changed=True)
    assert world.resolve(OFFSET_INVALID, OFFSET_INVALID) == [0, 0]


@pytest.mark.parametrize(
    ("live_id", "start"), [("old", 7), (None, 7), ("another", 0)], ids=["lives on", "unknown", "another"]
)
def test_record_that_was_taken_back_makes_a_topic_new_only_if_the_cluster_has_another_id(
    live_id: str | None, start: int
) -> None:
    world = Reader("latest")
    world.view = view(3, 1, 0, topic_id="old")
    world.starts.assigning({"t"})
    world.take_back(live_id=live_id)
    world.ends(7)
    assert world.resolve(OFFSET_INVALID) == [start]


def test_group_that_starts_with_a_view_of_the_old_topic_begins_at_the_end() -> None:
    world = Reader("latest")
    world.remember(view(3, 1, 0, {0: 40}, "old"), UNLISTED)  # nothing was assigned yet
    world.starts.assigning({"t"})
    world.ends(60)
    assert world.resolve(OFFSET_INVALID) == [60]


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_positions_of_the_deleted_topic_do_not_count_for_the_recreated_topic(reset: str) -> None:
    world = Reader(reset)
    world.view = TopicView("t", "old", (1, 3), modes_of(2, 1, NONE), {1: 40}, frozenset({1}))
    world.begins(0, 40)
    world.ends(50, 40)
    world.resolve(OFFSET_INVALID, OFFSET_INVALID)
    assert world.held() == {T0}
    world.stock.positions = {T1: 40}
    world.begins(0, 0)
    world.ends(5, 6)
    world.create_again()
    assert world.starts.idle({T1}) == {}, "a start of the old topic is not committed for the new"
    world.poll()
    assert (world.held(), world.stock.sought) == ({T0, T1}, {T1: 0})
    assert world.starts.start_of(T1) == 0


def test_latest_group_skips_nothing_where_the_recreated_topic_has_lost_its_first_records() -> None:
    """An offset below the log start would be reset to the end."""
    world = Reader("latest")
    world.view = view(3, 1, 0, {0: 40}, "old")
    world.starts.assigning({"t"})
    world.create_again()
    world.begins(3)
    world.ends(7)
    assert world.resolve(OFFSET_INVALID) == [3]


def test_topic_shrunk_after_its_assignment_and_recreated_is_another_topic() -> None:
    """As for a cooperative member that keeps its partitions: they are not assigned again when the topic is shrunk."""
    world = Reader("latest")
    world.ends(50, 40)
    world.resolve(OFFSET_INVALID, OFFSET_INVALID)
    world.remember(TopicView("t", "old", (1, 3), modes_of(2, 1, NONE), {1: 40}))
    world.poll()
    assert world.held() == {T0}
    world.stock.positions = {T1: 40}
    world.ends(5, 90)
    world.create_again()
    world.poll()
    assert (world.held(), world.stock.sought) == ({T0, T1}, {T1: 0})


def test_partition_whose_log_start_is_not_known_is_shown_later() -> None:
    """Retention may have taken its first records while the gate was closed: ``latest`` would skip the others."""
    world = Reader("latest")
    state: dict[str, Any] = {"switched": True, "groups": frozenset({"g"})}
    before = TopicView("old", "id-old", (1, 1), modes_of(2, 2), replaced_by=ReplacedBy("t", "id-t", 2, **state))
    world.views.put(before)
    world.subscribe("old")
    world.assign(T0, T1)
    assert (world.held(), world.stock.paused) == (set(), {T0, T1})
    world.begins(3, 3)
    world.stock.silent = {T0}
    moved = ReplacedBy("t", "id-t", 2, moved=Moved(groups=frozenset({"g"})), **state)
    world.views.put(TopicView("old", "id-old", (1, 2), modes_of(2, 2), replaced_by=moved))
    world.poll()
    assert (world.held(), world.stock.sought) == ({T1}, {T1: 3}), "those whose leader answers are read"
    world.stock.silent = set()
    world.poll(1.0)
    assert (world.held(), world.stock.sought) == ({T0, T1}, {T0: 3, T1: 3})


def test_hidden_partition_is_paused_whatever_librdkafka_drops_while_it_starts_the_partition() -> None:
    world = Reader("latest")
    world.view = TopicView("t", "id-t", (1, 1), modes_of(2, 1, NONE))
    world.assign(T0, T1)
    assert (world.held(), world.stock.paused) == ({T0}, {T1})


def test_start_of_a_hidden_partition_that_was_not_found_is_found_when_it_is_shown() -> None:
    """librdkafka would have decided it: ``latest`` would skip what came before."""
    world = Reader("latest")
    hidden = TopicView("t", "id-t", (1, 1), modes_of(2, 1, NONE), {1: 40})
    world.view = hidden
    world.ends(50, 60)
    world.stock.failures["committed"] = [KafkaError._TIMED_OUT]
    world.assign(T0, T1)
    assert world.starts_at([T1]) == [OFFSET_INVALID]
    world.view = replace(hidden, version=(1, 2), modes=modes_of(2, 2))
    world.stock.failures["offsets_for_times"] = [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    world.poll()
    assert world.held() == {T0}, "not before the start is known"
    world.poll(1.0)
    assert (world.held(), world.stock.sought) == ({T0, T1}, {T1: 40})


@pytest.mark.parametrize(
    ("committed", "at", "start", "restart"),
    [
        (3, 5, 0, 3),
        (5, 5, 0, 5),
        (None, 5, 2, 2),
        (4, 1, 0, 1),  # it has sought back
        (4, OFFSET_BEGINNING, 0, None),
        (None, 5, OFFSET_END, None),  # librdkafka decided the start: its end may be another by now
        (None, 5, None, None),
        (4, None, None, None),
    ],
)
def test_restart(committed: int | None, at: int | None, start: int | None, restart: int | None) -> None:
    commit = None if committed is None else Committed(committed)
    assert restart_of(Partition(start=start), at, commit) == restart


@pytest.mark.parametrize(("log_start", "sought"), [(3, {}), (40, {T1: 40})])
def test_partition_of_which_all_is_committed_is_not_read_again_but_not_below_its_log_start(
    log_start: int, sought: dict[Key, int]
) -> None:
    world = Reader("latest", auto_commit=False)
    world.commits(t0=10, t1=10)
    world.subscribe("t", on_revoke=Mock())
    world.assign(T0, T1)
    world.stock.positions = {T0: 10, T1: 10}
    world.view = hiding(1)
    world.poll()
    world.begins(0, log_start)
    world.view = hiding(epoch=3)
    world.poll()
    assert (world.held(), world.stock.sought) == ({T0, T1}, sought)
    assert world.member.has_dropped is bool(sought)


@pytest.mark.parametrize(("reset", "restarts"), [("latest", {T0: 7}), ("error", {T0: 3})])
@pytest.mark.parametrize("silent", [False, True])
def test_restart_is_not_below_the_log_start_where_latest_would_skip_the_rest(
    reset: str, restarts: dict[Key, int], silent: bool
) -> None:
    """A silent leader does not matter: else each answer would revoke all partitions once more."""
    world = Reader(reset, auto_commit=False)
    world.commits(t0=3, t1=3)
    world.subscribe("t", on_revoke=Mock())
    world.assign(T0, T1)
    world.stock.positions = {T0: 9, T1: 9}
    world.begins(7, 7)
    world.stock.silent = {T0} if silent else set()
    world.view = hiding(1)
    world.poll()
    assert (world.held(), world.stock.sought) == ({T0}, {T0: 3} if silent else restarts)


def test_restart_of_a_topic_that_was_created_again_is_its_start() -> None:
    world = Reader("latest", auto_commit=False)
    world.view = TopicView("t", "old", (1, 3), modes_of(2, 2))
    world.commits(t0=30, t1=30)
    world.subscribe("t", on_revoke=Mock())
    world.assign(T0, T1)
    world.view = TopicView("t", "old", (1, 4), modes_of(2, 1, NONE))
    world.poll()
    assert world.held() == {T0}
    world.stock.positions, world.stock.sought = {T1: 40}, {}
    world.commits()
    world.ends(5, 6)
    world.create_again()
    world.poll()
    assert (world.held(), world.stock.sought) == ({T0, T1}, {T0: 0, T1: 0})


def dropping() -> tuple[Reader, list[Any], Target]:
    """T0 has delivered 5 to 9, which the application has dropped when partition 1 was revived (eager). What
    ``commit()`` sends: offsets, or all that librdkafka has stored."""
    world, sent = Reader("latest", auto_commit=False), list[Any]()
    world.commits(t0=5, t1=5)
    world.view = hiding(1)
    world.subscribe("t", on_revoke=Mock())
    world.assign(T0, T1)
    world.poll()
    world.stock.positions = {T0: 10}

    def send(_: Any, **given: Any) -> None:
        sent.append({key_of(p): p.offset for p in given["offsets"]} if "offsets" in given else "stored")

    notes = CommitNotes(send, send, world.member, world.stock)
    commit, _ = notes.methods(noting=True, may_drop=True)
    return world, sent, commit


def test_commit_leaves_out_what_was_dropped_until_it_is_delivered_again() -> None:
    world, sent, commit = dropping()
    world.stock.failures["seek"] = 2 * [KafkaError._STATE]
    world.view = hiding(epoch=3)
    world.poll()
    commit(None)
    world.poll(0.3)  # librdkafka's position is the old one before the seek
    assert world.stock.sought[T0] == 5
    world.stock.positions.pop(T0)
    world.poll(0.3)
    commit(None)
    assert sent == [{}, {}]
    world.stock.positions[T0] = 7
    world.poll(0.3)
    commit(None)
    assert sent[-1] == "stored"


def test_commit_that_failed_is_sent_again_while_another_partition_is_left_out() -> None:
    world, sent, commit = dropping()
    world.view = hiding(epoch=3)
    world.poll()
    world.stock.positions = {T1: 20}
    commit(None)
    world.member.doubted([T1])
    commit(None)
    commit(None)
    assert sent == [{T1: 20}, {T1: 20}, {}]


def test_start_of_an_idle_partition_is_committed_although_its_restart_is_not_known() -> None:
    world = Reader("latest", auto_commit=False)
    world.view = hiding(epoch=1)
    world.ends(5, 5)
    world.subscribe("t", on_revoke=Mock())
    world.assign(T0, T1)
    world.stock.failures["committed"] = [KafkaError._TIMED_OUT]
    world.view = hiding(1)
    world.poll()
    assert world.held() == set()
    assert world.leave(changed=True) == [{T0: 5}]


def test_silent_leaders_hold_up_no_poll_for_long_and_starve_no_other_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    stock = Stock()
    offsets = LibrdkafkaOffsets(stock, "g")
    monkeypatch.setattr(f"{LibrdkafkaOffsets.__module__}.time", SimpleNamespace(monotonic=lambda: stock.now_s))
    stock.silent = {("t", partition) for partition in range(20)}
    wanted, found = {("t", partition) for partition in range(21)}, dict[Key, int]()
    for _ in range(1000):
        began_s = stock.now_s
        found |= offsets.log_starts_now(wanted)
        assert stock.now_s - began_s <= 2 * ANSWER_S
    assert found == {("t", 20): 0}


def test_partition_that_librdkafka_is_not_ready_for_is_read_later() -> None:
    world = Reader("latest")
    world.ends(50, 40)
    world.resolve(OFFSET_INVALID, OFFSET_INVALID)
    world.view = hiding(1)
    world.poll()
    world.stock.failures["seek"] = [KafkaError._STATE, KafkaError._FATAL]
    world.view = hiding(epoch=3)
    world.poll()
    assert (world.stock.sought, world.stock.paused) == ({}, {T1})
    with pytest.raises(KafkaException):
        world.poll(1.0)
    world.poll(1.0)
    assert (world.stock.sought, world.stock.paused) == ({T1: 40}, set())


def test_seek_that_an_assignment_has_overtaken_is_repeated() -> None:
    world = Reader("latest")
    world.ends(50, 40)
    world.resolve(OFFSET_INVALID, OFFSET_INVALID)
    world.view = hiding(1)
    world.poll()
    world.view, world.stock.failures["seek"] = hiding(epoch=3), [KafkaError._OUTDATED]
    world.poll()
    assert (world.stock.sought, world.stock.paused) == ({T1: 40}, set()), "at once"
    world.view = hiding(1, epoch=4)
    world.poll()
    world.stock.sought.clear()
    world.view, world.stock.failures["seek"] = hiding(epoch=5), [KafkaError._OUTDATED] * 2
    world.poll()
    assert (world.stock.sought, world.stock.paused) == ({}, {T1})
    world.poll(1.0)
    assert (world.stock.sought.keys(), world.stock.paused) == ({T1}, set()), "and later"


def test_offset_that_a_callback_chose_holds_for_a_partition_that_is_read_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It was offered to the callback once. At its own position records would be doubled, or skipped."""
    world = Reader("latest", incremental=True)
    world.ends(50, 40)
    world.assign(T0, T1)
    world.stock.positions = {T0: 60, T1: 45}
    offered: list[list[int]] = []

    def on_assign(_: object, partitions: list[TopicPartition]) -> None:
        offered.append([p.partition for p in partitions])
        world.membership.assign([TopicPartition(*T1, 7), TopicPartition("t", 9)], incremental=True)

    world.membership.subscription = Subscription(("t",), on_assign)
    world.view = hiding(1)
    world.poll()
    world.view, world.stock.failures["seek"] = hiding(epoch=3), [KafkaError._STATE]
    world.poll()
    assert (world.stock.paused, world.stock.sought) == ({T1}, {})
    assert "t [9] is ignored, because it is not assigned to this consumer now" in caplog.text
    world.poll(1.0)
    assert (world.held(), world.stock.sought, offered) == ({T0, T1}, {T1: 7}, [[1]])
    world.membership.subscription = Subscription(("t",))
    world.view = hiding(1, epoch=4)
    world.poll()
    world.view = hiding(epoch=5)
    world.poll()
    assert world.stock.sought == {T1: 45}, "it is chosen for once"


@pytest.mark.parametrize("when", ["assigned", "shown", "hidden", "shown again"])
def test_end_that_the_application_has_chosen_is_resolved_once(when: str) -> None:
    """The records behind it, which were written since, are not skipped when the partition is shown again."""
    world = Reader("earliest", incremental=True)
    world.ends(50, 40)
    end = TopicPartition(*T1, OFFSET_END)

    def seek(*_: object) -> None:
        world.membership.seek(end)
        world.ends(50, 90)

    if when == "assigned":
        world.membership.leave()
        world.membership.assign([TopicPartition(*T0), end])
        world.ends(50, 90)
    else:
        world.assign(T0, T1)
    if when == "shown":
        seek()
    world.view = hiding(1)
    world.poll()
    if when == "hidden":
        seek()
    elif when == "shown again":
        world.membership.subscription = Subscription(("t",), seek)
    world.view = hiding(epoch=3)
    world.poll()
    assert (world.held(), world.stock.paused, world.stock.reads[T1]) == ({T0, T1}, set(), 40)


def test_beginning_that_the_application_has_chosen_is_resolved_again() -> None:
    """Retention may have deleted its records: ``auto.offset.reset=latest`` would skip the others."""
    world = Reader("latest", incremental=True)
    world.assign(T0, T1)
    world.membership.seek(TopicPartition(*T1, OFFSET_BEGINNING))
    world.view = hiding(1)
    world.poll()
    world.begins(0, 7)
    world.view = hiding(epoch=3)
    world.poll()
    assert (world.held(), world.stock.reads[T1]) == ({T0, T1}, 7)


def assigning(world: Reader, *calls: tuple[Key, int]) -> None:
    """Its callback assigns partition by partition, which stock allows under an incremental protocol."""

    def on_assign(*_: object) -> None:
        for key, at in calls:
            world.membership.assign([TopicPartition(*key, at)], incremental=True)

    world.membership.subscription = Subscription(("t",), on_assign)


@pytest.mark.parametrize(("offset", "at"), [(OFFSET_INVALID, 40), (7, 7), (OFFSET_END, 40)])
@pytest.mark.parametrize("shown_again", [False, True])
def test_callback_may_assign_partition_by_partition(offset: int, at: int, shown_again: bool) -> None:
    world = Reader("latest", incremental=True)
    world.ends(50, 40)
    if shown_again:
        world.assign(T0, T1)
        world.view = hiding(0, 1)
        world.poll()
        assigning(world, (T0, OFFSET_INVALID), (T1, offset))
        world.view = hiding(epoch=3)
    else:
        assigning(world, (T0, OFFSET_INVALID), (T1, offset))
        world.assign(T0, T1)
        assert world.held() == {T0, T1}
    world.poll()
    assert (world.held(), world.stock.paused) == ({T0, T1}, set())
    assert (world.stock.reads, world.stock.assigns) == ({T0: 50, T1: at}, 1)


def test_partition_that_is_hidden_may_be_assigned_and_is_read_from_there_once_it_is_shown() -> None:
    world = Reader("latest", incremental=True)
    world.ends(50, 40)
    world.view = hiding(1)
    world.assign(T0, T1)
    world.membership.assign([TopicPartition(*T1, 7)], incremental=True)
    world.poll()
    assert (world.held(), world.stock.paused) == ({T0}, {T1})
    world.view = hiding(epoch=3)
    world.poll()
    assert (world.held(), world.stock.reads[T1]) == ({T0, T1}, 7)


def test_partition_that_waits_for_its_commit_may_be_assigned_and_is_shown_later() -> None:
    world = Reader("latest", incremental=True, auto_commit=False)
    world.commits(t0=3, t1=3)
    world.subscribe("t", on_revoke=Mock())
    world.assign(T0, T1)
    world.stock.positions = {T1: 9}
    world.view = hiding(1)
    world.poll()
    world.view, world.stock.failures["committed"] = hiding(epoch=3), [KafkaError._TIMED_OUT]
    world.poll()
    world.membership.assign([TopicPartition(*T1)], incremental=True)
    world.poll(1.0)
    assert (world.held(), world.stock.sought, world.stock.paused) == ({T0, T1}, {T1: 3}, set())


@pytest.mark.parametrize(
    ("incremental", "call", "code"),
    [
        (True, ([T0], False), KafkaError._STATE),
        (True, ([], False), KafkaError._STATE),
        (True, ([T0], True), KafkaError._CONFLICT),
        (True, ([T1, T0], True), KafkaError._CONFLICT),
        (True, ([("t", -5)], True), KafkaError._INVALID_ARG),
        (False, ([T1], True), KafkaError._STATE),
    ],
)
def test_call_that_librdkafka_refuses_raises_once_and_changes_nothing(
    incremental: bool, call: tuple[list[Key], bool], code: int
) -> None:
    world = Reader("earliest", incremental=incremental)
    world.assign(T0)
    keys, is_incremental = call
    with pytest.raises(KafkaException) as refused:
        world.membership.assign([TopicPartition(*key) for key in keys], incremental=is_incremental)
    assert refused.value.args[0].code() == code
    world.poll(1.0)
    assert (world.held(), world.stock.placed.keys()) == ({T0}, {T0})
    world.view = hiding(0)
    world.poll(1.0)
    assert (world.held(), world.stock.paused) == (set(), {T0}), "it still follows the modes"


def test_assignment_of_the_application_that_librdkafka_refuses_is_not_repeated() -> None:
    world = Reader("earliest")
    with pytest.raises(KafkaException):
        world.membership.assign([TopicPartition(*T0), TopicPartition("t", -5)])
    world.poll(1.0)
    assert (world.held(), world.stock.placed) == (set(), {})


def test_assignment_of_the_application_replaces_the_last_one_whatever_the_protocol() -> None:
    world = Reader("earliest", incremental=True)
    for keys in ([T0], [T1], [T1]):
        world.membership.assign([TopicPartition(*key) for key in keys])
        assert world.stock.placed.keys() == set(keys)
    world.membership.assign([TopicPartition(*T2)], incremental=True)
    assert (world.held(), world.stock.placed.keys()) == ({T1, T2}, {T1, T2})


def test_group_assigns_partition_by_partition_after_the_application_and_so_does_the_application_after_it() -> None:
    """Under an incremental protocol, librdkafka refuses a whole assignment from the group's first one on."""
    world = Reader("earliest", incremental=True)
    world.membership.assign([TopicPartition(*T0)])
    world.membership.unassign()
    world.assign(T0)
    world.membership.leave()
    world.revoke(T0)
    world.membership.assign([TopicPartition(*T1)], incremental=True)
    assert (world.held(), world.stock.placed.keys()) == ({T1}, {T1})


def test_callback_may_unassign_partition_by_partition() -> None:
    """Under an incremental protocol. Hidden ones, which it is not shown, leave librdkafka with the first."""
    world = Reader("earliest", incremental=True)
    world.view = hiding(2, count=3)

    def on_revoke(_: object, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            world.membership.incremental_unassign([partition])

    world.subscribe("t", on_revoke=on_revoke)
    world.assign(T0, T1, T2)
    world.revoke(T0, T1, T2)
    assert (world.held(), world.stock.placed) == (set(), {})
    assert world.membership.given == set(), "the hidden one, too"


@pytest.mark.parametrize("raises", [False, True])
def test_offset_that_was_stored_for_records_that_were_dropped_is_set_back(raises: bool) -> None:
    """Also if the callback raises: ``commit()`` would commit it before the records are delivered again."""
    world = Reader("latest", auto_commit=False, stores_offsets=False)
    world.commits(t0=5, t1=5)
    world.subscribe("t", on_revoke=Mock(side_effect=ValueError if raises else None))
    world.assign(T0, T1)
    world.stock.positions = {T0: 10}
    world.stock.stored = {T0: 10}
    world.view = hiding(1)
    with pytest.raises(ValueError) if raises else nullcontext():
        world.poll()
    assert world.stock.stored[T0] == 5


@pytest.mark.parametrize("ends", ["revoke", "assign"])
def test_dropped_records_are_forgotten_with_their_assignment(ends: str) -> None:
    world, _, _ = dropping()
    world.view = hiding(epoch=3)
    world.poll()
    assert world.member.has_dropped
    if ends == "revoke":
        world.revoke(T0, T1)
    else:
        world.membership.assign([TopicPartition(*T0, 5)])
    assert not world.member.has_dropped


def test_callback_may_name_what_is_stored_for_an_offset() -> None:
    world = Reader("latest")
    world.ends(40, 40, 40)
    world.resolve(*[OFFSET_INVALID] * 3)

    def on_assign(_: object, partitions: list[TopicPartition]) -> None:
        world.membership.assign([TopicPartition("t", p.partition, OFFSET_STORED) for p in partitions])

    world.membership.subscription = Subscription(("t",), on_assign)
    world.view = hiding(2, count=3)
    world.poll()
    assert (world.held(), world.stock.sought) == ({T0, T1}, {}), "they are read on"


def test_partition_that_waits_to_be_read_is_read_although_another_one_is_revoked() -> None:
    world = Reader("latest", incremental=True)
    world.ends(40, 40, 40)
    world.assign(T0, T1, T2)
    world.view = hiding(1, 2, count=3)
    world.poll()
    world.view, world.stock.failures["seek"] = hiding(count=3, epoch=3), [KafkaError._STATE] * 2
    world.poll()
    assert world.stock.paused == {T1, T2}
    world.revoke(T2)
    assert world.membership.due_s() is not None
    world.poll(1.0)
    assert (world.held(), world.stock.sought) == ({T0, T1}, {T1: 40})
    assert T1 not in world.stock.paused


@pytest.mark.parametrize("ends", ["seek", "assign"])
def test_chosen_offset_ends_with_a_seek_or_another_assignment(ends: str) -> None:
    world = Reader("latest", incremental=True)
    world.ends(0, 40)
    world.assign(T1)
    world.view = hiding(1)
    world.poll()
    chosen = [TopicPartition(*T1, 7)]
    world.membership.subscription = Subscription(("t",), lambda _, parts: world.membership.assign(chosen))
    world.view, world.stock.failures["seek"] = hiding(epoch=3), [KafkaError._STATE]
    world.poll()
    world.membership.subscription = Subscription(("t",))
    if ends == "seek":
        world.membership.seek(TopicPartition(*T1, 9))
    else:
        world.revoke(T1)
        world.assign(T1)
    world.poll(1.0)
    found = world.stock.sought.get(T1) if ends == "seek" else world.stock.placed[T1].offset
    assert found == (9 if ends == "seek" else 40)


@pytest.mark.parametrize(
    ("method", "code", "text"),
    [
        ("committed", KafkaError._TIMED_OUT, "committed offsets unknown"),
        ("offsets_for_times", KafkaError.TOPIC_AUTHORIZATION_FAILED, "auto.offset.reset decides"),
    ],
)
def test_offsets_that_cannot_be_had_are_left_to_librdkafka_and_logged(
    caplog: pytest.LogCaptureFixture, method: str, code: int, text: str
) -> None:
    world = Reader("latest")
    world.commits(t0=7)
    world.resolve(OFFSET_INVALID)  # what was known before says nothing
    world.commits()
    world.stock.failures[method] = [code]
    with caplog.at_level(logging.WARNING):
        assert world.resolve(OFFSET_INVALID) == [OFFSET_INVALID]
    assert text in caplog.text


def test_commits_are_requested_again_while_the_coordinator_moves() -> None:
    """librdkafka would not repeat its own request, and never read the partition (#5586)."""
    world = Reader("latest")
    world.commits(t0=7)
    world.stock.failures["committed"] = [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS]
    assert world.resolve(OFFSET_INVALID) == [7]


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
    world = Reader("earliest")
    world.membership.before_close()
    world.stock.failures = defaultdict(lambda: [KafkaError._TIMED_OUT])
    world.assign(T0)
    assert world.stock.placed == {}, "librdkafka gives them back"


def test_what_is_withheld_is_not_held_and_is_looked_at_again_also_where_on_assign_raises() -> None:
    world = Reader("earliest")
    world.view = view(1, 2, 2)
    world.ownership.withheld = {T1}
    world.membership.subscription = Subscription(("t",), on_assign=Mock(side_effect=ValueError))
    world.apply_soon.reset_mock()
    with pytest.raises(ValueError):
        world.assign(T0, T1)
    assert (world.held(), world.stock.paused) == ({T0}, {T1})
    world.apply_soon.assert_called_once_with()


def test_what_was_withheld_under_a_subscription_is_read_once_the_application_assigns_it_itself() -> None:
    world = Reader("earliest")
    world.view = view(1, 2, 2)
    world.ownership.withheld = {T1}
    world.assign(T0, T1)
    assert world.held() == {T0}
    world.membership.leave()
    world.revoke(T0, T1)
    world.membership.assign([TopicPartition(*T0), TopicPartition(*T1)])
    assert (world.held(), world.stock.paused) == ({T0, T1}, set())


def test_topics_that_are_not_assigned_are_asked_about_by_another_client() -> None:
    """librdkafka queues errors about every partition that a consumer was asked about, once its topic is deleted."""
    stock, non_member = Mock(), Mock()
    non_member.committed.return_value = [TopicPartition("a", 0, 5), TopicPartition("a", 1, OFFSET_INVALID)]
    offsets = LibrdkafkaOffsets(stock, "g", non_member)
    assert offsets.committed_elsewhere([("a", 0), ("a", 1)]) == {("a", 0): 5, ("a", 1): None}
    non_member.committed.side_effect = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    assert offsets.committed_elsewhere([("a", 0)]) == {}, "not known"
    stock.committed.assert_not_called()
    with closing(Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"})) as consumer:
        assert isinstance(consumer._membership._offsets._non_member, NonMember)


# Of a topic that replaces another one


class Chain:
    """Topic a, which b replaces, and what brokers answer to a group ``g`` without a commit on b."""

    def __init__(self, reset: str, **state: Any) -> None:
        self.views = FakeViews()
        self.starts = Starts(self.views, reset, "g")
        self.firsts: dict[Key, int] = defaultdict(int)
        self.commits: dict[Key, int | None] = {(topic, p): None for topic in "abc" for p in (0, 1)}
        self.say(**state)

    def say(self, **state: Any) -> None:
        new_topic = ReplacedBy("b", "id-b", 2, switched=True, read_up_to={0: 5, 1: 5}, **state)
        self.views.put(TopicView("a", "id-a", (1, 1), modes_of(2, 2), replaced_by=new_topic))

    def found(self, *keys: Key, group: bool = True) -> dict[Key, int]:
        offsets = SimpleNamespace(
            committed=dict.fromkeys,
            committed_elsewhere=lambda asked: {key: self.commits[key] for key in asked if key in self.commits},
            log_starts=lambda asked: {key: self.firsts[key] for key in asked},
            log_ends=lambda asked: dict.fromkeys(asked, 9),
        )
        starts = self.starts.find(keys, offsets, group=group).starts
        return {key: start.offset for key, start in starts.items() if start.offset is not None}


@pytest.mark.parametrize(("reset", "start"), [("latest", 9), ("earliest", 2), ("error", None)])
def test_groups_noted_at_the_switch_start_at_the_beginning(reset: str, start: int | None) -> None:
    chain = Chain(reset, groups=frozenset({"g"}))
    chain.firsts["b", 0] = 2
    assert chain.found(("b", 0), ("b", 1)) == {("b", 0): 2, ("b", 1): 0}
    chain.say(released=True)
    assert chain.found(("b", 0)).get(("b", 0)) == start, "one that comes after the release"


@pytest.mark.parametrize(("committed", "start"), [(4, 2), (5, 2), (None, 9)])
def test_late_group_that_has_used_the_old_topic_skips_nothing_of_the_new_one(committed: int | None, start: int) -> None:
    """It comes back when the topic was released without it, or its offsets were set then. Also once it has read that to
    its end: it may have been restarted there. Another one begins now."""
    chain = Chain("latest", released=True)
    end = ReplacedBy("c", "id-c", 2, switched=True, released=True, read_up_to={0: 9, 1: 9})
    chain.views.put(TopicView("b", "id-b", (1, 1), modes_of(2, 2), replaced_by=end))
    chain.firsts = defaultdict(lambda: 2)
    chain.commits["a", 1] = committed
    keys = [("b", 0), ("c", 0)]
    assert chain.found(*keys) == dict.fromkeys(keys, start)
    chain.say()
    assert chain.found(("c", 0)) == {("c", 0): start}, "a chain, of which the first one waits"
    chain.say(released=True, gone=True)
    assert chain.found(("c", 0)) == {("c", 0): 9}, "a topic that is gone is not asked about"
    chain.say(released=True)
    del chain.commits["a", 0]
    assert chain.found(*keys) == dict.fromkeys(keys, 2), "in doubt it reads again"
    assert chain.found(*keys, group=False) == dict.fromkeys(keys, 9), "without a group"
