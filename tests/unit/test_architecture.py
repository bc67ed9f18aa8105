"""docs/architecture.md and the code agree: the invariants, where each is guarded, and the tests that miss the guard."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.simulation.guard_form import Change
from tests.simulation.guard_texts import GUARDS
from tests.support.source_tree import ROOT, modules, tree

DOCUMENT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SIMULATOR = "simulator"
NAMES = tuple(f"I{number}" for number in range(1, 9))
CITATION = re.compile(r"\binvariants?\s+(I\d+(?:(?:,\s*|\s+and\s+)I\d+)*)")
Row = tuple[str, str, str]


def sections() -> dict[str, str]:
    """The text below each invariant's heading, by its name."""
    parts = re.split(r"^###? ", DOCUMENT.partition("## Invariants")[2], flags=re.MULTILINE)
    return {part.partition(".")[0]: part for part in parts if re.match(r"I\d+\. ", part)}


def guards() -> Iterator[Row]:
    """The rows of the tables: the invariant, ``module:function``, and what fails without the guard."""
    for name, text in sections().items():
        for row in re.findall(r"^\| `(.*)` \|$", text.replace(f"| {SIMULATOR} |", f"| `{SIMULATOR}` |"), re.MULTILINE):
            where, *_, test = re.split(r"`? \| `?", row)
            yield name, where, test


def cited() -> dict[str, set[str]]:
    """For each name that the code cites, the modules that do."""
    found: dict[str, set[str]] = {}
    for module, path in modules().items():
        for names in CITATION.findall(path.read_text(encoding="utf-8")):
            for name in re.findall(r"I\d+", names):
                found.setdefault(name, set()).add(module)
    return found


@cache
def functions(module: str) -> frozenset[str]:
    nodes = ast.walk(tree(modules()[module]))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def function_of(change: Change) -> str:
    """``module:function`` of the innermost function in which a change of source text lies."""
    path = modules()[change.module]
    text = path.read_text(encoding="utf-8")
    line = text[: text.index(change.old)].count("\n") + 1
    around = [
        node
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return f"{change.module}:{max(around, key=lambda node: node.lineno).name}"


def test_the_invariants_are_those_that_there_are() -> None:
    assert tuple(sections()) == NAMES


def test_every_invariant_is_cited_and_every_citation_names_one() -> None:
    assert sorted(cited()) == sorted(NAMES)


@pytest.mark.parametrize("row", list(guards()), ids=lambda row: f"{row[0]} {row[1]}")
def test_a_guard_is_there_and_says_what_for(row: Row) -> None:
    name, where, _ = row
    module, _, function = where.partition(":")
    assert function in functions(module), f"{module} has no function {function}"
    assert module in cited()[name], f"{module} does not say that it guards invariant {name}"


def test_whoever_cites_an_invariant_is_in_its_table() -> None:
    listed = {(name, where.partition(":")[0]) for name, where, _ in guards()}
    # Where versions are explained, and where the sources of views meet: what they lead to is listed.
    described = {("I4", "modeaware.topic_view")}
    citing = {(name, module) for name, found in cited().items() for module in found}
    assert sorted(citing - listed - described) == []


def test_the_simulators_guards_are_the_pages() -> None:
    removed = {
        (guard.invariant, function_of(change))
        for guard in GUARDS
        for change in guard.changes
        if guard.invariant in NAMES and change.module.startswith("modeaware.")
    }
    assert {(name, where) for name, where, test in guards() if test == SIMULATOR} == removed


@pytest.mark.parametrize("test", sorted({test for _, _, test in guards() if test != SIMULATOR}))
def test_a_named_test_is_there(test: str) -> None:
    path, *names = test.split("::")
    node: ast.AST = tree(ROOT / path)
    for name in names:  # as pytest takes it: with the class, where the test is in one
        inner = {
            each.name: each for each in ast.iter_child_nodes(node) if isinstance(each, ast.ClassDef | ast.FunctionDef)
        }
        assert name in inner, f"{path} has no {name}"
        node = inner[name]
