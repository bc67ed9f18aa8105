"""Streaming reads of a topic with Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from modeaware.spark.java_conf import spark_options
from modeaware.spark.read.options import caller_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_stream_from_kafka(spark: SparkSession, topic: str, conf: Mapping[str, Any], **options: Any) -> DataFrame:
    """A stream of the records of ``topic``, by Spark's Kafka source, that goes on through shrinks and grows.

    It subscribes to the whole topic: a partition in mode None gets no records, so it costs nothing, and when it comes
    back the stream goes on at the offset in its checkpoint. A partition that is new is read from its first record.
    Spark commits no offsets. Add a :class:`~modeaware.spark.read.progress.ProgressListener` to the session: without it
    no drain waits for the stream, records that it has not read may be deleted, and ``failOnDataLoss``, which stays as
    it is by default (true), fails the query then.

    Args:
        conf: as for :func:`~modeaware.spark.read_from_kafka`; the modes play no part here.
        options: options of the Kafka source (``startingOffsets``, ``maxOffsetsPerTrigger``, ``kafka.*``), with Spark's
            defaults.

    Raises:
        ConfigError: an option names the topic or partitions, or ``conf`` cannot be translated for Java's client.
    """
    given = caller_options(options)
    reader = spark.readStream.format("kafka").options(**{**spark_options(conf, "consumer"), **given})
    return reader.option("subscribe", topic).load()
