"""Rules of the house that no linter holds."""

from __future__ import annotations

import ast
import re
import tokenize
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT, code_files, text_files, tree

MOST_LINES = 400
KNOWN_HOSTS = re.compile(
    r"(?:[\w-]+\.)*apache\.org|keepachangelog\.com|semver\.org|localhost|127\.0\.0\.1|example\.(?:com|org)"
)
URL = re.compile(r"\bhttps?://(?:[^\s/@\"']+@)?([\w.-]+)")
# Whose machine a path is of: homes, and folders at the root that no system has.
MACHINE_PATH = re.compile(r"(?<![\w.~/}{-])/(?:root|work|home/\w+|Users/\w+)(?=/)")
REGISTRY = re.compile(r"\b(?:repo\d?|registry|proxy|mirrors?|files|index)\.[\w-]+(?:\.[\w-]+)*\.(?:org|com|net|io)\b")
WAIVER = re.compile(r"#\s*(?:type:\s*ignore|noqa|pragma)")
EXPLAINED = re.compile(r"#\s*(?:type:\s*ignore\[[\w, -]+\]|noqa:\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*)\s*(?:#|-|--|:)\s*\w+")


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def comments_of(path: Path) -> dict[int, str]:
    """The comments of a file by line."""
    with path.open("rb") as file:
        tokens = list(tokenize.tokenize(file.readline))
    return {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}


@pytest.mark.parametrize("path", code_files(), ids=relative)
def test_code_is_tidy(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MOST_LINES, "split it: one noun a file"
    comments = comments_of(path)
    for number, comment in comments.items():
        if WAIVER.search(comment):
            assert EXPLAINED.search(comment), f"line {number}: a waiver names its rule and its reason"
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"line {node.lineno}: bare except"
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "time.sleep":
            assert node.end_lineno in comments, f"line {node.lineno}: say in that line why it sleeps"


@pytest.mark.parametrize("path", text_files(), ids=relative)
def test_text_names_no_machine_and_no_unknown_host(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert [found for found in URL.findall(text) if not KNOWN_HOSTS.fullmatch(found)] == []
    assert MACHINE_PATH.findall(text) == []
    assert REGISTRY.findall(text) == []


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("cd " + "/".join(["", "home", "ann", "kafka"]), MACHINE_PATH),
        ("open('" + "/".join(["", "root", "x"]), MACHINE_PATH),
        ("see " + ".".join(["repo1", "maven", "example", "org"]), REGISTRY),
        ("x = 1  # type: ignore", WAIVER),
    ],
)
def test_the_patterns_find_what_they_are_for(text: str, pattern: re.Pattern[str]) -> None:
    assert pattern.search(text)


def test_the_patterns_let_pass_what_is_fine() -> None:
    assert EXPLAINED.search("x = y  # type: ignore[attr-defined] - confluent_kafka has no types for it")
    assert EXPLAINED.search("x = y  # noqa: BLE001 - reported to the caller")
    assert not EXPLAINED.search("x = y  # noqa")
    assert not MACHINE_PATH.search("~/work/x and docs/root/x and {folder}/work/y")
    assert not REGISTRY.search("registry.get(topic) and files.read()")
