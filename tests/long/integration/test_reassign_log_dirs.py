"""Directories in a plan: replicas move between those of one broker (KIP-113)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from modeaware.admin.log_dirs import LogDirs, find_log_dirs
from modeaware.admin.throttle import LOG_DIRS_RATE
from modeaware.cli.reassign_text import VERIFY_PERIODICALLY
from modeaware.local import LocalKafka
from tests.conftest import MakeKafka
from tests.support.command_line import Site
from tests.support.reassigning import Moving
from tests.support.waiting import eventually


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str, str]:
    return str(tmp_path / "disk1"), str(tmp_path / "disk2")


@pytest.fixture
def two_disks(make_kafka: MakeKafka, folders: tuple[str, str]) -> LocalKafka:
    # With arguments it is the storage tool that formats, and that makes all of the directories.
    return make_kafka(1, configs={"log.dirs": ",".join(folders)}, format_args=("--ignore-formatted",))


@pytest.fixture
def moving(two_disks: LocalKafka) -> Iterator[Moving]:
    made = Moving(two_disks)
    yield made
    made.close()


def test_a_replica_moves_to_another_directory(
    two_disks: LocalKafka,
    moving: Moving,
    folders: tuple[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (node,) = moving.nodes
    topic = moving.topic([node])
    moving.fill(topic, 0)
    replica = (topic, 0, node)
    here = eventually(lambda: find_log_dirs(moving.brokers, [replica])[replica].current)
    (there,) = {*folders} - {here}
    entry = {"topic": topic, "partition": 0, "replicas": [node], "log_dirs": [there]}
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    site = Site(two_disks, tmp_path, capsys)
    file = ("reassign-partitions", "--reassignment-json-file", str(plan))

    told = site.run(*file, "--execute", "--replica-alter-log-dirs-throttle", "1")
    assert told.status == 0, told.err
    assert told.out.splitlines()[-4:] == [
        VERIFY_PERIODICALLY,
        "The replica-alter-dir throttle limit was set to 1 B/s",
        f"Successfully started partition reassignment for {topic}-0",
        f"Successfully started moving log directory to {there} for replica {topic}-0 with broker {node} ",
    ]
    assert find_log_dirs(moving.brokers, [replica]) == {replica: LogDirs(here, there)}
    told = site.run(*file, "--verify")
    assert told.out.splitlines()[2:] == [f"Reassignment of replica {topic}-0-{node} is still in progress."]

    told = site.run(*file, "--cancel")
    assert told.status == 0, told.err
    assert f"Successfully started moving log directory to {here} for replica {topic}-0" in told.out
    eventually(lambda: find_log_dirs(moving.brokers, [replica]) == {replica: LogDirs(here)})
    assert LOG_DIRS_RATE not in moving.configs("broker", str(node))
    told = site.run(*file, "--verify", "--wait")
    assert told.status == 1, "it is not where the plan wants it"

    told = site.run(*file, "--execute", "--wait")
    assert told.status == 0, told.err
    assert f"Reassignment of replica {topic}-0-{node} completed successfully." in told.out
    assert "1 of 2 moves done" in told.err or "2 of 2 moves done (100%)" in told.err
    assert find_log_dirs(moving.brokers, [replica]) == {replica: LogDirs(there)}

    entry["log_dirs"] = [str(tmp_path / "nowhere")]
    plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    told = site.run(*file, "--execute")
    assert told.status == 1
    assert f"cannot alter the directory of {topic}-0-{node}" in told.err
