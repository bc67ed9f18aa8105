"""A topic of 12 partitions is replaced by 4, then by 9, under load of kafka-python's clients: by each assignor, and in
a group with consumers of confluent_kafka. And topics of a replacement that are deleted."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
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
from tests.support.plain import watermarks
from tests.support.waiting import eventually
from tests.workload.kafka_python import KafkaPythonReader, KafkaPythonWriter
from tests.workload.load import Load

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
    load = Load(*groups)
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

    for number, (name, work_s) in enumerate([*[("even", 0.0)] * 3, ("slow", 0.002)]):
        load.reader(partial(member, name, number), [topic], name, KafkaPythonReader, work_s=work_s)
    if kind == "mixed":
        for name in groups:
            load.reader(partial(other, name), [topic], name, batch=0)
    for _ in range(2):
        load.writer(lambda: KafkaProducer(**conf, linger_ms=5), topic, KafkaPythonWriter)
    chain = {topic: 12, f"{topic}-v2": 4, f"{topic}-v3": 9}
    with load.running():
        load.more(500)
        for old, new in itertools.pairwise(chain):
            assert served.ask(ReplaceTopicCommand(old, new, chain[new])).code is ErrorCode.NONE
            served.wait_done(old, 120)
        for reader in load.readers:
            reader.work_s = 0.0  # what is left is read soon
    load.check(servers=served.servers, chain=chain, place=murmur2, seals=served.seals(*chain))


@pytest.mark.parametrize("strategy", [RangePartitionAssignor, CooperativeStickyAssignor], ids=["range", "cooperative"])
def test_topics_that_are_deleted_are_never_shown_and_not_brought_up_again(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], strategy: Any
) -> None:
    topic, other = make_topic(12), make_topic(1)
    new_topic = f"{topic}-v2"
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
    asked = ReplaceTopicCommand(topic, new_topic, 4, pause_before_switch=True)
    assert served.ask(asked).code is ErrorCode.NONE
    poll_until(lambda: hidden() == 4)
    assert served.ask(replace(asked, undo=True)).code is ErrorCode.NONE
    poll_until(lambda: hidden() == 0 and not exists(new_topic))
    refreshed = consumer._cluster.request_update()
    poll_until(lambda: refreshed.is_done)
    assert consumer.modeaware_stats()["gates"] == []
    assert {partition.topic for partition in consumer.assignment()} == shown == {topic}
    assert not exists(new_topic)
    served.wait_for(topic, lambda record: record.replacement is None)

    assert served.ask(replace(asked, pause_before_switch=False)).code is ErrorCode.NONE
    poll_until(lambda: {partition.topic for partition in consumer.assignment()} == {new_topic})
    consumer.close()
    served.admin.delete_topics([topic])[topic].result(30)
    eventually(lambda: not exists(topic))
    served.wait_for(topic, lambda record: record.replacement and record.replacement.gone_ms)
    consumer = KafkaConsumer(topic, other, **conf)
    poll_until(lambda: {partition.topic for partition in consumer.assignment()} == {new_topic, other})
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
    topic, load = make_topic(12), Load()
    chain = (topic, f"{topic}-v2", f"{topic}{last}")
    conf: dict[str, Any] = {"bootstrap_servers": served.servers, "modeaware_mode_log_topic": served.log}
    consumer = partial(KafkaConsumer, **conf, **FAST, metadata_max_age_ms=2_000, group_id=make_group())
    for _ in range(2):
        load.reader(consumer, [named.format(topic)], kind=KafkaPythonReader)
        load.writer(lambda: KafkaProducer(**conf, linger_ms=5), topic, KafkaPythonWriter, per_s=50)
    with load.running():
        for (old, new), count in zip(itertools.pairwise(chain), (4, 2), strict=True):
            load.more()
            command = ReplaceTopicCommand(old, new, count, delay_ms=0)
            if new == topic:
                served.rename_back(command)
            else:
                assert served.ask(command).code is ErrorCode.NONE
            served.wait_for(old, lambda record: record.replacement and record.replacement.gone_ms, 90)
        load.more()
    assert load.given_of(*chain)
    load.check(reused=[topic] if not last else [])
    assert len(watermarks(served.servers, f"{topic}{last}")) == 2
    left = served.admin.list_topics(timeout=20).topics.keys()
    assert {name for name in left if name.startswith(topic)} == {f"{topic}{last}"}, "and none is brought back"
