"""Spark's Kafka connector: a client's configuration as its options, and which one goes with which PySpark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from modeaware.errors import ConfigError, ModeAwareError
from modeaware.spark import connector
from modeaware.spark.connector import packages, spark_options

SERVERS = {"bootstrap.servers": "a:1,SSL://b:2"}


def test_names_of_java_and_what_means_nothing_there() -> None:
    conf = {
        **SERVERS,
        "linger.ms": 5,
        "compression.codec": "lz4",
        "message.timeout.ms": 60_000,
        "enable.idempotence": True,
        "default.topic.config": {"acks": -1},
        "partitioner": "murmur2_random",
        "modeaware.view.timeout.ms": 1_000,
        "statistics.interval.ms": 1_000,
        "queue.buffering.max.messages": 10,
        "error_cb": print,
        "isolation.level": "read_committed",
    }
    assert spark_options(conf, "producer") == {
        "kafka.bootstrap.servers": "a:1,b:2",
        "kafka.linger.ms": "5",
        "kafka.compression.type": "lz4",
        "kafka.delivery.timeout.ms": "60000",
        "kafka.enable.idempotence": "true",
        "kafka.acks": "-1",
    }
    assert spark_options(conf, "consumer") == {
        "kafka.bootstrap.servers": "a:1,b:2",
        "kafka.isolation.level": "read_committed",
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"message.timeout.ms": 0}, {"delivery.timeout.ms": "2147483647"}),
        ({"linger.ms": "0.5"}, {"linger.ms": "1"}),
        (
            {"message.timeout.ms": 10_000, "linger.ms": 5},
            {"delivery.timeout.ms": "10000", "linger.ms": "5", "request.timeout.ms": "9995"},
        ),
    ],
)
def test_times_that_java_refuses(given: dict[str, Any], expected: dict[str, str]) -> None:
    options = spark_options({**SERVERS, **given}, "producer")
    del options["kafka.bootstrap.servers"]
    assert options == {f"kafka.{name}": value for name, value in expected.items()}


def test_a_user_and_its_password() -> None:
    conf = {
        **SERVERS,
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "scram-sha-256",
        "sasl.username": "alice",
        "sasl.password": 'a"b\\c',
        "ssl.ca.location": "ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert spark_options(conf, "consumer") == {
        "kafka.bootstrap.servers": "a:1,b:2",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config": (
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="a\\"b\\\\c";'
        ),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "ca.pem",
        "kafka.ssl.endpoint.identification.algorithm": "",
    }


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"bootstrap.servers": ""}, "bootstrap.servers"),
        ({"transactional.id": "t"}, "transactional.id"),
        ({"linger.ms": 20, "message.timeout.ms": 20}, "message.timeout.ms"),
        ({"enable.ssl.certificate.verification": False}, "enable.ssl.certificate.verification"),
        ({"security.protocol": "TLS"}, "security.protocol"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER"),
        ({"security.protocol": "SSL", "ssl.key.pem": "KEY"}, "ssl.certificate"),
        ({"modeaware.on.unknwon": "block"}, "modeaware.on.unknwon"),
    ],
)
def test_what_cannot_be_translated_is_refused_by_name(more: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        spark_options({**SERVERS, **more}, "producer")


def test_certificate_of_the_client_is_read_here(tmp_path: Path) -> None:
    certificate = tmp_path / "client.pem"
    certificate.write_text("CERTIFICATE")
    tls = {"security.protocol": "SSL", "ssl.certificate.location": str(certificate), "ssl.key.pem": "KEY"}
    options = spark_options({**SERVERS, **tls, "ssl.ca.pem": "CA", "ssl.key.password": "secret"}, "producer")
    stores = {name.removeprefix("kafka.ssl."): value for name, value in options.items() if "store" in name}
    assert stores.pop("keystore.type") == stores.pop("truststore.type") == "PEM"
    assert stores.pop("keystore.key").splitlines()[1:] == ["KEY"], "after a line that hides it in Spark's pages"
    assert stores == {
        "keystore.certificate.chain": "CERTIFICATE",
        "truststore.certificates": "CA",
    }
    assert options["kafka.ssl.key.password"] == "secret"


def test_connector_has_sparks_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "version", {"pyspark": "4.0.1+vendor.7"}.__getitem__)
    assert packages() == "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.1"
    monkeypatch.setattr(connector, "version", {"pyspark": "3.5.4"}.__getitem__)
    with pytest.raises(ModeAwareError, match=r"install modeaware\[spark\]"):
        packages()


def test_names_are_functions_whatever_was_imported_before() -> None:
    """A module of the same name, once imported, would take the place of a function."""
    program = (
        "import modeaware.spark.connector, modeaware.spark.command, modeaware.spark as spark\n"
        "print(callable(spark.evacuate), callable(spark.packages), spark.packages())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == f"True True {packages()}\n"
