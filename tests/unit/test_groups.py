"""Which groups are found, and when that is in doubt, over brokers that answer as the test says."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from modeaware.cluster.groups.found import GroupsFound, find_groups
from modeaware.cluster.groups.listing import partition_of
from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt
from tests.support.fake_brokers import FakeBrokers, FakeGroup

TOPIC = "orders"
PARTITIONS = range(3)


@pytest.fixture
def brokers() -> FakeBrokers:
    return FakeBrokers()


def find(brokers: FakeBrokers, *also: str) -> GroupsFound:
    return find_groups(brokers, TOPIC, PARTITIONS, also)


def doubt(brokers: FakeBrokers) -> GroupsDoubt:
    found = find(brokers).doubt
    assert found is not None
    return found


def committed(brokers: FakeBrokers, name: str, topic: str = TOPIC, **fields: Any) -> FakeGroup:
    group = brokers.add(FakeGroup(name, **fields))
    group.committed[topic] = {0: (5, 3), 1: (0, -1)}
    return group


def member(topics: list[str], assigned: list[str] = ()) -> SimpleNamespace:
    """One of a classic group."""
    part = ConsumerProtocolAssignment.TopicPartition
    parts = [part(topic=topic, partitions=[0]) for topic in assigned]
    return SimpleNamespace(
        member_metadata=ConsumerProtocolSubscription(version=1, topics=topics, user_data=b"").encode(),
        member_assignment=ConsumerProtocolAssignment(version=1, assigned_partitions=parts, user_data=b"").encode(),
    )


def new_member(
    topics: list[str] = (), regex: str | None = None, target: list[str] = (), assigned: list[str] = ()
) -> SimpleNamespace:
    """One of a KIP-848 or share group."""

    def assignment(names: list[str]) -> SimpleNamespace:
        parts = [SimpleNamespace(topic_name=name, partitions=[0]) for name in names]
        return SimpleNamespace(topic_partitions=parts)

    return SimpleNamespace(
        subscribed_topic_names=list(topics),
        subscribed_topic_regex=regex,
        assignment=assignment(list(assigned)),
        target_assignment=assignment(list(target)),
    )


def running(brokers: FakeBrokers, name: str, *members: SimpleNamespace, **fields: Any) -> FakeGroup:
    group = brokers.add(FakeGroup(name, **{"state": "Stable", **fields}))
    group.describe["members"] = list(members)
    return group


def _describes(request: object) -> bool:
    return type(request).__name__ == "DescribeGroupsRequest"


class TestWhoUsesATopic:
    def test_whoever_has_committed_on_it(self, brokers: FakeBrokers) -> None:
        for number in range(20):
            committed(brokers, f"g{number}")
        committed(brokers, "elsewhere", "other")
        found = find(brokers)
        assert found.doubt is None
        assert sorted(found.groups) == sorted(f"g{n}" for n in range(20))
        assert found.groups["g1"] == GroupFacts(committed={0: 5, 1: 0})
        assert found.epochs["g1"] == {0: 3}

    @pytest.mark.parametrize("which", [member([TOPIC]), member(["x"], [TOPIC])])
    def test_members_subscribed_or_assigned(self, brokers: FakeBrokers, which: SimpleNamespace) -> None:
        running(brokers, "g", member(["x"]), which)
        running(brokers, "not", member(["x"]))
        found = find(brokers)
        assert found.groups == {"g": GroupFacts(has_members=True)}
        assert found.doubt is None

    @pytest.mark.parametrize(
        "which",
        [new_member([TOPIC]), new_member(target=[TOPIC]), new_member(regex="(", assigned=[TOPIC], target=[TOPIC])],
    )
    def test_a_kip_848_group(self, brokers: FakeBrokers, which: SimpleNamespace) -> None:
        running(brokers, "g", which, kind="consumer", state="Reconciling")
        running(brokers, "not", new_member(["x"]), kind="consumer", state="Assigning")
        found = find(brokers)
        assert found.groups == {"g": GroupFacts(has_members=True, kind="consumer")}
        assert found.doubt is None

    def test_a_pattern_is_not_read_here(self, brokers: FakeBrokers) -> None:
        """This one would take Python's engine longer than the world lasts; a settled group's assignments tell."""
        pattern = r"([a-z]+[-_.]?)+\.cdc"
        settled = new_member(regex=pattern, assigned=["x"], target=["x"])
        running(brokers, "not", settled, new_member(regex=f"{TOPIC}|y"), kind="consumer")
        found = find_groups(brokers, TOPIC + "a" * 60, PARTITIONS)
        assert (found.groups, found.doubt) == ({}, None)

    @pytest.mark.parametrize("state", ["Stable", "Reconciling", "Assigning"])
    def test_a_pattern_of_a_group_that_is_not_settled(self, brokers: FakeBrokers, state: str) -> None:
        target = ["x"] if state == "Stable" else []
        running(brokers, "g", new_member(regex="x.*", target=target), kind="consumer", state=state)
        assert "'g' subscribes by a pattern and is not settled" in doubt(brokers).detail
        committed(brokers, "g", kind="consumer").state = state
        assert find(brokers).doubt is None, "it is known to use the topic"

    def test_a_streams_group_by_its_topology(self, brokers: FakeBrokers) -> None:
        group = running(brokers, "app", SimpleNamespace(), kind="streams", protocol_type="streams")
        part = SimpleNamespace(source_topics=["x"], repartition_source_topics=[SimpleNamespace(name=TOPIC)])
        group.describe["topology"] = SimpleNamespace(subtopologies=[part])
        facts = GroupFacts(has_members=True, kind="streams", stateful=True)
        assert find(brokers).groups == {"app": facts}

    def test_registered_names_that_nobody_lists(self, brokers: FakeBrokers) -> None:
        committed(brokers, "ghost")
        brokers.on_list_groups = lambda node, request: SimpleNamespace(error_code=0, groups=[])
        assert "ghost" not in find(brokers).groups
        found = find(brokers, "ghost", "nobody")
        assert sorted(found.groups) == ["ghost"]


class TestState:
    @pytest.mark.parametrize("topic", ["app-store-changelog", "changelog__app--in--count"])
    def test_changelogs_of_its_name(self, brokers: FakeBrokers, topic: str) -> None:
        committed(brokers, "app")
        committed(brokers, "ap")
        brokers.topics = [topic]
        assert {name: facts.stateful for name, facts in find(brokers).groups.items()} == {"app": True, "ap": False}


class TestDoubtAboutAllGroups:
    def test_the_right_to_see_them(self, brokers: FakeBrokers) -> None:
        brokers.operations = {3}
        assert doubt(brokers).hidden
        brokers.list_error[1] = 14
        assert not doubt(brokers).hidden, "what a closed list does not forgive comes first"

    def test_a_broker_that_does_not_answer(self, brokers: FakeBrokers) -> None:
        brokers.silent = {2}
        assert "broker 2" in doubt(brokers).detail
        assert [name for node, name in brokers.asked if node == 2] == ["Metadata"], "it is not waited for again"

    def test_a_coordinator_that_moves_meanwhile(self, brokers: FakeBrokers) -> None:
        """Between two answers its groups are on neither list."""

        def move(node: int, request: object) -> None:
            if type(request).__name__ == "ListGroupsRequest" and node == 2:
                brokers.leaders[1] = (1, 8)

        brokers.before = move
        assert doubt(brokers).detail == "__consumer_offsets-1 moved while groups were listed"


class TestDoubtAboutOneGroup:
    @pytest.mark.parametrize("code", [69, 0])
    def test_a_group_that_is_gone_when_it_is_described(self, brokers: FakeBrokers, code: int) -> None:
        """It may have become one of another type; brokers before version 6 of the request call it Dead."""
        running(brokers, "g").describe_error = code
        brokers.before = lambda node, request: (
            setattr(brokers.groups["g"], "state", "Dead") if _describes(request) else None
        )
        assert "group 'g' was gone" in doubt(brokers).detail
        assert find(brokers) == GroupsFound(), "it is listed as Dead by now"


@pytest.mark.parametrize(
    ("group", "hash_code"),
    [("", 0), ("g", 103), ("Aa", 2112), ("BB", 2112), ("\U0001f4a1", 55357 * 31 + 56481), ("polygenelubricants", 0)],
)
def test_a_group_s_partition_is_java_s(group: str, hash_code: int) -> None:
    """The last one's hashCode is Java's Integer.MIN_VALUE, of which Kafka takes the absolute value 0."""
    assert partition_of(group, 50) == hash_code % 50


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda b: b.list_error.update({1: 15}), "broker 1 did not list its groups: COORDINATOR"),
        # Just elected, a leader answers by a high watermark that may lie before acknowledged commits.
        (lambda b: b.behind.add(2), "the leader of __consumer_offsets-2 does not know yet all that was committed"),
        (lambda b: b.loading.add(1), "has not loaded all its groups: COORDINATOR_LOAD_IN_PROGRESS"),
        (lambda b: b.views.update({2: {**b.leaders, 0: (2, 8)}}), "disagree on the leaders"),
        (lambda b: b.alive.update({2: (1, 2, 3)}), "broker 3 is alive"),
        (lambda b: b.leaders.update({3: (-1, 8)}), "__consumer_offsets-3 has no leader"),
        (lambda b: running(b, "g", member([]), state="PreparingRebalance"), "group 'g' is in a rebalance"),
        (lambda b: vars(running(b, "g", member([TOPIC]))).update(describe_error=30), "group 'g' cannot be described"),
        (lambda b: running(b, "g", kind="quantum"), "'quantum'"),
        (lambda b: vars(committed(b, "g")).update(offsets_error=30), "group 'g' cannot be judged"),
        (lambda b: vars(b).update(offsets_topic_error=29), "the right to DESCRIBE the topic __consumer_offsets"),
        (
            lambda b: running(b, "g", SimpleNamespace(member_metadata=b"?", member_assignment=b"")),
            "subscription cannot be read",
        ),
        (
            lambda b: running(b, "app", SimpleNamespace(), kind="streams").describe.update(topology=None),
            "topology",
        ),
    ],
)
def test_incomplete_answer_is_a_doubt(brokers: FakeBrokers, spoil: Callable[[FakeBrokers], object], why: str) -> None:
    spoil(brokers)
    assert why in doubt(brokers).detail


class TestTopicNames:
    """The names of all topics cost a Metadata answer with every partition of the cluster."""

    def test_they_are_asked_for_only_where_a_group_may_own_changelogs(self, brokers: FakeBrokers) -> None:
        asked: list[str] = []
        brokers.topic_names = lambda: asked.append("names") or ["billing-counts-changelog"]
        committed(brokers, "elsewhere", "other")
        find(brokers)
        assert asked == []
        committed(brokers, "billing")
        assert find(brokers).groups["billing"].stateful
        assert asked == ["names"]
