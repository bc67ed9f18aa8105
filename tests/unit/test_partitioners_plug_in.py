"""Users' own partitioners, by the name of a class, an instance or a function."""

from __future__ import annotations

import sys
import types

import pytest

from partitioners import FunctionPartitioner, Manual, load

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
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    made = types.ModuleType(MODULE)
    vars(made).update(
        Own=Own,
        Demanding=Demanding,
        last=last,
        too_high=lambda key, count: count,
        not_a_number=lambda key, count: None,
        number=7,
        nested=types.SimpleNamespace(inner=Own),
    )
    monkeypatch.setitem(sys.modules, MODULE, made)


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
    ("name", "error", "message"),
    [
        ("Own", ValueError, "write 'package.module:name'"),
        ("no_such_module_at_all:Own", ValueError, "no import of no_such_module_at_all"),
        (f"{MODULE}:Absent", ValueError, "has no attribute 'Absent'"),
        (f"{MODULE}:Demanding", TypeError, "cannot be made without arguments: .*secret"),
        (f"{MODULE}:number", TypeError, "no method for_topic"),
    ],
)
def test_what_is_no_partitioner_is_refused(name: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        load(name)
