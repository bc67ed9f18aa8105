"""What is found on every cluster does not block a shrink for ever: each test ends in a finished one, by the rule that
docs/consumer-groups.md gives ("What a drain waits for")."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition

import modeaware
from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import AlterGroupRulesCommand
from modeaware.modelog.group_rules import GroupRule
from modeaware.modes import PartitionMode
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled, left, produce
from tests.support.groups import RunningGroup
from tests.support.waiting import eventually

RW, NONE = PartitionMode.READ_WRITE, PartitionMode.NONE


def rule(kind: str, group: str, topic: str, **more: object) -> GroupRule:
    return GroupRule(kind, group, topic, "OPS-1: known to us", time.time_ns() // 1_000_000, **more)


def alter(setting: Controlled, *rules: GroupRule) -> None:
    result = setting.ask(AlterGroupRulesCommand(add=rules))
    assert result.code is ErrorCode.NONE, result.message


def wait_finished(setting: Controlled, topic: str) -> None:
    record = setting.wait_done(topic)
    assert record.modes[0] is RW
    assert set(record.modes[1:]) == {NONE}
    assert [left(setting, topic)[p] for p in record.retired] == [0] * len(record.retired)


@pytest.mark.parametrize("stays", [True, False])
def test_the_console_consumer(setting: Controlled, make_topic: MakeTopic, stays: bool) -> None:
    """It makes a group for each run and commits nothing: it counts for nothing, while it is there or afterwards."""
    topic, name = make_topic(3), "console-consumer-48151"
    produce(setting, topic, 30)
    setting.start()
    with RunningGroup(setting.servers, topic, name, enable_auto_commit="false"):
        setting.shrink(topic, 1)
        assert setting.record(topic).required_groups == ()
        if stays:
            wait_finished(setting, topic)
    wait_finished(setting, topic)


def test_a_stock_latest_group_that_never_committed_a_partition(
    setting: Controlled, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    """librdkafka commits nothing where nothing was delivered: the owner says that nobody waits for that."""
    topic, name = make_topic(3), make_group()
    produce(setting, topic, 30)
    setting.start()
    with RunningGroup(setting.servers, topic, name, auto_offset_reset="latest"):
        setting.shrink(topic, 1)
        setting.wait_for(topic, lambda record: setting.reasons(topic) == {f"group-never-committed:{name}"})
        alter(setting, rule("waive", name[:4] + "*", topic, uncommitted_only=True))
        wait_finished(setting, topic)
    assert setting.record(topic).waived == {name: "OPS-1: known to us"}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_aware_latest_group(
    setting: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], protocol: str
) -> None:
    """A mode-aware consumer commits where it starts: nobody has to say anything."""
    topic, name = make_topic(3), make_group()
    produce(setting, topic, 30)
    setting.start()
    consumer = modeaware.Consumer(
        {
            **setting.conf,
            "group.id": name,
            "group.protocol": protocol,
            "auto.offset.reset": "latest",
            "modeaware.mode.log.topic": setting.log,
        }
    )
    consumer.subscribe([topic])

    def works() -> int:
        assert consumer.poll(0.05) is None, "everything there is older than the group"
        return len(consumer.assignment())

    try:
        eventually(lambda: works() == 3, 30)
        setting.shrink(topic, 1)
        setting.wait_for(topic, lambda record: works() and record.modes[1:] == (NONE, NONE))
        setting.wait_for(topic, lambda record: works() and not any(left(setting, topic)[p] for p in (1, 2)))
    finally:
        consumer.close()
    wait_finished(setting, topic)
    assert setting.record(topic).waived == {}


def test_a_registered_reader_is_waited_for_before_it_ever_ran(
    setting: Controlled, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    """It publishes its progress as commits of a group nobody is a member of (Spark, MirrorMaker, assign())."""
    topic, name = make_topic(2), make_group()
    produce(setting, topic, 10, partition=1)
    setting.start()
    alter(setting, rule("require", name, topic))
    setting.shrink(topic, 1)
    setting.wait_for(topic, lambda record: setting.reasons(topic) == {f"group-gone:{name}"})
    reader = Consumer({**setting.conf, "group.id": name, "enable.auto.commit": False})
    try:
        reader.commit(offsets=[TopicPartition(topic, 1, 4)], asynchronous=False)
        setting.wait_for(topic, lambda record: setting.reasons(topic) == {f"group-lag:{name}"})
        reader.commit(offsets=[TopicPartition(topic, 1, 10)], asynchronous=False)
        wait_finished(setting, topic)
    finally:
        reader.close()
    assert setting.record(topic).retired[1].drained == {name: 10}
