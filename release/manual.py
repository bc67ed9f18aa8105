"""``python -m release.manual FILE`` writes the manual page of the command, made of what ``--help`` prints."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from modeaware import __version__, cli
from modeaware.adoption.installing import NOT_TEXT, variable_of
from modeaware.config import CLIENT_SETTINGS, CONTROLLER_CONFIGS, PREFIX
from release.outcome import ROOT, Failed, run

PAGE = ROOT / "build" / "man" / "modeaware.1"
STATUS = {
    "0": "Done.",
    "1": "An error, printed on standard error.",
    "2": "Bad usage.",
    "130": "Left by Ctrl-C.",
    "141": "The reader of the output has gone.",
}


def page() -> str:
    """Return the manual page as roff, with every command and its options."""
    parser = cli.whole_parser()
    lines = [
        f'.TH MODEAWARE 1 "" "modeaware {__version__}" "User Commands"',
        *(".SH NAME", rf"modeaware \- {escaped(parser.description or '')}"),
        *(".SH SYNOPSIS", ".B modeaware", r"\fICOMMAND\fR ..."),
        ".SH COMMANDS",
    ]
    for name, command in leaves("modeaware", parser):
        lines += about(name, command)
    lines.append(".SH EXIT STATUS")
    lines += [line for status, text in STATUS.items() for line in entry(status, text)]
    lines += [
        ".SH ENVIRONMENT",
        *entry("MODEAWARE_BOOTSTRAP_SERVERS", "The brokers, where no option or file names them."),
    ]
    for setting in sorted({*CLIENT_SETTINGS, *CONTROLLER_CONFIGS} - NOT_TEXT):
        if setting.startswith(PREFIX):
            lines += entry(variable_of(setting), f"The setting {setting}.")
    return "\n".join([*lines, ""])


def leaves(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the parsers that take options, by the words that lead to them."""
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in nested:
        for word, below in action.choices.items():
            yield from leaves(f"{name} {word}", below)
    if not nested:
        yield name, parser


def about(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the lines about one command."""
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    yield from (f".SS {name}", escaped(usage), ".PP", escaped(parser.description or ""))
    formatter = parser._get_formatter()
    for action in parser._actions:
        if action.help not in (None, argparse.SUPPRESS) and not isinstance(action, argparse._HelpAction):
            yield from entry(formatter._format_action_invocation(action), formatter._expand_help(action))
    if parser.epilog:
        yield from (".PP", ".nf", escaped(parser.epilog.strip("\n")), ".fi")


def entry(term: str, text: str) -> tuple[str, ...]:
    return (".TP", rf"\fB{escaped(term)}\fR", escaped(text))


def escaped(text: str) -> str:
    """Return text as roff reads it: no line begins with a request."""
    plain = text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq")
    return re.sub(r"^(?=\.)", r"\\&", plain, flags=re.MULTILINE)


def check() -> str:
    """Write the page; every command is in it, and ``man`` has no complaint, where there is one."""
    text = page()
    absent = [each.name for each in cli.COMMANDS if f".SS modeaware {each.name}" not in text]
    if absent:
        raise Failed(f"not on the page: {', '.join(absent)}")
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")
    told = f"{PAGE.relative_to(ROOT)}: {text.count('.SS ')} commands"
    if shutil.which("man") is None:
        return f"{told}; no man to read it with"
    environment = {"MANWIDTH": "100", "LC_ALL": "C.UTF-8"}
    shown = run(["man", "--warnings", "--local-file", "--pager=cat", PAGE], environment=environment)
    if ": warning: " in shown:
        raise Failed(shown[:500])
    return f"{told}, read by man without a warning"


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(), encoding="utf-8")
