"""The JSON form that all records of the mode log share: an object with a version, read strictly."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from modeaware.errors import NewerRecord, RecordError
from modeaware.modes import runs

WRITER_VERSION = 1
READER_VERSION = 1
MAX_READ_BYTES = 1 << 20
"""A longer value is malformed. Readers in all languages have this limit."""


class _Form(NamedTuple):
    """One field's JSON form; see :func:`form`."""

    name: str
    key: str
    read: Callable[[Any], Any]
    write: Callable[[Any], Any] | None
    omitted: Any


def form(
    read: Callable[[Any], Any],
    write: Callable[[Any], Any] | None = None,
    *,
    key: str | None = None,
    required: bool = False,
) -> dict[str, Any]:
    """Return the ``metadata`` of a dataclass field: its JSON form.

    Args:
        read: makes the value from JSON; may raise KeyError, TypeError, ValueError, AttributeError, OverflowError.
        write: makes JSON from the value. By default the value is JSON already.
        key: the key in JSON. By default it is the field's name.
        required: whether the field is written even at its default, and JSON without the field is malformed.
    """
    return {"read": read, "write": write, "key": key, "required": required}


class _Forms(NamedTuple):
    """The forms of a class, and the keys that its JSON must have."""

    fields: list[_Form]
    required: frozenset[str]


@cache
def _forms(kind: Any) -> _Forms:
    forms, required = [], set()
    for field in fields(kind):
        how, key = field.metadata, field.metadata["key"] or field.name
        omitted = field.default if field.default_factory is MISSING else field.default_factory()
        if how["required"]:
            omitted = MISSING
            required.add(key)
        forms.append(_Form(field.name, key, how["read"], how["write"], omitted))
    return _Forms(forms, frozenset(required))


class JsonFields:
    """A dataclass whose fields have a JSON form (:func:`form`)."""

    def to_dict(self) -> dict[str, Any]:
        kind: Any = type(self)
        members = {}
        for name, key, _, write, omitted in _forms(kind).fields:
            value = getattr(self, name)
            if value != omitted:
                members[key] = value if write is None else write(value)
        return members

    @classmethod
    def from_dict(cls, members: Mapping[str, Any]) -> Self:
        """Read the JSON form."""
        kind: Any = cls
        forms = _forms(kind)
        if missing := forms.required.difference(members):
            raise KeyError(", ".join(sorted(missing)))
        return cls(
            **{
                json_form.name: json_form.read(members[json_form.key])
                for json_form in forms.fields
                if json_form.key in members
            }
        )


def nested(kind: type[JsonFields]) -> dict[str, Any]:
    """Return the ``metadata`` of a field that holds one object of ``kind``, or None."""
    return form(lambda value: None if value is None else kind.from_dict(value), kind.to_dict)


def columns(kind: type[JsonFields], limit: int, *, required: bool = False) -> dict[str, Any]:
    """Return the ``metadata`` of a field that maps numbers below ``limit`` to rows of ``kind``, in the JSON form of
    :func:`write_columns`."""
    return form(lambda value: read_columns(kind, value, limit), write_columns, required=required)


def read_runs(ranges: Any, limit: int) -> tuple[int, ...]:
    """Return the numbers in a list of ranges ``[first, last]``. Raise ValueError or TypeError unless the ranges ascend
    and end below ``limit``."""
    numbers: list[int] = []
    for first, last in map(listed, listed(ranges)):
        if not (numbers[-1] if numbers else -1) < integer(first) <= integer(last) < limit:
            raise ValueError(f"ranges overlap or end beyond {limit} at {first}-{last}")
        numbers.extend(range(first, last + 1))
    return tuple(numbers)


def write_runs(numbers: Iterable[int]) -> list[list[int]]:
    """Return numbers as a list of ``[first, last]``, ascending."""
    return [list(run) for run in runs(numbers)]


COLUMN_KEYS = "partitions"
Row = TypeVar("Row", bound=JsonFields)


def write_columns(rows: Mapping[int, JsonFields]) -> dict[str, Any]:
    """Return many rows of one kind as columns, which take fewer bytes.

    Each key is written once. A value that all rows share is also written once. Null stands for a field's default.
    """
    numbers = sorted(rows)
    columns_by_key: dict[str, Any] = {COLUMN_KEYS: write_runs(numbers)}
    written = [rows[number].to_dict() for number in numbers]
    for key in {key for row in written for key in row}:
        column = [row.get(key) for row in written]
        columns_by_key[key] = column[0] if all(value == column[0] for value in column) else column
    return columns_by_key


def read_columns(kind: type[Row], columns_by_key: Mapping[str, Any], limit: int) -> dict[int, Row]:
    """Return number -> row, from the form of :func:`write_columns`. Raise ValueError or TypeError for another form."""
    numbers = read_runs(columns_by_key[COLUMN_KEYS], limit)
    rows: list[dict[str, Any]] = [{} for _ in numbers]
    fields_of_kind: Any = kind
    for key in columns_by_key.keys() & {json_form.key for json_form in _forms(fields_of_kind).fields}:
        column = columns_by_key[key]
        values = column if isinstance(column, list) else [column] * len(numbers)
        for row, value in zip(rows, values, strict=True):
            if value is not None:
                row[key] = value
    return {number: kind.from_dict(row) for number, row in zip(numbers, rows, strict=True)}


class JsonRecord(JsonFields):
    """A record of the mode log."""

    KIND: ClassVar[str]

    def to_json(self) -> bytes:
        """Return the value on the log: compact UTF-8 JSON, keys sorted, so equal records are equal bytes."""
        members = {"version": WRITER_VERSION, "min_reader": READER_VERSION, **self.to_dict()}
        return json.dumps(members, separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def from_json(cls, value: bytes) -> Self:
        """Parse a value of the mode log.

        Raises:
            NewerRecord: the record was written for a newer reader.
            RecordError: the value is not a record of this kind.
        """
        if len(value) > MAX_READ_BYTES:
            raise RecordError(f"mode log: a value of {len(value)} bytes; at most {MAX_READ_BYTES} are read")
        try:
            members = json.loads(value.decode(), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise RecordError(f"mode log: not JSON ({error})") from error
        if not isinstance(members, dict):
            raise RecordError(f"mode log: not a JSON object but {type(members).__name__}")
        min_reader = members.get("min_reader", 1)
        if type(min_reader) is not int:
            raise RecordError(f"mode log: min_reader must be a number, not {min_reader!r}")
        if min_reader > READER_VERSION:
            raise NewerRecord(
                f"mode log: the record of {members.get('topic', 'the controller')!r} needs a reader of version "
                f"{min_reader}, this one is {READER_VERSION}; upgrade modeaware",
                topic=topic if isinstance(topic := members.get("topic"), str) else None,
            )
        try:
            return cls.from_dict(members)
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


def listed(value: Any) -> list[Any]:
    """Return a field that must be a list; raises TypeError."""
    if type(value) is not list:
        raise TypeError(f"expected a list, not {type(value).__name__}")
    return value


def integer(value: Any) -> int:
    """Return a field that must be a whole number of 64 bits. Raise TypeError for another type (``true``, ``1.0`` or
    ``"1"``, for example), ValueError for another number."""
    if type(value) is not int:
        raise TypeError(f"expected a whole number, not {type(value).__name__}")
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{value} does not fit into 64 bits")
    return value


def texts(values: Any) -> tuple[str, ...]:
    """Return a field that must be a list of strings, as a tuple; raises TypeError."""
    return tuple(text(value) for value in listed(values))


def optional_text(value: Any) -> str | None:
    """Return a field that may be null; raises TypeError."""
    return None if value is None else text(value)


def optional_int(value: Any) -> int | None:
    return None if value is None else integer(value)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
