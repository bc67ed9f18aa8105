"""``modeaware topics``, ``shrink`` and ``grow``: which options go together, and which command they make."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from modeaware import cli
from modeaware.cli import change
from modeaware.cli.change import CommandOf
from modeaware.lifecycle.commands import Command, CreatePartitionsCommand, DeletePartitionsCommand
from tests.unit.test_cli_plan import FRESH, SHRINKING

SERVER = ("--bootstrap-server", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--topic", "t"], "one of the arguments --create --list --describe --alter --delete --undo is required"),
        (["--alter", "--describe", "--topic", "t"], "not allowed with"),
        (["--undo"], "--topic is needed"),
        (["--alter", "--topic", "t"], "--alter needs --partitions N"),
        (["--alter", "--topic", "t", "--partitions", "few"], "invalid int value"),
        (["--alter", "--topic", "t", "--partitions", "3", "--delete-partitions-delay", "-5"], "below 0"),
        (["--alter", "--topic", "t", "--partitions", "3", "--json"], "--json belongs to --describe"),
        (["--alter", "--topic", "t", "--partitions", "3", "--config", "a=b"], "altered with kafka-configs"),
        (
            ["--alter", "--topic", "t", "--partitions", "3", "--replica-assignment", "1,2"],
            "for 2 partitions, not for 3",
        ),
        (["--create", "--topic", "t", "--replica-assignment", "1:1"], "a broker twice"),
        (["--create", "--topic", "t", "--replica-assignment", "1:2,1"], "different replication factor"),
        (["--create", "--topic", "t", "--replica-assignment", "1", "--partitions", "1"], "leave the numbers out"),
        (["--create", "--topic", "t", "--replication-factor", "0"], "between 1 and 32767"),
        (["--create", "--topic", "t", "--min-required-replication-factor", "0"], "must be 1 or more"),
        (
            ["--create", "--topic", "t", "--replication-factor", "2", "--min-required-replication-factor", "3"],
            "3 is more than --replication-factor 2",
        ),
        (["--create", "--topic", "t", "--config", "retention.ms"], "is not KEY=VALUE"),
        (["--create", "--topic", "t", "--if-exists"], "--if-exists belongs to --describe, --alter, --delete"),
        (["--delete", "--topic", "t", "--partitions", "3"], "--delete takes no --partitions"),
        (["--list", "--unavailable-partitions"], "--unavailable-partitions belongs to --describe"),
        (["--describe", "--partitions", "3"], "without a number"),
        (["--describe", "--topics-with-overrides", "--at-min-isr-partitions"], "--topics-with-overrides"),
        (["--describe", "--json", "--at-min-isr-partitions"], "takes no filter"),
        (["--describe", "--partition-size-limit-per-response", "0"], "must be greater than 0"),
        (["--undo", "--topic", "t", "--immediate-delete"], "belongs to --alter"),
        (["--undo", "--topic", "t", "--partitions", "3"], "--undo takes no --partitions"),
    ],
)
def test_options_that_do_not_go_together_are_bad_usage(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["topics", *SERVER, *arguments])
    assert caught.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["shrink", "t", "--to", "4"], DeletePartitionsCommand("t", 4, -1)),
        (["shrink", "t", "--to", "13"], DeletePartitionsCommand("t", 13, -1)),
        (["shrink", "t", "--to", "4", "--evacuate"], DeletePartitionsCommand("t", 4, evacuate=True)),
        (["shrink", "t", "--to", "4", "--delete-partitions-delay", "0"], DeletePartitionsCommand("t", 4, 0)),
        (["shrink", "t", "--to", "4", "--immediate-delete"], DeletePartitionsCommand("t", 4, -1, True)),
        (
            ["shrink", "t", "--to", "4", "--accept-state-loss", "b", "--accept-state-loss", "a"],
            DeletePartitionsCommand("t", 4, accept_state_loss=("b", "a")),
        ),
        (["grow", "t", "--to", "13"], CreatePartitionsCommand("t", 13)),
        (["topics", "--alter", "--topic", "t", "--partitions", "4"], DeletePartitionsCommand("t", 4, -1)),
        (["topics", "--alter", "--topic", "t", "--partitions", "12"], DeletePartitionsCommand("t", 12, -1)),
        (["topics", "--alter", "--topic", "t", "--partitions", "13"], CreatePartitionsCommand("t", 13)),
        (
            ["topics", "--alter", "--topic", "t", "--partitions", "13", "--replica-assignment", ",".join(["1:2"] * 13)],
            CreatePartitionsCommand("t", 13, ((1, 2),)),
        ),
        (["topics", "--undo", "--topic", "t"], None),
    ],
)
def test_options_make_the_command(
    arguments: list[str], expected: Command | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def run_change(args: argparse.Namespace, topic: str, command_of: CommandOf, **_: object) -> int:
        made.append((topic, command_of(FRESH)))
        return 0

    for module in ("topics", "change"):
        monkeypatch.setattr(f"modeaware.cli.{module}.run_change", run_change)
    assert cli.main([*arguments, *SERVER]) == 0
    assert made == [("t", expected)]


@pytest.mark.parametrize(
    ("file", "option"),
    [([], ""), (["--command-config", "my conf/c"], " --command-config 'my conf/c'")],
    ids=["none", "quoted"],
)
def test_proposed_commands_connect_as_this_one_did(
    file: list[str], option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "my conf").mkdir()
    (tmp_path / "my conf" / "c").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(change, "connect", lambda _: None)
    monkeypatch.setattr(change, "look", lambda *_: SHRINKING)
    monkeypatch.setattr(change, "wait_for_topic", interrupted)
    monkeypatch.setattr(change, "embedded_controller", lambda *_: nullcontext(SimpleNamespace(failure=None)))
    assert cli.main(["shrink", "t", "--to", "4", "--delete-partitions-delay", "0", "--wait", *SERVER, *file]) == 130
    where = f"--bootstrap-server 127.0.0.1:1{option}"
    assert capsys.readouterr().err.splitlines()[-3:] == [
        f"Left. The change rests until a controller runs: modeaware controller {where}",
        f"Watch it:     modeaware topics {where} --describe --topic t",
        f"Take it back: modeaware topics {where} --undo --topic t",
    ]
