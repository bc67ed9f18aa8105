"""``format("modeaware")``: a DataSource for batch and streaming, to read and to write.

It is found without registration wherever this package is installed (``pyspark_modeaware``); see :func:`register`.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOUND_BY_SPARK = "pyspark_modeaware"


def register(spark: SparkSession) -> None:
    """Make ``format("modeaware")`` known to a session whose Python cannot see the module ``pyspark_modeaware``.

    Spark looks for such modules itself, and where it has found this one nothing is left to do (it refuses to take a
    name twice). Calling this is never wrong.
    """
    if find_spec(FOUND_BY_SPARK) is None:
        from modeaware.spark.source.datasource import ModeAwareDataSource

        spark.dataSource.register(ModeAwareDataSource)
