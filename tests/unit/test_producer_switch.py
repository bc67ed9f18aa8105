"""The callable that is pointed elsewhere in place."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

from modeaware.confluent._switch import Switch


def returning(value: str) -> Callable[..., tuple[str, tuple[object, ...], dict[str, object]]]:
    def target(*args: object, **kwargs: object) -> tuple[str, tuple[object, ...], dict[str, object]]:
        return value, args, kwargs

    return target


def test_an_alias_follows_and_arguments_pass() -> None:
    switch = Switch(returning("first"))
    alias = switch.call
    assert alias(1, a=2) == ("first", (1,), {"a": 2})
    second = returning("second")
    switch.point_to(second)
    assert switch.target is second
    assert switch.call is alias
    assert alias(1, a=2) == ("second", (1,), {"a": 2})


def test_targets_are_never_let_go() -> None:
    """A call that is under way holds no reference to its target."""
    switch = Switch(returning("first"))
    gone = weakref.ref(switch.target)
    switch.point_to(returning("second"))
    gc.collect()
    assert gone() is not None
