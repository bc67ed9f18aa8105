"""Releases of modeaware side by side: the one in this repository, and 0.1.0 from its wheel in ``tests/data``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import modeaware

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
OLD_VERSION = "0.1.0"
PROGRAM = Path(__file__).with_name("release_program.py")
TIMEOUT_S = 120


@dataclass(frozen=True)
class Release:
    """A version of modeaware, and the folder from which Python takes it.

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
        return self._finish(self.command("command", *arguments))

    def evaluate(self, program: str, given: object) -> object:
        """A program's answer: it finds ``given`` as JSON on its standard input and prints JSON."""
        proof = "import json, sys, modeaware; print(modeaware.__version__, modeaware.__file__)\n"
        return json.loads(self._finish([self.python, "-P", "-c", proof + program], json.dumps(given)))

    def proves(self, first_line: str) -> bool:
        """Whether the first line that a program printed tells this version and this folder."""
        version, _, file = first_line.strip().partition(" ")
        return version == self.version and Path(file).is_relative_to(self.folder)

    def _finish(self, command: list[str], given: str = "") -> str:
        done = subprocess.run(
            command, input=given, env=self.environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        first, _, rest = done.stdout.partition("\n")
        assert self.proves(first), f"{first!r} is not {self}"
        return rest


def new_release() -> Release:
    """This repository's."""
    return Release(modeaware.__version__, ROOT)


def old_release(folder: Path) -> Release:
    """0.1.0, unpacked into ``folder``."""
    with zipfile.ZipFile(DATA / f"modeaware-{OLD_VERSION}-py3-none-any.whl") as wheel:
        wheel.extractall(folder)
    return Release(OLD_VERSION, folder)
