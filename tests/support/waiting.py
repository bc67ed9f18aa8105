"""Waiting for conditions, so that no test sleeps or measures time where a condition shows what it waits for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(
    condition: Callable[[], T], deadline_s: float = 30.0, *, interval_s: float = 0.05, message: str = ""
) -> T:
    """Call ``condition`` until what it returns is truthy, and return that.

    An AssertionError that it raises counts as "not yet"; the last one is raised when the deadline passes.

    Raises:
        AssertionError: not within ``deadline_s`` seconds.
    """
    deadline = time.monotonic() + deadline_s
    while True:
        try:
            value = condition()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        else:
            if value:
                return value
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {deadline_s} s: {message or condition}; last value: {value!r}")
        time.sleep(interval_s)  # polling is what this function is for
