"""Records that a kafka-python application has read and not committed are read again after its crash, although a
rebalance kept its position and the topic was replaced or shrunk meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from modeaware.errors import ErrorCode
from modeaware.kafka_python import KafkaConsumer
from modeaware.lifecycle.commands import ReplaceTopicCommand
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.kafka_python_group import FAST
from tests.support.plain import produce_keyed
from tests.support.waiting import eventually

RECORDS = 40


def poll(consumer: KafkaConsumer, given: set[bytes]) -> int:
    """Return how many records the consumer was given so far."""
    for records in consumer.poll(200).values():
        given |= {record.value for record in records}
    return len(given)


@pytest.mark.parametrize("change", ["replacement", "shrink"])
def test_uncommitted_records_are_read_again_after_a_rebalance_a_change_and_a_crash(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], change: str
) -> None:
    topic, group = make_topic(4), make_group()
    produce_keyed(served.servers, topic, [(b"k%d" % n, b"v%d" % n) for n in range(RECORDS)], partition=3)
    settings = {"group_id": group, "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    conf: dict[str, Any] = {
        "bootstrap_servers": served.servers,
        "modeaware_mode_log_topic": served.log,
        **FAST,
        **settings,
    }

    first, given = KafkaConsumer(topic, **conf), set[bytes]()
    eventually(lambda: poll(first, given) == RECORDS, 60)
    second, others = KafkaConsumer(topic, **conf), set[bytes]()
    eventually(lambda: (poll(first, given), poll(second, others), second.assignment())[-1], 60)
    second.close(autocommit=False)
    eventually(lambda: (poll(first, given), len(first.assignment()))[-1] == 4, 60)
    if change == "shrink":
        served.shrink(topic, 1)
    else:
        assert served.ask(ReplaceTopicCommand(topic, f"{topic}-v2", 2)).code is ErrorCode.NONE
    until_s = time.monotonic() + 20
    while time.monotonic() < until_s:
        poll(first, given)
    first._coordinator.close = lambda *_, **__: None  # as after a crash, nothing is committed
    first.close(autocommit=False)

    third, again = KafkaConsumer(topic, **conf), set[bytes]()
    eventually(lambda: poll(third, again) == RECORDS, 90)
    third.close(autocommit=False)
