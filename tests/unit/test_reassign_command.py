"""``modeaware reassign-partitions``: which options go together, its files, what it does and prints."""

from __future__ import annotations

import argparse
import io
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from modeaware import cli
from modeaware.admin.reassignments import MoveState, PartitionReassignment
from modeaware.cli import reassign
from modeaware.cli.progress import Progress
from modeaware.cli.reassign import (
    Assignment,
    cancel,
    execute,
    format_assignment,
    listing,
    parse_assignment,
    status,
    verify,
    wait_until_final,
)
from modeaware.errors import ErrorCode, RequestRefused
from tests.support.fake_brokers import FakeCluster

SERVER = ("--bootstrap-server", "127.0.0.1:1")
MOVING = PartitionReassignment((3, 1, 2), (3,), (1,))
TO_3 = {("t", 0): (3,)}
ENTRY = {"topic": "t", "partition": 0, "replicas": [1, 2]}


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster({("t", 0): (1,), ("t", 1): (1, 2), ("u", 0): (1,)})


def test_sentences() -> None:
    states = {
        ("t", 0): MoveState((1,), (1,), active=False),
        ("t", 1): MoveState((2,), (1,), active=False),
        ("t", 2): MoveState((3, 1, 2), (2, 3), active=True),
        ("u", 0): MoveState((), (1,), active=False),
    }
    assert status(states).splitlines() == [
        "Status of partition reassignment:",
        "Reassignment of partition t-0 is completed.",
        "There is no active reassignment of partition t-1, but replica set is 2 rather than 1.",
        "Reassignment of partition t-2 is still in progress.",
        "There is no active reassignment of partition u-0, but replica set is  rather than 1.",
    ]
    assert listing({}) == "No partition reassignments found."
    assert listing({("t", 2): MOVING}).splitlines()[1] == "t-2: replicas: 3,1,2. adding: 3. removing: 1."
    assert listing({("t", 2): PartitionReassignment((1,), (), ())}).splitlines()[1] == "t-2: replicas: 1."


def test_what_kafkas_tool_prints_is_read_and_printed_to_the_letter() -> None:
    printed = (
        '{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1,2],"log_dirs":["any","any"]},'
        '{"topic":"a","partition":10,"replicas":[3],"log_dirs":["any"]}]}'
    )
    plan = parse_assignment(printed)
    assert plan == {("a", 0): (1, 2), ("a", 10): (3,)}
    assert format_assignment(plan) == printed


@pytest.mark.parametrize(("directory", "ignored"), [("/b", True), ("any", False)])
def test_log_directories_are_ignored_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], directory: str, ignored: bool
) -> None:
    """Kafka's tool prints the directories of the present replicas in the file to return to them."""
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan_of({**ENTRY, "log_dirs": ["any", directory]})))
    assert cli.main(["reassign-partitions", *SERVER, "--reassignment-json-file", str(file), "--verify"]) == 1
    told = capsys.readouterr().err
    assert "error: " in told, "no broker listens there"
    assert ("log_dirs are ignored" in told) is ignored


def test_file_that_cannot_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    absent = str(tmp_path / "absent.json")
    assert cli.main(["reassign-partitions", *SERVER, "--reassignment-json-file", absent, "--execute"]) == 1
    assert capsys.readouterr().err.startswith(f"error: {absent} cannot be read")


def plan_of(*entries: object, **fields: object) -> dict[str, object]:
    return {"version": 1, "partitions": list(entries), **fields}


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ("{", "not a valid JSON"),
        (plan_of(ENTRY, version=2), "Not supported version field value 2"),
        ({"version": 1}, "Partition reassignment list cannot be empty"),
        (plan_of({**ENTRY, "replicas": []}), "Partition replica list cannot be empty"),
        (plan_of({**ENTRY, "replicas": [1, 1]}), "duplicate entries: t-0 contains multiple entries for 1"),
        (plan_of(ENTRY, ENTRY), "contains duplicate topic partitions: t-0"),
        (plan_of({**ENTRY, "replicas": ["1"]}), "Expected"),
        (plan_of({"topic": "t", "partition": 0}), "Expected"),
        ({"partitions": {}}, "Expected an array"),
        ([], "not a valid JSON object"),
    ],
)
def test_malformed_plans_are_refused(document: Any, complaint: str) -> None:
    with pytest.raises(RequestRefused) as raised:
        parse_assignment(document if isinstance(document, str) else json.dumps(document))
    assert complaint in str(raised.value)


def test_the_way_back_is_written_before_anything_changes(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    written, seen = io.BytesIO(), []
    cluster.before_change = lambda name: seen.append(b"during rollback" in written.getvalue())
    with io.TextIOWrapper(written) as out:
        monkeypatch.setattr(sys, "stdout", out)
        execute(cluster, TO_3)
    assert seen == [True]


def test_a_partition_moves_off_a_broker_that_is_down(cluster: FakeCluster) -> None:
    cluster.down = {1}
    execute(cluster, TO_3)
    assert cluster.altered == [(True, TO_3)]


@pytest.mark.parametrize(
    ("plan", "complaint"),
    [
        ({("t", 0): (9,)}, "Unknown broker id 9"),
        ({("none", 0): (1,)}, "Topic none not found."),
        ({("t", 7): (1,)}, "Unable to find partition: t-7"),
    ],
)
def test_a_plan_that_does_not_fit_the_cluster_is_refused(
    cluster: FakeCluster, plan: Assignment, complaint: str
) -> None:
    with pytest.raises(RequestRefused, match=complaint):
        execute(cluster, plan)
    assert cluster.altered == []


def test_partitions_that_were_refused_are_named(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.refuse = {("u", 0): ErrorCode.INVALID_REPLICATION_FACTOR}
    with pytest.raises(RequestRefused, match="u-0: "):
        execute(cluster, {("t", 0): (3,), ("t", 1): (2,), ("u", 0): (2, 3)})
    assert "Successfully started partition reassignments for t-0,t-1\n" in capsys.readouterr().out


def test_cancellations_that_were_refused_are_named(cluster: FakeCluster) -> None:
    cluster.in_progress, cluster.refuse = [{("t", 0): MOVING}], {("t", 0): ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
    with pytest.raises(RequestRefused, match=r"(?s)Error cancelling partition reassignment for:.*t-0: "):
        cancel(cluster, TO_3)


def test_the_progress_is_shown_until_nothing_moves(cluster: FakeCluster) -> None:
    cluster.in_progress = [{("t", 0): MOVING}, {("u", 0): MOVING}]
    out = io.StringIO()
    wait_until_final(cluster, {("t", 0): (3, 2), ("t", 1): (1, 2)}, Progress(out))
    [line] = out.getvalue().splitlines()
    assert line.endswith("1 of 2 partitions done; moving: t-0")


def test_commands_after_an_interruption_can_be_typed_as_they_are(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written, seen = io.BytesIO(), []

    def interrupt(*_: object) -> None:
        seen.append(written.getvalue())
        raise KeyboardInterrupt

    monkeypatch.setattr(reassign, "wait_until_final", interrupt)
    config, file = Path("my client.conf"), Path("it's.json")
    args = argparse.Namespace(bootstrap_server="one:1,two:2", command_config=config, reassignment_json_file=file)
    with io.TextIOWrapper(written) as out, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        print("started")
        with pytest.raises(KeyboardInterrupt):
            reassign._wait(cluster, TO_3, args)  # private: the command would make a cluster of its own
    assert seen == [b"started\n"]
    watch = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("Watch it:"))
    assert shlex.split(watch.removeprefix("Watch it:")) == [
        *("modeaware", "reassign-partitions", "--reassignment-json-file", "it's.json", "--verify", "--wait"),
        *("--bootstrap-server", "one:1,two:2", "--command-config", "my client.conf"),
    ]


def test_a_broker_that_lags_is_asked_again(cluster: FakeCluster) -> None:
    cluster.behind = {1: {("t", 0): (2,), ("t", 1): (1, 2)}}

    def pauses_s() -> Iterator[float]:
        yield 0.0
        cluster.behind = {}
        yield 0.0

    there = {("t", 0): (1,), ("t", 1): (1, 2)}
    assert not verify(cluster, there)
    assert verify(cluster, there, pauses_s=pauses_s())
    assert not verify(cluster, TO_3, pauses_s=[0.0, 0.0])
