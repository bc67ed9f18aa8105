"""The command ``modeaware``.

To add a command, write a module here with a subclass of :class:`Command`, and name the class in :data:`COMMANDS`. The
module is loaded when the command is chosen. A command declares its options in :meth:`Command.configure`, opens a
session on the cluster (:mod:`modeaware.cli.session`) and prints a report of :mod:`modeaware.reports`. A command that
resizes, replaces or applies topics passes a request through the engine :mod:`modeaware.cli.change`.

Exit status: 0 done; 1 an error, printed on standard error as ``error: ...``; 2 bad usage; 130 ended by Ctrl-C; 141 the
reader of standard output has closed the pipe (``| head``). If a command has other statuses, or gives one of these
another meaning, its epilog or its docstring documents them.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from modeaware.errors import ModeAwareError
from modeaware.spelling import nearest, with_hint

INTERRUPTED = 130
OUTPUT_CLOSED = 141


class BadUsage(Exception):
    """Raised if options exclude each other or are missing. The command prints its usage, and ends with status 2."""


class Command:
    """A command. The class is instantiated without arguments when the command is chosen.

    Attributes:
        epilog: the text that ``--help`` prints below the options.
        actions: words, one of which follows the command's name; empty if the command has no actions.
    """

    epilog = ""
    actions: Collection[str] = ()

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        raise NotImplementedError

    def run(self, args: argparse.Namespace) -> int:
        """Run, and return the exit status. May raise ModeAwareError, BadUsage and KeyboardInterrupt."""
        raise NotImplementedError


class Entry(NamedTuple):
    """A command that is not loaded yet: its name, location (``module:Class``), and line and group in ``--help``."""

    name: str
    where: str
    help: str
    group: str

    def load(self) -> Command:
        """Load the command. Raises ModeAwareError if an extra is missing."""
        module_name, _, class_name = self.where.partition(":")
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.split(".")[0] == "modeaware":
                raise
            raise ModeAwareError(
                f"`modeaware {self.name}` needs the package {error.name}: install modeaware[controller]"
            ) from error
        except ImportError as error:
            if not isinstance(error, ModeAwareError):
                raise
            raise ModeAwareError(
                f"`modeaware {self.name}` and its --help need kafka-python: install modeaware[controller] "
                f"({error.__cause__})"
            ) from error
        command: Command = getattr(module, class_name)()
        return command


GROUPS = INSPECT, CHANGE, RUN = ("Inspect", "Change topics", "Run")
COMMANDS = tuple(
    Entry(name, f"modeaware.cli.{where}", help, group)
    for name, where, help, group in (
        ("status", "status:Status", "show changes in progress, what blocks each, what to run", INSPECT),
        ("plan", "plan:Plan", "show the effects of another number of partitions", INSPECT),
        ("groups", "groups:Groups", "show the groups that a change waits for; make rules", INSPECT),
        ("certificate", "check:PrintCertificate", "print the proof that partitions or a topic were drained", INSPECT),
        ("check", "check:Check", "check that a user has every right that a role needs", INSPECT),
        ("shrink", "resize:Shrink", "retire a topic's last partitions", CHANGE),
        ("grow", "resize:Grow", "revive retired partitions, then create new ones", CHANGE),
        ("replace", "replace:Replace", "replace a topic by one with more or fewer partitions", CHANGE),
        ("apply", "apply:Apply", "create and change topics as declared in files", CHANGE),
        ("alias", "alias:Aliases", "list or remove the names of deleted old topics", CHANGE),
        ("topics", "topics:Topics", "create, list, describe, alter and delete topics", CHANGE),
        ("reassign-partitions", "reassign:ReassignPartitions", "move partitions to other brokers", CHANGE),
        ("controller", "controller:RunController", "run the controller that keeps the modes, or a standby", RUN),
        ("run", "run:Run", "run an unchanged program with mode-aware clients", RUN),
        ("jar", "jar:PrintJar", "print the path of the producer plug-ins for the JVM", RUN),
        ("local", "local:Local", "run a real Kafka on this machine to try things out", RUN),
        ("completion", "completion:Completion", "print a script that completes commands in a shell", RUN),
    )
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: arguments without the program's name; by default those of the process.

    Returns:
        The exit status.

    Raises:
        SystemExit: after ``--help``, ``--version`` or bad usage (argparse's).
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        args = _parse(arguments)
        command: Command = args.command
        try:
            with _logged_once(logging.getLogger("modeaware.modelog.replay")):
                status = command.run(args)
        except BadUsage as error:
            args.parser.error(str(error))
        sys.stdout.flush()
        return status
    except ModeAwareError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # otherwise the flush at exit fails, too
        return OUTPUT_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED


@contextmanager
def _logged_once(logger: logging.Logger) -> Iterator[None]:
    """Log each message once. A command reads the mode log repeatedly, each time with the same malformed records."""
    seen: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        new = message not in seen
        seen.add(message)
        return new

    logger.addFilter(is_new)
    try:
        yield
    finally:
        logger.removeFilter(is_new)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments with the options of the chosen command. Other commands are not loaded."""
    parser, subparsers = _frame(argparse.SUPPRESS)
    words = [argument for argument in arguments if not argument.startswith("-")]
    for entry in COMMANDS:
        subparser = add_action(subparsers, entry.name, entry.help)
        if words[:1] == [entry.name]:
            command = _declare(entry, subparser)
            _check_word(subparser, f"action of {entry.name}", words[1:2], command.actions)
    if not arguments:
        parser.print_help()
        parser.exit()
    _check_word(parser, "command", words[:1], [entry.name for entry in COMMANDS])
    return parser.parse_args(arguments)


def whole_parser() -> argparse.ArgumentParser:
    """Return a parser with the options of all commands, for shell completion and the manual page. Load each command.

    Raises:
        ModeAwareError: an extra is missing.
    """
    parser, subparsers = _frame(help="a command")
    for entry in COMMANDS:
        _declare(entry, add_action(subparsers, entry.name, entry.help))
    return parser


def _frame(
    help: str,
) -> tuple[argparse.ArgumentParser, argparse._SubParsersAction[argparse.ArgumentParser]]:
    """Return the parser, and the object to which commands are added; ``help``: the text about the commands."""
    parser = argparse.ArgumentParser(
        prog="modeaware",
        usage="modeaware COMMAND ...",
        description="Shrink a live Kafka topic: partition modes on stock Apache Kafka.",
        epilog=_overview(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    return parser, parser.add_subparsers(prog="modeaware", metavar="COMMAND", required=True, help=help)


def _declare(entry: Entry, parser: argparse.ArgumentParser) -> Command:
    """Load a command and make it declare its options."""
    command = entry.load()
    parser.epilog = command.epilog
    parser.set_defaults(command=command)
    command.configure(parser)
    return command


def _overview() -> str:
    """Return all commands, one per line, under their groups."""
    width = max(len(entry.name) for entry in COMMANDS)
    lines = []
    for group in GROUPS:
        lines += [f"{group}:", *(f"  {e.name:{width}}  {e.help}" for e in COMMANDS if e.group == group), ""]
    return "\n".join([*lines, "modeaware COMMAND --help shows the options of a command."])


def _check_word(parser: argparse.ArgumentParser, kind: str, words: Sequence[str], known: Collection[str]) -> None:
    """If a word is unknown, report the nearest known name, and exit. If no name is near, argparse refuses the word."""
    for word in words:
        if known and word not in known and (near := nearest(word, known)) is not None:
            parser.error(with_hint(f"no {kind}: {word!r}", near))


def add_action(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser], name: str, help: str
) -> argparse.ArgumentParser:
    """Add a command or a command's action. After BadUsage, this parser's usage is shown."""
    parser = subparsers.add_parser(
        name,
        help=help,
        description=f"{help[0].upper()}{help[1:]}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(parser=parser)
    return parser


def key_value(text: str) -> tuple[str, str]:
    """argparse type: ``KEY=VALUE``."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value.strip()


class _Version(argparse.Action):
    """Looks up the version only when it is requested."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"modeaware {version('modeaware')}")
        parser.exit()
