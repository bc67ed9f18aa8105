"""A drain goes on within seconds when one broker of three dies or hangs under it: the others are asked."""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller

import pytest

from modeaware.local import Broker, LocalKafka
from modeaware.modes import PartitionMode
from tests.conftest import topic_maker
from tests.support.controlled import Controlled, left, produce
from tests.support.groups import RunningGroup

NONE, RW = PartitionMode.NONE, PartitionMode.READ_WRITE
PATIENCE_S = 120
"""By chance the broker coordinates the election or the group, or leads the mode log: clients give it up one by one."""


@pytest.mark.parametrize(
    ("harm", "mend"),
    [(methodcaller("kill"), methodcaller("start")), (methodcaller("pause"), methodcaller("resume"))],
    ids=["kill", "pause"],
)
def test_a_drain_goes_on(
    kafka3: LocalKafka,
    make_group: Callable[[], str],
    harm: Callable[[Broker], None],
    mend: Callable[[Broker], None],
) -> None:
    setting, topic, name = Controlled(kafka3), topic_maker(kafka3)(7), make_group()
    with RunningGroup(setting.servers, topic, name) as group:
        group.wait_for(produce(setting, topic, 70))
    unread = produce(setting, topic, 70, "unread")  # each broker leads retired partitions, and some of the groups
    controller = setting.start()
    broker = kafka3.brokers[-1]
    try:
        setting.shrink(topic, 1)
        setting.wait_for(topic, lambda _: setting.reasons(topic) == {f"group-lag:{name}"})
        harm(broker)
        try:
            with RunningGroup(setting.servers, topic, name) as group:
                group.wait_for(unread, PATIENCE_S)
                record = setting.wait_done(topic, PATIENCE_S)
            assert record.modes == (RW, *[NONE] * 6)
            assert {p: count for p, count in left(setting, topic).items() if p} == dict.fromkeys(range(1, 7), 0)
            assert controller.failure is None
        finally:
            mend(broker)
            kafka3.brokers[0].wait_until_serving([each.node_id for each in kafka3.brokers])  # the next test needs all
    finally:
        controller.stop()
