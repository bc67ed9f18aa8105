"""Producers of kafka-python through the replacement of a topic, on a real Kafka by the real controller."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import murmur2

from modeaware.errors import ErrorCode
from modeaware.kafka_python import KafkaProducer, ReplacedTopicError
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.lifecycle.state import topic_phase
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.plain import drain_topic
from tests.support.waiting import eventually
from tests.workload.kafka_python import KafkaPythonWriter
from tests.workload.load import Load


def conf_of(served: Controlled, **settings: Any) -> dict[str, Any]:
    return {"bootstrap_servers": served.servers, "modeaware_mode_log_topic": served.log, **settings}


def replace(served: Controlled, topic: str, new_topic: str, count: int) -> None:
    """Replace the topic; brokers refuse data for it, and it is sealed, when this returns."""
    assert served.ask(ReplaceTopicCommand(topic, new_topic, count)).code is ErrorCode.NONE
    served.wait_for(topic, lambda record: topic_phase(record) in ("drain", "reclaim", "done"))


@pytest.mark.filterwarnings("ignore::modeaware.errors.ResizeWarning")
def test_load_goes_over_to_the_new_topic_and_each_key_keeps_its_order(
    served: Controlled, make_topic: MakeTopic
) -> None:
    topic = make_topic(12)
    new_topic, load = f"{topic}-v2", Load()
    conf = conf_of(served, linger_ms=1)
    with load.writer(lambda: KafkaProducer(**conf), topic, KafkaPythonWriter, per_s=1_000) as writer:
        eventually(lambda: load.fine() and writer.written)
        replace(served, topic, new_topic, 4)
        before = writer.written
        eventually(lambda: load.fine() and writer.written > before + 300)
    print(f"longest time without an acknowledgement: {writer.pace.longest_s * 1000:.0f} ms")
    chain = {topic: 12, new_topic: 4}
    assert load.acknowledged_in(*chain)
    load.check([], servers=served.servers, chain=chain, place=murmur2, seals=served.seals(topic))


LATE = {"linger_ms": 60_000, "batch_size": 4096}
"""Queues records for so long that the topic is replaced meanwhile: several of them in a batch."""


def test_records_that_kafka_python_has_queued_for_too_long_are_told_of_the_replacement(
    served: Controlled, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    new_topic = f"{topic}-v2"
    producer = KafkaProducer(**conf_of(served, **LATE))
    early = producer.send(topic, b"early", partition=0)
    producer.flush(30)
    queued = [producer.send(topic, b"%d" % number, b"key") for number in range(20)]
    replace(served, topic, new_topic, 3)
    producer.flush(30)
    assert early.get(10).topic == topic
    for future in queued:
        with pytest.raises(ReplacedTopicError, match=f"{topic} was replaced by {new_topic}"):
            future.get(10)
    again = [producer.send(topic, b"%d" % number, b"key") for number in range(20)]
    producer.flush(30)
    assert {future.get(10).topic for future in again} == {new_topic}
    producer.close()
    assert [message.value() for message in drain_topic(served.servers, topic)] == [b"early"]
    assert [message.value() for message in drain_topic(served.servers, new_topic)] == [b"%d" % n for n in range(20)]


def test_one_transaction_has_records_of_both_topics(served: Controlled, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    new_topic = f"{topic}-v2"
    announced = served.ask(ReplaceTopicCommand(topic, new_topic, 2, pause_before_switch=True))
    assert announced.code is ErrorCode.NONE, announced.message
    producer = KafkaProducer(**conf_of(served, transactional_id=f"{topic}-writer"))
    producer.init_transactions()
    served.wait_for(topic, lambda record: record.replacement and record.replacement.reason == reasons.PAUSED)
    producer.begin_transaction()
    producer.send(topic, b"before").get(30)
    assert served.ask(ReplaceTopicCommand(topic, new_topic, 2)).code is ErrorCode.NONE
    served.wait_for(topic, lambda record: record.replacement and record.replacement.switched_ms)
    eventually(lambda: topic in producer.modeaware_stats()["replaced"])
    producer.send(topic, b"after")
    producer.commit_transaction()
    producer.close()
    assert [message.value() for message in drain_topic(served.servers, topic)] == [b"before"]
    assert [message.value() for message in drain_topic(served.servers, new_topic)] == [b"after"]
