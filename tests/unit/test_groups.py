"""Which groups are found, when that is in doubt, and what their commits on sealed partitions are worth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from modeaware.cluster import commits as commits_module
from modeaware.cluster import group_listing, group_offsets
from modeaware.cluster.commits import CommitsSeen, Gap, check_commits, without_records
from modeaware.cluster.group_listing import partition_of
from modeaware.cluster.groups import NEW_MEMBERS_S, GroupsFound, StableGroups, find_groups, group_commits
from modeaware.cluster.metadata import Partition
from modeaware.errors import ClusterError, ErrorCode
from modeaware.librdkafka import KafkaError
from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt, MembersSeen, PartitionFacts, worst_doubt
from modeaware.modelog.records import TopicRecord
from modeaware.modes import PartitionMode, ReplicaState
from modeaware.notes import Note
from modeaware.wire.capabilities import CLIENT_ID
from modeaware.wire.requests import assigned_partitions
from tests.support.fake_brokers import FakeBrokers, FakeGroup
from tests.support.lifecycle import admitted, after, facts, log, shrink
from tests.support.simulated import SimClock

TOPIC = "orders"
MODE_LOG = "modes"
PARTITIONS = range(3)


@pytest.fixture(params=[100, 0], ids=["named partitions", "whole groups"])
def brokers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FakeBrokers:
    monkeypatch.setattr(group_offsets, "NAMED_PARTITIONS", request.param)
    return FakeBrokers()


def find(brokers: FakeBrokers, *also: str) -> GroupsFound:
    return find_groups(brokers, {TOPIC: PARTITIONS}, {TOPIC: also}, mode_log=MODE_LOG)[TOPIC]


def any_doubt(found: GroupsFound) -> GroupsDoubt | None:
    """As of a topic's facts."""
    return worst_doubt((found.doubt, *found.unclear.values()))


def doubt(brokers: FakeBrokers) -> GroupsDoubt:
    found = any_doubt(find(brokers))
    assert found is not None
    return found


def committed(brokers: FakeBrokers, name: str, topic: str = TOPIC, **fields: Any) -> FakeGroup:
    group = brokers.add(FakeGroup(name, **fields))
    group.committed[topic] = {0: (5, 3), 1: (0, -1)}
    return group


def test_commits_of_one_group_are_known_or_an_error(brokers: FakeBrokers) -> None:
    """As of a group that is prepared for a new topic: without them it would be set back to the start."""
    committed(brokers, "g")
    assert group_commits(brokers, "g", TOPIC, PARTITIONS) == {0: 5, 1: 0}
    assert group_commits(brokers, "g", "other", PARTITIONS) == {}
    committed(brokers, "s", kind="share")
    assert group_commits(brokers, "s", TOPIC, PARTITIONS, "share") == {0: 5, 1: 0}
    assert ("DescribeShareGroupOffsets", "OffsetFetch").index(brokers.asked[-1][1]) == 0
    assert group_commits(brokers, "nobody", TOPIC, PARTITIONS) == {}
    brokers.loading.add(partition_of("g", len(brokers.leaders)))
    with pytest.raises(ClusterError, match=r"the commits of group 'g' are unknown: .*LOAD.*; repeat the command"):
        group_commits(brokers, "g", TOPIC, PARTITIONS)
    brokers.loading.clear()
    brokers.silent.add(brokers.coordinator("g"))
    with pytest.raises(ClusterError, match="no answer"):
        group_commits(brokers, "g", TOPIC, PARTITIONS)


def member(topics: list[str], assigned: list[str] = (), client_id: str = "rdkafka") -> SimpleNamespace:
    """One of a classic group."""
    part = ConsumerProtocolAssignment.TopicPartition
    parts = [part(topic=topic, partitions=[0]) for topic in assigned]
    return SimpleNamespace(
        member_id=f"member-of-{'-'.join(topics)}",
        client_id=client_id,
        member_metadata=ConsumerProtocolSubscription(version=1, topics=topics, user_data=b"").encode(),
        member_assignment=ConsumerProtocolAssignment(version=1, assigned_partitions=parts, user_data=b"").encode(),
    )


def new_member(
    topics: list[str] = (),
    regex: str | None = None,
    target: list[str] = (),
    assigned: list[str] = (),
    client_id: str = "rdkafka",
) -> SimpleNamespace:
    """One of a KIP-848 or share group."""

    def assignment(names: list[str]) -> SimpleNamespace:
        parts = [SimpleNamespace(topic_name=name, partitions=[0]) for name in names]
        return SimpleNamespace(topic_partitions=parts)

    return SimpleNamespace(
        member_id="member",
        client_id=client_id,
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
        assert any_doubt(found) is None
        assert sorted(found.groups) == sorted(f"g{n}" for n in range(20))
        assert found.groups["g1"] == GroupFacts(committed={0: 5, 1: 0})
        assert found.epochs["g1"] == {0: 3}

    @pytest.mark.parametrize("which", [member([TOPIC]), member(["x"], [TOPIC])])
    def test_members_subscribed_or_assigned(self, brokers: FakeBrokers, which: SimpleNamespace) -> None:
        running(brokers, "g", member(["x"]), which)
        running(brokers, "not", member(["x"]))
        found = find(brokers)
        owned = frozenset({0} if assigned_partitions(which.member_assignment) else ())
        (group,) = found.groups.values()
        assert group.members.unknown == 1
        assert replace(group, members=MembersSeen()) == GroupFacts(has_members=True, subscribed=True, owned=owned)
        assert any_doubt(found) is None

    def test_metadata_of_commits_are_notes_and_members_own_partitions(self, brokers: FakeBrokers) -> None:
        for name in ("classic", "consumer"):
            committed(brokers, name).metadata[TOPIC] = {0: "modeaware: read\0", 1: "mine"}
        running_group = brokers.groups["classic"]
        running_group.state, running_group.describe["members"] = "Stable", [member([TOPIC], [TOPIC]), member([TOPIC])]
        groups = find(brokers).groups
        assert [group.notes for group in groups.values()] == [{0: Note.READ, 1: Note.FOREIGN}] * 2
        assert [groups["classic"].owned, groups["consumer"].owned] == [frozenset({0}), None]
        running_group.state = "PreparingRebalance"
        assert find(brokers).groups["classic"].owned is None

    @pytest.mark.parametrize(
        "which",
        [new_member([TOPIC]), new_member(target=[TOPIC]), new_member(regex="(", assigned=[TOPIC], target=[TOPIC])],
    )
    def test_a_kip_848_group(self, brokers: FakeBrokers, which: SimpleNamespace) -> None:
        running(brokers, "g", which, kind="consumer", state="Reconciling")
        running(brokers, "not", new_member(["x"]), kind="consumer", state="Assigning")
        found = find(brokers)
        owned = frozenset({0} if which.target_assignment.topic_partitions else ())
        (group,) = found.groups.values()
        expected = GroupFacts(has_members=True, kind="consumer", subscribed=True, owned=owned)
        assert replace(group, members=MembersSeen()) == expected
        assert any_doubt(found) is None

    def test_members_that_hold_a_partition_are_counted(self, brokers: FakeBrokers) -> None:
        running(brokers, "g", member([TOPIC], [TOPIC]), member(["x"], ["x", TOPIC]), member([TOPIC]))
        new = (new_member(target=[TOPIC]), new_member(assigned=[TOPIC]))
        running(brokers, "new", *new, kind="consumer", state="Reconciling")
        running(brokers, "shared", *new, kind="share")
        running(brokers, "idle", member([TOPIC]))
        holding = {name: group.members.holding for name, group in find(brokers).groups.items()}
        assert holding == {"g": 2, "new": 1, "shared": 0, "idle": 0}

    def test_members_are_seen_to_be_mode_aware_by_the_client_id_alone(self, brokers: FakeBrokers) -> None:
        ours, others = CLIENT_ID, ("rdkafka", "modeaware-2", "Modeaware", "")
        running(brokers, "ours", member([TOPIC], client_id=ours), member([TOPIC], [TOPIC], ours))
        running(brokers, "stock", *(member([TOPIC], client_id=each) for each in others))
        mixed = (new_member([TOPIC], client_id=ours), new_member([TOPIC]), new_member(["x"], client_id=ours))
        for kind in ("consumer", "share"):
            running(brokers, kind, *mixed, kind=kind)
        committed(brokers, "elsewhere").describe["members"] = [member(["x"], client_id=ours)]
        brokers.groups["elsewhere"].state = "Stable"
        committed(brokers, "empty")
        members = {name: group.members for name, group in find(brokers).groups.items()}
        assert members == {
            "ours": MembersSeen(2, 0, 1),
            "stock": MembersSeen(0, 4),
            "consumer": MembersSeen(1, 1),
            "share": MembersSeen(2, 1),  # any member may read any topic of the group
            "elsewhere": MembersSeen(),
            "empty": MembersSeen(),
        }
        assert [members[name].text for name in ("ours", "consumer", "empty")] == [
            "2 seen to be mode-aware",
            "1 seen to be mode-aware, 1 unknown",
            "none",
        ]

    def test_all_members_count_while_it_is_not_known_what_they_read(self, brokers: FakeBrokers) -> None:
        group = committed(brokers, "g")
        group.state, group.describe["members"] = "PreparingRebalance", [member([], client_id=CLIENT_ID), member([])]
        assert find(brokers).groups["g"].members == MembersSeen(1, 1)

    def test_a_pattern_is_not_read_here(self, brokers: FakeBrokers) -> None:
        """This one would take Python's engine longer than the world lasts; a stable group's assignments tell."""
        pattern = r"([a-z]+[-_.]?)+\.cdc"
        stable = new_member(regex=pattern, assigned=["x"], target=["x"])
        running(brokers, "not", stable, new_member(regex=f"{TOPIC}|y"), kind="consumer")
        long = TOPIC + "a" * 60
        found = find_groups(brokers, {long: PARTITIONS}, mode_log=MODE_LOG)[long]
        assert (found.groups, any_doubt(found)) == ({}, None)

    @pytest.mark.parametrize("state", ["Stable", "Reconciling", "Assigning"])
    def test_a_pattern_of_a_group_that_is_not_stable(self, brokers: FakeBrokers, state: str) -> None:
        target = ["x"] if state == "Stable" else []
        running(brokers, "g", new_member(regex="x.*", target=target), kind="consumer", state=state)
        assert "'g' subscribes by a pattern and is not stable" in doubt(brokers).detail
        group = running(brokers, "g", new_member(regex="x.*", target=target), kind="consumer", state=state)
        group.committed[TOPIC] = {0: (5, 3)}
        assert any_doubt(find(brokers)) is None, "it is known to use the topic"
        assert find(brokers).groups["g"].subscribed is None, "whether it still reads it is not known"

    def test_a_streams_group_by_its_topology(self, brokers: FakeBrokers) -> None:
        group = running(brokers, "app", member([]), kind="streams", protocol_type="streams")
        part = SimpleNamespace(source_topics=["x"], repartition_source_topics=[SimpleNamespace(name=TOPIC)])
        group.describe["topology"] = SimpleNamespace(subtopologies=[part])
        facts = GroupFacts(
            has_members=True, kind="streams", stateful=True, subscribed=True, members=MembersSeen(unknown=1)
        )
        assert find(brokers).groups == {"app": facts}

    def test_a_topic_that_its_coordinator_hides(self, brokers: FakeBrokers) -> None:
        """A broker leaves a topic that the user may not describe out of all commits of a group, without an error."""
        committed(brokers, "g", "other")
        committed(brokers, "h")
        brokers.hidden = {TOPIC}
        assert "the offsets of group 'g' cannot be read: TOPIC_AUTHORIZATION_FAILED" in doubt(brokers).detail
        brokers.hidden = {"other"}
        assert (sorted(find(brokers).groups), any_doubt(find(brokers))) == (["h"], None)

    def test_registered_names_that_nobody_lists(self, brokers: FakeBrokers) -> None:
        committed(brokers, "ghost")
        brokers.on_list_groups = lambda node, request: SimpleNamespace(error_code=0, groups=[])
        assert "ghost" not in find(brokers).groups
        found = find(brokers, "ghost", "nobody")
        assert sorted(found.groups) == ["ghost"]


@pytest.mark.parametrize("topic", ["app-store-changelog", "changelog__app--in--count"])
def test_group_with_changelogs_of_its_name_is_stateful(brokers: FakeBrokers, topic: str) -> None:
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
        assert doubt(brokers).detail == "the leader of __consumer_offsets-1 changed while groups were listed"


class TestDoubtAboutOneGroup:
    def test_what_a_broker_refuses_of_one_type_is_no_silence(
        self, brokers: FakeBrokers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(group_listing, "AT_A_TIME", 1)
        running(brokers, "a-share", kind="share")
        running(brokers, "g", member([TOPIC]))
        monkeypatch.setattr(
            brokers,
            "on_share_group_describe",
            lambda *_: ClusterError("too old", code=ErrorCode.UNSUPPORTED_VERSION),
            raising=False,
        )
        found = find(brokers)
        assert "'a-share' cannot be described: too old" in any_doubt(found).detail
        assert list(found.groups) == ["g"]

    @pytest.mark.parametrize("code", [69, 0])
    def test_a_group_that_is_gone_when_it_is_described(self, brokers: FakeBrokers, code: int) -> None:
        """It may have become one of another type; brokers before version 6 of the request call it Dead."""
        running(brokers, "g").describe_error = code
        brokers.before = lambda node, request: (
            setattr(brokers.groups["g"], "state", "Dead") if _describes(request) else None
        )
        assert "group 'g' disappeared" in doubt(brokers).detail
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
        (lambda b: b.behind.add(2), "the leader of __consumer_offsets-2 does not have all commits yet"),
        (lambda b: b.loading.add(1), "has not loaded all its groups: COORDINATOR_LOAD_IN_PROGRESS"),
        (lambda b: b.views.update({2: {**b.leaders, 0: (2, 8)}}), "disagree on the leaders"),
        (lambda b: b.alive.update({2: (1, 2, 3)}), "broker 3 is alive"),
        (lambda b: b.leaders.update({3: (-1, 8)}), "__consumer_offsets-3 has no leader"),
        (lambda b: running(b, "g", member([]), state="PreparingRebalance"), "group 'g' is in a rebalance"),
        (lambda b: vars(running(b, "g", member([TOPIC]))).update(describe_error=30), "group 'g' cannot be described"),
        (lambda b: running(b, "g", kind="quantum"), "'quantum'"),
        (lambda b: vars(b).update(cluster_error=31), "the cluster cannot be described: CLUSTER_AUTHORIZATION_FAILED"),
        (lambda b: vars(b).update(offsets_topic_error=5), "returned no coordinators: LEADER_NOT_AVAILABLE"),
        (lambda b: vars(committed(b, "g")).update(everywhere=True), "group 'g' is listed by two brokers"),
        (lambda b: vars(committed(b, "g")).update(offsets_error=30), "the offsets of group 'g' cannot be read"),
        (lambda b: vars(b).update(offsets_topic_error=29), "the right to DESCRIBE the topic __consumer_offsets"),
        (
            lambda b: running(b, "g", SimpleNamespace(**vars(member([])) | {"member_metadata": b"?"})),
            "subscription cannot be read",
        ),
        (
            lambda b: running(b, "app", member([]), kind="streams").describe.update(topology=None),
            "topology",
        ),
    ],
)
def test_incomplete_answer_is_a_doubt(brokers: FakeBrokers, spoil: Callable[[FakeBrokers], object], why: str) -> None:
    spoil(brokers)
    found = doubt(brokers)
    assert why in found.detail
    assert found.rebalancing == ("g" if "rebalance" in why else None), "what passes by itself is told apart"


def test_a_group_in_a_rebalance_hides_no_other_doubt(brokers: FakeBrokers) -> None:
    running(brokers, "a", member([]), state="PreparingRebalance")
    running(brokers, "b", kind="quantum")
    assert doubt(brokers).rebalancing is None


def test_a_group_that_cannot_be_judged_is_told_apart_from_a_list_that_is_not_complete(brokers: FakeBrokers) -> None:
    """A waiver of that group helps; nothing but a better look helps against the other."""
    running(brokers, "elsewhere", member(["other"]), state="PreparingRebalance")
    found = find(brokers)
    assert (found.doubt, list(found.unclear)) == (None, ["elsewhere"])
    assert found.unclear["elsewhere"].rebalancing == "elsewhere"
    brokers.silent.add(2)
    found = find(brokers)
    assert found.doubt is not None
    assert any_doubt(found) == found.doubt, "the worse one"


def test_the_election_of_controllers_is_no_doubt_in_its_rebalance(brokers: FakeBrokers) -> None:
    running(brokers, f"modeaware-controller.{MODE_LOG}", member([]), state="PreparingRebalance")
    assert any_doubt(find(brokers)) is None


def test_a_group_whose_name_begins_like_that_of_an_election_is_one_like_any_other(brokers: FakeBrokers) -> None:
    running(brokers, "modeaware-controller.billing", member([]), state="PreparingRebalance")
    assert list(find(brokers).unclear) == ["modeaware-controller.billing"]


class TestGroupsThatWereStableBefore:
    """Of hundreds of groups one always is in a rebalance."""

    def find(self, brokers: FakeBrokers, stable: StableGroups) -> GroupsFound:
        return find_groups(brokers, {TOPIC: PARTITIONS}, None, stable, mode_log=MODE_LOG)[TOPIC]

    def test_one_that_consumed_other_topics_is_no_doubt_in_its_rebalance(self, brokers: FakeBrokers) -> None:
        stable = StableGroups(SimClock())
        group = running(brokers, "elsewhere", member(["other"]))
        assert any_doubt(self.find(brokers, stable)) is None
        group.state = "PreparingRebalance"
        assert any_doubt(self.find(brokers, stable)) is None
        assert any_doubt(self.find(brokers, StableGroups(SimClock()))) is not None, (
            "by a controller that saw nothing yet"
        )

    @pytest.mark.parametrize("topics", [[TOPIC], ["other", TOPIC]])
    def test_one_that_consumed_the_topic_is_a_doubt(self, brokers: FakeBrokers, topics: list[str]) -> None:
        stable = StableGroups(SimClock())
        group = running(brokers, "here", member(topics))
        assert "here" in self.find(brokers, stable).groups
        group.state = "PreparingRebalance"
        found = any_doubt(self.find(brokers, stable))
        assert found.rebalancing == "here"

    def test_one_that_had_no_members_is_a_doubt(self, brokers: FakeBrokers) -> None:
        """It begins, and its first rebalance says nothing of what it consumes."""
        stable = StableGroups(SimClock())
        group = running(brokers, "new", member(["other"]))
        self.find(brokers, stable)
        group.state, members, group.describe["members"] = "Empty", group.describe["members"], []
        assert any_doubt(self.find(brokers, stable)) is None
        group.state, group.describe["members"] = "PreparingRebalance", members
        assert any_doubt(self.find(brokers, stable)) is not None

    def test_what_was_seen_of_a_group_with_new_members_is_forgotten(self, brokers: FakeBrokers) -> None:
        clock = SimClock()
        stable = StableGroups(clock)
        group = running(brokers, "elsewhere", member(["other"]))
        self.find(brokers, stable)
        group.state = "PreparingRebalance"
        group.describe["members"] = [member(["other"]), member(["unknown"])]
        clock.advance(int(NEW_MEMBERS_S * 1000) - 1)
        assert any_doubt(self.find(brokers, stable)) is None
        clock.advance(1)
        assert any_doubt(self.find(brokers, stable)) is not None

    def test_a_long_rebalance_of_the_same_members_is_no_doubt_for_an_hour(self, brokers: FakeBrokers) -> None:
        """Those with a max.poll.interval.ms of an hour: another member may have left the group since."""
        clock = SimClock()
        stable = StableGroups(clock)
        group = running(brokers, "elsewhere", member(["other"]), member(["another"]))
        self.find(brokers, stable)
        group.state = "PreparingRebalance"
        group.describe["members"] = [member(["other"])]
        for _ in range(11):
            clock.advance(int(NEW_MEMBERS_S * 1000))
            assert any_doubt(self.find(brokers, stable)) is None
        clock.advance(int(NEW_MEMBERS_S * 1000))
        assert any_doubt(self.find(brokers, stable)) is not None, "they may have subscribed to the topic since"


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


# What commits on sealed partitions are worth


P = 11
SEAL = 10
EPOCH = 5
"""Now; the commits are of epoch 4."""


class Cluster:
    """Where the leader's log ends for an epoch, and which stretches hold only control records."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.ends: dict[tuple[int, int], int] = {}
        self.clear: set[tuple[int, int]] = set()
        self.asked: set[tuple[int, int]] = set()
        self.gaps: list[set[Gap]] = []
        patch.setattr(commits_module, "epoch_ends", self._epoch_ends)
        patch.setattr(commits_module, "without_records", self._without_records)

    def _without_records(self, _conf: object, gaps: Iterable[Gap], _: object) -> frozenset[Gap]:
        self.gaps.append(set(gaps))
        return frozenset(gap for gap in gaps if (gap.start, gap.end) in self.clear)

    def _epoch_ends(self, _: object, wanted: Mapping[Partition, Iterable[int]]) -> dict[tuple[str, int, int], int]:
        asked = {(p, epoch) for (_, p), epochs in wanted.items() for epoch in epochs}
        self.asked |= asked
        return {(TOPIC, *pair): end for pair, end in self.ends.items() if pair in asked}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def sealed(**fields: object) -> TopicRecord:
    record = after(admitted(shrink(P, **fields)), facts(logs={P: log(SEAL)}))
    return replace(record, retired={P: replace(record.retired[P], seal_offset=SEAL)})


def check(
    committed: int,
    commit_epoch: int | None = 4,
    record: TopicRecord | None = None,
    before_due: bool = False,
    end: int = SEAL,
    last: int | None = None,
) -> GroupsFound:
    groups = {"g": GroupFacts({P: committed})}
    epochs = {"g": {P: commit_epoch} if commit_epoch is not None else {}}
    partitions = {P: PartitionFacts(2, end, end, EPOCH, 0, read_up_to=last)}
    found = GroupsFound(groups, epochs=epochs)
    seen = CommitsSeen(record or sealed(), partitions, found)
    return check_commits({}, None, [seen], SimClock(), before_due)[0]


def test_partition_whose_records_are_deleted_is_not_checked_any_more() -> None:
    record = sealed()
    waiting = replace(record.retired[P], reason="delay")
    gone = replace(waiting, replica_state=ReplicaState.DELETION_SUCCESSFUL, reason=None)
    modes = (*record.modes[: P - 1], PartitionMode.NONE, *record.modes[P:])
    record = replace(record, modes=modes, retired={P - 1: gone, P: waiting})
    partitions = {p: PartitionFacts(2, SEAL, SEAL, EPOCH, 0) for p in (P - 1, P)}
    assert CommitsSeen(record, partitions, GroupsFound({})).drained == {P}


def truncated(checked: GroupsFound) -> bool:
    return P in checked.groups["g"].truncated


def test_a_commit_beyond_where_its_epoch_ends(cluster: Cluster) -> None:
    """An unclean leader lost 8 and 9 and has other records there: the group has not read those."""
    cluster.ends = {(P, 4): 8}
    assert truncated(check(SEAL))


def test_but_for_control_records(cluster: Cluster) -> None:
    cluster.ends, cluster.clear = {(P, 4): 9}, {(9, SEAL)}
    assert not truncated(check(SEAL))


def test_a_leader_that_does_not_say(cluster: Cluster) -> None:
    checked = check(SEAL)
    assert checked.unchecked == {P}


@pytest.mark.parametrize("epoch", [EPOCH, None])
def test_nothing_is_asked_of_a_commit_of_this_epoch_or_of_none(cluster: Cluster, epoch: int | None) -> None:
    assert not truncated(check(SEAL, epoch))
    assert cluster.asked == set()


def epochless(checked: GroupsFound) -> bool:
    return P in checked.groups["g"].epochless


def test_but_for_control_records_where_the_log_was_truncated(cluster: Cluster) -> None:
    record = sealed()
    record = replace(record, retired={P: replace(record.retired[P], truncated_to=8)})
    assert epochless(check(SEAL, None, record))
    assert cluster.gaps == [{Gap(TOPIC, P, 8, SEAL)}]
    cluster.clear = {(8, SEAL)}
    assert not epochless(check(SEAL, None, record))


@pytest.mark.parametrize(
    ("committed", "end", "last", "read"),
    [
        (7, SEAL, None, Gap(TOPIC, P, 7, 7)),
        (6, SEAL, None, Gap(TOPIC, P, 6, 7)),
        (7, SEAL + 1, 7, Gap(TOPIC, P, 7, 7)),
        (7, SEAL + 1, SEAL + 1, Gap(TOPIC, P, 7, SEAL + 1)),
        (7, SEAL + 1, None, Gap(TOPIC, P, 7, SEAL + 1)),
        (7, SEAL - 1, None, Gap(TOPIC, P, 7, SEAL - 1)),
        (SEAL, SEAL + 1, None, Gap(TOPIC, P, SEAL, SEAL + 1)),
    ],
)
def test_a_gap_ends_at_the_last_record_of_the_log_as_it_is_now(
    cluster: Cluster, committed: int, end: int, last: int | None, read: Gap
) -> None:
    """A seal that is broken may be made anew, at the end, in the pass that the check is for."""
    record = sealed()
    record = replace(record, retired={P: replace(record.retired[P], read_up_to=7)})
    check(committed, EPOCH, record, end=end, last=last)
    assert cluster.gaps == [{read}]


def test_a_gap_that_may_not_be_read_is_not_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a report by a user without READ shows it as lag, and does not wait for it."""
    refused = SimpleNamespace(offset=lambda: 7, error=lambda: KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    def read(_conf: object, _starts: object, waiting: dict[Partition, list[Gap]], take: Any, *_: object) -> None:
        take((TOPIC, P), refused, Mock())
        assert not waiting

    monkeypatch.setattr(commits_module, "read_partitions", read)
    assert without_records({}, [Gap(TOPIC, P, 7, SEAL)], SimClock().monotonic_s) == frozenset()


def test_a_gap_without_an_offset_is_clear() -> None:
    gap = Gap(TOPIC, P, 7, 7)
    assert without_records({}, [gap], SimClock().monotonic_s) == {gap}


def test_commits_are_checked_before_there_is_a_seal(cluster: Cluster) -> None:
    """Sealed and found to be drained in one pass, it would become None on their word."""
    record = sealed()
    record = replace(record, retired={P: replace(record.retired[P], seal_offset=None)})
    cluster.ends = {(P, 4): 8}
    assert truncated(check(SEAL, record=record))
    assert epochless(check(SEAL, None, record))
