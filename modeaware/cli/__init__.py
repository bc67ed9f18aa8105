"""The command ``modeaware``: one module a command, loaded when it is asked for.

Exit status: 0 done; 1 an error, told on standard error as ``error: ...``; 2 bad usage; 130 left by Ctrl-C; 141 nobody
reads the output any more (``| head``). Commands may add their own and document them.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from modeaware.errors import ModeAwareError

INTERRUPTED = 130
OUTPUT_CLOSED = 141


class Command(Protocol):
    """A command; instantiated without arguments when it was chosen."""

    name: str
    help: str

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare its options."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; the exit status. ModeAwareError and KeyboardInterrupt are the caller's."""


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
                f"`modeaware {self.name}` needs kafka-python, its --help too ({error.__cause__}): "
                "install modeaware[controller]"
            ) from error
        command: Command = getattr(module, class_name)()
        return command


COMMANDS = (
    Entry(
        "topics",
        "modeaware.cli.topics:Topics",
        "create, list, describe, alter and delete topics, partition modes included",
    ),
    Entry(
        "reassign-partitions",
        "modeaware.cli.reassign:ReassignPartitions",
        "move partitions to other brokers, watch that, and cancel it",
    ),
    Entry(
        "plan",
        "modeaware.cli.resize_plan:Plan",
        "tell what another number of partitions would do to a topic's keys and load",
    ),
    Entry("shrink", "modeaware.cli.change:Shrink", "retire a topic's last partitions"),
    Entry("grow", "modeaware.cli.change:Grow", "revive retired partitions, then create new ones"),
    Entry(
        "apply",
        "modeaware.cli.apply:Apply",
        "bring topics to what a file declares: fewer partitions are a shrink, nothing is ever deleted",
    ),
    Entry("groups", "modeaware.cli.groups:Groups", "show whom a drain waits for, and make rules about it"),
    Entry(
        "certificate",
        "modeaware.cli.certificate:Certificate",
        "print the proof that a topic's retired partitions were drained",
    ),
    Entry(
        "check",
        "modeaware.cli.check:Check",
        "tell whether a client, controller or operator has every right it needs, with the ACLs to add",
    ),
    Entry(
        "controller",
        "modeaware.cli.controller:Controller",
        "run the controller that keeps the modes, or a standby that takes over from it",
    ),
    Entry(
        "run",
        "modeaware.cli.run:Run",
        "run a program with mode-aware clients in place of confluent_kafka's, kafka-python's and aiokafka's",
    ),
    Entry("local", "modeaware.cli.local:Local", "run a real Kafka on this machine to try things out"),
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
        with _said_once(logging.getLogger("modeaware.modelog.replay")):
            status = command.run(args)
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
def _said_once(logger: logging.Logger) -> Iterator[None]:
    """``logger`` says the same only once: a command reads the mode log again and again, the same rubbish each time."""
    said: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        new = message not in said
        said.add(message)
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
        subparser = subparsers.add_parser(
            entry.name, help=entry.help, description=entry.help[0].upper() + entry.help[1:] + "."
        )
        if entry.name == chosen:
            command = entry.load()
            command.configure(subparser)
            subparser.set_defaults(command=command)
    return parser.parse_args(arguments)


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"modeaware {version('modeaware')}")
        parser.exit()
