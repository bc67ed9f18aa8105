"""The command ``modeaware``.

To add a command, write a module here with a subclass of :class:`Command` and name it in :data:`COMMANDS`: its module is
loaded when the command was chosen. A command declares its options in :meth:`Command.configure`, opens a session on the
cluster (:mod:`modeaware.cli.session`) and prints a report of :mod:`modeaware.reports`; changes of topics go through
:mod:`modeaware.cli.change`.

Exit status: 0 done; 1 an error, printed on standard error as ``error: ...``; 2 bad usage; 130 left by Ctrl-C; 141 the
reader of the output has gone (``| head``). Commands may add their own, and document them in their epilog.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from modeaware.errors import ModeAwareError

INTERRUPTED = 130
OUTPUT_CLOSED = 141


class BadUsage(Exception):
    """Options that do not go together; the command ends with its usage and status 2."""


class Command:
    """A command; made without arguments when it was chosen.

    Attributes:
        epilog: what ``--help`` prints below the options.
    """

    epilog = ""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        raise NotImplementedError

    def run(self, args: argparse.Namespace) -> int:
        """Run, and return the exit status. May raise ModeAwareError, BadUsage and KeyboardInterrupt."""
        raise NotImplementedError


class Entry(NamedTuple):
    """A command that is not loaded yet: its name, where it is (``module:Class``), and a line for ``--help``."""

    name: str
    where: str
    help: str

    def load(self) -> Command:
        """Raises ModeAwareError where an extra is missing."""
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


COMMANDS = tuple(
    Entry(name, f"modeaware.cli.{where}", help)
    for name, where, help in (
        ("topics", "topics:Topics", "create, list, describe, alter and delete topics, partition modes included"),
        (
            "reassign-partitions",
            "reassign:ReassignPartitions",
            "move partitions to other brokers, watch the move, and cancel it",
        ),
        ("plan", "plan:Plan", "show what another number of partitions would do to a topic's keys and load"),
        ("shrink", "change:Shrink", "retire a topic's last partitions"),
        ("grow", "change:Grow", "revive retired partitions, then create new ones"),
        (
            "replace",
            "replace:Replace",
            "replace a topic by a new one of another number of partitions; keys keep their order",
        ),
        ("alias", "alias:Aliases", "show the names of replaced topics that are gone, and end one"),
        (
            "apply",
            "apply:Apply",
            "bring topics to what a file declares: fewer partitions are a shrink; others are not touched",
        ),
        ("groups", "groups:Groups", "show which groups a drain waits for, and make rules about groups"),
        (
            "certificate",
            "check:PrintCertificate",
            "print the proof that a topic's retired partitions, or a topic that is replaced, were drained",
        ),
        (
            "check",
            "check:Check",
            "check that a client, controller or operator has every right it needs, with the ACLs to add",
        ),
        (
            "controller",
            "controller:RunController",
            "run the controller that keeps the modes, or a standby that takes over from it",
        ),
        (
            "run",
            "run:Run",
            "run a program with mode-aware clients in place of confluent_kafka's and kafka-python's",
        ),
        ("local", "local:Local", "run a real Kafka on this machine to try things out"),
    )
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: arguments without the program's name; default: the process's.

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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the flush at exit would fail once more
        return OUTPUT_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED


@contextmanager
def _logged_once(logger: logging.Logger) -> Iterator[None]:
    """Log each message once: a command reads the mode log again and again, with the same malformed records."""
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
    """Parse with the options of the chosen command only: the others are not loaded."""
    parser = argparse.ArgumentParser(
        prog="modeaware", description="Shrink a live Kafka topic: partition modes on stock Apache Kafka."
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    chosen = next((argument for argument in arguments if not argument.startswith("-")), None)
    for entry in COMMANDS:
        subparser = add_action(subparsers, entry.name, entry.help)
        if entry.name == chosen:
            command = entry.load()
            subparser.epilog = command.epilog
            subparser.set_defaults(command=command)
            command.configure(subparser)
    return parser.parse_args(arguments)


def add_action(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser], name: str, help: str
) -> argparse.ArgumentParser:
    """Add a command, or an action of one, whose usage BadUsage then shows."""
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
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"modeaware {version('modeaware')}")
        parser.exit()
