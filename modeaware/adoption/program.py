"""Running a program as ``python app.py`` and ``python -m module`` do."""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import io
import os
import pkgutil
import sys
import types
from collections.abc import Sequence

from modeaware.errors import ModeAwareError

OWN_NAME = "__main__"


class ProgramMissing(ModeAwareError):
    """There is nothing to run; nothing of it has run."""


def find_beside(path: str) -> None:
    """Look for modules where the file ``path`` is, not in the working directory: before anything else is imported."""
    if not sys.flags.safe_path:
        sys.path[0] = os.path.join(os.getcwd(), path) if _is_folder(path) else os.path.dirname(os.path.realpath(path))


def run_script(path: str, arguments: Sequence[str]) -> None:
    """Run the file ``path`` in this interpreter, as its main program: ``sys.argv`` and ``__main__`` are what
    ``python path arguments...`` makes of them. Whatever it raises, SystemExit among it, goes to the caller.

    Raises:
        ProgramMissing: the file cannot be read.
    """
    sys.argv[:] = [path, *arguments]
    if _is_folder(path):
        spec = importlib.machinery.PathFinder.find_spec(OWN_NAME, [os.path.join(os.getcwd(), path)])
        _run_as_main(spec, f"cannot run {path!r}: there is no __main__.py in it")
        return
    file_name = os.path.join(os.getcwd(), path)
    try:
        with io.open_code(file_name) as file:
            source = file.read()
    except OSError as error:
        raise ProgramMissing(f"cannot run {path!r}: {error.strerror or error}") from error
    main = types.ModuleType(OWN_NAME)
    main.__file__ = file_name
    main.__loader__ = importlib.machinery.SourceFileLoader(OWN_NAME, file_name)
    main.__dict__["__cached__"] = None
    main.__dict__["__builtins__"] = builtins
    sys.modules[OWN_NAME] = main
    exec(compile(source, file_name, "exec", dont_inherit=True), main.__dict__)


def run_module(name: str, arguments: Sequence[str]) -> None:
    """Run a module, or a package's ``__main__``, as ``python -m name arguments...`` does.

    Raises:
        ProgramMissing: there is no such module.
    """
    sys.argv[:] = ["-m", *arguments]  # until it is found, as Python has it
    spec = _spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = _spec(f"{name}.{OWN_NAME}")
    sys.argv[0] = name if spec is None or spec.origin is None else spec.origin
    _run_as_main(spec, f"cannot run -m {name}: no module of this name that can be run")


def _is_folder(path: str) -> bool:
    """Whether modules can be imported from ``path``: a directory or a zip file."""
    return pkgutil.get_importer(path) is not None


def _run_as_main(spec: importlib.machinery.ModuleSpec | None, problem: str) -> None:
    code = None if spec is None or spec.loader is None else _code(spec)
    if spec is None or code is None:
        raise ProgramMissing(problem)
    main = types.ModuleType(OWN_NAME)
    main.__spec__ = spec
    main.__loader__ = spec.loader
    main.__package__ = spec.parent
    main.__file__ = spec.origin
    main.__dict__["__cached__"] = spec.cached
    main.__dict__["__builtins__"] = builtins
    sys.modules[OWN_NAME] = main
    exec(code, main.__dict__)


def _spec(name: str) -> importlib.machinery.ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise ProgramMissing(f"cannot run -m {name}: {error}") from error


def _code(spec: importlib.machinery.ModuleSpec) -> types.CodeType | None:
    get_code = getattr(spec.loader, "get_code", None)
    code: types.CodeType | None = None if get_code is None else get_code(spec.name)
    return code
