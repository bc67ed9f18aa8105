"""One class over another that a tracer, say, has put in the place of a stock class."""

from __future__ import annotations

import types
from typing import Any, TypeVar

T = TypeVar("T")
_MADE: dict[tuple[type, type], type[Any]] = {}


def over(ours: type[T], current: type) -> type[T]:
    """Return ``ours`` over ``current``, both subclasses of one stock class; the same class for the same two. Where one
    is a subclass of the other, that is it."""
    if issubclass(ours, current):
        return ours
    if issubclass(current, ours):
        return current
    if (ours, current) not in _MADE:
        names = {"__module__": ours.__module__, "__qualname__": ours.__qualname__, "__doc__": ours.__doc__}
        made = types.new_class(ours.__name__, (ours, current), exec_body=lambda body: body.update(names))
        _MADE[ours, current] = made
    return _MADE[ours, current]
