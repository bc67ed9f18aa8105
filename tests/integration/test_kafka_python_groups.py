"""Groups of modeaware.kafka_python.KafkaConsumer, with and without plain members, through shrinks on a real Kafka."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import kafka as kafka_python
import pytest
from confluent_kafka.admin import AdminClient
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.structs import TopicPartition

from modeaware.kafka_python import KafkaConsumer
from modeaware.local import Kafka
from modeaware.modes import PartitionMode
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.fake_views import FakeViews, modes_of
from tests.support.group import Group, Traffic, shrink
from tests.support.kafka_python_group import FAST, Member
from tests.support.plain import produce_keyed
from tests.support.waiting import eventually

NONE = PartitionMode.NONE
STRATEGIES = [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor, CooperativeStickyAssignor]
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda kind: str(kind.name))


def settings_of(kafka: Kafka, group: str, strategy: Any, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": kafka.bootstrap_servers,
        "group_id": group,
        "partition_assignment_strategy": [strategy],
        **FAST,
        **more,
    }


@every_strategy
def test_survivors_are_balanced_and_no_record_is_skipped_or_comes_twice(
    kafka: Kafka, fake_views: FakeViews, make_topic: MakeTopic, make_group: Callable[[], str], strategy: Any
) -> None:
    topic, group = make_topic(12), make_group()
    members = [Member(KafkaConsumer(**settings_of(kafka, group, strategy)), topic) for _ in range(3)]
    with Group(members) as running:
        running.await_held(topic, range(12), [4, 4, 4])
        with Traffic(kafka.bootstrap_servers, {topic: range(12)}) as traffic:
            shrink(fake_views, traffic, running, topic, 12, 4)
            running.await_held(topic, range(4), [1, 1, 2])
            fake_views.set(topic, modes_of(12, 12))
            traffic.write_to(topic, range(12))
            running.await_held(topic, range(12), [4, 4, 4])
            running.check(traffic.finish())


@every_strategy
@pytest.mark.parametrize("plain_first", [False, True])
def test_a_mixed_group_reads_every_readable_partition(
    kafka: Kafka,
    fake_views: FakeViews,
    make_topic: MakeTopic,
    make_group: Callable[[], str],
    strategy: Any,
    plain_first: bool,
) -> None:
    topic, group = make_topic(6), make_group()
    settings = settings_of(kafka, group, strategy)
    ours = [Member(KafkaConsumer(**settings), topic) for _ in range(2)]
    plain = Member(kafka_python.KafkaConsumer(**settings), topic)
    with Group([plain] if plain_first else ours) as first:
        first.await_held(topic, range(6))  # the one that is there first leads
        with Group(ours if plain_first else [plain]), Traffic(kafka.bootstrap_servers, {topic: range(6)}) as traffic:
            both = Group([*ours, plain])
            both.await_held(topic, range(6), [2, 2, 2])
            shrink(fake_views, traffic, both, topic, 6, 3)
            traffic.write_to(topic, range(3))
            eventually(lambda: not {p for member in ours for p in member.assigned[topic]} & {3, 4, 5})
            if not plain_first:  # one of ours deals
                eventually(lambda: [len({0, 1, 2} & {*m.assigned[topic]}) for m in both.members] == [1, 1, 1])
            both.await_delivered(traffic.finish())
            eventually(lambda: set(both.held(topic)) >= {0, 1, 2})
            held = both.held(topic)
            assert len(held) == len(set(held)), "one owner each"


def test_the_controller_drains_a_group_of_it_and_undoes(
    kafka: Kafka, served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    topic, group = make_topic(6), make_group()
    settings = settings_of(kafka, group, CooperativeStickyAssignor, modeaware_mode_log_topic=served.log)
    members = [Member(KafkaConsumer(**settings), topic) for _ in range(2)]
    with Group(members) as running:
        running.await_held(topic, range(6), [3, 3])
        with Traffic(kafka.bootstrap_servers, {topic: range(5)}) as traffic:  # one partition is idle
            running.await_delivered(traffic.write_to(topic, range(2)))
            served.shrink(topic, 2)
            served.wait_done(topic)
            running.await_held(topic, range(2), [1, 1])
            served.grow(topic, 6)
            running.await_held(topic, range(6), [3, 3])
            traffic.write_to(topic, range(6))
            running.check(traffic.finish())


@pytest.mark.parametrize(
    "strategy", [RangePartitionAssignor, CooperativeStickyAssignor], ids=lambda kind: str(kind.name)
)
def test_a_member_that_was_dropped_while_it_joined_goes_on_where_the_group_is(
    kafka: Kafka, fake_views: FakeViews, make_topic: MakeTopic, make_group: Callable[[], str], strategy: Any
) -> None:
    """kafka-python keeps its position: of another topic, where the name has come back to one meanwhile."""
    topic, group = make_topic(1), make_group()
    settings = settings_of(kafka, group, strategy, session_timeout_ms=2000)
    place, admin = TopicPartition(topic, 0), AdminClient({"bootstrap.servers": kafka.bootstrap_servers})

    def send(count: int) -> None:
        produce_keyed(kafka.bootstrap_servers, topic, [(None, b"v")] * count)

    def members() -> int:
        return len(admin.describe_consumer_groups([group])[group].result(30).members)

    send(5)
    with closing(KafkaConsumer(topic, **settings)) as late:
        eventually(lambda: late.poll(100) and late.position(place) == 5)
        with Group([Member(KafkaConsumer(**settings), topic)]) as others:
            eventually(lambda: late.poll(0) is not None and late._coordinator.rejoining, interval_s=0.01)  # private
            others.await_held(topic, [0])
            eventually(lambda: members() == 1, message="it is dropped")
            send(5)
            eventually(lambda: late.committed(place) == 10)
        send(1)
        found = eventually(lambda: late.poll(100), 60)
        assert [record.offset for record in found[place]] == [10]
