"""A machine on which modeaware is installed, to be uninstalled again: an environment of its own, and a shell in it."""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

import confluent_kafka

import modeaware
from tests.support.kafka_tools import write_tools
from tests.support.old_release import ROOT

TIMEOUT_S = 200
COMMAND = """\
import sys
from modeaware.cli import main
sys.exit(main(sys.argv[1:]))
"""


class Machine:
    """A folder to work in, Python with modeaware and without, Kafka's tools, and a shell that remembers its variables.

    What modeaware depends on comes from the environment of the tests; modeaware itself is installed here alone.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        home = folder / "venv"
        venv.create(home, symlinks=True)
        self._bin = home / "bin"
        self.python = str(self._bin / "python")
        write_tools(self._bin)
        self._script("pip", f'exec {shlex.quote(sys.executable)} -m pip --python {shlex.quote(self.python)} "$@"')
        self._install(Path(self.answer("import sysconfig; print(sysconfig.get_path('purelib'))").strip()))
        self._remembered = folder / "variables.sh"
        self._remembered.write_text(
            "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()), encoding="utf-8"
        )

    def run(self, block: str) -> subprocess.CompletedProcess[str]:
        """Paste a block into the shell; what is exported lasts until the next one."""
        save = f"status=$?; export -p > {shlex.quote(str(self._remembered))}; exit $status"
        words = ["bash", "-c", f". {shlex.quote(str(self._remembered))}\ntrap '{save}' EXIT\nset -u\n{block}"]
        return subprocess.run(
            words,
            cwd=self.folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def answer(self, program: str) -> str:
        """What a Python program of this machine prints; with its error where it ends with one."""
        words = [self.python, "-c", program]
        done = subprocess.run(
            words, cwd=self._bin, env=self._environment(), capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout + done.stderr

    def _install(self, packages: Path) -> None:
        """As an installer leaves it, in editable form: found by a .pth file, the command, and a list of all that."""
        (packages / "needs.pth").write_text(f"{Path(confluent_kafka.__file__).parents[1]}\n", encoding="utf-8")
        info = f"modeaware-{modeaware.__version__}.dist-info"
        files = {
            packages / "modeaware.pth": f"{ROOT}\n",
            packages / info / "METADATA": f"Metadata-Version: 2.1\nName: modeaware\nVersion: {modeaware.__version__}\n",
            packages / info / "INSTALLER": "pip\n",
            self._bin / "modeaware": f"#!{self.python}\n{COMMAND}",
        }
        (packages / info).mkdir()
        lines = [f"{info}/RECORD,,"]
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            lines.append(f"{os.path.relpath(path, packages)},sha256={digest},{len(text)}")
        (packages / info / "RECORD").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (self._bin / "modeaware").chmod(0o755)

    def _script(self, name: str, line: str) -> None:
        (self._bin / name).write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        (self._bin / name).chmod(0o755)

    def _environment(self) -> dict[str, str]:
        left_out = ("PYTHONPATH", "VIRTUAL_ENV")
        kept = {name: value for name, value in os.environ.items() if name not in left_out}
        return {**kept, "PATH": f"{self._bin}:{os.environ['PATH']}"}
