"""``--command-config`` is taken by every command that talks to a cluster; the environment; what outweighs what."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from modeaware import cli
from modeaware.cli import options
from modeaware.cli import run as run_module
from modeaware.spark.evacuation import command as evacuation
from modeaware.spark.planning import command as planning

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
    for entry in cli.COMMANDS:
        parser = argparse.ArgumentParser()
        entry.load().configure(parser)
        found.update(leaves(entry.name, parser))
    return found


def test_every_command_that_talks_to_a_cluster_takes_a_properties_file(capsys: pytest.CaptureFixture[str]) -> None:
    options_of = {name: parser.format_help() for name, parser in every_parser().items()}
    for program in (planning, evacuation):
        with pytest.raises(SystemExit):
            program.main(["--help"])
        options_of[program.__name__] = capsys.readouterr().out
    assert len(options_of) > 15
    assert {name for name, text in options_of.items() if "--command-config" not in text} == OF_THIS_MACHINE
    without_servers = {name for name, text in options_of.items() if "--bootstrap-server" not in text}
    assert without_servers == {*OF_THIS_MACHINE, "run"}, "its program has its own configuration"


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    options.add_connection_options(parser)
    options.add_controller_config_option(parser, "--config")
    return parser.parse_args(["--bootstrap-server", "kafka:9092", *arguments])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    path.write_text("modeaware.mode.log.topic=of-file\n")
    return path


def test_flags_outweigh_the_file_and_that_the_environment(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    in_file, flag = ("--command-config", str(file)), ("--config", "modeaware.mode.log.topic=of-flag")

    def topics(*arguments: str) -> tuple[str, str]:
        args = parsed(*arguments)
        client = options.connection(args).config
        return client.mode_log_topic, options.controller_config(args, client).mode_log_topic

    assert topics() == ("__partition_modes",) * 2
    monkeypatch.setenv("MODEAWARE_MODE_LOG_TOPIC", "of-environment")
    assert topics() == ("of-environment",) * 2
    assert topics(*in_file) == ("of-file",) * 2
    assert topics(*in_file, *flag) == ("of-flag",) * 2, "what looks at one log must not keep another"


def test_run_hands_on_what_is_ours_in_the_file(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    file.write_text("security.protocol=SSL\nmodeaware.mode.log.topic=of-file\nmodeaware.view.timeout.ms=7\n")
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
