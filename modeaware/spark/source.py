"""Batch and streaming reads of one topic with Spark's own Kafka source."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from modeaware.errors import ConfigError
from modeaware.spark.connector import option_text, spark_options
from modeaware.spark.offsets import EARLIEST, LATEST, existing
from modeaware.spark.snapshot import TopicClient, topic_chain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WHICH_TOPICS = ("assign", "subscribe", "subscribepattern")
_BY_PARTITION = {
    "startingoffsets": EARLIEST,
    "endingoffsets": LATEST,
    "startingoffsetsbytimestamp": 0,
    "endingoffsetsbytimestamp": 2**63 - 1,
}
"""Option with a value for each partition -> the value that means the start, or the end, of a partition."""


def topics_of(conf: Mapping[str, Any], topic: str) -> tuple[str, ...]:
    """Return the existing topics that have the records of the name ``topic``: the topic of that name, and those that
    have replaced it one after another. Nearly always there is only one.

    For queries of Spark's own Kafka source: ``option("subscribe", ",".join(topics_of(conf, "orders")))``.

    Args:
        conf: as for :class:`modeaware.Producer` or :class:`modeaware.Consumer`.

    Raises:
        ViewTimeout: the modes are unknown (see ``modeaware.view.timeout.ms``).
        ConfigError: a ``modeaware.`` setting is unknown or has a bad value.
    """
    return tuple(view.topic for view in existing(topic_chain(conf, topic)))


def read_from_kafka(spark: SparkSession, topic: str, conf: Mapping[str, Any], **options: Any) -> DataFrame:
    """Return the records of the readable partitions of ``topic``. Records in partitions of mode None are skipped.

    If another topic has replaced ``topic``, the frame has the records of both, as long as both exist. The partitions
    are chosen at the call. As always in Spark's source, the offset range of each partition is chosen when the frame is
    used.

    Args:
        conf: as for :class:`modeaware.Producer` or :class:`modeaware.Consumer`.
        options: options of the Kafka source (``startingOffsets``, ``includeHeaders``, ``minPartitions``, ``kafka.*`` as
            ``**{"kafka.isolation.level": "read_committed"}``) with Spark's defaults. If offsets or timestamps are given
            by partition, those of partitions in mode None are left out. If they lack a topic that has replaced
            ``topic``, that topic is read from its start to its end.

    Raises:
        ConfigError: an option names the topic or partitions, or ``conf`` cannot be translated for Java's client.
        ViewTimeout: the modes are unknown (see ``modeaware.view.timeout.ms``).
        ClusterError: the topic does not exist, or no broker answered.
    """
    settings = {**spark_options(conf, "consumer"), **caller_options(options)}
    readable = {}
    for view in existing(topic_chain(conf, topic)):
        partitions = TopicClient(conf, view.topic).describe().partitions
        readable[view.topic] = [p for p in partitions if view.is_readable(p)]
    settings |= only_partitions(settings, topic, readable)
    return spark.read.format("kafka").options(**settings).option("assign", json.dumps(readable)).load()


def read_stream_from_kafka(spark: SparkSession, topic: str, conf: Mapping[str, Any], **options: Any) -> DataFrame:
    """Return a stream of the records of ``topic`` that continues through shrinks and growths.

    The stream subscribes to the whole topic: a revived partition continues at the offset in the checkpoint, and a new
    partition is read from its first record. Add a :class:`~modeaware.spark.ProgressListener` to the session. Without
    one, no drain waits for the stream, and unread records may be deleted. If that happens, ``failOnDataLoss``, true by
    default, fails the query.

    A topic that replaces ``topic`` (:func:`topics_of`) is read from the next start of the query on. Both topics are
    then read in parallel: the order of a key is lost. ``format("modeaware")`` needs no restart, and keeps the order.

    ``conf`` and ``options`` (such as ``maxOffsetsPerTrigger``) are as for :func:`read_from_kafka`; ConfigError and
    ViewTimeout are raised as there.
    """
    settings = {**spark_options(conf, "consumer"), **caller_options(options)}
    subscribed = ",".join(topics_of(conf, topic))
    return spark.readStream.format("kafka").options(**settings).option("subscribe", subscribed).load()


def read_ranges(
    spark: SparkSession,
    topic: str,
    conf: Mapping[str, Any],
    ends: Mapping[int, int],
    starts: Mapping[int, int],
    options: Mapping[str, str],
) -> DataFrame:
    """Return the committed records, with headers, from ``starts`` (or else the log start) to before ``ends``."""
    settings = {
        **spark_options(conf, "consumer"),
        **options,
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        "assign": json.dumps({topic: sorted(ends)}),
        "startingOffsets": json.dumps({topic: {str(p): starts.get(p, EARLIEST) for p in ends}}),
        "endingOffsets": json.dumps({topic: {str(p): end for p, end in ends.items()}}),
    }
    return spark.read.format("kafka").options(**settings).load()


def caller_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the caller's options in Spark's form; ConfigError if one selects topics or partitions."""
    for name in options:
        if name.lower() in _WHICH_TOPICS:
            raise ConfigError(f"option {name}: pass the topic as an argument; its modes decide the partitions")
    return {name: option_text(value) for name, value in options.items() if value is not None}


def only_partitions(options: Mapping[str, str], topic: str, readable: Mapping[str, Collection[int]]) -> dict[str, str]:
    """Return ``options`` with offsets and timestamps for exactly the partitions ``readable[name]`` of each topic:
    Spark refuses others. If a topic other than ``topic`` is missing in an option, the whole topic is read."""
    reduced = dict(options)
    for name, value in options.items():
        if name.lower() not in _BY_PARTITION or not value.lstrip().startswith("{"):
            continue
        try:
            given, cut = json.loads(value), {}
            for each, partitions in readable.items():
                everything = dict.fromkeys(map(str, partitions), _BY_PARTITION[name.lower()])
                of_topic = given[topic] if each == topic else given.get(each, everything)
                cut[each] = {p: at for p, at in of_topic.items() if int(p) in partitions}
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            example = json.dumps({topic: {"0": 23}})
            raise ConfigError(f"option {name}: expected JSON such as {example}, not {value}", topic=topic) from error
        reduced[name] = json.dumps(cut)
    return reduced
