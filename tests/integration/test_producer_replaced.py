"""Mode-aware producers through the replacement of a topic, on a real Kafka and by the real controller."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicCollection, consistent, murmur2

import modeaware
from modeaware.errors import ErrorCode
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.lifecycle.state import topic_phase
from modeaware.topic_view import ReplacedBy, TopicView, base64_id
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.fake_views import FakeViews, modes_of
from tests.support.plain import drain_topic, produce_all
from tests.support.process import LoggedProcess
from tests.support.waiting import eventually
from tests.workload.load import Load

KEYS = [f"key-{number}" for number in range(40)]


def conf_of(served: Controlled, **settings: Any) -> dict[str, Any]:
    return {**served.conf, "modeaware.mode.log.topic": served.log, **settings}


def announced(served: Controlled, topic: str, new_topic: str, count: int) -> None:
    """The topic is about to be replaced; the switch waits for :func:`switched`."""
    asked = served.ask(ReplaceTopicCommand(topic, new_topic, count, pause_before_switch=True))
    assert asked.code is ErrorCode.NONE, asked.message
    served.wait_for(topic, lambda record: record.replacement and record.replacement.reason == reasons.PAUSED)


def switched(served: Controlled, topic: str, new_topic: str, count: int) -> None:
    assert served.ask(ReplaceTopicCommand(topic, new_topic, count)).code is ErrorCode.NONE


def fenced(served: Controlled, topic: str) -> None:
    """Wait until brokers refuse data for the old topic, and it is sealed. No group holds it up after that."""
    served.wait_for(topic, lambda record: topic_phase(record) in ("drain", "reclaim"))


@pytest.mark.parametrize(
    ("partitioner", "place"),
    [("murmur2_random", murmur2), ("consistent_random", consistent)],
    ids=["java", "librdkafka"],
)
@pytest.mark.filterwarnings("ignore::modeaware.errors.ResizeWarning")
def test_load_goes_over_to_the_new_topic_and_each_key_keeps_its_order(
    served: Controlled, make_topic: MakeTopic, partitioner: str, place: Callable[[bytes, int], int]
) -> None:
    topic = make_topic(6)
    new_topic, load = f"{topic}-v2", Load()
    conf = conf_of(served, **{"partitioner": partitioner, "enable.idempotence": True, "linger.ms": 1})
    with load.writer(lambda: modeaware.Producer(conf), topic, per_s=1_000) as writer:
        eventually(lambda: load.fine() and writer.written)
        assert served.ask(ReplaceTopicCommand(topic, new_topic, 4)).code is ErrorCode.NONE
        fenced(served, topic)
        before = writer.written
        eventually(lambda: load.fine() and writer.written > before + 300)
    print(f"longest time without an acknowledgement: {writer.pace.longest_s * 1000:.0f} ms")
    chain = {topic: 6, new_topic: 4}
    assert load.acknowledged_in(*chain)
    load.check([], servers=served.servers, chain=chain, place=place, seals=served.seals(topic))


def test_keys_go_where_librdkafkas_own_partitioner_puts_them_in_the_new_topic(
    served: Controlled, make_topic: MakeTopic, fake_views: FakeViews
) -> None:
    topic, new_topic = make_topic(6), make_topic(5)
    live = {name: id_of(served, name) for name in (topic, new_topic)}
    replaced_by = ReplacedBy(new_topic, live[new_topic], 5, switched=True)
    fake_views.put(TopicView(topic, live[topic], (1, 1), modes_of(6, 0), replaced_by=replaced_by))
    keys = [key.encode() for key in KEYS] + [b""]
    for partitioner in ("consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random"):
        conf = {**served.conf, "partitioner": partitioner}
        at = {}
        for kind, name in ((Producer, new_topic), (modeaware.Producer, topic)):
            producer = kind(conf)
            records = ({"key": key, "value": b"v"} for key in keys)
            at[kind] = {(m.key(), m.topic(), m.partition()) for m in produce_all(producer, name, records) if m.key()}
            producer.close()
        assert at[Producer] == at[modeaware.Producer], partitioner


def id_of(served: Controlled, topic: str) -> str:
    (future,) = served.admin.describe_topics(TopicCollection([topic])).values()
    return base64_id(future.result(30).topic_id)


SLEEPER = """
import json, logging, sys, time, pathlib
import modeaware

logging.basicConfig(level=logging.INFO)

conf, topic, awake = json.loads(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
told = []

def note(error, message):
    told.append((type(error).__name__, message.topic(), message.value().decode(), str(error)))

producer = modeaware.Producer({**conf, "on_delivery": note, "linger.ms": 60000, "enable.idempotence": True})
producer.produce(topic, b"early")
producer.flush(30)
print("sent", flush=True)
while producer._modeaware._views.view(topic).replaced_by is None:
    time.sleep(0.05)  # what follows was queued after the announcement
for number in range(20):
    if number % 2:
        producer.produce(topic, b"%d" % number, b"key", on_delivery=note)
    else:
        producer.produce(topic, b"%d" % number, b"key")
print("queued", flush=True)
while not awake.exists():
    producer.poll(0.01)
producer.flush(30)
refused = [value for _, _, value, _ in told[1:]]
for value in refused:
    producer.produce(topic, value, b"key")
producer.flush(30)
producer.close()
print("told " + json.dumps(told), flush=True)
"""


def test_producer_that_sleeps_through_switch_and_fence_is_told_that_the_topic_was_replaced(
    served: Controlled, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, awake = make_topic(3), tmp_path / "awake"
    new_topic = f"{topic}-v2"
    command = [sys.executable, "-c", SLEEPER, json.dumps(conf_of(served)), topic, str(awake)]
    sleeper = LoggedProcess(command, tmp_path / "sleeper.log")
    try:
        sleeper.wait_until_it_says("sent")
        announced(served, topic, new_topic, 2)
        sleeper.wait_until_it_says("queued")
        sleeper.pause()
        switched(served, topic, new_topic, 2)
        fenced(served, topic)
        awake.touch()
        sleeper.resume()
        sleeper.wait_until_it_says("told ")
        eventually(lambda: not sleeper.running)
    finally:
        sleeper.kill()
    told = json.loads(next(line for line in sleeper.said.splitlines() if line.startswith("told "))[5:])
    assert [each[:3] for each in told[:1]] == [["NoneType", topic, "early"]]
    refused, again = told[1:21], told[21:]
    assert {(kind, where) for kind, where, _, _ in refused} == {("ReplacedTopicRefused", topic)}, sleeper.said
    assert all(f"{topic} was replaced by {new_topic}" in said for _, _, _, said in refused)
    assert [each[:3] for each in again] == [["NoneType", new_topic, value] for _, _, value, _ in refused]
    assert sorted(value for _, _, value, _ in again) == sorted(map(str, range(20)))
    assert [message.value() for message in drain_topic(served.servers, topic)] == [b"early"]
    assert len(drain_topic(served.servers, new_topic)) == 20


def test_one_transaction_has_records_of_both_topics(served: Controlled, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    new_topic = f"{topic}-v2"
    producer = modeaware.Producer(conf_of(served, **{"transactional.id": f"{topic}-writer"}))
    producer.init_transactions(30)
    for aborted in (True, False):
        producer.begin_transaction()
        producer.produce(topic, b"aborted" if aborted else b"before")
        producer.flush(30)
        if aborted:
            producer.abort_transaction(30)
    announced(served, topic, new_topic, 2)
    producer.produce(topic, b"announced")
    producer.flush(30)
    switched(served, topic, new_topic, 2)
    eventually(lambda: producer.modeaware_stats()["replaced"].get(topic) == new_topic)
    producer.produce(topic, b"after")
    producer.commit_transaction(30)
    fenced(served, topic)
    producer.begin_transaction()
    producer.produce(topic, b"next")
    producer.commit_transaction(30)
    producer.close()
    assert {message.value() for message in drain_topic(served.servers, topic)} == {b"before", b"announced"}
    assert {message.value() for message in drain_topic(served.servers, new_topic)} == {b"after", b"next"}
