"""Users' own partitioners, by the name of a class, an instance or a function."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator

import numpy as np
import pytest

from partitioners import FunctionPartitioner, Manual, RoundRobin, load

MODULE = "users_own_partitioners"


class Own:
    """A user's, with nothing of ours."""

    def for_topic(self, topic: str) -> Own:
        return self

    def requires_consistency(self, key: bytes | None) -> bool:
        return key is not None

    def partition(self, key: bytes | None, count: int) -> int:
        return len(key or b"") % count


class Demanding(Own):
    def __init__(self, secret: str) -> None:
        self.secret = secret


def last(key: bytes | None, count: int) -> int:
    return count - 1


@pytest.fixture(autouse=True)
def module() -> Iterator[types.ModuleType]:
    made = types.ModuleType(MODULE)
    vars(made).update(
        Own=Own,
        Demanding=Demanding,
        ours=RoundRobin(),
        last=last,
        numpys=lambda key, count: np.int64(count // 2),
        too_high=lambda key, count: count,
        not_a_number=lambda key, count: None,
        number=7,
        Empty=type("Empty", (), {}),
        NotOurs=type("NotOurs", (), {"__call__": last}),
        nested=types.SimpleNamespace(inner=Own),
    )
    sys.modules[MODULE] = made
    yield made
    del sys.modules[MODULE]


def test_a_class_is_instantiated() -> None:
    assert type(load(f"{MODULE}:Own")) is Own
    assert type(load(f"{MODULE}:nested.inner")) is Own
    assert type(load("partitioners:Manual")) is Manual


def test_a_function_is_asked_about_every_record() -> None:
    partitioner = load(f"{MODULE}:last")
    assert type(partitioner) is FunctionPartitioner
    topic = partitioner.for_topic("t")
    assert topic.requires_consistency(b"key")
    assert topic.requires_consistency(None)
    assert [topic.partition(key, 12) for key in (b"key", b"", None)] == [11, 11, 11]


@pytest.mark.parametrize("name", ["too_high", "not_a_number"])
def test_a_function_that_gives_no_index_is_named(name: str) -> None:
    topic = load(f"{MODULE}:{name}").for_topic("t")
    with pytest.raises(ValueError, match=f"'{MODULE}:{name}' gave .*, which is no index below 12"):
        topic.partition(b"key", 12)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Own", "write 'package.module:name'"),
        ("no_such_module_at_all:Own", "no import of no_such_module_at_all"),
        (f"{MODULE}:Absent", "has no attribute 'Absent'"),
    ],
)
def test_a_name_without_anything_behind_it_is_a_value_error(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Demanding", "cannot be made without arguments: .*secret"),
        ("number", "no method for_topic"),
        ("Empty", "no method for_topic"),
        ("NotOurs", "no method for_topic"),
    ],
)
def test_something_else_than_a_partitioner_is_a_type_error(name: str, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        load(f"{MODULE}:{name}")
