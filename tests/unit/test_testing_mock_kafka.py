"""librdkafka's mock broker as applications' tests get it."""

from __future__ import annotations

from modeaware.confluent.consumer import Consumer
from modeaware.confluent.producer import Producer
from modeaware.testing import MockKafka, ScriptedModes


def test_records_go_through_it_and_end_with_it() -> None:
    with ScriptedModes(), MockKafka() as kafka:
        conf = {"bootstrap.servers": kafka.bootstrap_servers}
        producer = Producer(conf)
        sent = [b"%d" % n for n in range(10)]
        for value in sent:
            producer.produce("orders", value, value)
        assert producer.flush(30) == 0
        consumer = Consumer({**conf, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        got = [message.value() for _ in sent for message in consumer.consume(1, 30)]
        assert sorted(got) == sent
        assert {held.partition for held in consumer.assignment()} == set(range(kafka.PARTITIONS))
        consumer.close()
        producer.close()
    assert kafka.bootstrap_servers == ""
    kafka.stop()
