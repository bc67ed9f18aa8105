"""Builds the optional extension ``modeaware.confluent._routed`` beside its source, where there is a C compiler.

Without one the package is installed all the same, and producers of shrunk topics take the path in Python.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

NAME, SOURCE = "modeaware.confluent._routed", "modeaware/confluent/_routed.c"
# Without debug information, which would name the folder of the build: two builds are to have the same bytes.
FLAGS = ["-g0"] if os.name == "posix" else []


class RoutedExtension(BuildHookInterface[Any]):
    """For wheels, editable ones included."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
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
