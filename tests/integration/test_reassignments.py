"""Reassigning partitions on real brokers: KIP-860's race and its guard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition

from modeaware import NewPartitions
from modeaware.admin.reassignments import OPTION_NOT_SUPPORTED, PartitionReassignment
from modeaware.confluent.admin import AdminClient
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.local import LocalKafka
from modeaware.local.jars import KAFKA_VERSION
from tests.support.reassigning import Moving
from tests.support.waiting import eventually

TIMEOUT_S = 30.0


@pytest.fixture
def admin(kafka3: LocalKafka) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": kafka3.bootstrap_servers}) as made:
        yield made


def test_replicas_read_in_mid_reassignment_are_refused_with_the_option_and_made_permanent_without(
    moving: Moving, admin: AdminClient
) -> None:
    """KIP-860's race: an operator reads the full set of a partition that is moving, and assigns it again."""
    one, two, three = moving.nodes
    topic = moving.topic([one])
    key = TopicPartition(topic, 0)
    moving.fill(topic, 0)
    with moving.throttled(topic):
        admin.alter_partition_reassignments({key: [two, three]})[key].result(TIMEOUT_S)
        eventually(lambda: all(len(seen[0]) == 3 for seen in moving.on_every_broker(topic)))
        read = moving.replicas(topic)[topic, 0]  # which says nothing of a reassignment
        assert set(read) == {one, two, three}
        assert admin.list_partition_reassignments().result(TIMEOUT_S)[topic, 0] == PartitionReassignment(
            (two, three, one), (two, three), (one,)
        )

        refused = admin.alter_partition_reassignments({key: read}, allow_replication_factor_change=False)[key]
        error = refused.exception(TIMEOUT_S)
        assert isinstance(error, RequestRefused)
        if tuple(map(int, KAFKA_VERSION.split(".")[:2])) < (4, 1):
            assert error.code is ErrorCode.UNSUPPORTED_VERSION, "refused, not ignored: KIP-860 came with Kafka 4.1"
            return
        assert error.code is ErrorCode.INVALID_REPLICATION_FACTOR
        assert (error.topic, error.partition) == (topic, 0)
        assert moving.in_progress(topic) == {0}

        other = admin.alter_partition_reassignments({key: [three, two]}, allow_replication_factor_change=False)[key]
        other.result(TIMEOUT_S)  # as many as there shall be at its end: two
    moving.wait_until(topic, {0: (three, two)})
    late = admin.alter_partition_reassignments({key: read}, allow_replication_factor_change=False)[key]
    assert getattr(late.exception(TIMEOUT_S), "code", None) is ErrorCode.INVALID_REPLICATION_FACTOR
    admin.alter_partition_reassignments({key: read})[key].result(TIMEOUT_S)
    moving.wait_until(topic, {0: read})  # three replicas where two were wanted: what the option is for


def test_a_topic_grows_only_once_its_replicas_are_where_they_go(moving: Moving, admin: AdminClient) -> None:
    """KIP-195's REASSIGNMENT_IN_PROGRESS: KRaft itself would give the new partition three replicas here."""
    one, two, three = moving.nodes
    topic = moving.topic([one, two])
    moving.fill(topic, 0)
    with moving.throttled(topic):
        admin.alter_partition_reassignments({(topic, 0): [three, two]})[topic, 0].result(TIMEOUT_S)
        growth = {topic: NewPartitions.increase_to(2)}
        error = admin.create_partitions(growth)[topic].exception(TIMEOUT_S)
        assert isinstance(error, RequestRefused)
        assert error.code is ErrorCode.REASSIGNMENT_IN_PROGRESS
        assert moving.replicas(topic).keys() == {(topic, 0)}
    moving.wait_until(topic, {0: (three, two)})
    assert admin.create_partitions(growth)[topic].result(TIMEOUT_S).partitions == (1,)
    eventually(lambda: [len(each.get(1, ())) for each in moving.on_every_broker(topic)] == [2] * len(moving.nodes))


def test_an_older_broker_lacks_the_option_and_cancels_all_the_same(kafka40: LocalKafka, moving: Moving) -> None:
    """One without version 1 of AlterPartitionReassignments: KIP-860's explicit error."""
    (node,) = moving.nodes
    topic = moving.topic([node], [node])
    with AdminClient({"bootstrap.servers": kafka40.bootstrap_servers}) as admin:
        futures = admin.alter_partition_reassignments(
            {(topic, 0): [node], (topic, 1): None}, allow_replication_factor_change=False
        )
        error = futures[topic, 0].exception(TIMEOUT_S)
        assert isinstance(error, RequestRefused)
        assert error.code is ErrorCode.UNSUPPORTED_VERSION
        assert str(error) == OPTION_NOT_SUPPORTED
        cancelled = futures[topic, 1].exception(TIMEOUT_S)
        assert isinstance(cancelled, RequestRefused)
        assert cancelled.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

        admin.alter_partition_reassignments({(topic, 0): [node]})[topic, 0].result(TIMEOUT_S)
        assert admin.list_partition_reassignments().result(TIMEOUT_S) == {}
