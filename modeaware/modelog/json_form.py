"""The JSON form that all records of the mode log share: an object with a version, read strictly."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, ClassVar, NamedTuple, Self

from modeaware.errors import NewerRecord, RecordError

WRITER_VERSION = 1
READER_VERSION = 1


class _Form(NamedTuple):
    """One field's JSON form; see :func:`form`."""

    name: str
    key: str
    read: Callable[[Any], Any]
    write: Callable[[Any], Any] | None
    omitted: Any
    beside: str | None


def form(
    read: Callable[[Any], Any],
    write: Callable[[Any], Any] | None = None,
    *,
    key: str | None = None,
    required: bool = False,
    absent: Any = MISSING,
    beside: str | None = None,
) -> dict[str, Any]:
    """Return the ``metadata`` of a dataclass field: its JSON form.

    Args:
        read: makes the value from JSON; may raise KeyError, TypeError, ValueError, AttributeError, OverflowError.
        write: makes JSON from the value; None: it is JSON already.
        key: in JSON; None: the field's name.
        required: written also where it is the default, and JSON without it is malformed.
        absent: the value that is left out, and that an absent key stands for; the field's default, if not given.
        beside: a field; this one is written where that one is not its default.
    """
    return {
        "read": read,
        "write": write,
        "key": key,
        "required": required,
        "absent": absent,
        "beside": beside,
    }


class _Forms(NamedTuple):
    """The forms of a class: ``absent`` are what absent keys stand for where that is not the default; ``required`` the
    keys that JSON must have though their fields have a default."""

    fields: list[_Form]
    defaults: dict[str, Any]
    absent: dict[str, Any]
    required: frozenset[str]


@cache
def _forms(kind: Any) -> _Forms:
    forms, defaults, absent, required = [], {}, {}, set()
    for each in fields(kind):
        how, key = each.metadata, each.metadata["key"] or each.name
        default = defaults[each.name] = each.default if each.default_factory is MISSING else each.default_factory()
        if how["absent"] is not MISSING:
            default = absent[each.name] = how["absent"]
        if how["required"]:
            required.add(key)
        omitted = MISSING if how["required"] else default
        forms.append(_Form(each.name, key, how["read"], how["write"], omitted, how["beside"]))
    return _Forms(forms, defaults, absent, frozenset(required))


class JsonFields:
    """A dataclass whose fields have a JSON form (:func:`form`)."""

    def to_dict(self) -> dict[str, Any]:
        kind: Any = type(self)
        forms = _forms(kind)
        found = {}
        for name, key, _, write, omitted, beside in forms.fields:
            value = getattr(self, name)
            if value != omitted if beside is None else getattr(self, beside) != forms.defaults[beside]:
                found[key] = value if write is None else write(value)
        return found

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Self:
        """Read the JSON form."""
        kind: Any = cls
        forms = _forms(kind)
        if missing := forms.required.difference(found):
            raise KeyError(", ".join(sorted(missing)))
        values = {each.name: each.read(found[each.key]) for each in forms.fields if each.key in found}
        return cls(**forms.absent | values if forms.absent else values)


class JsonRecord(JsonFields):
    """A record of the mode log."""

    KIND: ClassVar[str]

    def to_json(self) -> bytes:
        """Return the value on the log: compact UTF-8 JSON, keys sorted, so equal records are equal bytes."""
        found = {"version": WRITER_VERSION, "min_reader": READER_VERSION, **self.to_dict()}
        return json.dumps(found, separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def from_json(cls, value: bytes) -> Self:
        """Parse a value of the mode log.

        Raises:
            NewerRecord: it was written for a newer reader.
            RecordError: it is not a record of this kind.
        """
        try:
            found = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise RecordError(f"mode log: not JSON ({error})") from error
        if not isinstance(found, dict):
            raise RecordError(f"mode log: not a JSON object but {type(found).__name__}")
        min_reader = found.get("min_reader", 1)
        if not isinstance(min_reader, int):
            raise RecordError(f"mode log: min_reader must be a number, not {min_reader!r}")
        if min_reader > READER_VERSION:
            raise NewerRecord(
                f"mode log: the record of {found.get('topic', 'the controller')!r} needs a reader of version "
                f"{min_reader}, this one is {READER_VERSION}; upgrade modeaware",
                topic=topic if isinstance(topic := found.get("topic"), str) else None,
            )
        try:
            return cls.from_dict(found)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise RecordError(f"mode log: not {cls.KIND} ({type(error).__name__}: {error})") from error


class VersionedRecord(JsonRecord):
    """A record of which the log keeps the latest version."""

    controller_epoch: int
    epoch: int

    @property
    def version(self) -> tuple[int, int]:
        return (self.controller_epoch, self.epoch)


def text(value: Any) -> str:
    """Return a field that must be a string; raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"expected a string, not {type(value).__name__}")
    return value


def texts(values: Any) -> tuple[str, ...]:
    """Return a list of strings; raises TypeError."""
    return tuple(text(value) for value in values)


def optional_text(value: Any) -> str | None:
    """Return a field that may be null; raises TypeError."""
    return None if value is None else text(value)


def optional_int(value: Any) -> int | None:
    return None if value is None else int(value)
