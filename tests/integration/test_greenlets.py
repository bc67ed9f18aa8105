"""Our clients in processes of gevent and eventlet, on a real Kafka, and plain ones beside them.

The longest time for which no greenlet could run is written to standard output (``pytest -s``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from modeaware.local import Kafka
from tests.conftest import MakeTopic
from tests.support.greenlets import FRAMEWORKS, PATCHED
from tests.support.modelog import RealLog, topic_record
from tests.support.program import run_program

PROGRAM = (
    PATCHED
    + """
import json
_, _, whose, servers, topic, group, log, count = sys.argv
if whose == "ours":
    from modeaware import Consumer, Producer
    ours = {"modeaware.mode.log.topic": log}
else:
    from confluent_kafka import Consumer, Producer
    ours = {}
ticker = Ticker()
conf = {"bootstrap.servers": servers, **ours}
producer, partitions, values, ticks = Producer(conf), set(), set(), 0
for number in range(int(count)):
    key = str(number)
    before = ticker.ticks
    producer.produce(topic, key, key, on_delivery=lambda error, message: partitions.add(error or message.partition()))
    ticks = ticks or ticker.ticks - before  # of the first send alone
    producer.poll(0)
    time.sleep(0.005)
while len(producer):
    producer.poll(0)
    time.sleep(0.005)
consumer = Consumer({**conf, "group.id": group, "auto.offset.reset": "earliest"})
consumer.subscribe([topic])
while len(values) < int(count):
    message = consumer.poll(0)
    if message is None:
        time.sleep(0.005)
    else:
        values.add(message.value())
ticker.stop()
found = {"silence_s": ticker.silence_s, "ticks": ticks, "partitions": sorted(partitions)}
if whose == "ours":
    stats = producer.modeaware_stats()
    found |= {"state": stats["state"], "unverified": stats["views"]["unverified_topics"]}
consumer.close()
print(json.dumps(found))
"""
)


@pytest.fixture
def log(kafka: Kafka) -> Iterator[RealLog]:
    with closing(RealLog(kafka.bootstrap_servers)) as made:
        yield made


Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(kafka: Kafka, make_topic: MakeTopic, make_group: Callable[[], str], log: RealLog) -> Run:
    def run(framework: str, whose: str, topic: str | None = None) -> dict[str, Any]:
        topic = topic or make_topic(4)
        done = run_program(PROGRAM, framework, whose, kafka.bootstrap_servers, topic, make_group(), log.topic, "40")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        sys.stdout.write(f"{framework} {whose}: longest silence {found['silence_s'] * 1000:.1f} ms\n")
        return found

    return run


@pytest.mark.parametrize("framework", FRAMEWORKS)
class TestGreenlets:
    def test_other_greenlets_run_while_the_first_send_waits(self, run: Run, framework: str) -> None:
        plain, ours = run(framework, "plain"), run(framework, "ours")
        assert ours["partitions"] == plain["partitions"]
        assert ours["state"] == "direct"
        assert ours["ticks"] > 0

    def test_shrunk_topic_is_written_where_it_may_be(
        self, run: Run, log: RealLog, make_topic: MakeTopic, framework: str
    ) -> None:
        topic = make_topic(4)
        log.create()
        log.append(topic_record(topic, writable=2, count=4))
        found = run(framework, "ours", topic)
        assert found["partitions"] == [0, 1]
        assert (found["state"], found["unverified"]) == ("routed", [])
