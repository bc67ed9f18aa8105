"""The frame of the command: errors, exit statuses, lazy loading, and the options that commands share."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import modeaware.cli as cli
from modeaware.cli import options
from modeaware.errors import ConfigError, ModeAwareError
from modeaware.modelog.replay import fold


class Sample:
    """Does what its argument says."""

    name = "sample"
    help = "try things"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("what")

    def run(self, args: argparse.Namespace) -> int:
        if args.what == "fail":
            raise ModeAwareError("no broker answered at here:1; is it running?")
        if args.what == "interrupt":
            raise KeyboardInterrupt
        if args.what == "talk":
            print("a line that nobody reads")
        for _ in range(2 if args.what == "read" else 0):
            fold([("key", b"rubbish")])
        return 7


@pytest.fixture(autouse=True)
def commands(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("sample_command")
    module.Sample = Sample  # type: ignore[attr-defined] - made here
    monkeypatch.setitem(sys.modules, "sample_command", module)
    entries = (
        cli.Entry("sample", "sample_command:Sample", "try things"),
        cli.Entry("missing", "no_such_package.command:Command", "needs an extra"),
        cli.Entry("lost", "modeaware.cli.no_such_module:Command", "a bug of ours"),
    )
    monkeypatch.setattr(cli, "COMMANDS", entries)


@pytest.mark.parametrize(
    ("what", "status", "error"),
    [("work", 7, ""), ("fail", 1, "error: no broker answered at here:1; is it running?\n"), ("interrupt", 130, "")],
)
def test_exit_status(what: str, status: int, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sample", what]) == status
    assert capsys.readouterr().err == error


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
    options.add_connection_options(parser)
    options.add_controller_config_option(parser, "--config")
    return parser.parse_args(["--bootstrap-server", "kafka:9092", *arguments])


def test_a_properties_file_is_read_as_kafkas_tools_read_it(write: Write) -> None:
    path = write(
        "# comment\n! comment\n\nsecurity.protocol=SASL_SSL\n sasl.password = a=b#c \nssl.endpoint=\\\n  none\n"
    )
    assert options.read_properties(path) == {
        "security.protocol": "SASL_SSL",
        "sasl.password": "a=b#c",
        "ssl.endpoint": "none",
    }


def test_the_connection_takes_our_settings_out(write: Write) -> None:
    path = write("client.id=me\nmodeaware.mode.log.topic=modes\nbootstrap.servers=elsewhere:1\n")
    connection = options.connection(_parse("--command-config", str(path)), defaults={"log_level": 0})
    assert connection.conf == {"client.id": "me", "bootstrap.servers": "kafka:9092", "log_level": 0}
    assert connection.config.mode_log_topic == "modes"
    assert connection.bootstrap_server == "kafka:9092"


def test_a_setting_of_java_clients_comes_with_advice(write: Write) -> None:
    path = write("sasl.jaas.config=org.apache.kafka...\n")
    with pytest.raises(ConfigError, match=r"use sasl\.username and sasl\.password"):
        options.connection(_parse("--command-config", str(path)))


@pytest.mark.parametrize(("text", "ok"), [("0", True), ("60000", True), ("-1", False), ("1.5", False), ("soon", False)])
def test_a_delay_is_a_whole_number_of_ms(text: str, ok: bool) -> None:
    if ok:
        assert options.delay_ms(text) == int(text)
    else:
        with pytest.raises(argparse.ArgumentTypeError):
            options.delay_ms(text)
