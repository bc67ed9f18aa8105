"""What the controller sees of groups and of writers on a real Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer

from modeaware.cluster.cluster import Cluster
from modeaware.cluster.groups import GroupsFound, find_groups
from modeaware.config import DEFAULT_MODE_LOG_TOPIC
from modeaware.errors import ClusterError
from modeaware.lifecycle.facts import GroupFacts, MembersSeen
from modeaware.local import Kafka
from tests.conftest import MakeTopic
from tests.support.group import Member
from tests.support.groups import RunningGroup
from tests.support.plain import produce_keyed
from tests.support.waiting import eventually

MakeGroup = Callable[[], str]


@pytest.fixture
def cluster(kafka: Kafka) -> Iterator[Cluster]:
    made = Cluster({"bootstrap.servers": kafka.bootstrap_servers})
    yield made
    made.close()


def records(count: int) -> list[tuple[bytes, bytes]]:
    return [(b"key-%d" % n, b"value-%d" % n) for n in range(count)]


def send(kafka: Kafka, topic: str, count: int, partition: int) -> None:
    produce_keyed(kafka.bootstrap_servers, topic, records(count), partition=partition)


def sure(cluster: Cluster, topic: str, count: int = 2) -> GroupsFound:
    """A look without doubts; the shared cluster's other groups may be in a rebalance for a moment."""
    last: list[GroupsFound] = []

    def looked() -> bool:
        try:
            last[:] = [find_groups(cluster, {topic: range(count)}, mode_log=DEFAULT_MODE_LOG_TOPIC)[topic]]
        except ClusterError as error:  # a machine that has too much to do
            raise AssertionError(str(error)) from error
        return last[0].doubt is None and not last[0].unclear

    eventually(looked, message="doubts do not end")
    return last[0]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_then_empty_then_deleted(
    kafka: Kafka, cluster: Cluster, make_topic: MakeTopic, make_group: MakeGroup, protocol: str
) -> None:
    topic, name = make_topic(2), make_group()
    send(kafka, topic, 5, 1)
    with RunningGroup(kafka.bootstrap_servers, topic, name, group_protocol=protocol) as group:
        group.wait_for({value for _, value in records(5)})
        eventually(lambda: sure(cluster, topic).groups[name].committed.get(1) == 5)
        found = sure(cluster, topic)
        assert (found.groups[name].kind, found.groups[name].has_members) == (protocol, True)
        assert found.epochs[name][1] >= 0
    found = sure(cluster, topic)
    assert found.groups == {name: GroupFacts(committed={1: 5}, kind=protocol)}
    assert sure(cluster, make_topic(1), 1).groups == {}
    cluster.admin.delete_consumer_groups([name])[name].result(20)
    assert sure(cluster, topic).groups == {}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_mode_aware_member_is_seen_beside_a_stock_one(
    kafka: Kafka, cluster: Cluster, make_topic: MakeTopic, make_group: MakeGroup, protocol: str
) -> None:
    topic, name = make_topic(2), make_group()
    aware = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": name, "group.protocol": protocol}
    with RunningGroup(kafka.bootstrap_servers, topic, name, group_protocol=protocol), Member([topic], aware):
        seen = MembersSeen(aware=1, unknown=1, holding=2)
        eventually(lambda: sure(cluster, topic).groups[name].members == seen, 30)


def test_a_share_group_by_what_is_acknowledged(
    kafka: Kafka, cluster: Cluster, make_topic: MakeTopic, make_group: MakeGroup
) -> None:
    """librdkafka's own listing knows no share groups."""
    topic, name = make_topic(1), make_group()
    conf = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": name, "share.acknowledgement.mode": "explicit"}
    with ShareConsumer(conf) as consumer:
        consumer.subscribe([topic])

        def take(first_left: int | None = None) -> int:
            """Accept what comes, but for what begins at ``first_left``; the offset after the last that came."""
            batch = consumer.poll(0.5)
            for message in batch:
                accept = first_left is None or message.offset() < first_left
                consumer.acknowledge(message, AcknowledgeType.ACCEPT if accept else AcknowledgeType.RELEASE)
            consumer.commit_sync()
            return max((message.offset() + 1 for message in batch), default=0)

        def first_taken() -> int:
            send(kafka, topic, 1, 0)  # it begins at the end, whenever it has its assignment
            return take()

        eventually(lambda: take() + 1 and name in sure(cluster, topic, 1).groups)
        members = MembersSeen(unknown=1)
        shared = GroupFacts(has_members=True, kind="share", subscribed=True, members=members)
        assert sure(cluster, topic, 1).groups == {name: shared}
        base = eventually(first_taken)
        eventually(lambda: sure(cluster, topic, 1).groups[name].committed == {0: base})
        send(kafka, topic, 10, 0)
        eventually(lambda: take(base + 6) >= base + 6)  # a record that is released too often counts as done
        left = sure(cluster, topic, 1).groups[name].committed[0]
        assert base <= left <= base + 6
        eventually(lambda: take() == base + 10)
        eventually(lambda: sure(cluster, topic, 1).groups[name].committed == {0: base + 10})
        assert sure(cluster, topic, 1).groups[name].has_members
    eventually(lambda: not sure(cluster, topic, 1).groups[name].has_members)
    assert sure(cluster, topic, 1).groups == {name: GroupFacts({0: base + 10}, kind="share")}
