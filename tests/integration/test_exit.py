"""The interpreter's exit: clients of modeaware.kafka_python that were not closed, and a record of an exit handler."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from modeaware.local import Kafka
from tests.conftest import MakeTopic
from tests.support.program import run_program

SCRIPT = """
import sys
from modeaware.kafka_python import KafkaConsumer, KafkaProducer

servers, topic, group, how = sys.argv[1:]
producer = KafkaProducer(bootstrap_servers=servers, linger_ms=100)
consumer = KafkaConsumer(topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest")
sent = producer.send(topic, b"v", b"k")
if how == "used":
    sent.get(30)
    print(next(consumer).value.decode())
"""


@pytest.mark.parametrize("how", ["used", "at once"])
def test_a_process_ends_by_itself(kafka: Kafka, make_topic: MakeTopic, make_group: Callable[[], str], how: str) -> None:
    ended = run_program(SCRIPT, kafka.bootstrap_servers, make_topic(2), make_group(), how)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == ("v\n" if how == "used" else "")


LAST_RECORD = """
import atexit, sys

def last():
    producer.produce(sys.argv[2], b"v", b"k", on_delivery=lambda error, message: print(error or message.partition()))
    producer.flush(30)

atexit.register(last)  # before ours, so it runs after it
from modeaware import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "modeaware.view.timeout.ms": 600_000})
"""


def test_first_record_of_an_exit_handler_is_delivered(kafka: Kafka, make_topic: MakeTopic) -> None:
    ended = run_program(LAST_RECORD, kafka.bootstrap_servers, make_topic(1))
    assert (ended.returncode, ended.stdout) == (0, "0\n"), ended.stderr
