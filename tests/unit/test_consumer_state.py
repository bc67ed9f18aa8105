"""The count of a consumer's state, over a made-up client."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial

from benchmarks.consumer_state import Row, count, table


class Color(Enum):
    RED = 1


@dataclass(frozen=True)
class Settings:
    """A value that leads to an object."""

    group: str
    callback: Callable[[], object]


class Fixed:
    """Nothing of it changes after its construction, though another class changes what has the name of its attribute."""

    def __init__(self) -> None:
        self.total = 0
        self.total += 1
        self.names: dict[str, int] = {}
        self.names["first"] = 1


class Base:
    __slots__ = ("__weakref__", "kept", "never_set")

    def __init__(self) -> None:
        self.kept = 1


class Slotted(Base):
    """Two slots of which one changes, one of its base, and one that is not set."""

    __slots__ = ("total", "unit")

    def __init__(self) -> None:
        super().__init__()
        self.total, self.unit = 0, "s"

    def step(self) -> None:
        self.total += 1


class Flagged:
    """Another object changes it."""

    def __init__(self, color: Color) -> None:
        self.flag = False
        self.color = color


class Gone:
    """Cannot be reached."""

    def __init__(self) -> None:
        self.now = 0

    def step(self) -> None:
        self.now = 1


class Shared(Gone):
    """Belongs to all clients."""

    __module__ = f"{__name__}.views"


ALIVE: list[Slotted] = []
"""Nothing refers to it but code."""


class Client:
    """Reaches the others through whatever leads to an object."""

    def __init__(self) -> None:
        first, second, third = Slotted(), Slotted(), Slotted()
        flagged = Flagged(Color.RED)
        self.settings = Settings("group", lambda: flagged)
        self.steps: list[Callable[[], None]] = [first.step, partial(Slotted.step, second)]
        self.weakly = weakref.WeakMethod(third.step)
        self.kept = {("a key", first): Fixed()}
        ALIVE.append(third)
        self.shared = Shared()

    def poll(self, flagged: Flagged) -> None:
        self.steps.append(Slotted().step)
        flagged.flag = True


def test_stateful_objects_and_all_of_their_attributes_are_counted() -> None:
    rows = count(Client(), ours=__name__, shared=(f"{__name__}.views",))
    assert rows == [
        Row(f"{__name__}.Slotted", 3, 9, ("total",)),
        Row(f"{__name__}.Client", 1, 5, ("steps",)),
        Row(f"{__name__}.Flagged", 1, 2, ("flag",)),
    ]


def test_object_is_counted_by_what_its_own_class_changes() -> None:
    assert count(Gone(), ours=__name__, shared=()) == [Row(f"{__name__}.Gone", 1, 1, ("now",))]
    assert count(Fixed(), ours=__name__, shared=()) == []


def test_table_has_the_sums_in_its_last_line() -> None:
    lines = table([Row("a.Class", 3, 9, ("total",)), Row("b.Other", 1, 5, ("x", "y"))]).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["a.Class", "3", "9", "1"],
        ["b.Other", "1", "5", "2"],
        ["all", "4", "14"],
    ]
