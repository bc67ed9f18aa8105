"""Stories as tables: rows of what happens to a thing that is tested, and of what is seen then.

A story names methods of one class, with their arguments: some act, some check. It fails at the first check that does
not hold, with the row, the step and what was found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Step:
    """A call of a method, at its time in a story."""

    method: str
    args: tuple[Any, ...]
    named: dict[str, Any]

    def __str__(self) -> str:
        said = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.named.items())]
        return f"{self.method}({', '.join(said)})"


class Steps:
    """Each method of the class of a story, to be called in it."""

    def __getattr__(self, method: str) -> Callable[..., Step]:
        return lambda *args, **named: Step(method, args, named)


class Story:
    """Rows of steps; ``settings`` are those of the thing that they happen to."""

    def __init__(self, *rows: Step | Iterable[Step], **settings: Any) -> None:
        self._rows = [(row,) if isinstance(row, Step) else tuple(row) for row in rows]
        self._settings = settings

    def run(self, make: Callable[..., T]) -> T:
        """Make a thing, take each step, and return the thing."""
        made = make(**self._settings)
        for number, row in enumerate(self._rows, 1):
            for step in row:
                try:
                    getattr(made, step.method)(*step.args, **step.named)
                except AssertionError as error:
                    error.add_note(f"in row {number} of the story: {step}")
                    error.add_note(f"the row: {', '.join(map(str, row))}")
                    raise
        return made
