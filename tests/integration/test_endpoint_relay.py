"""Stock clients go through the endpoint to real brokers, and authenticate themselves at them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

from modeaware.endpoint.server import Server
from modeaware.endpoint.tls import server_context
from modeaware.local import Kafka, LocalKafka
from tests.conftest import MakeTopic
from tests.support.endpoint import relay
from tests.support.plain import drain_topic, produce_keyed
from tests.support.secured import SecuredKafka, secret
from tests.support.waiting import eventually

RECORDS: list[tuple[bytes | None, bytes | None]] = [(b"key-%d" % number, b"value-%d" % number) for number in range(50)]
USER, STRANGER, TOPIC = "alice", "mallory", f"relayed-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def endpoint(kafka: Kafka) -> Iterator[Server]:
    with relay({"bootstrap.servers": kafka.bootstrap_servers}) as server:
        yield server


def test_confluent_kafka_goes_through_it(endpoint: Server, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    assert len(produce_keyed(endpoint.address, topic, RECORDS)) == 50
    assert sorted(message.key() for message in drain_topic(endpoint.address, topic)) == sorted(k for k, _ in RECORDS)


def test_kafka_python_goes_through_it(endpoint: Server, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    _kafka_python_round_trip(topic, bootstrap_servers=[endpoint.address])


def test_records_never_pass_through_it(kafka: Kafka, endpoint: Server, make_topic: MakeTopic) -> None:
    """Metadata names the brokers' own addresses, so that is where clients produce."""
    topic = make_topic(1)
    brokers = AdminClient({"bootstrap.servers": endpoint.address}).list_topics(topic, timeout=30).brokers.values()
    assert [f"{broker.host}:{broker.port}" for broker in brokers] == [kafka.bootstrap_servers]


def test_a_broker_that_is_gone_closes_its_clients_and_is_found_again(kafka3: LocalKafka) -> None:
    broker = kafka3.brokers[0]
    with relay({"bootstrap.servers": broker.address}) as server:
        settings: dict[str, Any] = {"bootstrap.servers": server.address, "log_level": 0}
        assert AdminClient(settings).list_topics(timeout=30).brokers
        broker.kill()
        with pytest.raises(KafkaException):
            AdminClient(settings).list_topics(timeout=1)
        broker.start()
        assert AdminClient(settings).list_topics(timeout=30).brokers


@pytest.fixture(scope="module")
def guarded(secured: SecuredKafka) -> Iterator[Server]:
    """The endpoint before the secured broker, with TLS of its own. It has no credentials."""
    admin = AdminClient(secured.conf())
    admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(30)
    conf = {
        "bootstrap.servers": secured.bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(secured.certificate.certificate),
    }
    tls = server_context(secured.certificate.certificate, secured.certificate.key)
    with relay(conf, tls=tls) as server:
        assert server.security_protocol == "SASL_SSL"
        yield server


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_kafka_python_authenticates_at_the_broker(secured: SecuredKafka, guarded: Server, mechanism: str) -> None:
    _kafka_python_round_trip(
        TOPIC,
        bootstrap_servers=[guarded.address],
        security_protocol="SASL_SSL",
        ssl_cafile=str(secured.certificate.certificate),
        sasl_mechanism=mechanism,
        sasl_plain_username="admin",
        sasl_plain_password=secret("admin"),
    )


def _kafka_python_round_trip(topic: str, **settings: Any) -> None:
    producer = KafkaProducer(**settings)
    try:
        sent = [producer.send(topic, value, key).get(30) for key, value in RECORDS]
    finally:
        producer.close()
    consumer = KafkaConsumer(auto_offset_reset="earliest", enable_auto_commit=False, **settings)
    try:
        consumer.assign([KafkaPythonPartition(topic, 0)])
        consumer.seek(KafkaPythonPartition(topic, 0), sent[0].offset)
        found: list[bytes] = []
        eventually(lambda: found.extend(_polled(consumer)) or len(found) >= len(RECORDS))
    finally:
        consumer.close()
    assert found == [value for _, value in RECORDS]


def _polled(consumer: Any) -> list[bytes]:
    return [record.value for records in consumer.poll(500).values() for record in records]
