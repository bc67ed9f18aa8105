"""A class of ours over a class that another tool, such as a tracer, has put in place of a stock class."""

from __future__ import annotations

import types
from typing import Any, TypeVar

T = TypeVar("T")
_MADE: dict[tuple[type, type], type[Any]] = {}


def over(ours: type[T], current: type) -> type[T]:
    """Return a subclass of ``ours`` and ``current``, in this order of precedence. Both are subclasses of one stock
    class. If one is a subclass of the other, return the subclass. Equal arguments give the same class."""
    if issubclass(ours, current):
        return ours
    if issubclass(current, ours):
        return current
    if (ours, current) not in _MADE:
        names = {"__module__": ours.__module__, "__qualname__": ours.__qualname__, "__doc__": ours.__doc__}
        made = types.new_class(ours.__name__, (ours, current), exec_body=lambda body: body.update(names))
        _MADE[ours, current] = made
    return _MADE[ours, current]
