"""modeaware.kafka_python with TLS and SASL: kafka-python's settings reach the views, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic
from kafka.net.sasl.oauth import AbstractTokenProvider

from modeaware.kafka_python import KafkaConsumer, KafkaProducer, RetiredPartitionError
from tests.support.modelog import RealLog, topic_record
from tests.support.plain import wait_until_led
from tests.support.raw_client import token
from tests.support.secured import ADMIN, SecuredKafka, login, secret
from tests.support.waiting import eventually


class Unsecured(AbstractTokenProvider):  # type: ignore[misc,unused-ignore]  # untyped
    """Tokens as brokers without a validator for signatures take them (KIP-255)."""

    def token(self) -> str:
        return token(ADMIN)


def test_the_views_are_read_as_the_same_user(secured: SecuredKafka, make_group: Callable[[], str]) -> None:
    log = RealLog(secured.bootstrap_servers, **login(secured.certificate, ADMIN, "PLAIN"))
    log.create()
    topic = make_group()
    log.admin.create_topics([NewTopic(topic, 12)])[topic].result(30)
    wait_until_led(log.admin, topic, 12)
    log.append(topic_record(topic))
    log.close()
    shared = {
        "bootstrap_servers": secured.bootstrap_servers,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(secured.certificate.certificate),
        "modeaware_mode_log_topic": log.topic,
        "modeaware_mode_source": "log",
    }
    logins: list[dict[str, Any]] = [
        {"sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_username": ADMIN, "sasl_plain_password": secret(ADMIN)},
        {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Unsecured()},
    ]
    for user in logins:
        with KafkaProducer(**shared, **user) as producer:
            retired = topic_record(topic).retired
            with pytest.raises(RetiredPartitionError):
                producer.send(topic, b"v", partition=max(retired))
            assert producer.send(topic, b"v", b"k").get(30).partition not in retired
        with KafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **shared, **user) as consumer:
            eventually(lambda: consumer.poll(200))
            assert consumer.modeaware_stats()["state"] == "direct"
            assert not consumer.modeaware_stats()["views"]["stale"]
