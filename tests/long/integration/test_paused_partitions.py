"""Members that hand records to a worker and pause their partitions meanwhile follow a topic that is replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import murmur2

from modeaware.errors import ErrorCode
from modeaware.kafka_python import KafkaConsumer, KafkaProducer
from modeaware.lifecycle.commands import ReplaceTopicCommand
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.kafka_python_group import FAST
from tests.support.succession import Following
from tests.support.waiting import eventually
from tests.workload.applications import Handover, KafkaPythonHandover
from tests.workload.kafka_python import KafkaPythonReader, KafkaPythonWriter
from tests.workload.load import Load

WORK_S = 5.0
"""Longer than it takes to seal a topic: what was written before the switch is then still at the worker."""


@pytest.mark.parametrize("strategy", [None, "cooperative-sticky", "consumer"])
def test_partition_that_is_paused_for_a_worker_is_not_read(following: Following, strategy: str | None) -> None:
    load = Load()
    conf = following.conf(strategy, auto_commit_interval_ms=200)
    following.writer(load)
    (slow,) = following.readers(load, conf, 0, kind=Handover)
    following.readers(load, conf, 0)
    following.replace_at_work(load, slow, WORK_S)


def test_partition_that_is_paused_for_a_worker_is_not_read_by_kafka_python(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    topic, group, load = make_topic(12), make_group(), Load()
    new_topic = f"{topic}-v2"
    conf: dict[str, Any] = {"bootstrap_servers": served.servers, "modeaware_mode_log_topic": served.log}

    def consumer() -> KafkaConsumer:
        return KafkaConsumer(**conf, **FAST, group_id=group)

    load.writer(lambda: KafkaProducer(**conf, linger_ms=1), topic, KafkaPythonWriter, per_s=300)
    slow = load.reader(consumer, [topic], kind=KafkaPythonHandover)
    load.reader(consumer, [topic], kind=KafkaPythonReader)
    with load.running():
        load.await_held(topic, 12)
        load.await_given(topic, 300)
        command = ReplaceTopicCommand(topic, new_topic, 4, pause_before_switch=True)
        assert served.ask(command).code is ErrorCode.NONE
        eventually(lambda: load.fine() and sum(each["hidden"] for each in load.stats) == 4, 90)
        slow.work_s = WORK_S
        assert served.ask(replace(command, pause_before_switch=False)).code is ErrorCode.NONE
        load.await_given(new_topic, 1_000)
        slow.work_s = 0.0
        served.wait_done(topic, 90)
    load.check(place=murmur2)
