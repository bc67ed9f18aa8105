"""Credentials of a configuration are in no log line and in no error's text, whatever the level.

No broker answers here. That a real one's handshakes leave nothing in the log either is in
``tests/integration/test_endpoint_logs.py``.
"""

from __future__ import annotations

import base64
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import modeaware
from modeaware.config import split_client_config
from modeaware.errors import ConfigError, ModeAwareError
from modeaware.keyword_settings import split_settings
from modeaware.librdkafka import KafkaException
from modeaware.properties import read_properties
from modeaware.spark.java_conf import spark_options

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
    consumer = modeaware.Consumer({**SASL, "group.id": "billing"})
    try:
        consumer.subscribe(["orders"])
        consumer.poll(1.0)
    finally:
        consumer.close()


def _ask() -> None:
    admin = modeaware.AdminClient(SASL)
    try:
        admin.describe_modes(["orders"], request_timeout=1)["orders"].result(30)
    finally:
        admin.close()


# In a process of its own: kafka-python leaves sockets behind where nobody answers.
SEND_WITH_KAFKA_PYTHON = f"""
import logging
logging.basicConfig(level=logging.DEBUG)
from modeaware.kafka_python import KafkaProducer
KafkaProducer(
    bootstrap_servers="{NOBODY}",
    security_protocol="SASL_PLAINTEXT",
    sasl_mechanism="PLAIN",
    sasl_plain_username="alice",
    sasl_plain_password="{SECRET[:5]}" + "{SECRET[5:]}",
    bootstrap_timeout_ms=500,
)
"""


COMMAND = """
import logging, sys
logging.basicConfig(level=logging.DEBUG)
from modeaware.cli import main
sys.exit(main(sys.argv[1:]))
"""


def told(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], *more: object) -> str:
    """All that was logged and printed by now."""
    # Arguments and tracebacks too: another handler may format a record as it likes.
    records = [f"{record.getMessage()} {record.args!r} {record.exc_text}" for record in caplog.records]
    return "\n".join([caplog.text, *records, *capfd.readouterr(), *map(repr, more), *map(str, more)])


def forms(secret: str) -> tuple[str, ...]:
    return secret, base64.b64encode(secret.encode()).decode().rstrip("="), secret.encode().hex()


@pytest.mark.parametrize("work", [_produce, _consume, _ask])
def test_clients_that_reach_nobody_tell_no_password(
    work: Callable[[], None], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises((ModeAwareError, KafkaException)) as failed:
        work()
    said = told(caplog, capfd, failed.value, failed.value.__cause__)
    assert said.strip()
    assert [form for form in forms(SECRET) if form in said] == []


def test_a_client_of_kafka_python_that_reaches_nobody_tells_no_password() -> None:
    done = subprocess.run([sys.executable, "-c", SEND_WITH_KAFKA_PYTHON], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "DEBUG:kafka" in done.stderr
    assert [form for form in forms(SECRET) if form in done.stdout + done.stderr] == []


@pytest.mark.parametrize(
    "command",
    [
        ["topics", "--list"],
        ["controller", "--once", "--verbose"],
    ],
    ids=lambda command: command[0],
)
def test_commands_tell_no_password(command: list[str], tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in SASL.items() if name != "bootstrap.servers"))
    arguments = [*command, "--bootstrap-server", NOBODY, "--command-config", str(file)]
    done = subprocess.run([sys.executable, "-c", COMMAND, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "DEBUG:" in done.stderr
    assert f"no broker answers at {NOBODY}" in done.stderr
    assert [form for form in forms(SECRET) if form in done.stdout + done.stderr] == []


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
