"""The count of partitions, as the broker and Kafka's own tool have it, after a replacement whose topic was deleted."""

from __future__ import annotations

import re

import pytest
from confluent_kafka import Consumer, TopicPartition

from modeaware import cli
from modeaware.local import LocalKafka
from modeaware.local.settings import free_ports
from tests.support.controlled import Controlled
from tests.support.kafka_tools import run_tool
from tests.support.plain import create_topic, produce_keyed
from tests.support.waiting import eventually

GAUGE = "kafka.server:type=ReplicaManager,name=PartitionCount"


def gauge(port: int) -> int:
    """What the broker says of itself over JMX."""
    url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{port}/jmxrmi"
    shown = run_tool(f"kafka-jmx.sh --jmx-url {url} --object-name {GAUGE} --one-time true --report-format properties")
    found = re.search(rf"^{re.escape(GAUGE)}:Value=(\d+)$", shown, re.MULTILINE)
    assert found is not None, shown
    return int(found[1])


def described(servers: str) -> int:
    """How many partitions ``kafka-topics --describe`` shows."""
    shown = run_tool(f"kafka-topics.sh --bootstrap-server {servers} --describe")
    return len(re.findall(r"^\tTopic: .*\tPartition: ", shown, re.MULTILINE))


def test_the_broker_has_eight_partitions_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    with monkeypatch.context() as jmx:
        options = {"port": port, "rmi.port": port, "authenticate": "false", "ssl": "false", "host": "127.0.0.1"}
        flags = " ".join(f"-Dcom.sun.management.jmxremote.{name}={value}" for name, value in options.items())
        jmx.setenv("JAVA_TOOL_OPTIONS", f"{flags} -Djava.rmi.server.hostname=127.0.0.1")
        kafka = LocalKafka(1).start()
    with kafka, Controlled(kafka) as served:
        served.start()
        servers = kafka.bootstrap_servers
        create_topic(servers, "orders", 12, configs={})
        produce_keyed(servers, "orders", [(b"key-%d" % n, b"value") for n in range(300)])
        owner = Consumer({"bootstrap.servers": servers, "group.id": "readers"})
        ends = [
            TopicPartition("orders", p, owner.get_watermark_offsets(TopicPartition("orders", p))[1]) for p in range(12)
        ]
        owner.commit(offsets=ends, asynchronous=False)
        before = gauge(port), described(servers)
        log = ("--controller-config", f"modeaware.mode.log.topic={served.log}")
        replaced = ("replace", "orders", "--with", "orders-v2", "--partitions", "4", "--delay", "0s")
        assert cli.main([*replaced, "--bootstrap-server", servers, "--yes", *log]) == 0
        eventually(lambda: owner.list_topics("orders-v2", timeout=5).topics["orders-v2"].error is None, 30)
        owner.commit(offsets=[TopicPartition("orders-v2", p, 0) for p in range(4)], asynchronous=False)
        owner.close()
        served.wait_done("orders")
        assert described(servers) == before[1] - 8
        eventually(lambda: gauge(port) == before[0] - 8, 30)
