"""Groups of three while the modes of a topic change under running producers and consumers, on a real Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import modeaware
from modeaware.confluent.ownership import GroupDescriber, GroupUnknown
from modeaware.local import Kafka
from tests.conftest import MakeTopic
from tests.support.fake_views import FakeViews, modes_of
from tests.support.group import Group, Member, Traffic, settings_of, shrink
from tests.support.modelog import NONE, RO, RealLog, topic_record
from tests.support.plain import produce_keyed
from tests.support.waiting import eventually

LOADS_OF_FOUR = {None: [1, 1, 2], "roundrobin": [1, 1, 2], "cooperative-sticky": None}


@pytest.fixture
def make_member(kafka: Kafka, make_group: Callable[[], str]) -> Iterator[Callable[..., Member]]:
    group = make_group()

    def make(*topics: str, strategy: str | None = None, batch: int = 0, **settings: Any) -> Member:
        conf = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            **settings_of(strategy),
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        return Member(topics, conf, batch=batch)

    return make


@pytest.mark.parametrize("strategy", [None, "roundrobin", "cooperative-sticky"])
def test_survivors_are_spread_over_the_members_and_no_record_is_lost_or_repeated(
    kafka: Kafka, fake_views: FakeViews, make_topic: MakeTopic, make_member: Callable[..., Member], strategy: str | None
) -> None:
    topics = make_topic(), make_topic()
    members = [make_member(*topics, strategy=strategy, batch=batch) for batch in (0, 100, 0)]
    idle = 1  # a survivor that never gets a record, and
    writable = [p for p in range(12) if p not in (idle, 5)]
    with Traffic(kafka.bootstrap_servers, dict.fromkeys(topics, writable)) as traffic, Group(members) as group:
        for topic in topics:
            group.await_held(topic, range(12))
        for topic in topics:
            shrink(fake_views, traffic, group, topic, 12, 4)
        for topic in topics:
            group.await_held(topic, range(4), LOADS_OF_FOUR[strategy])
        if strategy is None:
            first, second = topics
            assert all(m.assigned[first] == m.assigned[second] for m in members), "co-partitioned topics are alike"
        for topic in topics:
            fake_views.set(topic, modes_of(12, 6, NONE))
            group.await_held(topic, range(6), [2, 2, 2] if strategy is None else None)
            traffic.write_to(topic, [0, 2, 3, 4, 5])
        for topic in topics:
            fake_views.set(topic, modes_of(12, 12))
            group.await_held(topic, range(12))
            traffic.write_to(topic, list(range(12)))
        group.check(traffic.finish())
        seen = {key for member in members for name, keys in member.calls if name == "assign" for key in keys}
        assert seen == {(topic, p) for topic in topics for p in range(12)}
        assert all(name != "lost" for member in members for name, _ in member.calls)


def test_under_the_consumer_protocol_the_coordinators_runs_stay(
    kafka: Kafka, fake_views: FakeViews, make_topic: MakeTopic, make_member: Callable[..., Member]
) -> None:
    topic = make_topic()
    members = [make_member(topic, strategy="consumer", batch=batch) for batch in (0, 100, 0)]
    with Traffic(kafka.bootstrap_servers, {topic: range(12)}) as traffic, Group(members) as group:
        group.await_held(topic, range(12), [4, 4, 4])
        owners = [set(member.assigned[topic]) for member in members]
        shrink(fake_views, traffic, group, topic, 12, 4)
        group.await_held(topic, range(4))
        for member, owned in zip(members, owners, strict=True):
            assert set(member.assigned[topic]) == owned & set(range(4)), "nothing moves between members"
        fake_views.set(topic, modes_of(12, 12))
        group.await_held(topic, range(12))
        assert [set(member.assigned[topic]) for member in members] == owners
        traffic.write_to(topic, list(range(12)))
        group.check(traffic.finish())


def test_a_group_of_three_follows_the_mode_log(
    kafka: Kafka, make_topic: MakeTopic, make_member: Callable[..., Member]
) -> None:
    topic, log = make_topic(), RealLog(kafka.bootstrap_servers)
    members = [make_member(topic, batch=batch, modeaware_mode_log_topic=log.topic) for batch in (0, 50, 0)]
    with Traffic(kafka.bootstrap_servers, {topic: range(12)}) as traffic, Group(members) as group:
        group.await_held(topic, range(12), [4, 4, 4])
        log.create()  # under running consumers
        log.append(topic_record(topic, 0, rest=RO))
        before = traffic.write_to(topic, range(4))
        group.await_delivered({record for record in before if record[1] >= 4})
        log.append(topic_record(topic, 1, rest=NONE))
        group.await_held(topic, range(4), [1, 1, 2])
        log.append(topic_record(topic, 2, writable=12))
        group.await_held(topic, range(12), [4, 4, 4])
        traffic.write_to(topic, range(12))
        group.check(traffic.finish())
    log.close()


def test_what_is_in_doubt_is_not_read_before_the_group_is_described(
    kafka: Kafka,
    fake_views: FakeViews,
    make_topic: MakeTopic,
    make_group: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = make_topic(4)
    fake_views.set(topic, modes_of(4, 2, NONE))
    values = {partition: [b"%d.%d" % (partition, number) for number in range(50)] for partition in range(2)}
    for partition, mine in values.items():
        produce_keyed(kafka.bootstrap_servers, topic, [(None, value) for value in mine], partition=partition)
    request, failures = GroupDescriber._request, ["the coordinator is away"]

    def described(describer: GroupDescriber) -> Any:
        if failures:
            raise GroupUnknown(failures[0])
        return request(describer)

    monkeypatch.setattr(GroupDescriber, "_request", described)
    shown: list[set[int]] = []
    conf = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": make_group(), "auto.offset.reset": "earliest"}
    consumer = modeaware.Consumer(conf)
    consumer.subscribe([topic], on_assign=lambda _, partitions: shown.append({p.partition for p in partitions}))
    early: list[Any] = []
    while not shown:
        early += consumer.consume(1_000, 1.0)
    early += consumer.consume(1_000, 1.0) + consumer.consume(1_000, 1.0)
    assert (shown, early, consumer.assignment()) == ([set()], [], [])
    assert consumer.modeaware_stats()["in_doubt"] == [topic]
    failures.clear()
    read: set[bytes] = set()
    written = {value for mine in values.values() for value in mine}
    eventually(lambda: read.update(m.value() for m in consumer.consume(1_000, 0.2)) or read == written, 30)
    assert shown == [set(), {0, 1}]
    consumer.close()
