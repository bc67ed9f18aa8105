"""Programs in processes of their own, with the clients of this repository or with plain ones."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import modeaware

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("release_program.py")
TIMEOUT_S = 120


@dataclass(frozen=True)
class Release:
    """A version of modeaware or of confluent_kafka, and the folder from which Python takes it.

    ``clients`` is the package that its programs take their clients from: with ``confluent_kafka`` they are plain ones.
    """

    version: str
    folder: Path
    clients: str = "modeaware"
    python: str = sys.executable

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs for this release to come before any that is installed."""
        return {**os.environ, "PYTHONPATH": str(self.folder), "PYTHONUNBUFFERED": "1", "CLIENTS": self.clients}

    def command(self, role: str, *arguments: str) -> list[str]:
        """``tests/support/release_program.py`` in that role; ``-P`` keeps this folder and the present one out of it."""
        return [self.python, "-P", str(PROGRAM), role, *arguments]

    def run(self, *arguments: str) -> str:
        """The command ``modeaware`` to its end; what it printed after the line that tells its version."""
        done = subprocess.run(
            self.command("command", *arguments),
            env=self.environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        first, _, rest = done.stdout.partition("\n")
        assert self.proves(first), f"{first!r} is not {self}"
        return rest

    def proves(self, first_line: str) -> bool:
        """Whether the first line that a program printed tells this version and this folder."""
        version, _, file = first_line.strip().partition(" ")
        return version == self.version and Path(file).is_relative_to(self.folder)


def new_release() -> Release:
    """This repository's."""
    return Release(modeaware.__version__, ROOT)
