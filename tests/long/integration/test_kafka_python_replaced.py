"""A topic of 12 partitions is replaced by 4, then by 9, under load of kafka-python's clients: by each assignor, and in
a group with consumers of confluent_kafka. And topics of a replacement that are deleted."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from confluent_kafka import murmur2
from kafka import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

import modeaware
from modeaware.errors import ErrorCode
from modeaware.kafka_python import KafkaConsumer, KafkaProducer
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.local import Kafka
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.kafka_python_group import FAST
from tests.support.kafka_python_load import KafkaPythonMember, KafkaPythonWriter
from tests.support.plain import watermarks
from tests.support.replaced_load import Delivered, Member, judge
from tests.support.waiting import eventually

STRATEGIES = [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor, CooperativeStickyAssignor]


@pytest.fixture(scope="module")
def served(kafka: Kafka) -> Iterator[Controlled]:
    with Controlled(kafka) as made:
        made.start(seal_quiet_ms=1_000)
        yield made


@pytest.mark.parametrize(
    ("strategy", "kind"),
    [*((each, "") for each in STRATEGIES), (RoundRobinPartitionAssignor, "mixed"), (RangePartitionAssignor, "static")],
    ids=[*(str(each.name) for each in STRATEGIES), "with confluent_kafka", "static members"],
)
def test_two_replacements(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], strategy: Any, kind: str
) -> None:
    topic = make_topic(12)
    groups = {name: make_group() for name in ("even", "slow")}
    delivered = {name: Delivered() for name in groups}
    conf: dict[str, Any] = {"bootstrap_servers": served.servers, "modeaware_mode_log_topic": served.log}

    def member(name: str, number: int) -> Any:
        own = {"group_instance_id": f"member-{number}"} if kind == "static" else {}
        return KafkaConsumer(**conf, **FAST, **own, group_id=groups[name], partition_assignment_strategy=[strategy])

    def other(name: str) -> Any:
        return modeaware.Consumer(
            {
                **served.conf,
                "modeaware.mode.log.topic": served.log,
                "group.id": groups[name],
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": str(strategy.name),
            }
        )

    kinds = [("even", 0.0)] * 3 + [("slow", 0.004)]
    members: list[Member] = [
        KafkaPythonMember(partial(member, name, number), [topic], delivered[name], work_s)
        for number, (name, work_s) in enumerate(kinds)
    ]
    if kind == "mixed":
        members += [Member(partial(other, name), [topic], delivered[name]) for name in groups]
    writers = [KafkaPythonWriter(lambda: KafkaProducer(**conf, linger_ms=5), topic, name) for name in "ab"]
    chain = {topic: 12, f"{topic}-v2": 4, f"{topic}-v3": 9}
    with ExitStack() as stack:
        for each in members:
            stack.enter_context(each)
        with ExitStack() as writing:
            for writer in writers:
                writing.enter_context(writer)
            eventually(lambda: all(len(got.distinct()) > 500 for got in delivered.values()), 60)
            for old, new in itertools.pairwise(chain):
                assert served.ask(ReplaceTopicCommand(old, new, chain[new])).code is ErrorCode.NONE
                served.wait_done(old, 120)
        acknowledged = {record for writer in writers for record in writer.acknowledged}
        eventually(lambda: not any(acknowledged - got.distinct() for got in delivered.values()), 90)
        assert all(member.fine() for member in members)
    verdict = judge(served.servers, chain, writers, delivered, murmur2)
    assert verdict.is_well, verdict
    assert not [refused for writer in writers for refused in writer.refused]


@pytest.mark.parametrize("strategy", [RangePartitionAssignor, CooperativeStickyAssignor], ids=["range", "cooperative"])
def test_topics_that_are_deleted_are_never_shown_and_not_brought_up_again(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], strategy: Any
) -> None:
    topic, other = make_topic(12), make_topic(1)
    successor = f"{topic}-v2"
    conf = {
        "bootstrap_servers": served.servers,
        "modeaware_mode_log_topic": served.log,
        "group_id": make_group(),
        "partition_assignment_strategy": [strategy],
        "metadata_max_age_ms": 500,
        **FAST,
    }
    shown: set[str] = set()

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc,unused-ignore]  # untyped
        def on_partitions_revoked(self, revoked: Any) -> None:
            shown.update(partition.topic for partition in revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            shown.update(partition.topic for partition in assigned)

    def exists(name: str) -> bool:
        return name in served.admin.list_topics(timeout=20).topics

    def poll_until(condition: Callable[[], object]) -> None:
        eventually(lambda: consumer.poll(100) == {} and condition(), 60)

    def hidden() -> int:
        return int(consumer.modeaware_stats()["hidden"])

    consumer = KafkaConsumer(**conf)
    consumer.subscribe([topic], listener=Listener())
    poll_until(consumer.assignment)
    asked = ReplaceTopicCommand(topic, successor, 4, pause_before_switch=True)
    assert served.ask(asked).code is ErrorCode.NONE
    poll_until(lambda: hidden() == 4)
    assert served.ask(replace(asked, undo=True)).code is ErrorCode.NONE
    poll_until(lambda: hidden() == 0 and not exists(successor))
    refreshed = consumer._cluster.request_update()
    poll_until(lambda: refreshed.is_done)
    assert consumer.modeaware_stats()["gates"] == []
    assert {partition.topic for partition in consumer.assignment()} == shown == {topic}
    assert not exists(successor)

    assert served.ask(replace(asked, pause_before_switch=False)).code is ErrorCode.NONE
    poll_until(lambda: {partition.topic for partition in consumer.assignment()} == {successor})
    consumer.close()
    served.admin.delete_topics([topic])[topic].result(30)
    eventually(lambda: not exists(topic))
    served.wait_for(topic, lambda record: record.replacement and record.replacement.gone_ms)
    consumer = KafkaConsumer(topic, other, **conf)
    poll_until(lambda: {partition.topic for partition in consumer.assignment()} == {successor, other})
    assert not exists(topic)
    consumer.close()


@pytest.mark.parametrize(
    ("last", "named"),
    [("-v3", "{}"), ("", "{}"), ("-v3", "^{}$"), ("-v3", "^{}")],
    ids=["onward", "back to its name", "by a pattern of the first", "by a pattern of all"],
)
def test_topics_are_deleted_under_clients_that_name_the_first(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], last: str, named: str
) -> None:
    topic, delivered = make_topic(12), Delivered()
    conf: dict[str, Any] = {"bootstrap_servers": served.servers, "modeaware_mode_log_topic": served.log}
    reader = partial(KafkaConsumer, **conf, **FAST, metadata_max_age_ms=500, group_id=make_group())
    members = [KafkaPythonMember(reader, [named.format(topic)], delivered) for _ in range(2)]
    writers = [KafkaPythonWriter(lambda: KafkaProducer(**conf, linger_ms=5), topic, name, 50) for name in "ab"]

    def more() -> None:
        goal = len(delivered.distinct()) + 300
        eventually(lambda: len(delivered.distinct()) > goal, 60)

    with ExitStack() as stack:
        for each in members:
            stack.enter_context(each)
        with ExitStack() as writing:
            for writer in writers:
                writing.enter_context(writer)
            for old, new, count in ((topic, f"{topic}-v2", 4), (f"{topic}-v2", f"{topic}{last}", 2)):
                more()
                assert served.ask(ReplaceTopicCommand(old, new, count, delay_ms=0)).code is ErrorCode.NONE
                served.wait_for(old, lambda record: record.replacement and record.replacement.gone_ms, 90)
            more()
        acknowledged = {record for writer in writers for record in writer.acknowledged}
        eventually(lambda: acknowledged <= delivered.distinct(), 60)
        assert all(member.fine() for member in members)
    assert not delivered.out_of_order()
    assert not [refused for writer in writers for refused in writer.refused]
    assert {where for *_, where in delivered.records} == {topic, f"{topic}-v2", f"{topic}{last}"}
    assert len(watermarks(served.servers, f"{topic}{last}")) == 2
    left = served.admin.list_topics(timeout=20).topics.keys()
    assert {name for name in left if name.startswith(topic)} == {f"{topic}{last}"}, "and none is brought back"
