"""Our clients in processes of gevent and eventlet, on a real Kafka, and plain ones beside them.

The longest time for which no greenlet could run is written to standard output (``pytest -s``).
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from modeaware.local import Kafka
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
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


ADMIN = (
    PATCHED
    + """
import json
from confluent_kafka.admin import NewPartitions, NewTopic
_, _, whose, servers, topic, log = sys.argv
conf = {"bootstrap.servers": servers}
if whose == "ours":
    import modeaware.wire.client  # else the first command would: an import stops all greenlets
    from modeaware import AdminClient, DeletePartitions
    conf["modeaware.mode.log.topic"] = log
else:
    from confluent_kafka.admin import AdminClient

def result(futures):
    (future,) = futures.values()
    while whose == "plain" and not future.done():  # in eventlet, its result() waits for ever
        time.sleep(0.005)
    return future.result(20)

ticker = Ticker()
admin = AdminClient(conf)
result(admin.create_topics([NewTopic(topic, 2, 1)]))
result(admin.create_partitions([NewPartitions(topic, 4)]))
try:
    result(admin.create_partitions([NewPartitions(topic, 4)]))
except Exception as error:
    found = {"refused": error.args[0].name()}
if whose == "ours":
    found["retired"] = sorted(result(admin.delete_partitions({topic: DeletePartitions(1)})).retired)
ticker.stop()
print(json.dumps({**found, "silence_s": ticker.silence_s}))
"""
)

LIMIT_S = 0.05
"""A silence of this length is no fault of a client: the machine alone may cause it."""
PAIRS = 3


@pytest.fixture
def log(kafka: Kafka) -> Iterator[RealLog]:
    with closing(RealLog(kafka.bootstrap_servers)) as made:
        yield made


Run = Callable[..., dict[str, Any]]


def found_by(program: str, framework: str, whose: str, *arguments: str) -> dict[str, Any]:
    done = run_program(program, framework, whose, *arguments)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    sys.stdout.write(f"{framework} {whose}: longest silence {found['silence_s'] * 1000:.1f} ms\n")
    return found


@pytest.fixture
def run(kafka: Kafka, make_topic: MakeTopic, make_group: Callable[[], str], log: RealLog) -> Run:
    def run(framework: str, whose: str, topic: str | None = None) -> dict[str, Any]:
        topic = topic or make_topic(4)
        return found_by(PROGRAM, framework, whose, kafka.bootstrap_servers, topic, make_group(), log.topic, "40")

    return run


def pair(run: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a run with plain clients and one with ours have found, after a check of their longest silences.

    Ours may be twice as long as the plain one, or :data:`LIMIT_S`. A busy machine makes silences longer, and never
    shorter. So a pair beside which the machine was busy, as the plain silence shows, does not suffice. If there is no
    other, or ours is too long, the best of ours in :data:`PAIRS` pairs is compared with the worst plain one.
    """
    silences: dict[str, list[float]] = {"plain": [], "ours": []}
    for _ in range(PAIRS):
        plain, ours = found = run("plain"), run("ours")
        for whose, each in zip(silences, found, strict=True):
            silences[whose].append(each["silence_s"])
        if plain["silence_s"] <= LIMIT_S and ours["silence_s"] <= max(2 * plain["silence_s"], LIMIT_S):
            break
    assert min(silences["ours"]) <= max(2 * max(silences["plain"]), LIMIT_S), silences
    return plain, ours


@pytest.mark.parametrize("framework", FRAMEWORKS)
class TestGreenlets:
    def test_other_greenlets_run_while_the_first_send_waits(self, run: Run, framework: str) -> None:
        plain, ours = pair(partial(run, framework))
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

    def test_admin_calls_end_and_other_greenlets_run_meanwhile(self, kafka: Kafka, framework: str) -> None:
        with Controlled(kafka) as controlled:
            controlled.start()

            def run(whose: str) -> dict[str, Any]:
                topic = f"t-{uuid.uuid4().hex[:12]}"
                return found_by(ADMIN, framework, whose, kafka.bootstrap_servers, topic, controlled.log)

            plain, ours = pair(run)
        assert ours["refused"] == plain["refused"] == "INVALID_PARTITIONS"
        assert ours["retired"] == [1, 2, 3]
