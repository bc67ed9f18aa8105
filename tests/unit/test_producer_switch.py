"""The callable that is pointed elsewhere in place."""

from __future__ import annotations

import gc
import threading
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


def test_few_targets_are_kept_however_often_they_change() -> None:
    first, second = returning("first"), returning("second")
    switch = Switch(first)
    for _ in range(100):
        switch.point_to(second)
        switch.point_to(first)
    assert switch._kept == [first, second]


def test_threads_may_call_it_while_it_is_pointed_elsewhere() -> None:
    in_python, in_c = returning("python"), "in C".format
    switch = Switch(in_python)
    over = threading.Event()
    seen: list[set[object]] = []

    def work() -> None:
        found: set[object] = set()
        while not over.is_set():
            found.add(switch.call()[0])
            found.add(switch.call(1, 2, 3, named=4)[0])
        seen.append(found)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(20_000):
        switch.point_to(in_c)
        switch.point_to(in_python)
    over.set()
    for thread in threads:
        thread.join()
    assert len(seen) == len(threads)
    assert set().union(*seen) <= {"python", "i"}
