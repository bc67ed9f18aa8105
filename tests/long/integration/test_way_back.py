"""orders -> orders-v2 -> orders on a real Kafka, under clients that live through all of it and name ``orders``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka import KafkaConsumer

import modeaware
from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import TopicRecord
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.plain import watermarks
from tests.support.waiting import eventually
from tests.workload.load import Load
from tests.workload.writer import TransactionalWriter

COUNT, BACK = 4, 2


def is_gone(record: TopicRecord) -> bool:
    return record.replacement is not None and record.replacement.gone_ms is not None


@pytest.mark.timeout(240)
def test_topic_goes_back_to_its_name_under_living_clients(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    topic, group, load = make_topic(COUNT), make_group(), Load()
    name = f"{topic}-v2"
    aware = {**served.conf, "modeaware.mode.log.topic": served.log}
    reader = {**aware, "group.id": group, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    idempotent = {"enable.idempotence": True, "linger.ms": 5}
    load.writer(lambda: modeaware.Producer({**aware, **idempotent}), topic, per_s=50)
    transactional = {**aware, "transactional.id": f"{topic}-tx"}
    options: dict[str, Any] = {"keys": 3, "length_s": (0.0, 0.05)}
    load.writer(lambda: modeaware.Producer(transactional), topic, TransactionalWriter, **options)
    for _ in range(2):
        load.reader(lambda: modeaware.Consumer(reader), [topic], batch=0)

    with load.running():
        load.more()
        assert served.ask(ReplaceTopicCommand(topic, name, BACK, delay_ms=0)).code is ErrorCode.NONE
        served.wait_for(topic, is_gone, 90)
        load.more()
        # librdkafka's consumers join no group for a topic that is absent; others do.
        stock = KafkaConsumer(bootstrap_servers=served.servers, group_id=make_group(), allow_auto_create_topics=False)
        stock.subscribe([topic])
        asked = ReplaceTopicCommand(name, topic, BACK, validate_only=True)
        eventually(lambda: (stock.poll(100), served.ask(asked).code)[1] is ErrorCode.POLICY_VIOLATION)
        stock.close()
        load.more()
        more_partitions = ReplaceTopicCommand(name, topic, COUNT + 1)
        assert served.ask(more_partitions).code is ErrorCode.REASSIGNMENT_IN_PROGRESS
        served.rename_back(ReplaceTopicCommand(name, topic, BACK, delay_ms=0))
        served.wait_for(name, is_gone, 90)
        load.more()
    assert len(watermarks(served.servers, topic)) == BACK
    assert load.given_of(topic, name)
    assert not load.writers[0].failures
    load.check(reused=[topic], refused=["MSG_SIZE_TOO_LARGE"])  # a transaction that the fence refuses
    records = read_mode_log(served.conf, served.log, 20).records.values()
    assert [record.topic for record in records if record.topic in (topic, name)] == [name], "one alias is left"
