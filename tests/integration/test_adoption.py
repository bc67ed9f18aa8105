"""Programs that know nothing of us, by ``modeaware run``, on a topic that was shrunk, and on one that is replaced."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import ReplaceTopicCommand
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.plain import drain_topic
from tests.support.process import LoggedProcess
from tests.support.waiting import eventually

CONFLUENT = """
import sys
from confluent_kafka import Consumer, Producer, SerializingProducer
from confluent_kafka.admin import AdminClient
from confluent_kafka.serialization import StringSerializer

servers, topic, group = sys.argv[1:]
conf = {"bootstrap.servers": servers}
serializer = StringSerializer()
for producer in (Producer(conf), SerializingProducer({**conf, "key.serializer": serializer})):
    for n in range(60):
        producer.produce(topic, key=f"key-{n}", value=b"v")
    print("unsent", producer.flush(30))
consumer = Consumer({**conf, "group.id": group, "auto.offset.reset": "earliest"})
consumer.subscribe([topic])
read = 0
while read < 120:
    read += consumer.poll(30).error() is None
print("assigned", sorted(tp.partition for tp in consumer.assignment()))
consumer.close()
print("partitions", len(AdminClient(conf).list_topics(topic, timeout=30).topics[topic].partitions))
"""
KAFKA_PYTHON = """
import sys
from kafka import KafkaConsumer, KafkaProducer

servers, topic, group = sys.argv[1:]
with KafkaProducer(bootstrap_servers=servers) as producer:
    sent = [producer.send(topic, b"v", b"key-%d" % n) for n in range(120)]
    print("unsent", sum(future.get(30) is None for future in sent))
consumer = KafkaConsumer(topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest")
for _ in range(120):
    next(consumer)
print("assigned", sorted(tp.partition for tp in consumer.assignment()))
consumer.close()
"""
# What both programs below do: write records with keys, each key with numbers that go up, and read them, until the file
# ``stop`` exists and all that was written is read.
REPLACED = """
import pathlib, sys

servers, topic, group, stop = sys.argv[1:]
stop = pathlib.Path(stop)
written = read = 0
open_program()
while not stop.exists() or read < written:
    if not stop.exists():
        for key in range(7):
            write(b"key-%d" % key, b"%d" % written)
            written += 1
    for where, key, value in records():
        read += 1
        print("read", where, key.decode(), value.decode(), flush=True)
close_program()
print("written", written, flush=True)
"""
CONFLUENT_REPLACED = """
from confluent_kafka import Consumer, Producer

def open_program():
    global producer, consumer
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 1})
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])

def write(key, value):
    producer.produce(topic, key=key, value=value)

def records():
    producer.poll(0)
    return [(m.topic(), m.key(), m.value()) for m in consumer.consume(100, 0.1)]

def close_program():
    consumer.close()
"""
KAFKA_PYTHON_REPLACED = """
from kafka import KafkaConsumer, KafkaProducer

def open_program():
    global producer, consumer
    producer = KafkaProducer(bootstrap_servers=servers)
    consumer = KafkaConsumer(topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest")

def write(key, value):
    producer.send(topic, value, key)

def records():
    return [(r.topic, r.key, r.value) for found in consumer.poll(100).values() for r in found]

def close_program():
    producer.close()
    consumer.close()
"""


def _outcome(command: list[str], arguments: list[str]) -> list[str]:
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("text", [CONFLUENT, KAFKA_PYTHON], ids=["confluent_kafka", "kafka-python"])
def test_clients_keep_to_the_writable_partitions(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], tmp_path: Path, text: str
) -> None:
    topic = make_topic(12)
    served.shrink(topic, 4)
    served.wait_done(topic)
    program = tmp_path / "program.py"
    program.write_text(text)
    arguments = [served.servers, topic, make_group()]

    ours = [sys.executable, "-m", "modeaware", "run", "--set", f"modeaware.mode.log.topic={served.log}"]
    told = _outcome([*ours, str(program)], arguments)
    assert {line for line in told if not line.startswith("partitions")} == {"unsent 0", "assigned [0, 1, 2, 3]"}
    assert {message.partition() for message in drain_topic(served.servers, topic)} == {0, 1, 2, 3}

    # And that it is the command that does it: the same program without.
    plain = _outcome([sys.executable, str(program)], [*arguments[:2], make_group()])
    assert f"assigned {list(range(12))}" in plain
    assert max(message.partition() or 0 for message in drain_topic(served.servers, topic)) > 3


@pytest.mark.parametrize("text", [CONFLUENT_REPLACED, KAFKA_PYTHON_REPLACED], ids=["confluent_kafka", "kafka-python"])
def test_program_goes_on_through_a_replacement(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], tmp_path: Path, text: str
) -> None:
    topic = make_topic(12)
    new_topic = f"{topic}-v2"
    program, stop = tmp_path / "program.py", tmp_path / "stop"
    program.write_text(text + REPLACED)
    ours = [sys.executable, "-m", "modeaware", "run", "--set", f"modeaware.mode.log.topic={served.log}"]
    process = LoggedProcess(
        [*ours, str(program), served.servers, topic, make_group(), str(stop)], tmp_path / "program.log"
    )
    try:
        process.wait_until_it_says(f"read {topic} ")
        assert served.ask(ReplaceTopicCommand(topic, new_topic, 4)).code is ErrorCode.NONE
        served.wait_done(topic)
        process.wait_until_it_says(f"read {new_topic} ")
        stop.touch()
        process.wait_until_it_says("written ")
        eventually(lambda: not process.running)
    finally:
        process.kill()
    lines = [line.split() for line in process.said.splitlines()]
    read = [(key, int(number), where) for what, where, key, number in (line for line in lines if line[0] == "read")]
    (written,) = (int(line[1]) for line in lines if line[0] == "written")
    assert sorted(number for _, number, _ in read) == list(range(written)), "all of it, and once"
    for key in {key for key, _, _ in read}:
        numbers = [number for each, number, _ in read if each == key]
        assert numbers == sorted(numbers), "in order"
    assert {where for _, _, where in read} == {topic, new_topic}
