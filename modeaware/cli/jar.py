"""``modeaware jar``: the path of the producer plug-ins for the JVM."""

from __future__ import annotations

import argparse

from modeaware.cli import Command
from modeaware.jar import jar_path


class PrintJar(Command):
    """Prints the path of the jar."""

    epilog = """\
Put the jar beside kafka-clients on the class path of a producer or a Connect worker. docs/jvm.md has the settings.

Exit status: 0; 1 if this installation has no jar (the message explains how to get one).
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare no option."""

    def run(self, args: argparse.Namespace) -> int:
        print(jar_path())
        return 0
