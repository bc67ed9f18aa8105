"""A topic of 12 partitions gets 4, then 2, and keeps its name, under all kinds of clients that honour modes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

import modeaware
from modeaware.interim import kept_name
from modeaware.kafka_python import KafkaConsumer, KafkaProducer
from tests.conftest import MakeTopic
from tests.support.command_line import WAIT, Site
from tests.support.plain import watermarks
from tests.workload.kafka_python import KafkaPythonReader, KafkaPythonWriter
from tests.workload.load import Load
from tests.workload.writer import TransactionalWriter

GROUPS: dict[str, dict[str, Any]] = {
    "range": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
    "latest": {"partition.assignment.strategy": "range", "auto.offset.reset": "latest"},
}
KAFKA_PYTHON = "kafka-python"


@pytest.mark.timeout(400)
def test_every_kind_of_client_follows_twice(site: Site, make_topic: MakeTopic, make_group: Callable[[], str]) -> None:
    topic, groups = make_topic(12), {name: make_group() for name in (*GROUPS, KAFKA_PYTHON)}
    for name in groups:
        site.commit(topic, groups[name], dict.fromkeys(range(12), 0))  # so `latest` misses nothing by its first start
    aware = {"bootstrap.servers": site.servers, "modeaware.mode.log.topic": site.mode_log}
    java = {"bootstrap_servers": site.servers, "modeaware_mode_log_topic": site.mode_log}
    load = Load(*groups)

    def member(name: str) -> Any:
        return modeaware.Consumer({**aware, "auto.offset.reset": "earliest", **GROUPS[name], "group.id": groups[name]})

    def python() -> Any:
        own = {"group_id": groups[KAFKA_PYTHON], "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        return KafkaConsumer(**java, **own)

    writing = {**aware, "linger.ms": 5, "partitioner": "murmur2_random"}
    load.writer(lambda: modeaware.Producer({**writing, "enable.idempotence": True}), topic)
    load.writer(lambda: modeaware.Producer({**writing, "transactional.id": topic}), topic, TransactionalWriter)
    load.writer(lambda: KafkaProducer(**java, linger_ms=5), topic, KafkaPythonWriter)
    for _ in range(2):
        for name in GROUPS:
            load.reader(partial(member, name), [topic], name, batch=0)
        load.reader(python, [topic], KAFKA_PYTHON, KafkaPythonReader)
    with load.running():
        for count in (4, 2):  # a higher one waits ten minutes for the caches of clients
            load.more()
            told = site.run("replace", topic, "--partitions", str(count), "--keep-name", *WAIT)
            assert told.status == 0, told.err
            assert len(watermarks(site.servers, topic)) == count
        load.more()
    names = AdminClient({"bootstrap.servers": site.servers}).list_topics(timeout=20).topics
    assert [name for name in names if kept_name(name) == topic] == [], "the interim topics are deleted"
    load.check(reused=[topic])
