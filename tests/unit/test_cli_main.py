"""The frame of the command: errors, exit statuses, lazy loading."""

from __future__ import annotations

import argparse
import os
import sys
from types import ModuleType

import pytest

import modeaware.cli as cli
from modeaware.errors import ModeAwareError
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
