"""Which Kafka connector belongs to the PySpark that is installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from modeaware.errors import ModeAwareError

SCALA = "2.13"
"""Spark 4 is built with no other."""
_OLDEST = 4


def packages() -> str:
    """The Maven coordinates of Spark's Kafka connector, for ``spark.jars.packages`` and ``spark-submit --packages``.

    The connector is part of Spark's release and has its version. It brings Kafka's Java client and Spark's token
    provider with it.

    Raises:
        ModeAwareError: PySpark is not installed, or is older than 4.0.
    """
    found = _pyspark_version()
    if found is None:
        raise ModeAwareError("modeaware.spark needs PySpark: install modeaware[spark]")
    release = found.partition("+")[0]  # a vendor's build has its own suffix, and Spark's connector
    if int(release.partition(".")[0]) < _OLDEST:
        raise ModeAwareError(
            f"modeaware.spark needs PySpark {_OLDEST}.0 or newer, not {found}: install modeaware[spark]"
        )
    return f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{release}"


def _pyspark_version() -> str | None:
    for name in ("pyspark", "pyspark-client", "pyspark-connect"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None
