"""A kafka-python consumer of ours as a member of its group, without a broker: what is decided has tests of its own
(``test_member.py``); this is what kafka-python makes of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import (
    CoordinatorNotAvailableError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    TopicAuthorizationFailedError,
)
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment
from kafka.structs import OffsetAndMetadata, TopicPartition

from modeaware.clients.new_topics import UNCOMMITTED_S
from modeaware.errors import ConfigError
from modeaware.kafka_python import KafkaConsumer
from modeaware.kafka_python.commits import transactional_offsets
from modeaware.modes import PartitionMode
from modeaware.notes import BUSY, GIVEN, OPENED, READ
from modeaware.topic_view import Moved
from tests.support.fake_views import FakeViews, announce, modes_of, switch
from tests.support.kafka_python_offline import OFFLINE

OLD, NEW = [TopicPartition("orders", p) for p in (0, 1)], [TopicPartition("orders-v2", p) for p in (0, 1)]
END = 5


class Member:
    """A consumer, its group's offsets, and its brokers' log starts. A poll is a second after the last one."""

    def __init__(self, views: FakeViews, *topics: str, **settings: Any) -> None:
        self.views = views
        self.consumer = KafkaConsumer(*topics, **OFFLINE, **settings)
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.log_starts = dict.fromkeys((*OLD, *NEW), 0)
        self.down = False
        self.joining = False
        self.now_s = 0.0
        self.subscription: Any = self.consumer._subscription
        self.membership: Any = self.consumer._membership
        self.membership._now_s = lambda: self.now_s
        coordinator: Any = self.consumer._coordinator
        coordinator.fetch_committed_offsets = self._fetch
        coordinator.ensure_coordinator_ready_async = self._is_ready
        coordinator._send_offset_commit_request = self._send_commit
        coordinator._do_commit_offsets_async = self._commit_async
        coordinator.coordinator_unknown = lambda: False
        coordinator.need_rejoin = lambda: self.joining
        coordinator.generation_if_stable = lambda: None if self.joining else coordinator._generation
        self.coordinator = coordinator
        self.consumer._cluster.leader_for_partition = lambda partition: 1
        fetcher = self.consumer._fetcher
        fetcher.beginning_offsets = lambda keys, timeout_ms: {key: self.log_starts[key] for key in keys}
        fetcher.end_offsets = lambda keys, timeout_ms: dict.fromkeys(keys, 0)

    def _fetch(self, keys: set[TopicPartition], timeout_ms: float) -> dict[TopicPartition, OffsetAndMetadata]:
        if self.down:
            raise KafkaTimeoutError
        assert all(isinstance(key, TopicPartition) for key in keys), "kafka-python raises"
        return {key: self.committed[key] for key in keys if key in self.committed}

    async def fetch_async(
        self, keys: set[TopicPartition], timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._fetch(keys, timeout_ms)

    async def _is_ready(self, timeout_ms: float) -> bool:
        return True

    async def _send_commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        if self.down:
            raise KafkaError
        self.committed |= offsets

    def _commit_async(self, offsets: dict[TopicPartition, OffsetAndMetadata], callback: Any) -> None:
        if not self.down:
            self.committed |= offsets
        self.coordinator.completed_offset_commits.appendleft((callback, offsets, KafkaError() if self.down else None))

    def poll(self) -> None:
        """What a poll does before it fetches, where the group is stable."""
        self.now_s += 1.0
        self.membership.apply(1000)
        self.coordinator._invoke_completed_offset_commit_callbacks()
        self.consumer._refresh_committed_offsets(1000)

    def begin_join(self) -> None:
        """kafka-python begins a join, which gets no answer."""
        self.coordinator.coordinator_unknown = lambda: True
        with pytest.raises(CoordinatorNotAvailableError):
            self.consumer._net.run(self.coordinator._do_join_and_sync_async)
        self.coordinator.coordinator_unknown = lambda: False

    def assign(self, partitions: list[TopicPartition]) -> None:
        """The group gives the member ``partitions``, which its listener hears."""
        self.subscription.assign_from_subscribed(partitions)
        self.consumer._net.run(self.membership.on_partitions_assigned, set(partitions))

    def revoke(self, partitions: list[TopicPartition]) -> None:
        self.consumer._net.run(self.membership.on_partitions_revoked, set(partitions))

    def deliver(self, partition: TopicPartition, end: int) -> None:
        self.subscription.assignment[partition].position = OffsetAndMetadata(end, "", -1)

    def position(self, partition: TopicPartition) -> int | None:
        place = self.subscription.position(partition)
        return None if place is None else int(place.offset)

    def noted(self, *partitions: TopicPartition) -> list[tuple[int, str]]:
        """What is committed, without the zero byte at the end of a note."""
        found = [self.committed[each] for each in partitions]
        assert not any(at.metadata and not at.metadata.endswith("\0") for at in found), (
            "ended for confluent_kafka's members"
        )
        return [(at.offset, at.metadata.rstrip("\0")) for at in found]

    @property
    def held(self) -> set[TopicPartition]:
        held: set[TopicPartition] = self.consumer.assignment()
        return held

    def close(self) -> None:
        self.consumer.close(autocommit=False, timeout_ms=0)


class Told(ConsumerRebalanceListener):
    """What an application's listener is called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, set[TopicPartition]]] = []

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.calls.append(("assigned", set(assigned)))

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.calls.append(("revoked", set(revoked)))

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        self.calls.append(("lost", set(lost)))


@pytest.fixture
def member(views: FakeViews, request: pytest.FixtureRequest) -> Iterator[Member]:
    made = Member(views, "orders", group_id="g", **getattr(request, "param", {}))
    announce(views, "orders", "orders-v2", 2)
    yield made
    made.close()


LET_THROUGH = {"moved": Moved(groups=frozenset({"g"}), version=(1, 1))}


def sealed(member: Member, **state: Any) -> None:
    ends = dict.fromkeys(range(12), END)
    switch(member.views, "orders", "orders-v2", 2, **{"read_up_to": ends, "groups": frozenset({"g"}), **state})


def joined(member: Member) -> None:
    """The member has joined, and is given all that this test uses."""
    member.poll()
    member.assign([*OLD, *NEW])
    member.poll()


def read_to_the_end(member: Member) -> None:
    for each in OLD:
        member.deliver(each, END)


def test_new_topic_is_subscribed_to_and_held_back_and_the_application_sees_nothing_of_it(member: Member) -> None:
    joined(member)
    assert member.subscription.subscription == {"orders", "orders-v2"}
    assert member.consumer.subscription() == {"orders"}
    assert member.held == {*OLD}
    assert member.consumer.paused() == set()
    assert member.position(NEW[0]) == 0, "from its start, though auto_offset_reset is latest"
    assert not {*NEW} & {*member.subscription.fetchable_partitions()}
    stats = member.consumer.modeaware_stats()
    assert stats["gates"] == [{"topic": "orders", "new_topic": "orders-v2", "state": "closed"}]
    assert (stats["assigned"], stats["hidden"]) == (2, 2)


def test_nothing_is_committed_behind_a_gate_and_notes_ride_on_automatic_commits(member: Member) -> None:
    joined(member)
    assert member.subscription.all_consumed_offsets().keys() == {*OLD}
    sealed(member)
    member.deliver(OLD[0], END)
    member.deliver(OLD[1], END - 1)
    member.coordinator._do_auto_commit_offsets_async()
    assert member.noted(*OLD) == [(END, ""), (END - 1, "")], "it has not polled since"
    member.poll()
    assert member.noted(*OLD) == [(END, READ), (END - 1, "")]
    member.coordinator._do_auto_commit_offsets_async()
    assert member.noted(*OLD) == [(END, READ), (END - 1, "")], "no commit of kafka-python's wipes a note"
    member.coordinator.commit_offsets_sync(member.subscription.all_consumed_offsets(), timeout_ms=1000)
    assert member.noted(*OLD) == [(END, READ), (END - 1, "")]


def test_gate_opens_by_the_controllers_word_and_the_start_is_committed(member: Member) -> None:
    joined(member)
    sealed(member)
    read_to_the_end(member)
    member.poll()
    assert member.noted(*OLD) == [(END, READ)] * 2
    member.poll()
    assert member.held == {*OLD}
    member.log_starts[NEW[1]] = 3  # by retention
    sealed(member, **LET_THROUGH)
    member.poll()
    assert member.held == {*OLD, *NEW}
    assert (member.position(NEW[0]), member.position(NEW[1])) == (0, 3)
    assert member.subscription.all_consumed_offsets().keys() == {*OLD, *NEW}
    member.poll()
    member.poll()
    assert member.noted(*NEW) == [(0, OPENED), (3, OPENED)]
    sealed(member, released=True, **LET_THROUGH)
    member.poll()
    assert member.subscription.subscription == {"orders-v2"}
    assert member.consumer.subscription() == {"orders"}


def test_commits_are_repeated_until_they_are_answered(member: Member) -> None:
    joined(member)
    sealed(member)
    read_to_the_end(member)
    member.down = True
    for _ in range(3):
        member.poll()
    assert member.committed == {}
    member.down = False
    for _ in range(20):
        member.poll()
    assert member.noted(*OLD) == [(END, READ)] * 2


def test_a_poll_waits_for_no_commit(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer comes in a later poll; until then no other note is sent."""
    joined(member)
    sealed(member)
    read_to_the_end(member)
    sent: list[Any] = []
    member.coordinator._do_commit_offsets_async = lambda offsets, callback: sent.append((offsets, callback))
    for _ in range(3):
        member.poll()
    ((offsets, callback),) = sent
    assert offsets.keys() == {*OLD}
    assert all(at.metadata == READ + "\0" for at in offsets.values()), "with what was stored, in one"
    callback(offsets, None)
    member.poll()
    assert len(sent) == 1


def test_partition_that_a_worker_has_paused_is_said_to_be_busy(member: Member) -> None:
    joined(member)
    sealed(member)
    read_to_the_end(member)
    member.consumer.pause(OLD[0])
    member.poll()
    assert member.noted(*OLD) == [(END, BUSY), (END, READ)]
    member.consumer.resume(OLD[0])
    member.poll()
    member.poll()
    assert member.noted(OLD[0]) == [(END, READ)]
    member.consumer.seek(OLD[0], 2)
    member.poll()
    member.poll()
    assert member.noted(OLD[0]) == [(END, BUSY)], "it has gone back"


def test_partition_whose_log_start_is_not_known_stays_hidden_until_it_is(member: Member) -> None:
    """Retention may have taken its first records: ``auto_offset_reset=latest`` would skip the others."""
    joined(member)
    cluster = member.consumer._cluster
    cluster.leader_for_partition = lambda partition: -1 if partition == NEW[1] else 1
    member.log_starts[NEW[1]] = 3
    sealed(member, **LET_THROUGH)
    member.poll()
    assert member.held == {*OLD, NEW[0]}
    cluster.leader_for_partition = lambda partition: 1
    member.poll()
    assert member.held == {*OLD, *NEW}
    assert member.position(NEW[1]) == 3


def test_rights_that_are_missing_for_a_while_keep_nothing_else_from_being_read(member: Member) -> None:
    """Brokers deny where the new topic's log starts."""
    joined(member)
    fetcher = member.consumer._fetcher
    answer = fetcher.beginning_offsets
    fetcher.beginning_offsets = Mock(side_effect=TopicAuthorizationFailedError("orders-v2"))
    sealed(member, **LET_THROUGH)
    for _ in range(2):
        member.poll()
    assert member.held == {*OLD}
    fetcher.beginning_offsets = answer
    member.poll()
    assert member.held == {*OLD, *NEW}


def test_rebalance_listener_is_shown_the_new_topic_when_its_gate_opens(views: FakeViews) -> None:
    told = Told()
    announce(views, "orders", "orders-v2", 2)
    with closing(Member(views, group_id="g")) as member:
        member.consumer.subscribe(["orders"], listener=told)
        joined(member)
        assert told.calls == [("assigned", {*OLD})]
        told.calls.clear()
        sealed(member, **LET_THROUGH)
        member.poll()
        assert told.calls == [("revoked", {*OLD}), ("assigned", {*OLD, *NEW})]


class Committing(Told):
    """Commits what it was given when it is revoked, without waiting, as a listener in kafka-python's thread has to."""

    def __init__(self, consumer: KafkaConsumer, up_to: int) -> None:
        super().__init__()
        self.consumer = consumer
        self.up_to = up_to

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        super().on_partitions_revoked(revoked)
        self.consumer.commit_async({each: OffsetAndMetadata(self.up_to, "", -1) for each in revoked})


@pytest.mark.parametrize("strategy", [RangePartitionAssignor, CooperativeStickyAssignor])
def test_batch_committer_is_shown_a_revocation_and_goes_on_where_it_has_committed(
    views: FakeViews, strategy: Any
) -> None:
    announce(views, "orders", "orders-v2", 2)
    settings = {"group_id": "g", "enable_auto_commit": False, "partition_assignment_strategy": [strategy]}
    with closing(Member(views, **settings)) as member:
        told = Committing(member.consumer, END - 1)
        member.consumer.subscribe(["orders"], listener=told)
        joined(member)
        sealed(member)
        read_to_the_end(member)
        told.calls.clear()
        member.joining = True
        for _ in range(20):
            member.poll()
        assert told.calls == [], "kafka-python takes no commits while it joins"
        member.joining = False
        for _ in range(3):
            member.poll()
        assert told.calls == [("revoked", {*OLD}), ("assigned", {*OLD})]
        assert [member.position(each) for each in OLD] == [END - 1] * 2, "the last record comes again"
        read_to_the_end(member)
        for _ in range(4):
            member.poll()
        assert len(told.calls) == 2, "once"
        assert member.noted(*OLD) == [(END - 1, GIVEN)] * 2


def test_application_that_commits_as_it_goes_is_shown_nothing_and_its_last_commit_is_noted(views: FakeViews) -> None:
    announce(views, "orders", "orders-v2", 2)
    told = Told()
    with closing(Member(views, group_id="g", enable_auto_commit=False)) as member:
        member.consumer.subscribe(["orders"], listener=told)
        joined(member)
        sealed(member)
        read_to_the_end(member)
        member.consumer.commit()
        assert member.noted(*OLD) == [(END, "")] * 2, "it has not polled since"
        told.calls.clear()
        for _ in range(3):
            member.poll()
        assert member.noted(*OLD) == [(END, READ)] * 2
        assert told.calls == []
        member.consumer.commit({OLD[0]: OffsetAndMetadata(END, "mine", -1)})
        member.consumer.commit({OLD[1]: OffsetAndMetadata(END, "", -1)})
        assert member.committed[OLD[0]].metadata == "mine"
        assert member.noted(OLD[1]) == [(END, READ)], "it rides on the application's own commit"


@pytest.mark.parametrize("member", [{"enable_auto_commit": False}], indirect=True)
def test_notes_ride_on_the_offsets_of_a_transaction_and_nothing_is_committed_beside_it(member: Member) -> None:
    joined(member)
    sealed(member)
    metadata = member.consumer.group_metadata()
    read_to_the_end(member)
    for _ in range(3):
        member.poll()
    assert member.committed == {}
    sent = {OLD[0]: OffsetAndMetadata(END, "", -1), OLD[1]: OffsetAndMetadata(END - 1, "", -1)}
    noted = transactional_offsets(sent, metadata)
    assert [at.metadata.rstrip("\0") for at in noted.values()] == [READ, ""]
    assert transactional_offsets(sent, metadata._replace(member_id="another")) is sent
    assert transactional_offsets(sent, "g") is sent
    assert transactional_offsets("rubbish", metadata) == "rubbish"


def test_pauses_of_the_application_outlive_a_rebalance_as_kafka_pythons_do(member: Member) -> None:
    joined(member)
    member.consumer.pause(OLD[0])
    member.revoke([*OLD, *NEW])
    member.assign([*OLD, *NEW])
    member.poll()
    assert member.consumer.paused() == {OLD[0]}
    assert {*member.subscription.fetchable_partitions()} == {OLD[1]}
    sealed(member, **LET_THROUGH)
    member.poll()
    assert {*member.subscription.fetchable_partitions()} == {OLD[1], *NEW}
    member.consumer.resume(OLD[0])
    assert member.consumer.paused() == set()


def test_pauses_during_an_eager_rebalance_are_kept(member: Member) -> None:
    joined(member)
    member.consumer.pause(OLD[0])
    member.revoke([*OLD, *NEW])
    member.consumer.pause(OLD[1])
    member.consumer.resume(OLD[0])
    member.poll()
    member.assign([*OLD, *NEW])
    member.poll()
    assert member.consumer.paused() == {OLD[1]}
    assert {*member.subscription.fetchable_partitions()} == {OLD[0]}


def test_pauses_are_kept_if_kafka_python_repeats_a_revocation(member: Member) -> None:
    """After a listener that raised, or an assignment that kafka-python rejected."""
    joined(member)
    member.consumer.pause(OLD[0])
    member.revoke([*OLD, *NEW])
    member.revoke([*OLD, *NEW])
    member.assign([*OLD, *NEW])
    member.poll()
    assert member.consumer.paused() == {OLD[0]}
    assert {*member.subscription.fetchable_partitions()} == {OLD[1]}


@pytest.mark.parametrize("ends", ["resume", "assignment to another member", "unsubscribe"])
def test_pause_that_has_ended_does_not_return_with_a_later_assignment(member: Member, ends: str) -> None:
    joined(member)
    member.consumer.pause(OLD[0])
    if ends == "resume":
        member.consumer.resume(OLD[0])
    elif ends == "unsubscribe":
        member.consumer.unsubscribe()
        member.consumer.subscribe(["orders"])
        member.poll()
    else:
        member.revoke([*OLD, *NEW])
        member.assign([OLD[1]])
        member.poll()
    member.revoke([*OLD, *NEW])
    member.assign([*OLD, *NEW])
    member.subscription.pause(OLD[0])  # as if hidden by an action of the member
    member.poll()
    assert member.consumer.paused() == set()
    assert {*member.subscription.fetchable_partitions()} == {*OLD}


def test_position_of_what_is_assigned_again_stays_and_is_no_start_of_a_group_with_commits(member: Member) -> None:
    joined(member)
    member.deliver(OLD[0], 3)
    member.committed[OLD[0]] = OffsetAndMetadata(2, "", -1)
    member.revoke([*OLD, *NEW])
    member.assign(OLD)
    member.poll()
    assert member.position(OLD[0]) == 3
    assert member.membership.member.partitions[OLD[0]].committed == (2, "")


@pytest.mark.parametrize("rebalances", [1, 2])
@pytest.mark.parametrize("is_shrunk", [True, False])
def test_records_that_are_not_committed_stay_uncommitted_over_an_eager_rebalance(
    views: FakeViews, is_shrunk: bool, rebalances: int
) -> None:
    """kafka-python keeps the position. The group has no commit, and the application has not handled all records."""
    view = announce(views, "orders", "orders-v2", 2)
    with closing(Member(views, "orders", group_id="g", enable_auto_commit=False)) as member:
        joined(member)
        read_to_the_end(member)
        for _ in range(rebalances):
            complete_join(member, OLD)
            member.poll()
        assert [member.position(each) for each in OLD] == [END] * 2
        if is_shrunk:
            ends = {0: END, 1: END}
            modes = modes_of(2, 0, PartitionMode.READ_ONLY)
            views.put(replace(view, version=(1, 9), modes=modes, resume_offsets=ends, replaced_by=None))
        else:
            sealed(member)
        for _ in range(2):
            for _ in range(4):
                member.poll()
            assert all(at.offset == 0 for at in member.committed.values())
            read_to_the_end(member)


@pytest.mark.parametrize("pattern", ["orders$|other", "(?i)ORDERS$|other", r"^orders$|other-\d"])
def test_pattern_is_widened_by_what_it_does_not_match(views: FakeViews, pattern: str) -> None:
    announce(views, "orders", "orders-v2", 2)
    member = Member(views, group_id="g")
    member.consumer.subscribe(pattern=pattern)
    member.poll()
    match = member.subscription.subscribed_pattern.match
    assert [topic for topic in ("orders", "orders-v2", "other-1", "more") if match(topic)] == [
        "orders",
        "orders-v2",
        "other-1",
    ]
    member.subscription.change_subscription(["orders", "orders-v2"])  # as kafka-python does with new metadata
    assert member.consumer.subscription() == {"orders"}
    member.close()


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        (re.compile("orders$"), {"orders"}),
        (re.compile("ORDERS$", re.IGNORECASE), {"orders"}),
        (re.compile("(?i)ORDERS$"), {"orders"}),
        (re.compile("^orders$ # the orders", re.VERBOSE | re.ASCII), {"orders"}),
        (re.compile(""), {"orders", "more"}),
    ],
)
def test_compiled_pattern_matches_as_in_kafka_python_with_its_flags(
    views: FakeViews, pattern: re.Pattern[str], matched: set[str]
) -> None:
    announce(views, "orders", "orders-v2", 2)
    with closing(Member(views, group_id="g")) as member:
        member.consumer.subscribe(pattern=pattern)
        member.poll()
        subscribed = member.subscription.subscribed_pattern
        assert {topic for topic in ("orders", "orders-v2", "more") if subscribed.match(topic)} == {
            *matched,
            "orders-v2",
        }
        member.subscription.change_subscription(["orders", "orders-v2"])  # as kafka-python does with new metadata
        member.assign([*OLD, *NEW])
        member.poll()
        assert member.held >= {*OLD}


def test_start_of_a_partition_that_no_member_reads_is_committed(member: Member) -> None:
    member.poll()
    member.assign([*OLD, NEW[0]])
    sealed(member, **LET_THROUGH)
    for _ in range(5):
        member.poll()
    assert NEW[1] not in member.committed
    member.now_s += UNCOMMITTED_S
    for _ in range(5):
        member.poll()
    assert member.noted(NEW[1]) == [(0, OPENED)]


@pytest.mark.parametrize("released", [True, False])
def test_topic_that_is_released_is_left_out_of_a_pattern(views: FakeViews, released: bool) -> None:
    def matched() -> set[str]:
        member.membership.noted = True
        member.poll()
        pattern = member.subscription.subscribed_pattern
        return {topic for topic in ("orders", "orders-v2", "more") if pattern.match(topic)}

    announce(views, "orders", "orders-v2", 2)
    with closing(Member(views, group_id="g")) as member:
        member.consumer.subscribe(pattern="orders")
        assert matched() == {"orders", "orders-v2"}
        sealed(member, released=released, **LET_THROUGH)
        assert matched() == {"orders-v2"} | ({"orders"} if not released else set())


def test_new_topic_of_an_undone_replacement_stays_hidden(member: Member) -> None:
    joined(member)
    member.views.put(replace(member.views.view("orders"), version=(1, 9), replaced_by=None))
    member.membership.noted = True
    member.poll()
    assert member.subscription.subscription == {"orders"}
    assert member.held == {*OLD}
    assert member.consumer.modeaware_stats()["gates"] == []


def test_unordered_member_reads_both_at_once(views: FakeViews) -> None:
    member = Member(views, "orders", group_id="g", modeaware_on_replace="unordered")
    announce(views, "orders", "orders-v2", 2)
    joined(member)
    assert member.held == {*OLD, *NEW}
    member.close()


def test_consumer_without_a_group_reads_the_new_topic_after_what_it_has_read_itself(views: FakeViews) -> None:
    view = announce(views, "orders", "orders-v2", 2)
    views.put(replace(view, version=(1, 5), modes=modes_of(2, 2)))
    with closing(Member(views, "orders", auto_offset_reset="earliest")) as member:
        member.poll()
        member.subscription.assign_from_subscribed([*OLD, *NEW])  # as kafka-python's own thread does
        member.poll()
        assert member.held == {*OLD}
        switch(views, "orders", "orders-v2", 2, read_up_to={0: END, 1: 0})
        member.deliver(OLD[0], END - 1)
        member.poll()
        assert member.held == {*OLD}
        member.deliver(OLD[0], END)
        member.poll()
        member.poll()
        assert member.held == {*OLD, *NEW}
        assert member.committed == {}
        member.subscription.assign_from_subscribed([*NEW])
        member.poll()
        assert member.held == {*NEW}


def test_assignment_by_the_application_is_left_alone_with_a_warning(
    views: FakeViews, caplog: pytest.LogCaptureFixture
) -> None:
    member = Member(views)
    member.consumer.assign([*OLD, *NEW])
    announce(views, "orders", "orders-v2", 2)
    member.poll()
    assert member.held == {*OLD, *NEW}
    assert caplog.text.count("assign the partitions of orders-v2") == 1
    member.close()


@pytest.mark.parametrize("allowed", [True, False])
def test_topics_are_created_where_the_application_allows_it_and_none_is_replaced(
    views: FakeViews, allowed: bool
) -> None:
    member = Member(views, "orders", group_id="g", allow_auto_create_topics=allowed)
    config = member.consumer._cluster.config
    assert not config["allow_auto_create_topics"], "it may be gone"
    member.poll()
    assert config["allow_auto_create_topics"] is allowed
    announce(views, "orders", "orders-v2", 2)
    member.poll()
    assert not config["allow_auto_create_topics"], "a new topic that is deleted would come up again"
    views.put(replace(views.view("orders"), version=(1, 9), replaced_by=None))
    member.poll()
    member.assign([*OLD])
    member.poll()
    assert member.subscription.subscription == {"orders"}
    assert not config["allow_auto_create_topics"], "also after the next assignment"
    member.close()
    assigned = Member(views, allow_auto_create_topics=allowed)
    assigned.consumer.assign([*OLD])
    assert assigned.consumer._cluster.config["allow_auto_create_topics"] is allowed
    assigned.close()


def test_old_topic_is_not_created_again_after_an_unsubscription(member: Member) -> None:
    cluster = member.consumer._cluster
    joined(member)
    sealed(member, released=True, gone=True)
    member.consumer.unsubscribe()
    assert cluster._topics == set()
    member.consumer.assign(NEW)
    assert cluster._topics == {"orders-v2"}
    assert not cluster.config["allow_auto_create_topics"], "a rename back may delete this topic, too"


def test_rejected_assignment_does_not_let_topics_be_created(views: FakeViews) -> None:
    with closing(Member(views, "orders", group_id="g")) as member:
        with pytest.raises(IllegalStateError):
            member.consumer.assign(NEW)
        assert not member.consumer._cluster.config["allow_auto_create_topics"]


def test_logical_names_are_refused(views: FakeViews) -> None:
    with pytest.raises(ConfigError, match="modeaware_topic_names: 'logical' is not supported with kafka-python"):
        KafkaConsumer("orders", **OFFLINE, modeaware_topic_names="logical")


def complete_join(member: Member, partitions: list[TopicPartition]) -> None:
    """The member's join is answered: it is assigned ``partitions``, of one topic."""
    part = ConsumerProtocolAssignment.TopicPartition
    parts = [part(topic=partitions[0].topic, partitions=[p.partition for p in partitions])]
    assignment = ConsumerProtocolAssignment(version=1, assigned_partitions=parts, user_data=b"").encode()
    coordinator: Any = member.consumer._coordinator
    protocol = coordinator.config["assignors"][0].name
    member.consumer._net.run(coordinator._on_join_complete_async, 1, "a member", protocol, assignment)


@pytest.mark.parametrize("strategy", [RangePartitionAssignor, CooperativeStickyAssignor])
def test_what_a_member_has_lost_while_it_joined_starts_anew(views: FakeViews, strategy: Any) -> None:
    member, told = Member(views, group_id="g", partition_assignment_strategy=[strategy]), Told()
    member.consumer.subscribe(["orders"], listener=told)
    complete_join(member, OLD)
    member.poll()
    member.deliver(OLD[0], 60)
    complete_join(member, OLD)
    assert member.subscription.position(OLD[0]).offset == 60, "as kafka-python does"
    told.calls.clear()
    member.consumer._coordinator.reset_generation()
    complete_join(member, OLD)
    assert member.position(OLD[0]) is None
    lost = [("lost", {*OLD})] if strategy is CooperativeStickyAssignor else []  # by eager ones it was revoked before
    member.committed[OLD[0]] = OffsetAndMetadata(7, "", -1)
    member.poll()
    assert told.calls == [*lost, ("assigned", {*OLD})]
    assert member.position(OLD[0]) == 7
    member.close()


def test_a_topic_that_was_left_and_came_back_within_one_join_starts_anew(member: Member) -> None:
    joined(member)
    member.deliver(OLD[0], 60)
    sealed(member, released=True, **LET_THROUGH)
    member.poll()
    assert member.subscription.subscription == {"orders-v2"}
    member.subscription.change_subscription(["orders", "orders-v2"])
    complete_join(member, OLD)
    assert member.subscription.position(OLD[0]) is None


def test_listener_that_fails_does_not_keep_the_assignment_from_being_taken(views: FakeViews) -> None:
    class Failing(Told):
        def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
            super().on_partitions_lost(lost)
            if len(self.calls) == 2:  # not at the close as well
                raise RuntimeError("the application's")

    member = Member(views, group_id="g", partition_assignment_strategy=[CooperativeStickyAssignor])
    member.consumer.subscribe(["orders"], listener=Failing())
    complete_join(member, OLD)
    member.poll()
    member.consumer._coordinator.reset_generation()
    with pytest.raises(KafkaError, match="callback"):
        complete_join(member, [*OLD, TopicPartition("orders", 2)])
    member.poll()
    assert member.held == {*OLD, TopicPartition("orders", 2)}
    member.close()


def test_topic_that_is_deleted_after_its_replacement_is_not_requested_any_more(member: Member) -> None:
    cluster, listed = member.consumer._cluster, {"orders", "orders-v2", "other"}
    cluster._topics = set(listed)

    def answered() -> set[str]:
        cluster._last_successful_refresh_ms += 1
        member.consumer._topics.forget_deleted()
        topics: set[str] = cluster._topics
        return topics

    sealed(member, released=True, **LET_THROUGH)
    member.poll()
    member.subscription.reset_group_subscription()  # as a join does
    assert answered() == listed
    sealed(member, released=True, gone=True)
    assert answered() == {"orders-v2", "other"}


def test_consumer_without_a_group_stops_requesting_a_deleted_topic(views: FakeViews) -> None:
    announce(views, "orders", "orders-v2", 2)
    with closing(Member(views, "orders")) as member:
        member.poll()
        cluster = member.consumer._cluster
        assert cluster._topics == {"orders", "orders-v2"}
        sealed(member, released=True, gone=True)
        member.poll()
        assert member.subscription.subscription == {"orders-v2"}
        cluster._last_successful_refresh_ms += 1
        member.consumer._topics.forget_deleted()
        assert cluster._topics == {"orders-v2"}


def test_topic_that_is_subscribed_to_is_requested_whatever_became_of_it(views: FakeViews) -> None:
    named = Member(views, "orders", group_id="g", modeaware_on_replace="named")
    cluster = named.consumer._cluster
    announce(views, "orders", "orders-v2", 2)
    sealed(named, released=True, gone=True)
    named.consumer._cluster._last_successful_refresh_ms += 1
    named.consumer._topics.forget_deleted()
    assert cluster._topics == {"orders"}
    named.close()


class Saving(Told):
    """Saves positions when partitions go, as applications do that keep their offsets themselves."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        super().__init__()
        self.consumer = consumer
        self.saved: dict[TopicPartition, int] = {}

    def on_partitions_revoked(self, revoked: Any) -> None:
        super().on_partitions_revoked(revoked)
        self.saved = {each: self.consumer.position(each) for each in revoked}


@pytest.mark.parametrize("mode", [PartitionMode.NONE, PartitionMode.READ_ONLY])
def test_listener_asks_for_positions_whatever_has_changed(views: FakeViews, mode: PartitionMode) -> None:
    """In kafka-python's thread, which may wait for nothing: a poll alone changes what is held."""
    views.set("orders", modes_of(2, 2))
    with closing(Member(views, group_id="g")) as member:
        consumer = member.consumer
        listener = Saving(consumer)
        consumer.subscribe(["orders"], listener=listener)
        member.poll()
        member.assign(OLD)
        member.poll()
        for each in OLD:
            member.deliver(each, 5)
        listener.calls.clear()
        for name in ("fetch_committed_offsets", "commit_offsets_sync"):
            consumer._coordinator.__dict__.pop(name, None)
        views.set("orders", modes_of(2, 1, mode))
        assert consumer.position(OLD[0]) == 5
        assert listener.calls == [], "nor in the application's own thread"
        consumer._net.run(consumer._coordinator._invoke_rebalance_listener_async, "on_partitions_revoked", set(OLD))
        assert listener.saved == dict.fromkeys(OLD, 5)


def test_partition_without_a_start_is_reported_until_the_application_seeks(views: FakeViews) -> None:
    views.set("orders", modes_of(2, 2))
    with closing(Member(views, "orders", group_id="g", auto_offset_reset="none")) as member:
        member.poll()
        member.committed[OLD[1]] = OffsetAndMetadata(4, "", -1)
        member.assign(OLD)
        for _ in range(2):
            with pytest.raises(NoOffsetForPartitionError):
                member.poll()
        member.consumer.seek(OLD[0], 7)
        member.poll()
        assert [member.position(each) for each in OLD] == [7, 4]


def test_what_a_listener_has_sought_is_where_reading_starts(views: FakeViews) -> None:
    class Seeking(Told):
        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            super().on_partitions_assigned(assigned)
            assert member.consumer.assignment() == {*OLD}
            member.consumer.seek(OLD[0], 7)
            member.consumer.seek_to_beginning(OLD[1])

    views.set("orders", modes_of(2, 2))
    with closing(Member(views, group_id="g")) as member:
        member.consumer.subscribe(["orders"], listener=Seeking())
        member.poll()
        member.committed |= {each: OffsetAndMetadata(4, "", -1) for each in OLD}
        member.assign(OLD)
        member.poll()
        assert member.position(OLD[0]) == 7
        assert member.subscription.is_offset_reset_needed(OLD[1])


def test_seek_of_a_listener_to_the_beginning_holds_after_a_change_of_modes(views: FakeViews) -> None:
    class Seeking(Told):
        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            super().on_partitions_assigned(assigned)
            if len(self.calls) > 1:
                member.consumer.seek_to_beginning(OLD[0])

    views.set("orders", modes_of(2, 2))
    with closing(Member(views, group_id="g", enable_auto_commit=False)) as member:
        member.consumer.subscribe(["orders"], listener=Seeking())
        member.poll()
        member.assign(OLD)
        member.poll()
        views.set("orders", modes_of(2, 1, PartitionMode.NONE))
        member.poll()
        assert member.held == {OLD[0]}
        assert member.subscription.assignment[OLD[0]].reset_strategy is not None, "kafka-python finds the beginning"


def test_what_is_revoked_before_it_was_taken_is_shown_to_nobody(views: FakeViews) -> None:
    views.set("orders", modes_of(2, 2))
    settings = {"group_id": "g", "partition_assignment_strategy": [CooperativeStickyAssignor]}
    with closing(Member(views, **settings)) as member:
        told = Told()
        member.consumer.subscribe(["orders"], listener=told)
        member.poll()
        member.assign(OLD)
        member.subscription.assign_from_subscribed(OLD[:1])
        member.revoke([OLD[1]])
        assert told.calls == []
        member.poll()
        assert told.calls == [("assigned", {OLD[0]})]


@contextmanager
def committing_by_itself(views: FakeViews, strategy: Any) -> Iterator[Member]:
    """A member without automatic commits, of a topic in which all partitions are writable."""
    views.set("orders", modes_of(3, 3))
    settings = {"group_id": "g", "enable_auto_commit": False, "partition_assignment_strategy": [strategy]}
    with closing(Member(views, "orders", **settings)) as member:
        member.coordinator.fetch_committed_offsets_async = member.fetch_async
        member.poll()
        yield member


@pytest.mark.parametrize("strategy", [RangePartitionAssignor, CooperativeStickyAssignor])
def test_idle_starts_of_a_latest_group_are_committed_before_a_change_of_modes_moves_them(
    views: FakeViews, strategy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """By their next owner ``latest`` would be resolved once more, at a later end."""
    with committing_by_itself(views, strategy) as member:
        member.begin_join()
        member.assign(OLD)
        member.poll()
        member.deliver(OLD[0], 5)
        member.revoke(OLD)
        assert member.committed == {}, "no modes have changed"
        member.assign(OLD)
        member.poll()
        views.set("orders", modes_of(3, 2, PartitionMode.NONE))
        member.down = True
        member.poll()
        member.revoke(OLD)
        assert "start offsets of 1 idle partitions not committed" in caplog.text
        member.down = False
        member.assign(OLD)
        member.poll()
        views.set("orders", modes_of(3, 3))
        member.poll()
        if strategy is CooperativeStickyAssignor:  # by whose revocations the positions are gone
            member.subscription.assign_from_subscribed([])
        member.revoke(OLD)
        assert member.committed == {OLD[1]: OffsetAndMetadata(0, "", -1)}


@pytest.mark.parametrize("strategy", [RangePartitionAssignor, CooperativeStickyAssignor])
@pytest.mark.parametrize("changes_before", [False, True])
def test_change_of_modes_during_a_join_still_commits_idle_starts(
    views: FakeViews, strategy: Any, changes_before: bool
) -> None:
    """The leader may have assigned before the change, so the change may cause the next rebalance."""
    with committing_by_itself(views, strategy) as member:
        if changes_before:
            views.set("orders", modes_of(3, 1, PartitionMode.NONE))
        member.begin_join()
        views.set("orders", modes_of(3, 2, PartitionMode.NONE))
        member.assign(OLD)
        member.poll()
        member.revoke(OLD)
        assert member.committed == {each: OffsetAndMetadata(0, "", -1) for each in OLD}


def test_commit_of_idle_starts_that_failed_before_a_join_is_repeated_during_the_join(views: FakeViews) -> None:
    with committing_by_itself(views, CooperativeStickyAssignor) as member:
        member.begin_join()
        member.assign(OLD)
        member.poll()
        views.set("orders", modes_of(3, 2, PartitionMode.NONE))
        member.down = True
        member.poll()
        member.begin_join()
        member.down = False
        member.membership.noted = True
        member.poll()
        assert member.committed == {each: OffsetAndMetadata(0, "", -1) for each in OLD}


@pytest.mark.parametrize("strategy", [RangePartitionAssignor, CooperativeStickyAssignor])
def test_commit_leaves_out_what_was_dropped_until_it_is_read_again(views: FakeViews, strategy: type) -> None:
    """Partition 1 is hidden: the application, which was shown that, has dropped what it had not committed."""
    with committing_by_itself(views, strategy) as member:
        member.consumer.subscribe(["orders"], listener=Told())
        member.poll()
        member.committed |= dict.fromkeys(OLD, OffsetAndMetadata(2, "", -1))
        member.assign(OLD)
        member.poll()
        for each in OLD:
            member.deliver(each, END)
        views.set("orders", modes_of(3, 1, PartitionMode.NONE))
        member.poll()
        sent = {each.partition: at.offset for each, at in member.subscription.all_consumed_offsets().items()}
        assert sent == {0: 2 if strategy is RangePartitionAssignor else END}


@pytest.mark.parametrize("seeks", [False, True])
def test_what_was_dropped_is_read_again_although_a_rebalance_overtakes_the_restart(
    views: FakeViews, seeks: bool
) -> None:
    """kafka-python keeps positions over an eager rebalance: here, one behind the records that were dropped."""
    with committing_by_itself(views, RangePartitionAssignor) as member:
        told = Told()
        member.consumer.subscribe(["orders"], listener=told)
        member.poll()
        member.committed |= dict.fromkeys(OLD, OffsetAndMetadata(2, "", -1))
        complete_join(member, OLD)
        member.poll()
        for each in OLD:
            member.deliver(each, END)
        member.consumer.pause(OLD[0])
        member.down = True  # so the group's commits are not known
        views.set("orders", modes_of(3, 1, PartitionMode.NONE))
        member.poll()
        assert told.calls[-1] == ("revoked", {*OLD})
        member.revoke(OLD)
        if seeks:
            member.consumer.seek(OLD[0], 4)
        member.down = False
        complete_join(member, OLD)
        member.poll()
        assert (member.held, member.consumer.paused()) == ({OLD[0]}, {OLD[0]})
        expected = 4 if seeks else 2
        assert member.position(OLD[0]) == expected
        assert member.subscription.all_consumed_offsets()[OLD[0]].offset == expected
        member.deliver(OLD[0], END)
        member.revoke(OLD)
        complete_join(member, OLD)
        assert member.position(OLD[0]) == END, "the next rebalance keeps positions as usual"


def test_position_that_was_sought_after_records_were_dropped_outlives_a_rebalance(views: FakeViews) -> None:
    with committing_by_itself(views, RangePartitionAssignor) as member:
        member.consumer.subscribe(["orders"], listener=Told())
        member.poll()
        member.committed |= dict.fromkeys(OLD, OffsetAndMetadata(2, "", -1))
        complete_join(member, OLD)
        member.poll()
        member.deliver(OLD[0], END)
        views.set("orders", modes_of(3, 1, PartitionMode.NONE))
        member.poll()
        assert (member.held, member.position(OLD[0])) == ({OLD[0]}, 2)
        member.consumer.seek(OLD[0], 1)
        member.revoke(OLD)
        complete_join(member, OLD)
        member.poll()
        assert member.position(OLD[0]) == 1
