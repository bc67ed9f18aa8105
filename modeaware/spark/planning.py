"""The plan of a resize by every record of a topic: a sample shows which hashes to try, and Spark counts the rest.

Records are summed by key and partition in the JVM, then hashed in columns; sums reach the driver. The report is that of
``modeaware plan``; see :mod:`modeaware.plan`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from modeaware.clock import SYSTEM_CLOCK
from modeaware.cluster.cluster import Cluster
from modeaware.config import split_client_config
from modeaware.errors import ConfigError, ErrorCode, RequestRefused
from modeaware.librdkafka import KafkaException
from modeaware.modelog.connection import connection_conf
from modeaware.plan.effects import Counted, Question
from modeaware.plan.recognise import recognise
from modeaware.plan.report import ResizePlan, ask_for_counts, make_plan
from modeaware.plan.sample import Stretch, look, read_sample
from modeaware.spark.counting import REALS, SCHEMA, WHOLES, Counting, Sums, Tally
from modeaware.spark.source import read_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEFAULT_SAMPLE = 10_000
MOST_PARTITIONS = 100_000
"""Of a topic: more than brokers hold. A mistyped number must not exhaust the executors' memory."""


def plan(
    spark: SparkSession,
    topic: str,
    conf: Mapping[str, Any],
    partitions: int,
    *,
    sample: int = DEFAULT_SAMPLE,
    **options: Any,
) -> ResizePlan:
    """Return what another number of partitions would do to ``topic``, by every record that it holds now.

    Spark reads each partition once, from its log start to the end it had at the call. Keys stay on the executors.
    Nothing is changed, no group is joined and nothing is committed; neither a controller nor a mode log is needed.

    ``modeaware.plan.text.plan_text``, ``modeaware.reports.serialise.to_json`` and ``modeaware.plan.html.plan_html``
    show the result as ``modeaware plan`` does.

    Args:
        conf: as for :class:`modeaware.Consumer`; only its connection settings are used.
        partitions: the number to plan for.
        sample: how many records the driver reads at most.
        options: further options of Spark's Kafka source, such as ``minPartitions``.

    Raises:
        RequestRefused: the topic does not exist, or ``partitions`` is what it has, or not 1 to 100 000.
        ClusterError: the brokers do not answer, or the topic cannot be read.
        ConfigError: a setting that a client does not accept.
        MissingExtra: kafka-python is not installed (``modeaware[controller]``).
    """
    if partitions > MOST_PARTITIONS:
        raise RequestRefused(
            f"{partitions} partitions: the most to plan for is {MOST_PARTITIONS}",
            code=ErrorCode.INVALID_PARTITIONS,
            topic=topic,
        )
    connection = connection_conf(split_client_config(conf)[1], "plan")
    try:
        cluster = Cluster(connection)
    except KafkaException as error:
        raise ConfigError(f"client settings: {error.args[0].str()}") from error
    with closing(cluster):
        found = look(cluster, topic)
    read = read_sample(connection, topic, found.facts.partition_count, found.logs, sample)
    recognition = recognise(read)
    question = ask_for_counts(read, recognition, partitions)
    counted = count(spark, topic, conf, question, found.logs, {name: str(value) for name, value in options.items()})
    now_ms = SYSTEM_CLOCK.now_ms()
    return make_plan(found, read, partitions, now_ms, recognition=recognition, counted=counted)


def count(
    spark: SparkSession,
    topic: str,
    conf: Mapping[str, Any],
    question: Question,
    logs: Mapping[int, Stretch],
    options: Mapping[str, str],
) -> Counted:
    """Count every record of ``logs``; no key reaches the driver."""
    tally, logs = Tally(question), {partition: log for partition, log in logs.items() if log.length > 0}
    if logs:
        starts, ends = {p: log.start for p, log in logs.items()}, {p: log.end for p, log in logs.items()}
        # Records that retention removes meanwhile are not counted; with fixed offsets no others can be missed. Records
        # of open and aborted transactions count: the plan is about where records lie.
        options = {"failOnDataLoss": "false", **options}
        records = read_ranges(spark, topic, conf, ends, starts, "read_uncommitted", options)
        for row in _summed(records, question).collect():
            tally.merge(Sums(*row))
    return tally.counted()


def _summed(records: DataFrame, question: Question) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - the usual name
    from pyspark.sql.pandas.types import from_arrow_schema

    def length(name: str) -> Any:
        return F.coalesce(F.octet_length(name), F.lit(0)).cast("bigint")

    headers = F.aggregate(
        "headers",
        F.lit(0).cast("bigint"),
        lambda size, header: (
            size + F.octet_length(header["key"]) + F.coalesce(F.octet_length(header["value"]), F.lit(0))
        ),
    )
    size = length("key") + length("value") + F.coalesce(headers, F.lit(0))
    by_key = (
        records.select("key", "partition", size.alias("size"), F.unix_millis("timestamp").alias("stamp_ms"))
        # First by both: a key (or none at all) that most records have is counted where it is read.
        .groupBy("key", "partition")
        .agg(
            F.count("*").alias("records"),
            F.sum("size").alias("sizes"),
            F.coalesce(F.min(F.when(F.col("stamp_ms") > 0, F.col("stamp_ms"))), F.lit(-1)).alias("first_ms"),
            F.max("stamp_ms").alias("last_ms"),
        )
        .repartition("key")
        .sortWithinPartitions("key")
    )
    return (
        by_key.mapInArrow(Counting(question), from_arrow_schema(SCHEMA))
        .groupBy("what", "at")
        .agg(
            F.array(*[F.sum(F.col("wholes")[at]) for at in range(WHOLES)]).alias("wholes"),
            F.array(*[F.sum(F.col("reals")[at]) for at in range(REALS)]).alias("reals"),
            F.min("first_ms").alias("first_ms"),
            F.max("last_ms").alias("last_ms"),
        )
    )
