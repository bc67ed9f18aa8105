"""The frame of the command: errors, exit statuses, the options that commands share, and what outweighs what."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

import modeaware.cli as cli
from modeaware.cli import run as run_module
from modeaware.cli import session
from modeaware.config import read_properties
from modeaware.errors import ModeAwareError
from modeaware.spark.command import evacuate_main, plan_main

COMMANDS = cli.COMMANDS
SERVER = ("--bootstrap-server", "127.0.0.1:1")


class Sample(cli.Command):
    """Does what its argument says."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("what")

    def run(self, args: argparse.Namespace) -> int:
        if args.what == "fail":
            raise ModeAwareError("broker here:1 said\nnone (all drained)")
        if args.what == "interrupt":
            raise KeyboardInterrupt
        if args.what == "talk":
            print("a line that nobody reads")
        return 7


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("sample_command")
    module.Sample = Sample  # type: ignore[attr-defined] - made here
    monkeypatch.setitem(sys.modules, "sample_command", module)
    entries = (
        cli.Entry("sample", "sample_command:Sample", "try things"),
        cli.Entry("missing", "no_such_package.command:Command", "needs an extra"),
    )
    monkeypatch.setattr(cli, "COMMANDS", entries)


@pytest.mark.usefixtures("commands")
@pytest.mark.parametrize(
    ("what", "status", "error"),
    [("work", 7, ""), ("fail", 1, "error: broker here:1 said\\nnone (all drained)\n"), ("interrupt", 130, "")],
)
def test_exit_status(what: str, status: int, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sample", what]) == status
    assert capsys.readouterr().err == error


@pytest.mark.usefixtures("commands")
def test_output_that_nobody_reads_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in ``modeaware ... | head``."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    with open(write_end, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert cli.main(["sample", "talk"]) == cli.OUTPUT_CLOSED
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("commands")
def test_a_missing_extra_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["missing"]) == 1
    assert "needs the package no_such_package: install modeaware[controller]" in capsys.readouterr().err


Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        path = tmp_path / "client.properties"
        path.write_text(text)
        return path

    return write


def _parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    session.add_connection_options(parser)
    session.add_controller_config_option(parser, "--config")
    return parser.parse_args(["--bootstrap-server", "kafka:9092", *arguments])


def test_a_properties_file_is_read_as_kafkas_tools_read_it(write: Write) -> None:
    path = write(
        "# comment\n! comment\n\nsecurity.protocol=SASL_SSL\n sasl.password = a=b#c \nssl.endpoint=\\\n  none\n"
    )
    assert read_properties(path) == {
        "security.protocol": "SASL_SSL",
        "sasl.password": "a=b#c",
        "ssl.endpoint": "none",
    }


@pytest.mark.parametrize(
    ("text", "arguments", "error"),
    [
        ("\xff", "topics --list", "cannot read "),
        ("no.such.setting=1\\", "topics --list", "client settings: No such configuration property"),
        ("sasl.jaas.config=org.apache", "topics --list", "use sasl.username and sasl.password"),
        ("", "topics --list", "environment variable MODEAWARE_VIEW_TIMEOUT_MS: "),
        ("", "check --role client --topic=", "a name cannot be empty"),
        ("", "check --role operator --transactional-id t", "the operator has its own"),
        ("", "check --role client --transactional-id t --group g", "check a client that reads and writes in two runs"),
        ("", "check --role client --closed-groups", "clients do not list groups"),
        ("", "apply no.such/topics.yaml", "error: cannot read no.such/topics.yaml"),
        ("", "reassign-partitions --verify --reassignment-json-file no.such/plan.json", "cannot be read"),
    ],
)
def test_settings_that_cannot_be_used_are_an_error(
    text: str,
    arguments: str,
    error: str,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = write("")
    path.write_bytes(text.encode("latin-1"))
    if "environment" in error:
        monkeypatch.setenv("MODEAWARE_VIEW_TIMEOUT_MS", "soon")
    assert cli.main([*arguments.split(), *SERVER, "--command-config", str(path)]) == 1
    assert error in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("shrink t --to 1 --delete-partitions-delay x", "'x' is not a whole number"),
        ("plan --topic t --partitions 100001", "100001 is more than 100000"),
        ("shrink t --to 1 --timeout x", "'x' is not a number"),
        ("shrink t --to 1 --timeout 0", "0 is not a number above 0"),
        ("topics --alter --topic t --partitions 2 --replica-assignment 1,x", "'1,x' is not ID:ID,ID:ID,..."),
        ("topics --create --topic t --replica-assignment 1:1", "partition 0 has a broker twice"),
        ("apply f --json", "--json needs --yes, --dry-run or --check"),
        ("run", "name a program, or a module with -m"),
        ("topics --topic t", "one of the arguments --create --list --describe --alter --delete --undo is required"),
        ("topics --undo", "--topic is needed"),
        ("topics --alter --topic t", "--alter needs --partitions N"),
        ("topics --alter --topic t --partitions 3 --delete-partitions-delay -5", "below 0"),
        ("topics --alter --topic t --partitions 3 --json", "--json belongs to --describe"),
        ("topics --alter --topic t --partitions 3 --config a=b", "altered with kafka-configs"),
        ("topics --alter --topic t --partitions 3 --replica-assignment 1,2", "for 2 partitions, not for 3"),
        ("topics --create --topic t --replica-assignment 1:2,1", "different replication factor"),
        ("topics --create --topic t --replica-assignment 1 --partitions 1", "leave the numbers out"),
        (
            "topics --create --topic t --replication-factor 2 --min-required-replication-factor 3",
            "3 is more than --replication-factor 2",
        ),
        ("topics --create --topic t --config retention.ms", "is not KEY=VALUE"),
        ("topics --create --topic t --if-exists", "--if-exists belongs to --describe, --alter, --delete"),
        ("topics --delete --topic t --partitions 3", "--delete takes no --partitions"),
        ("topics --describe --partitions 3", "without a number"),
        ("topics --describe --json --at-min-isr-partitions", "takes no filter"),
        ("topics --undo --topic t --immediate-delete", "belongs to --alter"),
        ("groups", "required: ACTION"),
        ("groups waive g --topic t --expires 1d", "required: --reason"),
        ("groups waive g --topic t --reason r", "one of the arguments --expires --forever is required"),
        ("groups waive g --topic t --reason r --expires soon", "'soon' is not a duration"),
        ("groups waive g --topic t --reason r --expires 0d", "not in the future"),
        ("groups forget waive --topic t", "name the GROUP"),
        ("groups forget closed g --topic t", "takes no GROUP"),
        ("reassign-partitions", "one of the arguments --execute --verify --cancel --list is required"),
        ("reassign-partitions --list --verify", "not allowed with"),
        ("reassign-partitions --verify", "--verify needs --reassignment-json-file"),
        ("reassign-partitions --list --reassignment-json-file f", "belongs to --execute, --verify, --cancel"),
        ("reassign-partitions --verify --reassignment-json-file f --additional", "--additional belongs to --execute"),
    ],
)
def test_bad_usage_is_named_and_ends_with_status_2(
    arguments: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([*arguments.split(), *(() if arguments in ("run", "groups") else SERVER)])
    assert caught.value.code == 2
    assert complaint in capsys.readouterr().err


def test_version_is_the_distribution_s(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"modeaware {version('modeaware')}\n"


OF_THIS_MACHINE = {"local up", "local down", "local status"}
"""They start a Kafka, or look whether it runs: there is no cluster to log in to."""


def leaves(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The parsers that take a command's options: its own, or those of its actions."""
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in nested:
        for word, inner in action.choices.items():
            yield from leaves(f"{name} {word}", inner)
    if not nested:
        yield name, parser


def every_parser() -> dict[str, argparse.ArgumentParser]:
    found: dict[str, argparse.ArgumentParser] = {}
    for entry in COMMANDS:
        parser = argparse.ArgumentParser()
        entry.load().configure(parser)
        found.update(leaves(entry.name, parser))
    return found


def test_every_command_that_talks_to_a_cluster_takes_a_properties_file(capsys: pytest.CaptureFixture[str]) -> None:
    options_of = {name: parser.format_help() for name, parser in every_parser().items()}
    for program in (plan_main, evacuate_main):
        with pytest.raises(SystemExit):
            program(["--help"])
        options_of[program.__name__] = capsys.readouterr().out
    assert len(options_of) > 15
    assert {name for name, text in options_of.items() if "--command-config" not in text} == OF_THIS_MACHINE
    without_servers = {name for name, text in options_of.items() if "--bootstrap-server" not in text}
    assert without_servers == {*OF_THIS_MACHINE, "run"}, "its program has its own configuration"


def test_flags_outweigh_the_file_and_that_the_environment(monkeypatch: pytest.MonkeyPatch, write: Write) -> None:
    file = write("client.id=me\nmodeaware.mode.log.topic=of-file\nbootstrap.servers=elsewhere:1\n")
    in_file, flag = ("--command-config", str(file)), ("--config", "modeaware.mode.log.topic=of-flag")

    def topics(*arguments: str) -> tuple[str, str]:
        args = _parse(*arguments)
        connection = session.connection(args)
        return connection.config.mode_log_topic, connection.controller.mode_log_topic

    assert topics() == ("__partition_modes",) * 2
    monkeypatch.setenv("MODEAWARE_MODE_LOG_TOPIC", "of-environment")
    assert topics() == ("of-environment",) * 2
    assert topics(*in_file) == ("of-file",) * 2
    assert topics(*in_file, *flag) == ("of-flag",) * 2, "what looks at one log must not keep another"
    conf = session.connection(_parse(*in_file)).conf
    assert conf == {"client.id": "me", "bootstrap.servers": "kafka:9092", "log_level": 0}


def test_run_hands_on_what_is_ours_in_the_file(monkeypatch: pytest.MonkeyPatch, write: Write) -> None:
    file = write("security.protocol=SSL\nmodeaware.mode.log.topic=of-file\nmodeaware.view.timeout.ms=7\n")
    monkeypatch.setattr(os, "environ", dict(os.environ))
    started: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda path, arguments: started.append(arguments))
    parser = argparse.ArgumentParser()
    run = run_module.Run()
    run.configure(parser)
    run.run(parser.parse_args(["--command-config", str(file), "--set", "modeaware.view.timeout.ms=9", "app.py", "--x"]))
    assert os.environ["MODEAWARE_MODE_LOG_TOPIC"] == "of-file"
    assert os.environ["MODEAWARE_VIEW_TIMEOUT_MS"] == "9"
    assert started[0][-2:] == ["app.py", "--x"]
