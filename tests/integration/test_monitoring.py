"""Health, metrics and status of controllers on a real Kafka: active, standing by, and without a broker."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from prometheus_client.parser import text_string_to_metric_families

from modeaware.controller.daemon import Controller
from modeaware.controller.status import Role
from modeaware.lifecycle import reasons
from modeaware.monitoring.pages import ControllerPages
from modeaware.monitoring.server import MonitoringServer
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled, produce
from tests.support.groups import RunningGroup
from tests.support.waiting import eventually

Ask = Callable[[str], tuple[int, str]]


@pytest.fixture
def watch() -> Iterator[Callable[[Controller], Ask]]:
    """Serves a controller's pages, and makes a function that asks for one of them."""
    servers: list[MonitoringServer] = []

    def serve(controller: Controller) -> Ask:
        servers.append(MonitoringServer("127.0.0.1:0", ControllerPages(controller.snapshot)))
        servers[-1].start()
        address = servers[-1].address

        def ask(path: str) -> tuple[int, str]:
            with closing(http.client.HTTPConnection(address, timeout=60)) as connection:
                connection.request("GET", path)
                answer = connection.getresponse()
                return answer.status, answer.read().decode()

        return ask

    yield serve
    for server in servers:
        server.stop()


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Name and the values of the labels, in the order of the labels' names -> value."""
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_active_and_standby(
    setting: Controlled, watch: Callable[[Controller], Ask], make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    topic, name = make_topic(4), make_group()
    read = produce(setting, topic, 40)
    with RunningGroup(setting.servers, topic, name) as group:
        group.wait_for(read)
    unread = produce(setting, topic, 7, "unread", partition=2)
    first = setting.start()
    active = watch(first)
    assert active("/health") == active("/ready") == (200, "ok\n")
    second = setting.start()
    standby = watch(second)
    eventually(lambda: standby("/ready") == (200, "ok\n"), 60)
    told = json.loads(standby("/status.json")[1])
    assert (told["controller"]["role"], told["claim"]["id"], told["topics"]) == ("standby", first.controller_id, [])

    setting.started.reverse()  # the active one is asked
    setting.shrink(topic, 1)
    setting.wait_for(topic, lambda record: setting.reasons(topic) == {None, reasons.of_group("group-lag", name)}, 60)
    found = samples(active("/metrics")[1])
    assert found["modeaware_controller_active",] == found["modeaware_controller_ready",] == 1
    assert found["modeaware_topic_unread_offsets", topic] == 7
    assert found["modeaware_topic_blocked_seconds", "group-lag", topic] >= 0
    assert found["modeaware_topic_phase", "drain", topic] == 1
    assert samples(standby("/metrics")[1])["modeaware_controller_active",] == 0

    first.stop()
    assert active("/health") == active("/ready") == (503, "stopped\n")
    eventually(lambda: second.role is Role.ACTIVE, 60)
    eventually(lambda: samples(standby("/metrics")[1]).get(("modeaware_topic_unread_offsets", topic)) == 7, 60)
    assert samples(standby("/metrics")[1])["modeaware_controller_takeovers_total",] == 1
    with RunningGroup(setting.servers, topic, name) as group:
        group.wait_for(unread)
        setting.started.reverse()
        setting.wait_done(topic, 60)
    settled = "modeaware_topic_partitions", "None", "ReplicaDeletionSuccessful", topic
    eventually(lambda: samples(standby("/metrics")[1]).get(settled) == 3, 60)
