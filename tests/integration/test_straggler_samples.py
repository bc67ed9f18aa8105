"""What is told of records that arrived after a seal, from real ones."""

from __future__ import annotations

from confluent_kafka import Consumer, Message, TopicPartition
from kafka.protocol.producer.produce import ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder

from modeaware.clock import SYSTEM_CLOCK
from modeaware.cluster.partition_leaders import epoch_ends
from modeaware.cluster.stragglers import RECORDS_A_PARTITION, in_words, sample_records
from modeaware.local import Kafka
from modeaware.wire.brokers.client import Brokers
from tests.conftest import MakeTopic
from tests.support.waiting import eventually

RECORDS = 200
"""Often enough for the interpreter to specialise the calls that are made for each."""


def test_a_header_that_is_no_text(kafka: Kafka, make_topic: MakeTopic) -> None:
    topic = make_topic(1, retention_ms=-1)  # the records are old

    class Name:
        def encode(self, *_: object) -> bytes:
            return b"trace-\xff"

    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 100_000)
    for offset in range(RECORDS):
        builder.append(offset, 1234, b"k", b"v", [(Name(), b"x")])
    part = ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=bytes(builder.build()))
    data = ProduceRequest.TopicProduceData(name=topic, partition_data=[part])
    brokers = Brokers({"bootstrap.servers": kafka.bootstrap_servers})

    def sent() -> bool:  # not every leader knows at once that it is one
        request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=3000, topic_data=[data], max_version=9)
        (topic_answer,) = brokers.ask(request).responses
        return topic_answer.partition_responses[0].error_code == 0

    eventually(sent)
    leader = [(0, 0)]
    eventually(lambda: epoch_ends(brokers, topic, leader).get((0, 0)) == RECORDS)
    brokers.close()
    words = "1970-01-01 00:00:01.234 UTC, key b'k', headers that cannot be read"
    conf = {"bootstrap.servers": kafka.bootstrap_servers}
    consumer = Consumer({**conf, "group.id": "none", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages: list[Message] = []
    eventually(lambda: messages.extend(consumer.consume(RECORDS, timeout=1)) or len(messages) >= RECORDS, 60)
    consumer.close()
    assert [in_words(message) for message in messages] == [f"offset {o}, {words}" for o in range(RECORDS)]
    samples = sample_records(conf, topic, {0: 0}, SYSTEM_CLOCK.monotonic_s)
    assert samples == {0: tuple(f"offset {o}, {words}" for o in range(RECORDS_A_PARTITION))}
