"""Writers that know no modes, through a replacement: what they were told is written is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.local import Kafka
from modeaware.modelog.records import TopicRecord
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.groups import RunningGroup
from tests.support.kafka_tools import start_tool
from tests.support.waiting import eventually
from tests.workload.deployment import OTHERS, Client
from tests.workload.journal import Kind
from tests.workload.ledger import Ledger
from tests.workload.record import value_bytes
from tests.workload.writer import TransactionalWriter

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


class Transactions(TransactionalWriter):
    """Short transactions, until it is stopped.

    Attributes:
        aborted: how many it has aborted.
    """

    aborted = 0

    def abandon(self) -> None:
        super().abandon()
        self.aborted += 1


def test_what_was_acknowledged_is_read(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], tmp_path: Path
) -> None:
    topic, group = make_topic(6), make_group()
    senders = {}
    ledger = Ledger([])
    transactional = {**served.conf, "transactional.id": f"{topic}-t"}
    with ExitStack() as stack:
        reading = stack.enter_context(RunningGroup(served.servers, topic, group, isolation_level="read_committed"))
        for name, settings in PLAIN.items():
            senders[name] = Client("writer", "confluent_kafka", {**served.conf, **settings}, topic, tmp_path, name)
            stack.callback(senders[name].kill)
        java = start_tool(
            f"kafka-verifiable-producer.sh --bootstrap-server {served.servers} --topic {topic} --throughput 200",
            tmp_path / "java.out",
        )
        stack.callback(java.kill)
        sink = ledger.writer(OTHERS, "transactional", transactional=True)
        transactions = stack.enter_context(
            Transactions(lambda: Producer(transactional), topic, sink, OTHERS, per_s=500, length_s=(0.02, 0.02))
        )
        eventually(lambda: all(len(each.entries(Kind.ACKED)) > RECORDS for each in senders.values()), 60)
        eventually(lambda: len(_acknowledged(java.said)) > RECORDS and ledger.acknowledged > RECORDS, 60)
        senders["paused"].pause()
        assert served.ask(ReplaceTopicCommand(topic, f"{topic}-v2", 3)).code is ErrorCode.NONE
        served.wait_for(topic, _is_drained, 60)
        senders["paused"].resume()
        eventually(lambda: all(each.refusals() for each in senders.values()), 60)
        # Each abort leaves a marker in each partition, behind its seal.
        eventually(lambda: transactions.aborted >= ABORTED and "RecordTooLarge" in java.said, 60)
        transactions.stop()
        java.kill()
        for each in senders.values():
            each.kill()
        numbers = {entry[0] for each in senders.values() for entry in each.entries(Kind.ACKED)}
        numbers |= {record.number for record in ledger.committed()}
        told = {*map(value_bytes, numbers), *(value.encode() for value in _acknowledged(java.said))}
        eventually(lambda: told <= set(reading.values), 30)
        refusals = {name: each.refusals() for name, each in senders.items()}
    assert all(names == {"MSG_SIZE_TOO_LARGE"} for names in refusals.values()), refusals
    assert [each.stragglers for each in served.record(topic).retired.values()] == [0] * 6, "no seal was broken"


def _is_drained(record: TopicRecord) -> bool:
    return all(each.seal_offset is not None and each.reason is None for each in record.retired.values())


def _acknowledged(said: str) -> set[str]:
    """What Java's producer was told is written."""
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{") and line.endswith("}")]
    return {line["value"] for line in lines if line["name"] == "producer_send_success"}
