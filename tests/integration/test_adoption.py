"""Programs that know nothing of us, by ``modeaware run``, on a topic that was shrunk."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.plain import drain_topic

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
