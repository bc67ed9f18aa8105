"""A topic of 12 partitions is replaced by 4, then by 9, under load: nothing is lost, out of order or misplaced."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

import modeaware
from modeaware.errors import ErrorCode
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.local import Kafka
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.workload.load import Load
from tests.workload.reader import Reader

STRATEGIES: dict[str, dict[str, Any]] = {
    "range": {"partition.assignment.strategy": "range"},
    "roundrobin": {"partition.assignment.strategy": "roundrobin"},
    "cooperative-sticky": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}
READER = {"auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 1_000}


@pytest.fixture(scope="module")
def served(kafka: Kafka) -> Iterator[Controlled]:
    with Controlled(kafka) as made:
        made.start(seal_quiet_ms=1_000)
        yield made


def move_stock_group(conf: dict[str, Any], group: str, new_topic: str, count: int) -> None:
    """What the owner of a stopped group does: its offsets on the new topic are 0."""
    consumer = confluent_kafka.Consumer({**conf, "group.id": group})
    try:
        consumer.commit(offsets=[TopicPartition(new_topic, p, 0) for p in range(count)], asynchronous=False)
    finally:
        consumer.close()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_replacements(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], strategy: str
) -> None:
    topic, names = make_topic(12), {name: make_group() for name in ("even", "slow", "stock")}
    aware = {**served.conf, "modeaware.mode.log.topic": served.log}
    load = Load(*names)

    def producer() -> Any:
        return modeaware.Producer({**aware, "enable.idempotence": True, "linger.ms": 5})

    def member(name: str) -> Any:
        return modeaware.Consumer({**aware, **READER, **STRATEGIES[strategy], "group.id": names[name]})

    def stock(topic: str) -> Reader:
        conf = {**served.conf, **READER, "group.id": names["stock"], "auto.commit.interval.ms": 500}
        return load.reader(lambda: confluent_kafka.Consumer(conf), [topic], "stock", batch=0)

    for _ in range(2):
        load.writer(producer, topic)
    for name, work_s in (*[("even", 0.0)] * 3, ("slow", 0.002)):
        load.reader(partial(member, name), [topic], name, work_s=work_s, batch=0)
    chain = {topic: 12, f"{topic}-v2": 4, f"{topic}-v3": 9}
    with load.running():
        reading = stock(topic)
        reading.start()
        load.more(500)
        waits = reasons.of_group(reasons.GROUP_NOT_MOVED, names["stock"])
        for old, new in itertools.pairwise(chain):
            assert served.ask(ReplaceTopicCommand(old, new, chain[new])).code is ErrorCode.NONE
            served.wait_for(old, lambda r: r.replacement is not None and r.replacement.reason == waits, 90)
            reading.stop()
            move_stock_group(served.conf, names["stock"], new, chain[new])
            reading = stock(new)
            reading.start()
            served.wait_done(old, 90)
        for reader in load.readers:
            reader.work_s = 0.0  # what is left is read soon
    reading.stop()
    load.check(servers=served.servers, chain=chain, seals=served.seals(*chain))
