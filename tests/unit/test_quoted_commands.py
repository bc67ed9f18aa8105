"""The commands that pages, examples and messages quote are those that there are, with the options that they have."""

from __future__ import annotations

import argparse
import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache

import pytest

from modeaware import cli
from tests.support.source_tree import ROOT, modules, tree

PAGES = {path.name: path.read_text(encoding="utf-8") for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))}


def typed_lines() -> Iterator[tuple[str, str]]:
    """The page, and each command in its blocks of code that can be typed as it is."""
    for page, text in PAGES.items():
        for block in re.findall(r"^ *```(?:sh|console|text)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
            for line in re.sub(r"\\\n\s*", "", block).splitlines():
                command = line.strip().removeprefix("$ ")
                if command.startswith("modeaware ") and not re.search(r"\[|\.\.\.|\bHOST:PORT\b", command):
                    yield (
                        page,
                        re.sub(r'"?\$\w+"?', "1", command.partition(" | ")[0].partition(" > ")[0].partition(" < ")[0]),
                    )


@pytest.mark.parametrize(("page", "command"), list(typed_lines()))
def test_commands_in_blocks_are_taken(page: str, command: str) -> None:
    cli._parse(shlex.split(command, comments=True)[1:])  # private: what the command would do is not wanted


def quoted() -> Iterator[tuple[str, list[str]]]:
    """Where a command is named, in a page or a text of the product, and its words."""
    texts = [(page, text) for page, text in PAGES.items() if page != "CHANGELOG.md"]
    for name, path in modules().items():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
                texts.append((name, "".join(map(str, parts))))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append((name, node.value))
    for where, text in texts:
        for span in re.findall(r"`+(modeaware [^`]+)`+|'(modeaware [^']+)'|\((modeaware [^)]+)\)", text):
            words = "".join(span).split()[1:]
            if words and words[0] in {entry.name for entry in cli.COMMANDS}:
                yield where, words


@cache
def options_of(command: str) -> dict[str, set[str]]:
    """Action -> its options; "" where the command has no actions."""
    (entry,) = [entry for entry in cli.COMMANDS if entry.name == command]
    parser = argparse.ArgumentParser()
    entry.load().configure(parser)
    for nested in parser._actions:
        if isinstance(nested, argparse._SubParsersAction):
            return {name: set(each._option_string_actions) for name, each in nested.choices.items()}
    return {"": set(parser._option_string_actions)}


def test_options_of_quoted_commands_are_there() -> None:
    found, wrong = 0, []
    for where, (name, *words) in quoted():
        actions = options_of(name)
        chosen = [word for word in words[:1] if word in actions] or list(actions)
        known = set().union(*(actions[action] for action in chosen))
        options = {match[0] for word in words if (match := re.match(r"--[a-z-]+", word))}
        found += len(options)
        wrong += [f"{where}: modeaware {name} {' '.join(words)}: {option}" for option in sorted(options - known)]
    assert found > 40
    assert wrong == []
