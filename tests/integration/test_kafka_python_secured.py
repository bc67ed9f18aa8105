"""modeaware.kafka_python with TLS and SASL: kafka-python's settings reach the views, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic
from kafka.net.sasl.oauth import AbstractTokenProvider

from modeaware.kafka_python import KafkaConsumer, KafkaProducer, RetiredPartitionError
from tests.conftest import MakeKafka
from tests.support.modelog import RealLog, topic_record
from tests.support.raw_client import token
from tests.support.secured import ADMIN, login, secret, secured_kafka
from tests.support.waiting import eventually


class Unsecured(AbstractTokenProvider):  # type: ignore[misc,unused-ignore]  # untyped
    """Tokens as brokers without a validator for signatures take them (KIP-255)."""

    def token(self) -> str:
        return token(ADMIN)


def test_the_views_are_read_as_the_same_user(make_kafka: MakeKafka, tmp_path: Path) -> None:
    secured = secured_kafka(make_kafka, tmp_path)
    log = RealLog(secured.bootstrap_servers, **login(secured.certificate, ADMIN, "PLAIN"))
    log.create()
    log.admin.create_topics([NewTopic("orders", 12)])["orders"].result(30)
    log.append(topic_record("orders"))
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
            retired = topic_record("orders").retired
            with pytest.raises(RetiredPartitionError):
                producer.send("orders", b"v", partition=max(retired))
            assert producer.send("orders", b"v", b"k").get(30).partition not in retired
        with KafkaConsumer("orders", group_id="g", auto_offset_reset="earliest", **shared, **user) as consumer:
            eventually(lambda: consumer.poll(200))
            assert consumer.modeaware_stats()["state"] == "direct"
            assert not consumer.modeaware_stats()["views"]["stale"]
