"""``modeaware reassign-partitions``: which options go together, what it says, and its progress."""

from __future__ import annotations

from pathlib import Path

import pytest

from modeaware import cli
from modeaware.admin.log_dirs import LogDirs
from modeaware.admin.reassignment_state import states
from modeaware.admin.reassignments import PartitionReassignment
from modeaware.cli import reassign_text as text

SERVER = ("--bootstrap-server", "127.0.0.1:1")
PLAN = ("--reassignment-json-file", "plan.json")
MOVING = PartitionReassignment((3, 1, 2), (3,), (1,))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "one of the arguments --generate --execute --verify --cancel --list is required"),
        (["--list", "--verify"], "not allowed with"),
        (["--list", *PLAN], 'Option "--reassignment-json-file" can\'t be used with action "--list"'),
        (["--execute", *PLAN, "--preserve-throttles"], "can't be used with action"),
        (["--execute", *PLAN, "--throttle", "-5"], "below 0"),
    ],
)
def test_options_that_do_not_go_together_are_bad_usage(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["reassign-partitions", *SERVER, *arguments])
    assert caught.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_bad_file_is_said_before_anybody_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "none.json")
    assert cli.main(["reassign-partitions", *SERVER, "--verify", "--reassignment-json-file", missing]) == 1
    assert "cannot be read" in capsys.readouterr().err
    (tmp_path / "empty.json").write_text("{}")
    empty = str(tmp_path / "empty.json")
    assert cli.main(["reassign-partitions", *SERVER, "--execute", "--reassignment-json-file", empty]) == 1
    assert "cannot be empty" in capsys.readouterr().err


def test_sentences() -> None:
    found = states(
        {("t", 0): (1,), ("t", 1): (1,), ("t", 2): (2, 3), ("u", 0): (1,)},
        {("t", 0): (1,), ("t", 1): (2,)},
        {("t", 2): MOVING},
    )
    assert text.status(found).splitlines() == [
        "Status of partition reassignment:",
        "Reassignment of partition t-0 is completed.",
        "There is no active reassignment of partition t-1, but replica set is 2 rather than 1.",
        "Reassignment of partition t-2 is still in progress.",
        "There is no active reassignment of partition u-0, but replica set is  rather than 1.",
    ]
    assert [key for key, state in found.items() if state.completed] == [("t", 0)]
    assert text.listing({}) == "No partition reassignments found."
    assert text.listing({("t", 2): MOVING}).splitlines()[1] == "t-2: replicas: 3,1,2. adding: 3. removing: 1."
    assert text.listing({("t", 2): PartitionReassignment((1,), (), ())}).splitlines()[1] == "t-2: replicas: 1."
    assert text.started([("t", 10), ("t", 2)]) == "Successfully started partition reassignments for t-2,t-10"
    assert text.cancelled([("t", 1)]) == "Successfully cancelled partition reassignment for: t-1"
    assert text.clearing("broker", [1]) == "Clearing broker-level throttles on broker 1"


def test_sentences_about_directories() -> None:
    places = [LogDirs("/a", "/b"), LogDirs("/a", "/c"), LogDirs("/b"), LogDirs("/a"), LogDirs(), LogDirs(None, "/b")]
    found = {("t", p, 1): each for p, each in enumerate(places)} | {("t", 9, 0): LogDirs("/b")}
    assert text.moves_status(dict.fromkeys(found, "/b"), found).splitlines() == [
        "Reassignment of replica t-9-0 completed successfully.",
        "Reassignment of replica t-0-1 is still in progress.",
        "Partition t-1 on broker 1 is being moved to log dir /c instead of /b.",
        "Reassignment of replica t-2-1 completed successfully.",
        "Partition t-3 on broker 1 is not being moved from log dir /a to /b.",
        "Partition t-4 cannot be found in any live log directory on broker 1.",
        "Reassignment of replica t-5-1 is still in progress.",
    ]
    assert text.moves_status({}, {}) == ""
