"""Builds what the package has that is not Python, where it can; without it the package is installed all the same.

The extension ``modeaware.confluent._routed``, beside its source, needs a C compiler. Without one, producers of shrunk
topics take the path in Python. The jar of the producer plug-ins for the JVM needs what ``java/build.py`` names; an
sdist brings it, so that who builds a wheel of that needs no JDK.
"""

from __future__ import annotations

import os
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
# Without debug information, which would name the folder of the build: two builds are to have the same bytes.
FLAGS = ["-g0"] if os.name == "posix" else []


class CompiledParts(BuildHookInterface[Any]):
    """The jar for sdists and wheels, the extension for wheels, editable ones included."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self._add_jar(build_data)
        if self.target_name == "wheel":
            self._build_extension(build_data)

    def _add_jar(self, build_data: dict[str, Any]) -> None:
        if Path(self.root, "PKG-INFO").exists() and Path(self.root, JAR).exists():  # in an sdist
            build_data["artifacts"].append(JAR)
            return
        done = subprocess.run([sys.executable, "java/build.py"], cwd=self.root, capture_output=True, text=True)
        if done.returncode != 0:
            self.app.display_warning(f"modeaware is built without its jar (docs/jvm.md): {done.stderr.strip()}")
            return
        build_data["artifacts"].append(JAR)

    def _build_extension(self, build_data: dict[str, Any]) -> None:
        command = build_ext(Distribution({"ext_modules": [Extension(NAME, [SOURCE], extra_compile_args=FLAGS)]}))
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
