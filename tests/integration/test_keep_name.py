"""``replace --keep-name`` on a real Kafka, under load: one change of two halves, after which the name has its topic."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

import modeaware
from modeaware.interim import kept_name
from tests.conftest import MakeTopic
from tests.support.command_line import WAIT, Site
from tests.support.plain import watermarks
from tests.workload.load import Load

READER = {"auto.offset.reset": "earliest", "partition.assignment.strategy": "range"}


@pytest.mark.timeout(300)
def test_topic_has_its_name_and_another_count_in_the_end_and_clients_notice_nothing(
    site: Site, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    topic, group, load = make_topic(12), make_group(), Load()
    aware = {"bootstrap.servers": site.servers, "modeaware.mode.log.topic": site.mode_log}
    writing = {**aware, "enable.idempotence": True, "linger.ms": 5}
    load.writer(lambda: modeaware.Producer(writing), topic)
    for _ in range(2):
        load.reader(lambda: modeaware.Consumer({**aware, **READER, "group.id": group}), [topic], batch=0)
    with load.running():
        load.more()
        told = site.run("replace", topic, "--partitions", "4", "--keep-name", *WAIT)
        assert told.status == 0, told.err
        load.more()
    assert f"Keeps its name: {topic} (12)" in told.err
    assert f"{topic}: keeps its name, with 4 partitions; 8 fewer partitions." in told.out
    assert len(watermarks(site.servers, topic)) == 4
    names = AdminClient({"bootstrap.servers": site.servers}).list_topics(timeout=20).topics
    assert [name for name in names if kept_name(name) == topic] == [], "the interim topic is deleted"
    load.check(reused=[topic])
    kept = site.describe(topic)["kept_name"]
    assert (kept["half"], kept["phase"], kept["second_switched_ms"] > 0) == (2, "done", True)
    certificate = site.run("certificate", topic)
    assert certificate.status == 0, certificate.err
    document = json.loads(certificate.out)
    assert {each["verdict"] for each in document["partitions"]} == {"deleted"}
    assert document["kept_name"] == kept
    again = site.run("replace", topic, "--partitions", "4", "--keep-name", *WAIT)
    assert (again.status, again.out) == (0, f"{topic}: already has 4 partitions and keeps its name, nothing to do.\n")
    other = site.run("replace", topic, "--partitions", "4", "--keep-name", "--config", "retention.ms=5000", *WAIT)
    assert (other.status, "it has 4 partitions already" in other.err) == (1, True), other.err
