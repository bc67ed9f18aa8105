"""docs/runbook.md quotes what the code says: log lines, reasons, metrics, commands. Alerts lead to its headings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from modeaware.lifecycle.reasons import CODES
from tests.support.source_tree import ROOT, modules, tree

DOCUMENT = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
FIXED_CHARACTERS = 13
"""A quoted line must have as many in common with a text of the code, beside what is filled in."""
PLACEHOLDER = re.compile(r"%(?:\.?\d*)[sdrgfx]")


def blocks(language: str) -> list[str]:
    """The contents of the code blocks of a language, without the indentation of lists."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", DOCUMENT, re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", text, flags=re.MULTILINE) for indent, text in found]


def lines(language: str) -> list[str]:
    return [line for block in blocks(language) for line in block.splitlines() if line.strip()]


@cache
def patterns() -> tuple[re.Pattern[str], ...]:
    """The texts of the code that are long enough to be known again, with gaps for what is filled in."""
    found = set()
    for path in modules().values():
        inner = {id(part) for node in ast.walk(tree(path)) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in inner:
                found |= set(_pattern(node))
    return tuple(re.compile(pattern) for pattern in found)


def _pattern(node: ast.Constant | ast.JoinedStr) -> Iterator[str]:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    fixed: list[str | None] = []
    for part in parts:
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            pieces = PLACEHOLDER.split(part.value)
            fixed += [piece for one in pieces[:-1] for piece in (one, None)] + [pieces[-1]]
        else:
            fixed.append(None)
    words = (piece.strip() for piece in fixed if piece and " " in piece.strip())  # names alone prove nothing
    if max(map(len, words), default=0) >= FIXED_CHARACTERS:
        yield "".join(".*" if piece is None else re.escape(piece) for piece in fixed)


@pytest.mark.parametrize("line", lines("text"))
def test_quoted_log_lines_are_the_codes(line: str) -> None:
    assert any(pattern.search(line) for pattern in patterns()), "no text of the code is like this line"


def test_reasons_are_the_codes() -> None:
    section = DOCUMENT.partition("## A drain is blocked")[2].partition("\n## ")[0]
    items = re.findall(r"^- ((?:`[a-z-]+`(?:, )?)+)", section, re.MULTILINE)
    codes = {code for item in items for code in re.findall(r"[a-z-]+", item)}
    assert len(codes) > 5
    assert codes <= CODES
