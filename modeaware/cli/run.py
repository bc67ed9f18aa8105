"""``modeaware run app.py``: run a program, unchanged, with mode-aware clients."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from modeaware.adoption.installing import NOT_TEXT, variable_of
from modeaware.cli import BadUsage, Command
from modeaware.config import PREFIX, read_properties, split_client_config
from modeaware.errors import ConfigError


class Run(Command):
    """Replaces itself by the program, in the same process, so that signals and a supervisor reach the program."""

    epilog = """\
In the program's process, modeaware's clients replace those of confluent_kafka and kafka-python (modeaware.install()).
Arguments, exit status, signals and standard streams are the program's own, as with `python app.py` and
`python -m module`.

For example, --set modeaware.mode.log.topic=NAME sets the environment variable MODEAWARE_MODE_LOG_TOPIC=NAME. The
variable counts for clients whose own configuration has no such setting. Options go before the program; the arguments
after the program are its own.
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = "modeaware run [--command-config FILE] [--set KEY=VALUE] (APP.py | -m MODULE) [ARGUMENTS ...]"
        parser.add_argument(
            "--set", action="append", default=[], metavar="KEY=VALUE", help="a modeaware. setting, may be repeated"
        )
        parser.add_argument(
            "--command-config",
            type=Path,
            metavar="FILE",
            help="a file with modeaware. settings; --set takes precedence. Other settings in it are ignored, because "
            "the program's clients have their own configuration",
        )
        parser.add_argument("-m", dest="module", action="store_true", help="the program is a module, not a file")
        parser.add_argument(
            "program", nargs=argparse.REMAINDER, metavar="PROGRAM", help="the program and its arguments"
        )

    def run(self, args: argparse.Namespace) -> int:
        """Run the program; does not return."""
        if not args.program:
            raise BadUsage("name a program, or a module with -m")
        program = ["-m", *args.program] if args.module else args.program
        file = {} if args.command_config is None else read_properties(args.command_config)
        ours = [f"{name}={value}" for name, value in file.items() if name.startswith(PREFIX)]
        os.environ.update(variables([*ours, *args.set]))
        sys.stdout.flush()
        flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined] # not in typeshed
        os.execv(sys.executable, [sys.executable, *flags, "-m", "modeaware.adoption", *program])


def variables(settings: list[str]) -> dict[str, str]:
    """Return ``KEY=VALUE`` settings as environment variables, checked."""
    environment = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.startswith(PREFIX) or name in NOT_TEXT:
            raise ConfigError(f"--set {name}: pass a setting of clients, {PREFIX}...=VALUE")
        split_client_config({name: value})
        environment[variable_of(name)] = value
    return environment
