"""The same tasks with kafka-reassign-partitions.sh and with ours: the same flags, the same words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from modeaware.admin.reassignment_json import format_plan
from modeaware.admin.reassignments import alter_reassignments
from modeaware.local import LocalKafka
from tests.support.command_line import Site
from tests.support.kafka_tools import finish_tool
from tests.support.reassigning import Moving


@pytest.fixture
def moving(kafka3: LocalKafka) -> Iterator[Moving]:
    made = Moving(kafka3)
    yield made
    made.close()


@pytest.fixture
def both(kafka3: LocalKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """Exit status and output of Kafka's tool and of ours, without our "error: "."""
    site = Site(kafka3, tmp_path, capsys)

    def run(*arguments: str) -> tuple[str, str]:
        told = site.run("reassign-partitions", *arguments)
        server = f"--bootstrap-server {kafka3.bootstrap_servers}"
        done = finish_tool(f"kafka-reassign-partitions.sh {server} {' '.join(arguments)}")
        ours = told.out + told.err.removeprefix("error: ")
        theirs = done.out.replace(
            "moves are active.Clearing", "moves are active.\nClearing"
        )  # it forgets to end the line
        return f"{done.status}: {theirs.rstrip()}", f"{told.status}: {ours.rstrip()}"

    return run


def test_the_words_are_kafkas(moving: Moving, both: Callable[..., tuple[str, str]], tmp_path: Path) -> None:
    one, two, three = moving.nodes
    topic, other = moving.topic([two, one], [two, one]), moving.topic([one])
    settled, plan = tmp_path / "settled.json", tmp_path / "plan.json"
    settled.write_text(format_plan(moving.replicas(topic)))
    plan.write_text(format_plan({(other, 0): (two, three)}))
    of_settled = ("--reassignment-json-file", str(settled))
    moving.fill(other, 0)
    runs = [both("--list")]
    runs.append(both("--execute", *of_settled, "--throttle", "1000", "--disallow-replication-factor-change"))
    runs.append(both("--verify", *of_settled))
    runs.append(both("--cancel", *of_settled))
    with moving.throttled(other, {(other, 0): (two, three)}):
        assert alter_reassignments(moving.brokers, {(other, 0): (two, three)}) == {(other, 0): None}
        runs.append(both("--list"))
        runs.append(both("--verify", "--reassignment-json-file", str(plan), "--preserve-throttles"))
        runs.append(both("--execute", *of_settled))
    moving.wait_until(other, {0: (two, three)})
    runs.append(both("--verify", "--reassignment-json-file", str(plan)))
    for theirs, ours in runs:
        assert ours == theirs
