"""What is found on every cluster does not block a shrink for ever: each test ends in a finished one, by the rule that
docs/consumer-groups.md gives ("What a drain waits for")."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

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


def wait_finished(served: Controlled, topic: str) -> None:
    record = served.wait_done(topic)
    assert record.modes[0] is RW
    assert set(record.modes[1:]) == {NONE}
    assert [left(served, topic)[p] for p in record.retired] == [0] * len(record.retired)


def test_the_console_consumer(served: Controlled, make_topic: MakeTopic) -> None:
    """It makes a group for each run and commits nothing: it counts for nothing."""
    topic, name = make_topic(3), "console-consumer-48151"
    produce(served, topic, 30)
    with RunningGroup(served.servers, topic, name, enable_auto_commit="false"):
        served.shrink(topic, 1)
        assert served.record(topic).required_groups == ()
        wait_finished(served, topic)


def test_a_stock_latest_group_that_never_committed_a_partition(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    """librdkafka commits nothing where nothing was delivered: the owner says that nobody waits for that."""
    topic, name = make_topic(3), make_group()
    produce(served, topic, 30)
    with RunningGroup(served.servers, topic, name, auto_offset_reset="latest"):
        served.shrink(topic, 1)
        served.wait_for(topic, lambda record: served.reasons(topic) == {f"group-never-committed:{name}"})
        now_ms = time.time_ns() // 1_000_000
        waiver = GroupRule("waive", name[:4] + "*", topic, "OPS-1", now_ms, uncommitted_only=True, glob=True)
        result = served.ask(AlterGroupRulesCommand(add=(waiver,)))
        assert result.code is ErrorCode.NONE, result.message
        wait_finished(served, topic)
    assert served.record(topic).waived == {name: "OPS-1"}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_aware_latest_group(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], protocol: str
) -> None:
    """A mode-aware consumer commits where it starts: nobody has to say anything."""
    topic, name = make_topic(3), make_group()
    produce(served, topic, 30)
    consumer = modeaware.Consumer(
        {
            **served.conf,
            "group.id": name,
            "group.protocol": protocol,
            "auto.offset.reset": "latest",
            "modeaware.mode.log.topic": served.log,
        }
    )
    consumer.subscribe([topic])

    def works() -> int:
        assert consumer.poll(0.05) is None, "everything there is older than the group"
        return len(consumer.assignment())

    try:
        eventually(lambda: works() == 3, 30)
        served.shrink(topic, 1)
        served.wait_for(topic, lambda record: works() and not any(left(served, topic)[p] for p in (1, 2)))
    finally:
        consumer.close()
    wait_finished(served, topic)
    assert served.record(topic).waived == {}
