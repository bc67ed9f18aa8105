"""``modeaware local up|status|down`` as a person calls it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from modeaware.local.process import command_line
from tests.support.plain import create_topic, drain_topic, produce_keyed
from tests.support.waiting import eventually

Run = Callable[..., subprocess.CompletedProcess[str]]


def report(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The JSON that a command printed."""
    assert done.returncode == 0, done.stderr
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


@pytest.fixture
def modeaware(tmp_path: Path) -> Iterator[Run]:
    """Runs the command with a state folder of its own."""
    environment = {**os.environ, "MODEAWARE_STATE_DIR": str(tmp_path / "state")}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "modeaware", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)

    yield run
    run("local", "down")


def test_a_cluster_outlives_its_command_until_it_is_told_to_go(modeaware: Run, tmp_path: Path) -> None:
    assert modeaware("local", "status").returncode == 1

    servers = report(modeaware("local", "up", "--config", "num.partitions=3", "--json"))["bootstrap_servers"]
    create_topic(servers, "t", -1, configs={})
    produce_keyed(servers, "t", [(b"k", b"v")])

    again = modeaware("local", "up")
    assert f"already running at {servers}" in again.stdout
    assert [message.value() for message in drain_topic(servers, "t", range(3))] == [b"v"]
    assert "first call `modeaware local down`" in modeaware("local", "up", "--nodes", "3").stderr

    status = report(modeaware("local", "status", "--json"))
    (broker,) = status["brokers"]
    assert status["running"]
    assert Path(broker["log_path"]).is_file()

    assert modeaware("local", "down").stdout == "Stopped 1 broker(s)\n"
    assert not command_line(broker["pid"])
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["kafka.lock"]
    assert modeaware("local", "down").returncode == 0


def test_a_lost_broker_shows_and_is_replaced(modeaware: Run) -> None:
    first = report(modeaware("local", "up", "--json"))["brokers"][0]
    os.kill(first["pid"], signal.SIGKILL)
    eventually(lambda: not command_line(first["pid"]))

    status = modeaware("local", "status")
    assert (status.returncode, "not running" in status.stdout) == (1, True)

    second = report(modeaware("local", "up", "--json"))["brokers"][0]
    assert second["pid"] not in (None, first["pid"])
    assert modeaware("local", "status").returncode == 0
