"""``modeaware plan`` on topics that real clients wrote."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer

from modeaware.local.jars import find_java, kafka_tools_jars
from tests.conftest import MakeTopic
from tests.support.command_line import Site
from tests.support.plain import ends, produce_keyed
from tests.support.plan_samples import some_keys

PARTITIONS = 12
TIMEOUT_S = 30.0
_CLASS = "org.apache.kafka.tools.ConsoleProducer"
KEYS = [key.decode() for key in some_keys(400, 3000)]
Write = Callable[[str, str, Iterable[str]], None]


def produce_by_java(bootstrap_servers: str, topic: str, keys: Iterable[str]) -> None:
    """A record for each key, by the Java producer's own partitioner.

    Raises:
        AssertionError: the tool failed.
    """
    java = [find_java(), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_tools_jars()}/*", _CLASS]
    options = ["--bootstrap-server", bootstrap_servers, "--topic", topic]
    reader = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=|"]
    done = subprocess.run(
        [*java, *options, *reader],
        input="".join(f"{key}|value\n" for key in keys),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ERROR" not in done.stderr, done.stderr


def by_librdkafka(servers: str, topic: str, keys: Iterable[str], **conf: object) -> None:
    produce_keyed(servers, topic, ((key.encode(), b"value") for key in keys), **conf)


def by_librdkafkas_murmur2(servers: str, topic: str, keys: Iterable[str]) -> None:
    by_librdkafka(servers, topic, keys, partitioner="murmur2")


def by_kafka_python(servers: str, topic: str, keys: Iterable[str]) -> None:
    producer = KafkaProducer(bootstrap_servers=servers)
    try:
        sent = [producer.send(topic, b"value", key=key.encode()) for key in keys]
        producer.flush(TIMEOUT_S)
        assert all(future.succeeded() for future in sent)
    finally:
        producer.close()


def planned(site: Site, topic: str, *options: str, partitions: int = 4) -> dict[str, Any]:
    told = site.run("plan", topic, "--partitions", str(partitions), "--json", *options)
    assert told.status == 0, told.err
    plan: dict[str, Any] = json.loads(told.out)
    return plan


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (by_librdkafka, "crc32"),
        (by_librdkafkas_murmur2, "murmur2"),
        (produce_by_java, "murmur2"),
        (by_kafka_python, "murmur2"),
    ],
)
def test_the_hash_that_placed_the_keys_is_named(site: Site, make_topic: MakeTopic, write: Write, name: str) -> None:
    topic = make_topic(PARTITIONS)
    write(site.servers, topic, KEYS)
    plan = planned(site, topic)
    found = plan["hash"]
    assert (found["verdict"], found["name"], plan["partitions"]) == ("recognised", name, PARTITIONS)
    assert (found["keyed"], found["null_keys"], found["keys"]) == (len(KEYS), 0, len(set(KEYS)))
    assert plan["sample"]["unread"] == []
    (four,) = [target for target in plan["targets"] if target["target"] == 4]
    (placement,) = found["placements"]
    assert (placement["share"], placement["partitions"]) == (1.0, PARTITIONS)
    assert four["survivors_keys_moved"] == 0.0
    assert abs(four["keys_moved"]["share"] - 2 / 3) < 2 * four["keys_moved"]["margin"]


def test_what_stands_in_the_way(site: Site, make_topic: MakeTopic, make_group: Callable[[], str]) -> None:
    topic, group = make_topic(6, cleanup_policy="compact"), make_group()
    produce_keyed(site.servers, topic, ((b"k%d" % i, b"v") for i in range(600)), **{"enable.idempotence": True})
    read = ends(site.servers, topic)
    site.commit(topic, group, {**read, 5: read[5] - 7})
    producer = Producer({"bootstrap.servers": site.servers, "transactional.id": make_group()})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"v", key=b"k", partition=4)
    producer.flush(TIMEOUT_S)
    try:
        plan = planned(site, topic, partitions=3)
    finally:
        producer.abort_transaction(TIMEOUT_S)
    severities = {blocker["code"]: blocker["severity"] for blocker in plan["blockers"]}
    severities.pop("groups-doubt", None)  # while a group of another test is in a rebalance
    assert severities == {"compacted": "refused", "open-transactions": "waits", "lag": "waits", "producers": "check"}
    told = {blocker["code"]: blocker["text"] for blocker in plan["blockers"]}
    assert "2 idempotent or transactional producers" in told["producers"]
    assert "in partitions 4," in told["open-transactions"]
    (listed,) = plan["groups"]
    assert (listed["group"], listed["lag"], listed["lag_retiring"]) == (group, 8, 8), "the open record, too"
    growth = {blocker["code"]: blocker["severity"] for blocker in planned(site, topic, partitions=12)["blockers"]}
    assert growth == {"compacted": "check", "producers": "check"}, "a growth asks for less"
