"""A topic of 12 partitions is replaced by 4, then by 9, under load: nothing is lost, out of order or misplaced."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import confluent_kafka
import pytest

import modeaware
from modeaware.errors import ErrorCode
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.local import Kafka
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.replaced_load import Delivered, Member, Writer, judge, move_stock_group
from tests.support.waiting import eventually

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


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_replacements(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], strategy: str
) -> None:
    topic, names = make_topic(12), {name: make_group() for name in ("even", "slow", "stock")}
    aware = {**served.conf, "modeaware.mode.log.topic": served.log}
    delivered = {name: Delivered() for name in names}

    def producer() -> Any:
        return modeaware.Producer({**aware, "enable.idempotence": True, "linger.ms": 5})

    def member(name: str) -> Any:
        return modeaware.Consumer({**aware, **READER, **STRATEGIES[strategy], "group.id": names[name]})

    def stock(topic: str) -> Member:
        conf = {**served.conf, **READER, "group.id": names["stock"], "auto.commit.interval.ms": 500}
        return Member(lambda: confluent_kafka.Consumer(conf), [topic], delivered["stock"])

    writers = [Writer(producer, topic, name) for name in ("a", "b")]
    with ExitStack() as stack:
        reading = stock(topic)
        reading.start()
        kinds = [("even", 0.0)] * 3 + [("slow", 0.004)]
        members = [Member(partial(member, name), [topic], delivered[name], work_s) for name, work_s in kinds]
        for each in members:
            stack.enter_context(each)
        with ExitStack() as writing:
            for writer in writers:
                writing.enter_context(writer)
            eventually(lambda: all(len(got.distinct()) > 500 for got in delivered.values()), 60)
            waits = reasons.of_group(reasons.GROUP_NOT_MOVED, names["stock"])
            chain = {topic: 12, f"{topic}-v2": 4, f"{topic}-v3": 9}
            for old, new in itertools.pairwise(chain):
                assert served.ask(ReplaceTopicCommand(old, new, chain[new])).code is ErrorCode.NONE
                served.wait_for(old, lambda r: r.replacement is not None and r.replacement.reason == waits, 90)
                reading.stop()
                move_stock_group(served.conf, names["stock"], new, chain[new])
                reading = stock(new)
                reading.start()
                served.wait_done(old, 90)
        acknowledged = {record for writer in writers for record in writer.acknowledged}
        unread: dict[str, int] = {}

        def all_is_read() -> bool:
            unread.update({name: len(acknowledged - got.distinct()) for name, got in delivered.items()})
            return not any(unread.values())

        try:
            eventually(all_is_read, 90)
        except AssertionError as error:
            raise AssertionError(f"not read: {unread}; {[each.stats for each in members]}") from error
        reading.stop()
    verdict = judge(served.servers, chain, writers, delivered)
    assert verdict.is_well, verdict
    assert not [refused for writer in writers for refused in writer.refused]
