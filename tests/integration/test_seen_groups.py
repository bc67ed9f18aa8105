"""What the controller sees of groups and of writers on a real Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import (
    AcknowledgeType,
    Producer,
    ShareConsumer,
)

from modeaware.clock import SYSTEM_CLOCK
from modeaware.cluster.cluster import Cluster
from modeaware.cluster.control_records import Gap, without_records
from modeaware.cluster.groups.found import GroupsFound, find_groups
from modeaware.cluster.topic_identity import topic_ids
from modeaware.errors import ClusterError, ErrorCode
from modeaware.lifecycle.effects import DeleteRecords
from modeaware.lifecycle.facts import GroupFacts
from modeaware.local import Kafka
from tests.conftest import MakeTopic
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
            last[:] = [find_groups(cluster, topic, range(count))]
        except ClusterError as error:  # a machine that has too much to do
            raise AssertionError(str(error)) from error
        return last[0].doubt is None

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
        assert sure(cluster, topic, 1).groups == {name: GroupFacts(has_members=True, kind="share")}
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


def test_gaps_of_many_partitions(kafka: Kafka, cluster: Cluster, make_topic: MakeTopic) -> None:
    """In each: two records, a commit marker, an aborted record, its marker. One consumer looks at all of them."""
    count = 40
    topic = make_topic(count)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    for values, end in ((b"ab", producer.commit_transaction), (b"c", producer.abort_transaction)):
        producer.begin_transaction()
        for partition in range(count):
            for value in values:
                producer.produce(topic, value=bytes([value]), partition=partition)
        producer.flush(30)
        end(30)
    eventually(lambda: {log.last_stable_offset for log in cluster.offsets(topic, range(count)).values()} == {5})
    gaps = {Gap(p, start, end) for p in range(count) for start in range(5) for end in range(start + 1, 7)}
    conf = {"bootstrap.servers": kafka.bootstrap_servers}
    found = without_records(conf, topic, gaps, SYSTEM_CLOCK.monotonic_s)
    assert found == {gap for gap in gaps if gap.start >= 2 and gap.end <= 5}


def test_delete_records_is_for_the_topic_it_was_decided_for(
    kafka: Kafka, cluster: Cluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    send(kafka, topic, 5, 0)
    (topic_id,) = set(topic_ids(cluster.brokers, topic).values())
    assert topic_id == cluster.describe([topic])[topic].topic_id
    epoch = cluster.offsets(topic, [0])[0].leader_epoch
    with pytest.raises(ClusterError) as raised:
        cluster.perform(DeleteRecords(topic, "A" * 22, {0: 5}, {0: epoch}))
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_ID
    with pytest.raises(ClusterError, match=f"led under epoch {epoch}"):
        cluster.perform(DeleteRecords(topic, topic_id, {0: 5}, {0: epoch + 1}))
    assert cluster.offsets(topic, [0])[0].log_start == 0
    cluster.perform(DeleteRecords(topic, topic_id, {0: 3}, {0: epoch}))
    assert cluster.offsets(topic, [0])[0].log_start == 3
    assert set(topic_ids(cluster.brokers, "no-such-topic").values()) == {None}
