"""The fixtures of modeaware.testing on a real Kafka, in a project that knows nothing of this one."""

from __future__ import annotations

import uuid
from pathlib import Path

from modeaware.local import Kafka
from modeaware.modelog.reader import read_mode_log
from tests.support.program import documented, run_pytest

CONFTEST = """
import pytest


@pytest.fixture(scope="session")
def modeaware_controller_configs():
    return {{"mode_log_topic": "{log}"}}


@pytest.fixture(scope="session", autouse=True)
def of_the_whole_run(modeaware_controller):
    assert modeaware_controller.is_active
"""


def test_the_documented_test_with_a_controller_passes(kafka: Kafka, tmp_path: Path) -> None:
    """On the Kafka of this run, with a mode log of its own: others use the default one."""
    log = f"__modes-{uuid.uuid4().hex[:12]}"
    test = documented("A real Kafka and a controller")
    conf = 'conf = {"bootstrap.servers": modeaware_kafka.bootstrap_servers'
    assert conf in test
    done = run_pytest(
        tmp_path,
        test.replace(conf, f'{conf}, "modeaware.mode.log.topic": "{log}"'),
        conftest=CONFTEST.format(log=log),
        KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers,
        MODEAWARE_LOCAL_KAFKA="",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    records = read_mode_log({"bootstrap.servers": kafka.bootstrap_servers}, log, 20).records
    assert [(len(record.modes), record.view().writable) for record in records.values()] == [(6, (0, 1))]
