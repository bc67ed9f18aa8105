"""The frame of the command: errors, exit statuses, the options that commands share, and what outweighs what."""

from __future__ import annotations

import argparse
import json
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
from modeaware.errors import ConfigError, ModeAwareError
from modeaware.local.cluster import DetachedKafka
from modeaware.reports.serialise import json_text
from modeaware.spark.command import evacuate_main

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
        cli.Entry("sample", "sample_command:Sample", "try things", "Run"),
        cli.Entry("missing", "no_such_package.command:Command", "needs an extra", "Run"),
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
        ("", "check --role client --group=", "empty name of a topic, group"),
        ("", "check --role operator --transactional-id t", "not with --role operator"),
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
        ("shrink t --partitions 1 --delay x", "'x' is not a duration"),
        ("shrink t --partitions 1 --delay 3600000", "'3600000' has no unit"),
        ("replace t=u --partitions 1 --delay 5", "'5' has no unit"),
        ("shrink t --to 1", "the following arguments are required: --partitions"),
        ("plan t --partitions 100001", "100001 is more than 100000"),
        ("shrink t --partitions 1 --timeout 30", "'30' has no unit: 30ms, 30s, 30m, 30h or 30d?"),
        ("shrink t --partitions 1 --timeout 0s", "0s is not above 0"),
        ("topics --alter --topic t --partitions 2 --replica-assignment 1,x", "'1,x' is not ID:ID,ID:ID,..."),
        ("topics --create --topic t --replica-assignment 1:1", "partition 0 has a broker twice"),
        ("apply f --json", "--json needs --yes, --dry-run or --check"),
        ("run", "name a program, or a module with -m"),
        ("topics --topic t", "one of the arguments --create --list --describe --alter --delete --undo is required"),
        ("topics --undo", "--topic is needed"),
        ("topics --alter --topic t --partitions 3 --delete-partitions-delay 12h", "'12h' is not a whole number"),
        ("topics --alter --topic t", "--alter needs --partitions N"),
        ("topics --alter --topic t --partitions 3 --delete-partitions-delay -5", "below 0"),
        ("topics --alter --topic t --partitions 3 --json", "--json works only with --describe"),
        ("topics --alter --topic t --partitions 3 --config a=b", "alter configs with kafka-configs"),
        ("topics --alter --topic t --partitions 3 --replica-assignment 1,2", "for 2 partitions, not for 3"),
        ("topics --create --topic t --replica-assignment 1:2,1", "different replication factor"),
        ("topics --create --topic t --replica-assignment 1 --partitions 1", "leave the numbers out"),
        (
            "topics --create --topic t --replication-factor 2 --min-required-replication-factor 3",
            "3 is more than --replication-factor 2",
        ),
        ("topics --create --topic t --config retention.ms", "is not KEY=VALUE"),
        ("topics --create --topic t --if-exists", "--if-exists works only with --describe, --alter, --delete"),
        ("topics --delete --topic t --partitions 3", "--delete takes no --partitions"),
        ("topics --describe --partitions 3", "without a number"),
        ("topics --describe --json --at-min-isr-partitions", "takes no filter"),
        ("topics --undo --topic t --immediate-delete", "works only with --alter"),
        ("groups", "required: ACTION"),
        ("groups waive g --topic t --expires 1d", "required: --reason"),
        ("groups waive g --topic t --reason r", "one of the arguments --expires --forever is required"),
        ("groups waive g --topic t --reason r --expires soon", "'soon' is not a duration"),
        ("groups waive g --topic t --reason r --expires 0d", "not in the future"),
        ("groups waive g --topic t --reason r --expires 20300131", "'20300131' has no unit"),
        ("groups waive g --topic t --reason r --expires 2w", "'2w' is not a duration"),
        ("groups forget waive --topic t", "GROUP is missing"),
        ("groups forget closed g --topic t", "takes no GROUP"),
        ("reassign-partitions", "one of the arguments --execute --verify --cancel --list is required"),
        ("reassign-partitions --list --verify", "not allowed with"),
        ("reassign-partitions --verify", "--verify needs --reassignment-json-file"),
        ("reassign-partitions --list --reassignment-json-file f", "works only with --execute, --verify, --cancel"),
        (
            "reassign-partitions --verify --reassignment-json-file f --additional",
            "--additional works only with --execute",
        ),
    ],
)
def test_bad_usage_is_named_and_ends_with_status_2(
    arguments: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([*arguments.split(), *(() if arguments in ("run", "groups") else SERVER)])
    assert caught.value.code == 2
    assert complaint in capsys.readouterr().err


def test_without_a_command_all_are_listed_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([])
    lines = capsys.readouterr().out.splitlines()
    begin = lines.index(f"{cli.GROUPS[0]}:")
    listed = [line for line in lines[begin:] if line.startswith("  ")]
    assert (caught.value.code, sorted(line.split()[0] for line in listed)) == (0, sorted(e.name for e in COMMANDS))
    assert [line for line in lines[begin:] if line.endswith(":")] == [f"{group}:" for group in cli.GROUPS]
    assert all(len(line) <= 80 for line in listed), "a line each, also on a small terminal"


@pytest.mark.parametrize(
    ("typed", "complaint"),
    [
        (("shrnk", "t", "--partitions", "1"), "no command: 'shrnk'; did you mean 'shrink'?"),
        (("topic", "--list"), "no command: 'topic'; did you mean 'topics'?"),
        (("xyz",), "invalid choice: 'xyz' (choose from"),
        (("groups", "lst"), "no action of groups: 'lst'; did you mean 'list'?"),
        (("alias", "xyz"), "invalid choice: 'xyz' (choose from"),
    ],
)
def test_a_mistyped_command_gets_its_neighbour(
    typed: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(typed)
    assert (caught.value.code, complaint in capsys.readouterr().err) == (2, True)


def test_version_is_the_distribution_s(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"modeaware {version('modeaware')}\n"


WITHOUT_A_CLUSTER = {"jar", "local up", "local down", "local status", "completion"}
"""They are about this machine alone; and the options of the line that is completed are another command's."""


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
    with pytest.raises(SystemExit):
        evacuate_main(["--help"])
    options_of["evacuate"] = capsys.readouterr().out
    assert len(options_of) > 15
    assert {name for name, text in options_of.items() if "--command-config" not in text} == WITHOUT_A_CLUSTER
    without_servers = {name for name, text in options_of.items() if "--bootstrap-server" not in text}
    assert without_servers == {*WITHOUT_A_CLUSTER, "run"}, "its program has its own configuration"


def test_everything_that_prints_json_has_the_version_of_its_schema(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = json_text({"topics": []})
    assert (json.loads(text), next(iter(json.loads(text)))) == ({"schema_version": 1, "topics": []}, "schema_version")
    monkeypatch.setattr("modeaware.local.cluster.status", lambda: DetachedKafka(()))
    assert cli.main(["local", "status", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["schema_version"] == 1
    with_json = [entry for entry in COMMANDS if entry.name != "local" and takes_json(entry)]
    assert len(with_json) >= 7
    for entry in with_json:
        with pytest.raises(SystemExit):
            cli.main([entry.name, *(["list"] if entry.name in ("groups", "alias") else []), "--help"])
        assert "schema_version: 1" in capsys.readouterr().out, entry.name
    with pytest.raises(SystemExit):
        evacuate_main(["--help"])
    assert "schema_version: 1" in capsys.readouterr().out


def takes_json(entry: cli.Entry) -> bool:
    return any(
        "--json" in parser.format_help() for name, parser in every_parser().items() if name.startswith(entry.name)
    )


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


def test_the_file_may_hold_a_controllers_configs(monkeypatch: pytest.MonkeyPatch, write: Write) -> None:
    file = ("--command-config", str(write("modeaware.seal.quiet.ms=2\ndelete.topic.partition.enable=false\n")))
    monkeypatch.setenv("MODEAWARE_SEAL_QUIET_MS", "1")
    assert session.connection(_parse()).controller.seal_quiet_ms == 1
    of_file = session.connection(_parse(*file))
    assert (of_file.controller.seal_quiet_ms, of_file.controller.enable) == (2, False)
    assert "modeaware.seal.quiet.ms" not in of_file.conf
    assert session.connection(_parse(*file, "--config", "modeaware.seal.quiet.ms=3")).controller.seal_quiet_ms == 3


def test_a_command_without_a_controller_takes_the_file_of_one(write: Write) -> None:
    parser = argparse.ArgumentParser()
    session.add_connection_options(parser)
    file = write("bootstrap.servers=kafka:9092\nmodeaware.seal.quiet.ms=2\nmodeaware.on.resize=ignore\n")
    connection = session.connection(parser.parse_args(["--command-config", str(file)]))
    assert connection.conf == {"bootstrap.servers": "kafka:9092", "log_level": 0}
    assert connection.config.on_resize == "ignore"


def test_brokers_are_those_of_the_option_the_file_or_the_environment(
    monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    file = ("--command-config", str(write("bootstrap.servers=of-file:1\n")))

    def servers(*arguments: str) -> object:
        parser = argparse.ArgumentParser()
        session.add_connection_options(parser)
        return session.connection(parser.parse_args(arguments)).conf["bootstrap.servers"]

    with pytest.raises(ConfigError, match="no brokers to connect to: pass --bootstrap-server"):
        servers()
    monkeypatch.setenv("MODEAWARE_BOOTSTRAP_SERVERS", "of-environment:1")
    assert servers() == "of-environment:1"
    assert servers(*file) == "of-file:1"
    assert servers(*file, "--bootstrap-server", "of-option:1") == "of-option:1"


def test_proposed_command_repeats_the_options_that_were_given() -> None:
    parser = argparse.ArgumentParser()
    session.add_connection_options(parser)
    assert session.command_line(parser.parse_args([]), "modeaware", "status", "a b") == "modeaware status 'a b'"
    given = parser.parse_args(["--bootstrap-server", "k:1", "--command-config", "my conf"])
    assert (
        session.command_line(given, "modeaware", "status")
        == "modeaware status --bootstrap-server k:1 --command-config 'my conf'"
    )


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
