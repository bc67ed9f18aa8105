"""The interpreter's end with clients of modeaware.kafka_python that nobody closed."""

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
