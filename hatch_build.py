"""Builds what the package has that is not Python, where it can; without it the package is installed all the same.

The extension ``modeaware.confluent._routed``, beside its source, needs a C compiler. Without one, producers of shrunk
topics take the path in Python. The jar of the producer plug-ins for the JVM needs what ``java/build.py`` names.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

NAME, SOURCE = "modeaware.confluent._routed", "modeaware/confluent/_routed.c"
JAR = "modeaware/modeaware.jar"


class CompiledParts(BuildHookInterface[Any]):
    """For wheels, editable ones included."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name == "wheel":
            self._build_jar(build_data)
            self._build_extension(build_data)

    def _build_jar(self, build_data: dict[str, Any]) -> None:
        done = subprocess.run([sys.executable, "java/build.py"], cwd=self.root, capture_output=True, text=True)
        if done.returncode != 0:
            self.app.display_warning(f"modeaware is built without its jar (docs/jvm.md): {done.stderr.strip()}")
            return
        build_data["artifacts"].append(JAR)

    def _build_extension(self, build_data: dict[str, Any]) -> None:
        command = build_ext(Distribution({"ext_modules": [Extension(NAME, [SOURCE])]}))
        command.inplace = command.force = True
        command.build_temp = "build/extension"
        command.ensure_finalized()
        built = Path(command.get_ext_filename(NAME))
        try:
            Path(self.root, built).unlink(missing_ok=True)  # an earlier build's would be imported where this one fails
            command.run()
        except (BaseError, CCompilerError, OSError) as error:
            self.app.display_warning(f"modeaware is built without its extension (docs/clients.md): {error}")
            return
        build_data["artifacts"].append(built.as_posix())
        build_data |= {"pure_python": False, "infer_tag": True}
