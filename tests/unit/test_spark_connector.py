"""Which connector goes with which PySpark."""

from __future__ import annotations

import subprocess
import sys

import pytest

from modeaware.errors import ModeAwareError
from modeaware.spark import connector
from modeaware.spark.connector import packages


@pytest.mark.parametrize(
    ("found", "coordinates"),
    [
        ("4.0.1+vendor.7", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.1"),
        ("3.5.4", None),
    ],
)
def test_connector_has_sparks_version(monkeypatch: pytest.MonkeyPatch, found: str, coordinates: str | None) -> None:
    monkeypatch.setattr(connector, "version", {"pyspark": found}.__getitem__)
    if coordinates is not None:
        assert packages() == coordinates
    else:
        with pytest.raises(ModeAwareError, match=r"install modeaware\[spark\]"):
            packages()


def test_names_are_functions_whatever_was_imported_before() -> None:
    """A module of the same name, once imported, would take the place of a function."""
    program = (
        "import modeaware.spark.connector, modeaware.spark.planning.command, modeaware.spark as spark\n"
        "print(callable(spark.plan), callable(spark.packages), spark.packages())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == f"True True {packages()}\n"
