"""Hints at the known name that a misspelt name may mean.

A comparison takes milliseconds, so only commands and clients give hints. A controller compares no names: a request may
contain many names, and other requests would wait. (import-linter checks which packages import this module.)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

ALIKE, NEARLY_SAME = 0.6, 0.85
"""The least similarity (0 to 1) of two names: ``ALIKE`` for a hint, ``NEARLY_SAME`` to refuse an unknown name."""


def nearest(name: str, known: Iterable[str], cutoff: float = ALIKE) -> str | None:
    """Return the known name that is most similar to ``name``, or None if no similarity reaches ``cutoff``."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


def with_nearest(why: str, name: str, known: Iterable[str]) -> str:
    """Return ``why``, the reason of a refusal, with a hint at the known name that ``name`` may mean."""
    near = nearest(name, known)
    return why if near is None else with_hint(why, near)


def with_hint(why: str, near: str) -> str:
    """Return ``why``, the reason of a refusal, with a hint at the name ``near``."""
    return f"{why}; did you mean {near!r}?"
