"""How a check ends, and how it runs other programs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
_TAIL = 15


class Failed(Exception):
    """Something is wrong with what the check looked at; the message says what."""


class NotRun(Exception):
    """The check needs what this machine lacks; the message says what."""


def run(command: Sequence[str | Path], *, cwd: Path = ROOT, environment: Mapping[str, str] | None = None) -> str:
    """Run a program and return what it printed on both streams. Raises Failed with the end of that."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-_TAIL:])
        raise Failed(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{tail}")
    return done.stdout


def tool(name: str) -> str:
    """Return the path of a program of the extra ``release``, or of PATH. Raises NotRun where there is none."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        raise NotRun(f"no {name}")
    return found
