"""Credentials of a configuration are in no log line and in no error's text, whatever the level.

No broker answers here. That a real one's handshakes leave nothing in the log either is in
``tests/integration/test_endpoint_logs.py``.
"""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import modeaware
from modeaware.clients.settings import split_settings
from modeaware.config import read_properties, split_client_config
from modeaware.errors import ConfigError, ModeAwareError
from modeaware.librdkafka import KafkaException
from modeaware.spark.connector import spark_options

SECRET = "h0rse-battery-staple"
NOBODY = "127.0.0.1:1"
SASL = {
    "bootstrap.servers": NOBODY,
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanisms": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": SECRET,
    "modeaware.view.timeout.ms": 300,
    "modeaware.on.unknown": "error",
    "topic.metadata.refresh.interval.ms": 1000,
}


def _produce() -> None:
    with modeaware.Producer(SASL) as producer:
        producer.produce("orders", b"value", b"key")


def _consume() -> None:
    with closing(modeaware.Consumer({**SASL, "group.id": "billing"})) as consumer:
        consumer.subscribe(["orders"])
        consumer.poll(1.0)


def _ask() -> None:
    with closing(modeaware.AdminClient(SASL)) as admin:
        admin.describe_modes(["orders"], request_timeout=1)["orders"].result(30)


def forms(secret: str) -> tuple[str, ...]:
    return secret, base64.b64encode(secret.encode()).decode().rstrip("="), secret.encode().hex()


@pytest.mark.parametrize("work", [_produce, _consume, _ask])
def test_clients_that_reach_nobody_tell_no_password(
    work: Callable[[], None], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises((ModeAwareError, KafkaException)) as failed:
        work()
    # Arguments and tracebacks too: another handler may format a record as it likes.
    records = [f"{record.getMessage()} {record.args!r} {record.exc_text}" for record in caplog.records]
    errors = [f"{error} {error!r}" for error in (failed.value, failed.value.__cause__)]
    said = "\n".join([caplog.text, *records, *capfd.readouterr(), *errors])
    assert said.strip()
    assert [form for form in forms(SECRET) if form in said] == []


@pytest.mark.parametrize("line", [f"sasl.password: {SECRET}", f"sasl.password {SECRET}", f"={SECRET}", SECRET])
def test_a_line_that_is_no_setting_is_named_by_its_number(line: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"# credentials\n{line}\n")
    with pytest.raises(ConfigError, match="line 2") as refused:
        read_properties(file)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "refuse",
    [
        lambda: split_client_config({**SASL, "modeaware.mode.sauce": "log"}),
        lambda: split_settings({"modeaware_librdkafka": f"sasl.password={SECRET}"}),
        lambda: split_settings({"sasl_plain_password": SECRET, "modeaware_mode_sauce": "log"}),
        lambda: spark_options({**SASL, "sasl.mechanisms": "GSSAPI"}, "producer"),
        lambda: spark_options({**SASL, "transactional.id": "t"}, "producer"),
    ],
)
def test_a_refused_configuration_is_not_told(refuse: Callable[[], Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        refuse()
    assert SECRET not in f"{refused.value!s} {refused.value!r}"


REDACTED = re.compile("(?i)secret|password|token|access[.]?key")
"""What Spark does not show of options, by their names and values: the default of ``spark.redaction.regex``."""


@pytest.mark.parametrize("by", ["pem", "location"])
def test_spark_shows_no_option_with_a_secret(by: str, tmp_path: Path) -> None:
    (tmp_path / "pem").write_text(key := f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n")
    tls = {f"ssl.{what}.{by}": key if by == "pem" else str(tmp_path / "pem") for what in ("key", "certificate")}
    conf = {**SASL, **tls, "security.protocol": "SASL_SSL", "ssl.key.password": SECRET}
    options = spark_options(conf, "producer")
    del options["kafka.ssl.keystore.certificate.chain"]  # public
    secret = {name: value for name, value in options.items() if SECRET in value}
    assert secret.keys() == {f"kafka.{name}" for name in ("sasl.jaas.config", "ssl.keystore.key", "ssl.key.password")}
    assert all(REDACTED.search(name) or REDACTED.search(value) for name, value in secret.items())
    assert options["kafka.ssl.keystore.key"].endswith(f"\n{key}")
