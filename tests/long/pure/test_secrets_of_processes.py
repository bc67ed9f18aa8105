"""Processes that reach no broker tell no password in what they log at any level, nor in their errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.program import run_program
from tests.unit.test_secrets import NOBODY, SASL, SECRET, forms

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


def test_a_client_of_kafka_python_that_reaches_nobody_tells_no_password() -> None:
    done = run_program(SEND_WITH_KAFKA_PYTHON)
    assert done.returncode != 0
    assert "DEBUG:kafka" in done.stderr
    assert [form for form in forms(SECRET) if form in done.stdout + done.stderr] == []


@pytest.mark.parametrize("command", [["topics", "--list"], ["controller", "--once", "--verbose"]])
def test_commands_tell_no_password(command: list[str], tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in SASL.items() if name != "bootstrap.servers"))
    done = run_program(COMMAND, *command, "--bootstrap-server", NOBODY, "--command-config", str(file))
    assert done.returncode == 1
    assert "DEBUG:" in done.stderr
    assert f"no broker answers at {NOBODY}" in done.stderr
    assert [form for form in forms(SECRET) if form in done.stdout + done.stderr] == []
