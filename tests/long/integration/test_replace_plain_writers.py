"""Writers that know no modes, through a replacement: what they were told is written is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.local import Kafka
from modeaware.modelog.records import TopicRecord
from tests.conftest import MakeTopic
from tests.support.background import Background
from tests.support.controlled import Controlled
from tests.support.groups import RunningGroup
from tests.support.kafka_tools import start_tool
from tests.support.release import ROOT, Release
from tests.support.rolling import Running
from tests.support.waiting import eventually

PLAIN: dict[str, dict[str, Any]] = {
    "idempotent": {"enable.idempotence": True},
    "one-replica": {"acks": 1},
    "paused": {"enable.idempotence": True, "message.timeout.ms": 300_000},
}
RECORDS = 200
"""How many of each writer are acknowledged before the switch, at least, and refused behind the fence."""
ABORTED = 100
"""How many transactions are aborted behind the fence, at least: more than a search for records reads at first."""


@pytest.fixture(scope="module")
def served(kafka: Kafka) -> Iterator[Controlled]:
    with Controlled(kafka) as made:
        made.start(fence_after_ms=3_000)
        yield made


class Transactions(Background):
    """A transactional producer, ten records each time, until it is stopped. What it has committed, it was told."""

    def __init__(self, conf: dict[str, Any], topic: str) -> None:
        super().__init__()
        self._conf, self._topic = conf, topic
        self.committed: set[str] = set()
        self.aborted = 0

    def work(self) -> None:
        producer, number = Producer({**self._conf, "transactional.id": f"{self._topic}-t"}), 0
        producer.init_transactions(30)
        while not self.done.wait(0.02):
            producer.begin_transaction()
            values = [f"transaction-{number + n}" for n in range(10)]
            number += len(values)
            try:
                for value in values:
                    producer.produce(self._topic, value, value)
                producer.commit_transaction(30)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                producer.abort_transaction(30)
                self.aborted += 1
            else:
                self.committed |= set(values)


def test_what_was_acknowledged_is_read(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], tmp_path: Path
) -> None:
    topic, group = make_topic(6), make_group()
    plain = Release("", ROOT, clients="confluent_kafka")
    senders = {}
    with ExitStack() as stack:
        reading = stack.enter_context(RunningGroup(served.servers, topic, group, isolation_level="read_committed"))
        for name, settings in PLAIN.items():
            arguments = [json.dumps({**served.conf, **settings}), topic]
            senders[name] = Running(plain, "send", arguments, tmp_path, name)
            stack.callback(senders[name].kill)
        java = start_tool(
            f"kafka-verifiable-producer.sh --bootstrap-server {served.servers} --topic {topic} --throughput 200",
            tmp_path / "java.out",
        )
        stack.callback(java.kill)
        transactions = stack.enter_context(Transactions(served.conf, topic))
        eventually(lambda: all(len(each.lines()) > RECORDS for each in senders.values()), 60)
        eventually(lambda: len(_acknowledged(java.said)) > RECORDS and len(transactions.committed) > RECORDS, 60)
        senders["paused"].pause()
        assert served.ask(ReplaceTopicCommand(topic, f"{topic}-v2", 3)).code is ErrorCode.NONE
        served.wait_for(topic, _is_drained, 60)
        senders["paused"].resume()
        eventually(lambda: all(_failed(each) for each in senders.values()), 60)
        # Each abort leaves a marker in each partition, behind its seal.
        eventually(lambda: transactions.aborted >= ABORTED and "RecordTooLarge" in java.said, 60)
        transactions.stop()
        java.kill()
        for each in senders.values():
            each.kill()
        told = {value for each in senders.values() for value in each.values()} - {"failed"}
        told |= transactions.committed | _acknowledged(java.said)
        eventually(lambda: told <= {value.decode() for value in reading.values if value is not None}, 30)
        refusals = {name: _failed(each) for name, each in senders.items()}
    assert [line for lines in refusals.values() for line in lines if "MSG_SIZE_TOO_LARGE" not in line] == []
    assert [each.stragglers for each in served.record(topic).retired.values()] == [0] * 6, "no seal was broken"


def _is_drained(record: TopicRecord) -> bool:
    return all(each.seal_offset is not None and each.reason is None for each in record.retired.values())


def _failed(running: Running) -> list[str]:
    return [line for line in running.lines() if line.startswith("failed")]


def _acknowledged(said: str) -> set[str]:
    """What Java's producer was told is written."""
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{") and line.endswith("}")]
    return {line["value"] for line in lines if line["name"] == "producer_send_success"}
