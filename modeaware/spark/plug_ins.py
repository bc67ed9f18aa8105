"""The producer plug-ins for the JVM (docs/jvm.md) in Spark's Kafka sink.

With the plug-ins, the sink's producer follows partition modes by itself, between any two records of a job. Spark must
have their jar on its class path. The plug-ins read the mode log, support fewer partitioners than the Python clients,
and do not apply to a record with an explicit partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from modeaware.config import split_client_config
from modeaware.spark.connector import PREFIX
from modeaware.spark.errors import spark_errors
from modeaware.spark.snapshot import reads_log
from partitioners import Rule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONER, INTERCEPTOR = "modeaware.ModePartitioner", "modeaware.ModeInterceptor"
_NAMES = ("consistent_random", "minimal_movement", "murmur2_random")
_SETTINGS = "modeaware.Settings"
"""A class of the jar. It extends a class of kafka-clients, so it cannot be loaded without kafka-clients."""


def partitioner_in_jvm(df: DataFrame, conf: Mapping[str, Any], rule: Rule | None) -> str | None:
    """Return the plug-ins' name for the partitioner of ``rule``. Return None if the sink cannot use the plug-ins for
    ``df``, or Spark does not have them on its class path."""
    name = None if rule is None else "murmur2_random" if rule.is_javas else rule.name
    names_partition = "partition" in map(str.lower, df.columns)
    if name not in _NAMES or names_partition or not reads_log(conf) or not _are_loaded(df.sparkSession):
        return None
    return name


def _are_loaded(spark: SparkSession) -> bool:
    """Return whether Spark can load the jar's classes. Run no job: a query's analysis already looks up the class."""
    try:
        return len(spark.sql(f"SELECT java_method('{_SETTINGS}', 'names')").columns) == 1
    except spark_errors():  # without the jar; with the jar, but without kafka-clients beside it
        return False


def plug_in_options(conf: Mapping[str, Any], name: str, interceptors: str | None) -> dict[str, str]:
    """Return the sink's options for the plug-ins.

    Args:
        conf: as for :class:`modeaware.Producer`.
        name: the partitioner's name, from :func:`partitioner_in_jvm`.
        interceptors: the application's own interceptors, which come before ours.

    Raises:
        ConfigError: a ``modeaware.`` setting is unknown or has a bad value.
    """
    config, _ = split_client_config(conf)
    options = {
        "partitioner.class": PARTITIONER,
        "interceptor.classes": ",".join(filter(None, (interceptors, INTERCEPTOR))),
        "modeaware.partitioner": name,
        "modeaware.mode.log.topic": config.mode_log_topic,
        "modeaware.view.timeout.ms": str(config.view_timeout_ms),
        "modeaware.on.unknown": config.on_unknown,
    }
    return {PREFIX + key: value for key, value in options.items()}
