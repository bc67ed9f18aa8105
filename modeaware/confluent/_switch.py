"""A callable that is pointed elsewhere in place, so that an alias taken earlier (``send = producer.produce``)
follows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

Target = Callable[..., Any]


class Switch:
    """Holds ``call``, which calls the target of the moment.

    ``call`` is a ``functools.partial`` without arguments: it costs nothing measurable before a C function, and its
    ``__setstate__`` replaces the function inside. That is one step under the GIL, so threads may call it meanwhile.

    Attributes:
        call: what to hand out; always the same object.
    """

    __slots__ = ("_kept", "call")

    def __init__(self, target: Target) -> None:
        self.call: partial[Any] = partial(target)
        # A call that is under way holds no reference to its target but the partial's, so none is ever let go.
        self._kept: list[Target] = [target]

    @property
    def target(self) -> Target:
        """What ``call`` calls now."""
        return self.call.func

    def point_to(self, target: Target) -> None:
        """Make every later call go to ``target``. Callers hand in few different ones: each is kept for good."""
        if not any(kept is target for kept in self._kept):
            self._kept.append(target)
        if self.call.func is not target:
            self.call.__setstate__((target, (), {}, None))  # type: ignore[attr-defined] # typeshed leaves it out
