"""Rules of the house that no linter holds."""

from __future__ import annotations

import ast
import re
import tokenize
import tomllib
from pathlib import Path

import modeaware
from tests.support.source_tree import ROOT, code_files, text_files, tree

WAIVER = re.compile(r"#\s*(?:type:\s*ignore|noqa|pragma)")
EXPLAINED = re.compile(r"#\s*(?:type:\s*ignore\[[\w, -]+\]|noqa:\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*)\s*(?:#|-|--|:)\s*\w+")
# Homes, and folders at the root that no system has.
MACHINE_PATH = re.compile(r"(?<![\w.~/}{-])/(?:root|work|home/\w+|Users/\w+)(?=/)")
REGISTRY = re.compile(r"\b(?:repo\d?|registry|proxy|mirrors?|files|index)\.[\w-]+(?:\.[\w-]+)*\.(?:org|com|net|io)\b")
URL = re.compile(r"\bhttps?://(?:[^\s/@\"']+@)?([\w.-]+)")
KNOWN_HOSTS = re.compile(
    r"(?:[\w-]+\.)*apache\.org|keepachangelog\.com|semver\.org|localhost|127\.0\.0\.1|example\.(?:com|org)"
    r"|www\.w3\.org"  # the name of SVG's namespace, never fetched
)


def unexplained_waivers(path: Path) -> list[str]:
    with path.open("rb") as file:
        comments = [token.string for token in tokenize.tokenize(file.readline) if token.type == tokenize.COMMENT]
    return [f"{path}: {comment}" for comment in comments if WAIVER.search(comment) and not EXPLAINED.search(comment)]


def unexplained_sleeps(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    calls = [node for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
    sleeps = [node for node in calls if ast.unparse(node.func) == "time.sleep"]
    return [f"{path}:{node.end_lineno}" for node in sleeps if "#" not in lines[(node.end_lineno or 0) - 1]]


def test_waivers_and_sleeps_are_explained() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in code_files()}
    assert [waiver for path, text in texts.items() if WAIVER.search(text) for waiver in unexplained_waivers(path)] == []
    assert [found for path, text in texts.items() if "time.sleep(" in text for found in unexplained_sleeps(path)] == []


def test_text_names_no_machine_and_no_unknown_host() -> None:
    for path in text_files():
        if path.name == ".git":
            continue
        text = path.read_text(encoding="utf-8")
        assert [host for host in URL.findall(text) if not KNOWN_HOSTS.fullmatch(host)] == [], path
        assert MACHINE_PATH.findall(text) + REGISTRY.findall(text) == [], path


def test_the_package_the_project_and_the_changelog_name_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = [heading for heading in re.findall(r"^## .*$", changes, re.MULTILINE) if "Unreleased" not in heading]
    assert modeaware.__version__ == project["version"]
    assert modeaware.__version__ in released[0]
