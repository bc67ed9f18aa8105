"""Batch and streaming reads of one topic with Spark's own Kafka source."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from modeaware.errors import ConfigError
from modeaware.spark.connector import option_text, spark_options
from modeaware.spark.snapshot import TopicClient, topic_segments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EARLIEST = -2  # Spark's number for the log start
_WHICH_TOPICS = ("assign", "subscribe", "subscribepattern")
_BY_PARTITION = ("startingoffsets", "endingoffsets", "startingoffsetsbytimestamp", "endingoffsetsbytimestamp")


def read_from_kafka(spark: SparkSession, topic: str, conf: Mapping[str, Any], **options: Any) -> DataFrame:
    """Return the records of the readable partitions of ``topic``; records left in mode None partitions are skipped.

    The partitions are chosen at the call, the range of each when the frame is used, as in Spark.

    Args:
        conf: as for :class:`modeaware.Producer` or :class:`modeaware.Consumer`.
        options: options of the Kafka source (``startingOffsets``, ``includeHeaders``, ``minPartitions``, ``kafka.*``
            as ``**{"kafka.isolation.level": "read_committed"}``) with Spark's defaults. Offsets and timestamps by
            partition may name partitions in mode None, and are reduced to the readable ones.

    Raises:
        ConfigError: an option names the topic or partitions, or ``conf`` cannot be translated for Java's client.
        ViewTimeout: the modes are unknown (see ``modeaware.view.timeout.ms``).
        ClusterError: the topic does not exist, or no broker answered.
    """
    settings = {**spark_options(conf, "consumer"), **caller_options(options)}
    view = topic_segments(conf, topic)[0]
    partitions = [p for p in TopicClient(conf, topic).describe().partitions if view.is_readable(p)]
    settings |= only_partitions(settings, topic, partitions)
    return spark.read.format("kafka").options(**settings).option("assign", json.dumps({topic: partitions})).load()


def read_stream_from_kafka(spark: SparkSession, topic: str, conf: Mapping[str, Any], **options: Any) -> DataFrame:
    """Return a stream of the records of ``topic`` that continues through shrinks and growths.

    It subscribes to the whole topic: a revived partition continues at the offset in the checkpoint, a new one is read
    from its first record. Add a :class:`~modeaware.spark.ProgressListener` to the session: without it no drain waits
    for the stream, unread records may be deleted, and ``failOnDataLoss``, true by default, then fails the query.

    ``conf`` and ``options`` (``maxOffsetsPerTrigger``, ...) are as for :func:`read_from_kafka`, and so is ConfigError;
    the modes play no part here.
    """
    settings = {**spark_options(conf, "consumer"), **caller_options(options)}
    return spark.readStream.format("kafka").options(**settings).option("subscribe", topic).load()


def read_ranges(
    spark: SparkSession,
    topic: str,
    conf: Mapping[str, Any],
    ends: Mapping[int, int],
    starts: Mapping[int, int],
    isolation: str,
    options: Mapping[str, str],
) -> DataFrame:
    """Return the records, with headers, from ``starts`` (default: the log start) to before ``ends``, by partition."""
    settings = {
        **spark_options(conf, "consumer"),
        **options,
        "kafka.isolation.level": isolation,
        "includeHeaders": "true",
        "assign": json.dumps({topic: sorted(ends)}),
        "startingOffsets": json.dumps({topic: {str(p): starts.get(p, _EARLIEST) for p in ends}}),
        "endingOffsets": json.dumps({topic: {str(p): end for p, end in ends.items()}}),
    }
    return spark.read.format("kafka").options(**settings).load()


def caller_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the caller's options as Spark reads them; ConfigError where one selects topics or partitions."""
    for name in options:
        if name.lower() in _WHICH_TOPICS:
            raise ConfigError(f"option {name}: the topic is an argument, and its modes decide the partitions")
    return {name: option_text(value) for name, value in options.items() if value is not None}


def only_partitions(options: Mapping[str, str], topic: str, partitions: Collection[int]) -> dict[str, str]:
    """Return ``options`` with offsets and timestamps by partition reduced to ``partitions``: Spark refuses others."""
    reduced = dict(options)
    for name, value in options.items():
        if name.lower() not in _BY_PARTITION or not value.lstrip().startswith("{"):
            continue
        try:
            topics = json.loads(value)
            topics[topic] = {p: offset for p, offset in topics[topic].items() if int(p) in partitions}
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            example = json.dumps({topic: {"0": 23}})
            raise ConfigError(f"option {name}: expected JSON such as {example}, not {value}", topic=topic) from error
        reduced[name] = json.dumps(topics)
    return reduced
