"""The examples, run as a reader would run them, against a real broker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from modeaware.local import Kafka
from modeaware.testing import run_controller
from tests.conftest import MakeTopic
from tests.support.plain import drain_topic, watermarks

EXAMPLES = Path(__file__).parents[3] / "examples"
TIMEOUT_S = 90


def run_example(kafka: Kafka, name: str, *arguments: str) -> str:
    """What the example prints; it must succeed and leave nothing on standard error."""
    command = [sys.executable, str(EXAMPLES / name), "--bootstrap-server", kafka.bootstrap_servers, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(300)
def test_produce_consume_shrink_and_grow(kafka: Kafka, make_topic: MakeTopic, make_group: Callable[[], str]) -> None:
    topic, group = make_topic(12), make_group()

    produced = run_example(kafka, "producer.py", "--topic", topic, "--records", "500")
    assert sum(int(line.split()[2]) for line in produced.splitlines()) == 500
    consumed = run_example(kafka, "consumer.py", "--topic", topic, "--group", group, "--idle-s", "3")
    assert consumed == f"500 records; partitions now: {list(range(12))}\n"

    with run_controller(kafka.bootstrap_servers):
        story = run_example(kafka, "shrink_with_admin_client.py", "--topic", topic, "--partitions", "4", "--then", "6")
    lines = [line.partition(": ")[2] for line in story.splitlines()]
    assert lines[-1] == "ReadWrite 0-5, None 6-11"
    assert "ReadWrite 0-3, None 4-11" in lines
    assert all(start == end for p, (start, end) in watermarks(kafka.bootstrap_servers, topic).items() if p >= 4)

    produced = run_example(kafka, "producer.py", "--topic", topic, "--records", "300")
    assert {int(line.split()[1].rstrip(":")) for line in produced.splitlines()} <= set(range(6))
    assert all((message.partition() or 0) < 6 for message in drain_topic(kafka.bootstrap_servers, topic))
    consumed = run_example(kafka, "consumer.py", "--topic", topic, "--group", group, "--idle-s", "3")
    assert consumed == f"300 records; partitions now: {list(range(6))}\n"


def test_every_example_is_run_here() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    elsewhere = ("spark_", "quixstreams_")  # see tests/long/spark, and test_adoption_quixstreams.py
    here = [path.name for path in EXAMPLES.glob("*.py") if not path.name.startswith(elsewhere)]
    assert all(f'"{name}"' in source for name in here)
