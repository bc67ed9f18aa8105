"""The JSON form that all records of the mode log share: an object with a version, read with care."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from modeaware.errors import NewerRecord, RecordError
from modeaware.modes import PartitionMode

WRITER_VERSION = 1
READER_VERSION = 1
MAX_PARTITIONS = 100_000
"""No record lists more: rubbish must not fill the memory."""


def dump(fields: Mapping[str, Any]) -> bytes:
    """A record's value on the log: compact UTF-8 JSON, keys sorted, so equal records are equal bytes."""
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()


def load(value: bytes, *, reader_version: int = READER_VERSION) -> dict[str, Any]:
    """The fields of a value.

    Args:
        value: the record's bytes.
        reader_version: the newest form of this kind of record that can be read here.

    Raises:
        NewerRecord: it was written for a newer reader.
        RecordError: it is not a JSON object.
    """
    try:
        fields = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"mode log: not JSON ({error})") from error
    if not isinstance(fields, dict):
        raise RecordError(f"mode log: not a JSON object but {type(fields).__name__}")
    min_reader = fields.get("min_reader", 1)
    if not isinstance(min_reader, int):
        raise RecordError(f"mode log: min_reader is {min_reader!r}, not a number")
    if min_reader > reader_version:
        raise NewerRecord(
            f"mode log: the record of {fields.get('topic', 'the controller')!r} needs a reader of version "
            f"{min_reader}, this one is {reader_version}; upgrade modeaware",
            topic=topic if isinstance(topic := fields.get("topic"), str) else None,
        )
    return fields


def text(value: Any) -> str:
    """A field that must be a string; raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"expected a string, not {type(value).__name__}")
    return value


def optional_int(value: Any) -> int | None:
    """A field that may be missing or null."""
    return None if value is None else int(value)


def modes_of(ranges: Any) -> tuple[PartitionMode, ...]:
    """Modes as a list of ``[first, last, mode]``, from partition 0 on; raises ValueError, TypeError."""
    modes: list[PartitionMode] = []
    for first, last, code in ranges:
        if first != len(modes) or not first <= last < MAX_PARTITIONS:
            raise ValueError(f"mode ranges leave a gap, overlap or end beyond {MAX_PARTITIONS} at {first}-{last}")
        modes.extend([PartitionMode(code)] * (last - first + 1))
    if not modes:
        raise ValueError("no modes")
    return tuple(modes)


def partitions_of(ranges: Any) -> tuple[int, ...]:
    """Partitions as a list of ``[first, last]``, ascending; raises ValueError, TypeError."""
    partitions: list[int] = []
    for first, last in ranges:
        if not (partitions[-1] if partitions else -1) < first <= last < MAX_PARTITIONS:
            raise ValueError(f"ranges of partitions overlap or end beyond {MAX_PARTITIONS} at {first}-{last}")
        partitions.extend(range(first, last + 1))
    return tuple(partitions)
