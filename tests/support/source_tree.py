"""The repository's own source, for tests that hold its rules."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("modeaware", "partitioners")
CODE_FOLDERS = (*PACKAGES, "tests", "benchmarks", "examples", "release")
_TEXT = {".py", ".md", ".toml", ".json", ".yml", ".yaml", ".cfg", ".sh", ".txt", ".sql", ".properties", ".service", ""}


def modules() -> dict[str, Path]:
    """Every module of the packages by its dotted name; a package has the name of its folder."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def code_files() -> list[Path]:
    """All Python files of the repository."""
    return [path for folder in CODE_FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def text_files() -> list[Path]:
    """All files of the repository that people read; the licence's text is not ours."""
    top = [path for path in sorted(ROOT.iterdir()) if path.is_file() and path.name not in ("LICENSE", ".coverage")]
    folders = [ROOT / name for name in (*CODE_FOLDERS, "docs", "deploy", ".ci", ".github")]
    below = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path for path in top + below if path.suffix in _TEXT and not path.name.endswith("-report.json")]


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
