"""Decode messages by their schemas, from the bytes of an untrusted peer.

kafka-python's own decoders accept malformed bytes: strings that are cut short, varints of any length, counts without
the elements that they count. The decoder here uses the same schemas, returns objects of the same classes, and has
bounds:

- Each length is checked against the rest of the frame before anything is read or allocated. A string of n bytes needs n
  bytes; an array of n elements needs n times the size of the smallest element.
- The objects of one message are counted against ``Budget.objects`` before an array is read. The reason: an element of a
  few bytes on the wire may be large in memory, and slow to make. A struct in an array counts 1, plus 1 for each field
  and tagged field of its schema; adjacent numbers and booleans are read together and count as one field. A string or
  UUID in an array counts 1, and so does each tagged field that the message contains. An array of numbers or booleans
  counts 0, because the length of the frame limits it.
- A string has at most ``Budget.string_bytes`` bytes.
- A varint has at most 5 bytes and fits in 32 bits.
- The recursion is as deep as the structs of the schema are nested; no message can make it deeper.
- Null is accepted only where the schema allows null. Every other negative length is rejected.
- Tagged fields must come in the order of their numbers (KIP-482). A known field must fill its length exactly; an
  unknown field is skipped and not kept.

So time and memory grow at most in proportion to the length of the frame, and have a limit.
This module calls methods of kafka-python's schema objects and does not import kafka-python.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any
from uuid import UUID

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_FIXED = {"bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q"}
_NO_UUID = bytes(16)


class OverBudget(ValueError):
    """A message has more objects than its budget allows."""


@dataclass(slots=True)
class Budget:
    """The limits of one message.

    Attributes:
        objects: how many further objects its arrays and tagged fields may have in all; :meth:`take` decreases it.
        string_bytes: how many bytes each of its strings may have.
    """

    objects: int
    string_bytes: int

    def take(self, objects: int) -> None:
        """Count ``objects``, the number of objects to be made next.

        Raises:
            OverBudget: fewer objects are left in the budget.
        """
        self.objects -= objects
        if self.objects < 0:
            raise OverBudget(f"{-self.objects} objects more than one message may have")


Read = Callable[[bytes, int, Budget], tuple[Any, int]]
"""Reads a value at a position; returns the value and the position behind it."""


@dataclass(frozen=True, slots=True)
class _Reader:
    """The way to read values of one type.

    Attributes:
        read: reads one value.
        least_bytes: the size of the smallest value.
        format: the ``struct`` format of a number or boolean, with which adjacent values are read together; else "".
        objects: what one value counts if it is an element of an array.
    """

    read: Read
    least_bytes: int
    format: str = ""
    objects: int = 1


def read_message(message_class: Any, data: bytes, position: int, version: int, budget: Budget) -> tuple[Any, int]:
    """Return a message (of one of kafka-python's classes) and the position behind it.

    Raises:
        ValueError, IndexError, struct.error: the bytes do not follow the schema.
    """
    return _message(message_class, version)(data, position, budget)


def read_nullable_string(data: bytes, position: int, budget: Budget) -> tuple[str | None, int]:
    """Return a request's ``client_id`` and the position behind it. This string is never compact, not even in a flexible
    version."""
    return _string(compact=False, nullable=True)(data, position, budget)


def skip_tagged_fields(data: bytes, position: int, budget: Budget) -> int:
    """Return the position behind the tagged fields of a header, which are all skipped."""
    return _read_tagged_fields(None, {}, data, position, budget)


@cache
def _message(message_class: Any, version: int) -> Read:
    make = partial(message_class, version=version)
    return _struct(message_class._struct, make, version, message_class.flexible_version_q(version)).read


def _struct(schema: Any, make: Callable[[], Any], version: int, flexible: bool) -> _Reader:
    """Return the reader of a struct; ``make`` makes the object whose attributes the reader sets."""
    readers = [(field.name, _reader(field, version, flexible)) for field in schema.untagged_fields(version)]
    steps = _steps(readers)
    known = {
        field.tag: (field.name, _reader(field, version, flexible).read)
        for field in schema.tagged_fields(version)._fields
    }
    # Attributes that no reader here sets get their defaults at once: in kafka-python, a look-up of an unset attribute
    # is slow. Each object gets new lists: kafka-python's default is one list for all objects.
    read_names = {name for name, _ in readers}
    absent = [(field.name, field.default) for field in schema._fields if field.name not in read_names]
    lists = [name for name, default in absent if isinstance(default, list)]
    absent += [("_version", version), ("tags", None), ("unknown_tags", None)]

    def read(data: bytes, position: int, budget: Budget) -> tuple[Any, int]:
        item = make()
        for name, default in absent:
            setattr(item, name, default)
        for name in lists:
            setattr(item, name, [])
        for names, layout, read_field in steps:
            if layout is not None:
                for name, value in zip(names, layout.unpack_from(data, position), strict=True):
                    setattr(item, name, value)
                position += layout.size
            else:
                value, position = read_field(data, position, budget)
                setattr(item, names[0], value)
        if not flexible:
            return item, position
        if data[position] == 0:  # no tagged fields, as in nearly all structs
            return item, position + 1
        return item, _read_tagged_fields(item, known, data, position, budget)

    least_bytes = sum(reader.least_bytes for _, reader in readers) + flexible
    return _Reader(read, least_bytes, objects=1 + len(steps) + len(known))


_Step = tuple[tuple[str, ...], struct.Struct | None, Read]


def _steps(readers: Iterable[tuple[str, _Reader]]) -> list[_Step]:
    """Return the steps that read the fields: adjacent fields of fixed size are one step."""
    steps: list[_Step] = []
    for name, reader in readers:
        if not reader.format:
            steps.append(((name,), None, reader.read))
        elif steps and (before := steps[-1])[1] is not None:
            steps[-1] = ((*before[0], name), struct.Struct(before[1].format + reader.format), reader.read)
        else:
            steps.append(((name,), struct.Struct(">" + reader.format), reader.read))
    return steps


def _reader(field: Any, version: int, flexible: bool) -> _Reader:
    nullable = field.nullable_for_version_q(version)
    if not field.is_array():
        return _simple(field.type_str, flexible, nullable)
    if field.is_struct_array():
        make = partial(field.data_class.__new__, field.data_class)
        element = _struct(field.array_of, make, version, flexible)
    else:
        element = _simple(field.array_of.type_str, flexible, nullable=False)
    return _Reader(_array(element, flexible, nullable), 1 if flexible else 4)


def _simple(kind: str, flexible: bool, nullable: bool) -> _Reader:
    if kind == "string":
        return _Reader(_string(flexible, nullable), 1 if flexible else 2)
    if kind == "uuid":
        return _Reader(_read_uuid, 16)
    if kind == "bitfield":
        return _Reader(_read_bitfield, 4)
    layout = struct.Struct(">" + _FIXED[kind])

    def read(data: bytes, position: int, budget: Budget) -> tuple[Any, int]:
        return layout.unpack_from(data, position)[0], position + layout.size

    return _Reader(read, layout.size, _FIXED[kind])


def _array(element: _Reader, flexible: bool, nullable: bool) -> Read:
    read_element, least_bytes, kind, objects = element.read, element.least_bytes, element.format, element.objects

    def read(data: bytes, position: int, budget: Budget) -> tuple[list[Any] | None, int]:
        if not flexible:
            count, position = _INT32.unpack_from(data, position)[0], position + 4
        elif (count := data[position] - 1) < 0x7F:  # a varint of one byte, as nearly all counts are
            position += 1
        else:
            count, position = _read_varint(data, position)
            count -= 1
        if count <= 0:
            _check_null(count, nullable)
            return (None if count else []), position
        if count * least_bytes > len(data) - position:
            raise ValueError(f"{count} elements are announced, {len(data) - position} bytes are left")
        if kind:
            layout = _layout(count, kind)
            return list(layout.unpack_from(data, position)), position + layout.size
        budget.take(count * objects)
        items = []
        for _ in range(count):
            item, position = read_element(data, position, budget)
            items.append(item)
        return items, position

    return read


@lru_cache
def _layout(count: int, kind: str) -> struct.Struct:
    return struct.Struct(f">{count}{kind}")


def _string(compact: bool, nullable: bool) -> Read:
    def read(data: bytes, position: int, budget: Budget) -> tuple[str | None, int]:
        if compact:
            length, position = _read_varint(data, position)
            length -= 1
        else:
            length, position = _INT16.unpack_from(data, position)[0], position + 2
        if length < 0:
            _check_null(length, nullable)
            return None, position
        end = _end(data, position, length)
        if length > budget.string_bytes:
            raise ValueError(f"a string has {length} bytes; the limit is {budget.string_bytes}")
        return str(data[position:end], "utf-8"), end

    return read


def _check_null(length: int, nullable: bool) -> None:
    if length < -1:
        raise ValueError(f"a length of {length}")
    if length == -1 and not nullable:
        raise ValueError("null where a value is required")


def _read_uuid(data: bytes, position: int, budget: Budget) -> tuple[UUID | None, int]:
    end = _end(data, position, 16)
    value = data[position:end]
    return (None if value == _NO_UUID else UUID(bytes=value)), end


def _read_bitfield(data: bytes, position: int, budget: Budget) -> tuple[set[int] | None, int]:
    """Return the operations for which a user is authorized, in kafka-python's form; None if they were not requested."""
    bits = int.from_bytes(data[position : _end(data, position, 4)], "big")
    return (None if bits == 1 << 31 else {bit for bit in range(32) if bits >> bit & 1}), position + 4


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFF_FFFF:
                raise ValueError("a varint of more than 32 bits")
            return value, position + 1
    raise ValueError("a varint of more than 5 bytes")


def _read_tagged_fields(
    item: Any, known: dict[int, tuple[str, Read]], data: bytes, position: int, budget: Budget
) -> int:
    count, position = _read_varint(data, position)
    if 2 * count > len(data) - position:
        raise ValueError(f"{count} tagged fields are announced, {len(data) - position} bytes are left")
    budget.take(count)
    last = -1
    for _ in range(count):
        tag, position = _read_varint(data, position)
        size, position = _read_varint(data, position)
        end = _end(data, position, size)
        if tag <= last:
            raise ValueError(f"tagged field {tag} after {last}")
        last = tag
        if tag in known:
            name, read = known[tag]
            value, stop = read(data, position, budget)
            if stop != end:
                raise ValueError(f"tagged field {tag} has {stop - position} bytes, {size} are announced")
            setattr(item, name, value)
        position = end
    return position


def _end(data: bytes, position: int, length: int) -> int:
    end = position + length
    if end > len(data):
        raise ValueError(f"{length} bytes are announced, {len(data) - position} are left")
    return end
