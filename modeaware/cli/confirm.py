"""The question before a change."""

from __future__ import annotations

import sys
from collections.abc import Callable

from modeaware.errors import RequestRefused


def ask(question: str, *, yes: bool, is_terminal: bool, read_line: Callable[[str], str] = input) -> bool | None:
    """Whether to go on: True or False, and None where nobody can be asked."""
    if yes:
        return True
    if not is_terminal:
        return None
    try:
        return read_line(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def confirmed(*, yes: bool) -> bool:
    """Ask whether to go on, unless ``--yes`` has said so.

    Raises:
        RequestRefused: nobody can be asked.
    """
    answer = ask("Go on?", yes=yes, is_terminal=sys.stdin.isatty())
    if answer is None:
        raise RequestRefused(
            "nobody can be asked (standard input is no terminal): say --yes to go on; nothing was changed"
        )
    return answer
