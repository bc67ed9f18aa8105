"""orders -> orders-v2 -> orders on a real Kafka, under clients that live through all of it and name ``orders``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import confluent_kafka
import pytest
from kafka import KafkaConsumer

import modeaware
from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import TopicRecord
from tests.conftest import MakeTopic
from tests.support.background import Background
from tests.support.controlled import Controlled
from tests.support.plain import watermarks
from tests.support.replaced_load import Delivered, Member, Writer
from tests.support.waiting import eventually

COUNT, BACK = 4, 2


class Transactional(Background):
    """Commits a transaction of one record for each key, again and again."""

    def __init__(self, make: Callable[[], Any], topic: str) -> None:
        super().__init__()
        self._make, self._topic = make, topic
        self.acknowledged: dict[tuple[bytes, int], tuple[str, int]] = {}

    def work(self) -> None:
        producer, count = self._make(), 0
        producer.init_transactions(30)
        while not self.done.wait(0.02):
            placed: dict[tuple[bytes, int], tuple[str, int]] = {}

            def told(error: Any, message: Any, placed: dict[Any, Any] = placed) -> None:
                if error is None:
                    placed[message.key(), int(message.value())] = message.topic(), message.partition()

            producer.begin_transaction()
            for key in (b"tx-0", b"tx-1", b"tx-2"):
                producer.produce(self._topic, b"%d" % count, key, on_delivery=told)
            try:
                producer.commit_transaction(30)
            except confluent_kafka.KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                producer.abort_transaction(30)  # refused by the fence; the next ones go to the successor
            else:
                self.acknowledged |= placed
            count += 1
        producer.close()


def is_gone(record: TopicRecord) -> bool:
    return record.replacement is not None and record.replacement.gone_ms is not None


@pytest.mark.timeout(240)
def test_topic_goes_back_to_its_name_under_living_clients(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    topic, group, delivered = make_topic(COUNT), make_group(), Delivered()
    name = f"{topic}-v2"
    aware = {**served.conf, "modeaware.mode.log.topic": served.log}
    reader = {**aware, "group.id": group, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    writer = Writer(lambda: modeaware.Producer({**aware, "enable.idempotence": True, "linger.ms": 5}), topic, "a", 50)
    transactional = Transactional(lambda: modeaware.Producer({**aware, "transactional.id": f"{topic}-tx"}), topic)

    def replace(old: str, new: str, count: int) -> None:
        assert served.ask(ReplaceTopicCommand(old, new, count, delay_ms=0)).code is ErrorCode.NONE
        served.wait_for(old, is_gone, 90)

    def more() -> None:
        goal = len(delivered.distinct()) + 300
        eventually(lambda: len(delivered.distinct()) > goal, 60)

    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(Member(lambda: modeaware.Consumer(reader), [topic], delivered))
        with ExitStack() as writing:
            for each in (writer, transactional):
                writing.enter_context(each)
            more()
            replace(topic, name, BACK)
            more()
            # librdkafka's consumers join no group for a topic that is absent; others do.
            stock = KafkaConsumer(
                bootstrap_servers=served.servers, group_id=make_group(), allow_auto_create_topics=False
            )
            stock.subscribe([topic])
            asked = ReplaceTopicCommand(name, topic, BACK, validate_only=True)
            eventually(lambda: (stock.poll(100), served.ask(asked).code)[1] is ErrorCode.POLICY_VIOLATION)
            stock.close()
            more()
            more_partitions = ReplaceTopicCommand(name, topic, COUNT + 1)
            assert served.ask(more_partitions).code is ErrorCode.REASSIGNMENT_IN_PROGRESS
            replace(name, topic, BACK)
            more()
        acknowledged = writer.acknowledged | transactional.acknowledged
        eventually(lambda: acknowledged.keys() <= delivered.distinct(), 60)
    assert len(watermarks(served.servers, topic)) == BACK
    assert not delivered.out_of_order()
    assert writer.refused == []
    assert {where for *_, where in delivered.records} == {topic, name}
    records = read_mode_log(served.conf, served.log, 20).records.values()
    assert [record.topic for record in records if record.topic in (topic, name)] == [name], "one alias is left"
