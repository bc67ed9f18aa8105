"""Brokers that die, freeze and come back, on three nodes: drains go on, views stay, and one controller is active."""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller

import pytest

from modeaware.cluster import cluster
from modeaware.controller.daemon import Controller
from modeaware.errors import ClusterError, ControllerFenced, ControllerUnavailable, ErrorCode, ModeSourceError
from modeaware.lifecycle.commands import DeletePartitionsCommand
from modeaware.local import LocalBroker, LocalKafka
from modeaware.modes import PartitionMode
from modeaware.views import registry
from tests.conftest import topic_maker
from tests.support.controlled import Controlled, left
from tests.support.groups import RunningGroup
from tests.support.kafka_fixtures import Lagging
from tests.support.modelog import RealLog, topic_record
from tests.support.takeover import assert_one_at_a_time, history
from tests.support.waiting import eventually

NONE, RW = PartitionMode.NONE, PartitionMode.READ_WRITE
PATIENCE_S = 120
"""By chance the broker coordinates the election or the group, or leads the mode log: clients give it up one by one."""


def restart(kafka: LocalKafka) -> None:
    """Start all brokers, which have been killed."""
    for broker in kafka.brokers:
        broker.start(wait=False)
    for broker in kafka.brokers:
        broker.wait_until_serving([each.node_id for each in kafka.brokers])


@pytest.mark.parametrize("harm", [methodcaller("kill"), methodcaller("pause")], ids=["kill", "pause"])
def test_a_drain_goes_on_without_one_of_three_brokers(
    kafka3: LocalKafka, setting: Controlled, lagging: Lagging, harm: Callable[[LocalBroker], None]
) -> None:
    topic = topic_maker(kafka3)(7)  # each broker leads retired partitions, and some of the groups
    name, unread = lagging(topic)
    controller = setting.start()
    setting.shrink(topic, 1)
    setting.wait_for(topic, lambda _: setting.reasons(topic) == {f"group-lag:{name}"})
    harm(kafka3.brokers[-1])
    with RunningGroup(setting.servers, topic, name) as group:
        group.wait_for(unread, PATIENCE_S)
        record = setting.wait_done(topic, PATIENCE_S)
    assert record.modes == (RW, *[NONE] * 6)
    assert {p: count for p, count in left(setting, topic).items() if p} == dict.fromkeys(range(1, 7), 0)
    assert controller.failure is None


def test_views_outlive_the_brokers_and_follow_again(kafka3: LocalKafka) -> None:
    log = RealLog(kafka3.bootstrap_servers)
    log.create()
    log.append(topic_record(epoch=1))
    log.close()
    early = registry.acquire(log.conf, log.config)
    assert early.wait_ready(30)
    for broker in kafka3.brokers:
        broker.kill()
    eventually(lambda: early.stats()["stale"], 60)
    assert early.view("orders").epoch == 1
    assert early.error() is not None
    with pytest.raises(ModeSourceError):
        early.refresh(0.2)
    late = registry.acquire({**log.conf, "bootstrap.servers": kafka3.brokers[0].address}, log.config)
    eventually(lambda: "refused" in str(late.error()))
    assert not late.ready
    restart(kafka3)
    assert late.wait_ready(60)
    eventually(lambda: not early.stats()["stale"], 60)
    log.append(topic_record(epoch=2))
    for views in (early, late):
        eventually(lambda each=views: each.view("orders").epoch == 2 and each.error() is None, 60)
        views.close()
    log.close()


def test_controllers_go_on_when_all_brokers_were_killed(kafka3: LocalKafka, setting: Controlled) -> None:
    topic, other = topic_maker(kafka3)(4), topic_maker(kafka3)(4)
    both = [setting.start(session_timeout_ms=3_000) for _ in range(2)]
    setting.started.reverse()  # the active one is asked
    setting.shrink(topic, 1)
    for broker in kafka3.brokers:
        broker.kill()
    restart(kafka3)

    def shrunk_by(controller: Controller) -> bool:
        try:
            (result,) = controller.submit([DeletePartitionsCommand(other, 1)]).result(40)
        except (ControllerUnavailable, ControllerFenced, ClusterError):
            return False
        return result.code is ErrorCode.NONE

    eventually(lambda: any(shrunk_by(each) for each in both), 90)
    setting.wait_done(other, 60)
    setting.wait_done(topic, 60)
    assert_one_at_a_time(history(setting.conf, setting.log))


def test_nothing_is_concluded_from_the_silence_of_frozen_brokers(
    kafka3: LocalKafka, setting: Controlled, lagging: Lagging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "REQUEST_TIMEOUT_S", 2.0)
    topic, other = topic_maker(kafka3)(4), topic_maker(kafka3)(4)
    name, unread = lagging(topic)
    setting.start()
    setting.shrink(topic, 1)
    setting.wait_for(topic, lambda _: setting.reasons(topic) == {f"group-lag:{name}"})

    def answer() -> ErrorCode | None:
        try:
            return setting.ask(DeletePartitionsCommand(other, 1, 0)).code
        except ControllerUnavailable:  # the brokers were silent for longer than a session: it is elected again
            return None

    for broker in kafka3.brokers:
        broker.pause()
    assert answer() in (ErrorCode.THROTTLING_QUOTA_EXCEEDED, None)
    for broker in kafka3.brokers:
        broker.resume()
    eventually(lambda: answer() is ErrorCode.NONE, 60)
    with RunningGroup(setting.servers, topic, name) as group:
        group.wait_for(unread)
        setting.wait_done(topic)
    setting.wait_done(other)
