"""kafka-python's own clients work in a process that has loaded every message of ours."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.metadata import MetadataResponse

import modeaware.wire
from modeaware.local import Kafka
from modeaware.wire import kip694, stock
from tests.conftest import MakeTopic


def load_everything() -> None:
    for module in pkgutil.walk_packages(modeaware.wire.__path__, "modeaware.wire."):
        importlib.import_module(module.name)
    # Each of ours is made and read in a version that Kafka has, too, so that whatever is built on first use is built.
    response = stock.MetadataResponse(version=9)
    stock.decode_response(stock.encode_response(response, 9, 1), stock.METADATA_KEY, 9)
    kip694.decode_modes_response(kip694.encode_modes_response(response, 1))


def test_its_clients_read_metadata_and_records(
    kafka: Kafka, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    load_everything()
    assert ResponseClassRegistry._response_class_registry[stock.METADATA_KEY].json is MetadataResponse.json
    topic = make_topic(3)
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    try:
        (described,) = admin.describe_topics([topic])
        assert (described["name"], len(described["partitions"])) == (topic, 3)
        assert admin.describe_cluster()["brokers"]
    finally:
        admin.close()
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    try:
        assert producer.partitions_for(topic) == {0, 1, 2}
        assert producer.send(topic, b"v", partition=2).get(30).partition == 2
    finally:
        producer.close()
    consumer = KafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=make_group(),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=30_000,
    )
    try:
        assert topic in consumer.topics()
        assert consumer.partitions_for_topic(topic) == {0, 1, 2}
        consumer.assign([TopicPartition(topic, p) for p in range(3)])
        assert next(consumer).value == b"v"
    finally:
        consumer.close()
