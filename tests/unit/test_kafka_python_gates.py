"""A consumer of kafka-python's whose topic is replaced, without a broker: what it subscribes to, holds and commits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError, KafkaTimeoutError, TopicAuthorizationFailedError
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment
from kafka.structs import OffsetAndMetadata, TopicPartition

from modeaware.clients.gate import GATE_OPENED, READ
from modeaware.clients.gates import UNCOMMITTED_S
from modeaware.errors import ConfigError
from modeaware.kafka_python import KafkaConsumer
from modeaware.modes import PartitionMode
from tests.support.fake_views import FakeViews, announce, modes_of, switch
from tests.support.kafka_python_offline import OFFLINE

OLD, NEW = [TopicPartition("orders", p) for p in (0, 1)], [TopicPartition("orders-v2", p) for p in (0, 1)]


class Member:
    """A consumer, its group's offsets, and its brokers' log starts."""

    def __init__(self, views: FakeViews, *topics: str, **settings: Any) -> None:
        self.views = views
        self.consumer = KafkaConsumer(*topics, **OFFLINE, **settings)
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.log_starts = dict.fromkeys((*OLD, *NEW), 0)
        self.down = False
        coordinator: Any = self.consumer._coordinator
        coordinator.fetch_committed_offsets = self._fetch
        coordinator.commit_offsets_sync = self._commit
        self.consumer._cluster.leader_for_partition = lambda partition: 1
        self.consumer.beginning_offsets = lambda keys, timeout_ms: {key: self.log_starts[key] for key in keys}
        self.consumer.end_offsets = lambda keys, timeout_ms: dict.fromkeys(keys, 0)
        self.subscription: Any = self.consumer._subscription

    def _fetch(self, keys: set[TopicPartition], timeout_ms: float) -> dict[TopicPartition, OffsetAndMetadata]:
        if self.down:
            raise KafkaTimeoutError
        assert all(isinstance(key, TopicPartition) for key in keys), "kafka-python raises"
        return {key: self.committed[key] for key in keys if key in self.committed}

    def _commit(self, offsets: dict[TopicPartition, OffsetAndMetadata], timeout_ms: float) -> None:
        if self.down:
            raise KafkaTimeoutError
        self.committed |= offsets

    def poll(self) -> None:
        """What a poll does before it fetches, where the group is stable."""
        self.consumer._gates._next_s = 0.0  # private: the time to look again has come
        for gate in self.consumer._gates._gates.values():
            gate.ask_s = 0.0
        self.consumer._follow_topics()
        self.consumer._refresh_committed_offsets(1000)

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.subscription.assign_from_subscribed(partitions)
        self.consumer._partitions.settle()  # as the listener does

    def deliver(self, partition: TopicPartition, end: int) -> None:
        self.subscription.seek(partition, OffsetAndMetadata(end, "", -1))

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
def member(views: FakeViews) -> Iterator[Member]:
    made = Member(views, "orders", group_id="g")
    announce(views, "orders", "orders-v2", 2)
    yield made
    made.close()


def sealed(member: Member, *ends: int, **state: Any) -> None:
    ended = dict(enumerate([*ends, *[0] * (12 - len(ends))]))
    switch(member.views, "orders", "orders-v2", 2, read_up_to=ended, groups=frozenset({"g"}), **state)


def joined(member: Member) -> None:
    """The member has joined, and is given all that this test uses."""
    member.poll()
    member.assign([*OLD, *NEW])
    member.poll()


def test_successor_is_subscribed_to_and_held_back_and_the_application_sees_nothing_of_it(member: Member) -> None:
    joined(member)
    assert member.subscription.subscription == {"orders", "orders-v2"}
    assert member.consumer.subscription() == {"orders"}
    assert member.held == {*OLD}
    assert member.consumer.paused() == set()
    assert member.subscription.position(NEW[0]).offset == 0, "from its start, though auto_offset_reset is latest"
    assert not {*NEW} & {*member.subscription.fetchable_partitions()}
    (gate,) = member.consumer.modeaware_stats()["gates"]
    assert (gate["topic"], gate["successor"], gate["state"]) == ("orders", "orders-v2", "shut")


def test_nothing_is_committed_behind_a_shut_gate_and_what_is_read_to_its_end_is_noted(member: Member) -> None:
    joined(member)
    assert member.subscription.all_consumed_offsets().keys() == {*OLD}
    assert member.consumer._partitions.idle(leaving=True).keys() <= {*OLD}
    sealed(member, 5, 7)
    member.deliver(OLD[0], 5)
    member.deliver(OLD[1], 6)
    consumed = member.subscription.all_consumed_offsets()
    assert {key: (at.offset, at.metadata) for key, at in consumed.items()} == {
        OLD[0]: (5, READ + "\0"),
        OLD[1]: (6, ""),
    }


def test_gate_opens_once_the_group_has_read_the_topic_and_the_start_is_committed(member: Member) -> None:
    joined(member)
    sealed(member, 5, 7)
    member.deliver(OLD[0], 5)
    member.deliver(OLD[1], 6)
    member.poll()
    assert member.held == {*OLD}
    member.deliver(OLD[1], 7)
    member.log_starts[NEW[1]] = 3  # by retention
    member.down = True
    member.poll()
    assert member.held == {*OLD}, "the coordinator does not answer"
    member.down = False
    member.committed |= {TopicPartition("orders", p): OffsetAndMetadata(0, READ, -1) for p in range(2, 12)}
    member.poll()
    assert member.held == {*OLD, *NEW}
    assert {member.committed[key].metadata for key in NEW} == {GATE_OPENED + "\0"}, (
        "ended for confluent_kafka's members"
    )
    assert member.subscription.position(NEW[0]).offset == 0
    assert member.subscription.position(NEW[1]).offset == 3
    assert member.subscription.all_consumed_offsets().keys() == {*OLD, *NEW}
    sealed(member, 5, 7, let_go=True)
    member.poll()
    assert member.subscription.subscription == {"orders-v2"}
    assert member.consumer.subscription() == {"orders"}


def test_partition_whose_log_start_is_not_known_stays_hidden_until_it_is(member: Member) -> None:
    """Retention may have taken its first records: ``auto_offset_reset=latest`` would skip the others."""
    joined(member)
    sealed(member)
    member.committed |= {TopicPartition("orders", p): OffsetAndMetadata(0, READ, -1) for p in range(12)}
    cluster, reader = member.consumer._cluster, member.consumer
    cluster.leader_for_partition = lambda partition: -1 if partition == NEW[1] else 1
    member.log_starts[NEW[1]] = 3
    member.poll()
    assert member.held == {*OLD, NEW[0]}
    cluster.leader_for_partition = lambda partition: 1
    member.poll()
    assert member.held == {*OLD, NEW[0]}, "it is not requested in every poll"
    reader._place_again_s = 0.0  # private: the time has come
    member.poll()
    assert member.held == {*OLD, *NEW}
    assert member.subscription.position(NEW[1]).offset == 3


def test_rebalance_listener_is_shown_the_successor_when_its_gate_opens(views: FakeViews) -> None:
    told = Told()
    announce(views, "orders", "orders-v2", 2)
    member = Member(views, group_id="g")
    member.consumer.subscribe(["orders"], listener=told)
    joined(member)
    assert told.calls == []
    switch(views, "orders", "orders-v2", 2)
    member.committed[NEW[1]] = OffsetAndMetadata(0, GATE_OPENED, -1)  # another member's gate has opened
    member.poll()
    assert told.calls == [("revoked", {*OLD}), ("assigned", {*OLD, *NEW})]
    member.close()


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


def test_start_of_a_partition_that_no_member_reads_is_committed(member: Member) -> None:
    member.poll()
    member.assign([*OLD, NEW[0]])
    sealed(member)
    member.committed |= {TopicPartition("orders", p): OffsetAndMetadata(0, READ, -1) for p in range(12)}
    member.poll()
    assert NEW[1] not in member.committed
    for gate in member.consumer._gates._gates.values():
        gate.since_s -= UNCOMMITTED_S  # private: so long ago it was opened
    member.poll()
    assert member.committed[NEW[1]] == OffsetAndMetadata(0, GATE_OPENED + "\0", -1)


@pytest.mark.parametrize("let_go", [True, False])
def test_topic_that_was_let_go_is_left_out_of_a_pattern(views: FakeViews, let_go: bool) -> None:
    def matched() -> set[str]:
        member.consumer._names_noted = True
        member.poll()
        pattern = member.subscription.subscribed_pattern
        return {topic for topic in ("orders", "orders-v2", "more") if pattern.match(topic)}

    announce(views, "orders", "orders-v2", 2)
    member = Member(views, group_id="g")
    member.consumer.subscribe(pattern="orders")
    assert matched() == {"orders", "orders-v2"}
    switch(views, "orders", "orders-v2", 2, read_up_to=dict.fromkeys(range(12), 5), let_go=let_go)
    member.committed |= {TopicPartition("orders", p): OffsetAndMetadata(5, READ, -1) for p in range(12)}
    member.committed |= {key: OffsetAndMetadata(0, "", -1) for key in NEW}
    matched()
    assert matched() == {"orders-v2"} | ({"orders"} if not let_go else set())
    member.close()


def test_successor_of_an_undone_replacement_stays_hidden(member: Member) -> None:
    joined(member)
    member.views.put(replace(member.views.view("orders"), version=(1, 9), successor=None))
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


def test_consumer_without_a_group_reads_the_successor_after_what_it_has_read_itself(views: FakeViews) -> None:
    member = Member(views, "orders", auto_offset_reset="earliest")
    view = announce(views, "orders", "orders-v2", 2)
    views.put(replace(view, version=(1, 5), modes=modes_of(2, 2)))
    joined(member)
    assert member.held == {*OLD}
    switch(views, "orders", "orders-v2", 2, read_up_to={0: 5, 1: 0})
    member.deliver(OLD[0], 4)
    member.poll()
    assert member.held == {*OLD}
    member.deliver(OLD[0], 5)
    member.poll()
    assert member.held == {*OLD, *NEW}
    assert member.committed == {}
    member.close()


def test_assignment_by_the_application_is_left_alone_with_a_warning(
    views: FakeViews, caplog: pytest.LogCaptureFixture
) -> None:
    member = Member(views)
    member.consumer.assign([*OLD, *NEW])
    announce(views, "orders", "orders-v2", 2)
    member.consumer._align()
    assert member.held == {*OLD, *NEW}
    assert caplog.text.count("assign those of orders-v2") == 1
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
    assert not config["allow_auto_create_topics"], "a successor that is deleted would come up again"
    views.put(replace(views.view("orders"), version=(1, 9), successor=None))
    member.poll()
    member.assign([*OLD])
    member.poll()
    member.consumer._names_noted = True
    member.poll()
    assert not member.consumer._gates.added
    assert not config["allow_auto_create_topics"], "also after the next assignment"
    member.close()
    assigned = Member(views, allow_auto_create_topics=allowed)
    assigned.consumer.assign([*OLD])
    assert assigned.consumer._cluster.config["allow_auto_create_topics"] is allowed
    assigned.close()


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
    asyncio.run(coordinator._on_join_complete_async(1, "a member", protocol, assignment))


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
    assert member.subscription.position(OLD[0]) is None
    lost = [("lost", {*OLD})] if strategy is CooperativeStickyAssignor else []  # by eager ones it was revoked before
    assert told.calls == [*lost, ("assigned", {*OLD})]
    member.committed[OLD[0]] = OffsetAndMetadata(7, "", -1)
    member.poll()
    assert member.subscription.position(OLD[0]).offset == 7
    member.close()


def test_a_topic_that_was_left_and_came_back_within_one_join_starts_anew(member: Member) -> None:
    joined(member)
    member.deliver(OLD[0], 60)
    sealed(member, let_go=True)
    member.committed |= {TopicPartition("orders", p): OffsetAndMetadata(60, READ, -1) for p in range(12)}
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
    member.consumer._coordinator.reset_generation()
    with pytest.raises(KafkaError, match="callback"):
        complete_join(member, [*OLD, TopicPartition("orders", 2)])
    assert member.held == {*OLD, TopicPartition("orders", 2)}
    member.close()


def test_topic_that_is_deleted_after_its_replacement_is_not_requested_any_more(member: Member) -> None:
    cluster, listed = member.consumer._cluster, {"orders", "orders-v2", "other"}
    cluster._topics = set(listed)

    def answered() -> set[str]:
        member.consumer._forget_deleted()
        topics: set[str] = cluster._topics
        return topics

    sealed(member, let_go=True)
    member.poll()
    member.subscription.reset_group_subscription()  # as a join does
    assert answered() == listed
    sealed(member, let_go=True, gone=True)
    assert answered() == {"orders-v2", "other"}


def test_topic_that_is_subscribed_to_is_requested_whatever_became_of_it(views: FakeViews) -> None:
    named = Member(views, "orders", group_id="g", modeaware_on_replace="named")
    cluster = named.consumer._cluster
    announce(views, "orders", "orders-v2", 2)
    sealed(named, let_go=True, gone=True)
    named.consumer._forget_deleted()
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
        consumer._subscription.assign_from_subscribed(OLD)
        for each in OLD:
            consumer._subscription.seek(each, 5)
            consumer._starts.started(each, 5)
        consumer._partitions.settle()
        for name in ("fetch_committed_offsets", "commit_offsets_sync"):
            consumer._coordinator.__dict__.pop(name, None)
        views.set("orders", modes_of(2, 1, mode))
        assert consumer.position(OLD[0]) == 5
        assert listener.calls == [], "nor in the application's own thread"
        consumer._net.run(consumer._coordinator._invoke_rebalance_listener_async, "on_partitions_revoked", set(OLD))
        assert listener.saved == dict.fromkeys(OLD, 5)


def test_change_that_fails_is_made_by_a_later_poll(member: Member) -> None:
    """Brokers deny where the successor's log starts, for a while."""
    joined(member)
    sealed(member)
    member.committed |= {TopicPartition("orders", p): OffsetAndMetadata(0, READ, -1) for p in range(12)}
    member.committed[NEW[1]] = OffsetAndMetadata(0, GATE_OPENED, -1)
    answer = member.consumer.beginning_offsets
    member.consumer.beginning_offsets = Mock(side_effect=TopicAuthorizationFailedError("orders-v2"))
    for _ in range(2):
        member.poll()
    assert member.held == {*OLD}, "what may be read is read"
    member.consumer.beginning_offsets = answer
    member.consumer._place_again_s = 0.0
    member.poll()
    assert member.held == {*OLD, *NEW}
