"""The program behind ``modeaware run``: ``python -m modeaware.adoption app.py [args...]``, or ``-m module [args...]``.

The application runs in this interpreter, with the ``sys.argv`` and ``__main__`` that ``python app.py`` and ``python -m
module`` would give it.
"""

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

from modeaware.adoption.installing import install
from modeaware.errors import ModeAwareError

CANNOT_RUN = 2  # the exit status of Python for a missing file
_MAIN = "__main__"


class ProgramMissing(ModeAwareError):
    """The program was not found; none of its code has run."""


def main() -> None:
    """Call ``install()``, then run the program that the arguments name. Print our own errors without a traceback."""
    first, *rest = sys.argv[1:]
    if first != "-m" and not sys.flags.safe_path:
        # Set before further imports, so that modules are searched in the file's folder, not in the working directory.
        sys.path[0] = _absolute(first) if _is_folder(first) else os.path.dirname(os.path.realpath(first))
    install()
    try:
        if first == "-m":
            _run_module(rest[0], rest[1:])
        else:
            _run_script(first, rest)
    except ProgramMissing as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(CANNOT_RUN)


def _run_script(path: str, arguments: Sequence[str]) -> None:
    sys.argv[:] = [path, *arguments]
    file_name = _absolute(path)
    if _is_folder(path):
        spec = importlib.machinery.PathFinder.find_spec(_MAIN, [file_name])
        _run_spec(spec, f"cannot run {path!r}: there is no __main__.py in it")
        return
    try:
        with io.open_code(file_name) as file:
            source = file.read()
    except OSError as error:
        raise ProgramMissing(f"cannot run {path!r}: {error.strerror or error}") from error
    loader = importlib.machinery.SourceFileLoader(_MAIN, file_name)
    code = compile(source, file_name, "exec", dont_inherit=True)
    _run(code, __file__=file_name, __loader__=loader, __cached__=None)


def _run_module(name: str, arguments: Sequence[str]) -> None:
    sys.argv[:] = ["-m", *arguments]  # as in Python, until the module is found
    spec = _spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = _spec(f"{name}.{_MAIN}")
    sys.argv[0] = name if spec is None or spec.origin is None else spec.origin
    _run_spec(spec, f"cannot run -m {name}: no runnable module of this name")


def _spec(name: str) -> importlib.machinery.ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise ProgramMissing(f"cannot run -m {name}: {error}") from error


def _absolute(path: str) -> str:
    return os.path.join(os.getcwd(), path)


def _is_folder(path: str) -> bool:
    """Return whether modules can be imported from ``path``: it is a directory or a zip file."""
    return pkgutil.get_importer(path) is not None


def _run_spec(spec: importlib.machinery.ModuleSpec | None, problem: str) -> None:
    get_code = None if spec is None else getattr(spec.loader, "get_code", None)
    code = None if spec is None or get_code is None else get_code(spec.name)
    if spec is None or code is None:
        raise ProgramMissing(problem)
    _run(
        code,
        __spec__=spec,
        __loader__=spec.loader,
        __package__=spec.parent,
        __file__=spec.origin,
        __cached__=spec.cached,
    )


def _run(code: types.CodeType, **attributes: object) -> None:
    main = types.ModuleType(_MAIN)
    vars(main).update(attributes, __builtins__=builtins)
    sys.modules[_MAIN] = main
    exec(code, vars(main))


if __name__ == "__main__":
    main()
