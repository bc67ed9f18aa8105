"""The controller as a process: run once, restarted, stopped; topics that go away, brokers that do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from modeaware.cluster import observer
from modeaware.lifecycle.phases import topic_phase
from modeaware.modelog.reader import read_mode_log
from modeaware.modes import PartitionMode
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled, left, produce
from tests.support.groups import RunningGroup
from tests.support.plain import create_topic
from tests.support.waiting import eventually

RW, RO = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY


def test_run_once_finishes_a_drained_shrink(
    setting: Controlled, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    """The quiet time before the seal is part of what it waits for."""
    topic = make_topic(4)
    first = produce(setting, topic, 40)
    with RunningGroup(setting.servers, topic, make_group()) as group:
        group.wait_for(first)
    serving = setting.start(seal_quiet_ms=3_600_000)
    setting.shrink(topic, 1)
    serving.stop()
    assert topic_phase(setting.record(topic)) == "seal"

    def finished() -> bool:
        """Of other tests' groups in a rebalance there is a doubt, and that is not waited for either."""
        setting.make(seal_quiet_ms=1_000).run_once()
        return topic_phase(setting.record(topic)) == "done"

    eventually(finished, 60)
    assert sum(left(setting, topic)[p] for p in (1, 2, 3)) == 0
    setting.make().run_once()
    assert topic_phase(setting.record(topic)) == "done"


@pytest.mark.parametrize("recreated", [False, True])
def test_a_deleted_topic_s_record_goes_after_a_while(
    setting: Controlled, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch, recreated: bool
) -> None:
    monkeypatch.setattr(observer, "GONE_AFTER_MS", 1_000)
    topic = make_topic(2)
    setting.start()
    setting.shrink(topic, 1, delay_ms=3_600_000)
    old = setting.record(topic)
    setting.admin.delete_topics([topic])[topic].result(20)
    if recreated:
        eventually(lambda: topic not in setting.admin.list_topics(timeout=10).topics)
        create_topic(setting.servers, topic, 3, configs={})
        setting.shrink(topic, 1, delay_ms=3_600_000)
        assert setting.record(topic).topic_id != old.topic_id
        assert setting.modes(topic) == (RW, RO, RO)
    eventually(lambda: old.topic_id not in read_mode_log(setting.conf, setting.log, 20).records)
    if recreated:
        assert setting.modes(topic) == (RW, RO, RO)
