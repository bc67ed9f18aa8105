"""Settings for clients that know nothing of us: whose word counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from modeaware.config import (
    set_process_settings,
    split_client_config,
    with_process_settings,
)
from tests.support.program import run_program


@pytest.fixture(autouse=True)
def _none_left() -> Iterator[None]:
    yield
    set_process_settings({})


def test_a_clients_own_setting_wins() -> None:
    set_process_settings({"modeaware.mode.log.topic": "modes", "modeaware.view.timeout.ms": 1})
    config, rest = split_client_config(with_process_settings({"modeaware.view.timeout.ms": 2, "client.id": "c"}))
    assert (config.mode_log_topic, config.view_timeout_ms, rest) == ("modes", 2, {"client.id": "c"})


def test_clients_of_a_framework_get_them_and_what_install_says_wins_over_the_environment() -> None:
    program = """
import os
os.environ["MODEAWARE_MODE_LOG_TOPIC"] = "of-the-environment"
os.environ["MODEAWARE_VIEW_TIMEOUT_MS"] = "17"
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
import modeaware
from modeaware.views import registry
asked = []
registry.acquire, acquire = lambda conf, config: asked.append(config) or acquire(conf, config), registry.acquire
modeaware.install(modeaware_mode_log_topic="modes")
modeaware.install(**{"modeaware.on.resize": "ignore"})
conf = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
Producer(conf).close()
Producer({**conf, "modeaware.mode.log.topic": "its-own"}).close()
Consumer({**conf, "group.id": "g"}).close()
modeaware.uninstall()
modeaware.Producer(conf).close()
for config in asked:
    print(config.mode_log_topic, config.view_timeout_ms, config.on_resize)
"""
    done = run_program(program)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "modes 17 ignore",
        "its-own 17 ignore",
        "modes 17 ignore",
        "__partition_modes 10000 warn",
    ]
