"""Batch reads of a topic with Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from modeaware.spark.driver import partition_ids, topic_view
from modeaware.spark.java_conf import spark_options
from modeaware.spark.read.options import assign_option, caller_options, only_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_from_kafka(spark: SparkSession, topic: str, conf: Mapping[str, Any], **options: Any) -> DataFrame:
    """The records of the readable partitions of ``topic``, by Spark's Kafka source: partitions in mode None are left
    out, whatever still lies in them.

    Which partitions these are is decided now. How far each is read is decided as Spark has it: for ``latest``, the
    default of ``endingOffsets``, when the frame is used.

    Args:
        conf: as for :class:`modeaware.Producer` or :class:`modeaware.Consumer`: where the cluster is, and
            ``modeaware.`` settings.
        options: options of the Kafka source (``startingOffsets``, ``includeHeaders``, ``minPartitions``, ``kafka.*``
            as ``**{"kafka.isolation.level": "read_committed"}``) with Spark's defaults. Offsets and timestamps by
            partition may name partitions in mode None, and are cut down to the readable ones.

    Returns:
        A frame with the columns of Spark's Kafka source.

    Raises:
        ConfigError: an option names the topic or partitions, or ``conf`` cannot be translated for Java's client.
        ViewTimeout: the modes are not known (see ``modeaware.view.timeout.ms``).
        ClusterError: the topic is not there, or no broker answered.
    """
    given = caller_options(options)
    connection = spark_options(conf, "consumer")
    view = topic_view(conf, topic)
    partitions = {p for p in partition_ids(conf, topic) if view.is_readable(p)}
    given = only_partitions(given, topic, partitions)
    reader = spark.read.format("kafka").options(**{**connection, **given})
    return reader.option("assign", assign_option(topic, partitions)).load()
