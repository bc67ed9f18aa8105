"""The known name that a misspelt one may mean. Comparing takes milliseconds a name: only where a person waits for it.

A controller compares none: names and their number come with requests, and all others would wait (import-linter).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

ALIKE, NEARLY_SAME = 0.6, 0.85
"""How like two names are, from 0 to 1: enough for a hint, and for a refusal."""


def nearest(name: str, known: Iterable[str], cutoff: float = ALIKE) -> str | None:
    """Return the known name that is most like one that is not known; None: none is as like as ``cutoff``."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


def with_nearest(why: str, name: str, known: Iterable[str]) -> str:
    """Return ``why`` a name is refused, and the known name that may be meant."""
    near = nearest(name, known)
    return why if near is None else with_hint(why, near)


def with_hint(why: str, near: str) -> str:
    """Return ``why`` a name is refused, and the ``near`` name that may be meant."""
    return f"{why}; did you mean {near!r}?"
