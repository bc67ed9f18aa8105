"""What the programs ``python -m modeaware.spark.<name>`` have in common: they run under spark-submit, too."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from modeaware.spark.connector import packages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, whose JVM runs already: what it loads was said there."""


def session(name: str, settings: Mapping[str, str]) -> SparkSession:
    """The session of spark-submit, or the one that is there, or a new one with the connector.

    Args:
        name: of the application.
        settings: of the session; they win.

    Raises:
        ModeAwareError: PySpark is not installed, or too old.
    """
    connector = packages()
    from pyspark.sql import SparkSession

    builder: SparkSession.Builder = SparkSession.builder
    if _SUBMITTED not in os.environ and SparkSession.getActiveSession() is None:
        settings = {"spark.app.name": name, "spark.jars.packages": connector, **settings}
    for setting, value in settings.items():
        builder = builder.config(setting, value)
    return builder.getOrCreate()


def add_spark_conf(parser: argparse.ArgumentParser) -> None:
    """``--spark-conf``, which is ``args.spark_conf`` then: a list of pairs."""
    parser.add_argument(
        "--spark-conf",
        action="append",
        default=[],
        type=key_value,
        metavar="KEY=VALUE",
        help="of the session, where spark-submit does not start it; may be repeated",
    )


def key_value(text: str) -> tuple[str, str]:
    """``KEY=VALUE`` as a pair, for argparse."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value
