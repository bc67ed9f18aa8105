"""``modeaware.spark.plan``: looks the topic up, recognises the hash by a sample, and has Spark count the rest."""

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
from modeaware.plan.read import look, read_sample
from modeaware.plan.recognise import recognise
from modeaware.plan.report import ResizePlan, ask_for_counts, make_counted_plan
from modeaware.spark.planning.frame import count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_SAMPLE = 10_000
MOST_PARTITIONS = 100_000
"""Of a topic: more than brokers hold. A slip of the finger should not cost the executors' memory."""


def plan(
    spark: SparkSession,
    topic: str,
    conf: Mapping[str, Any],
    partitions: int,
    *,
    sample: int = DEFAULT_SAMPLE,
    **options: Any,
) -> ResizePlan:
    """What another number of partitions would do to ``topic``, by every record that it holds now.

    The driver reads a sample, as ``modeaware plan`` does, to see which hashes placed the keys. Spark then reads the
    topic once, from each log's start to its end as it was when this was called, and counts: different keys, records and
    bytes, what moves for each target, the load of each partition, and how many keys lie where each hash puts them. Keys
    stay on the executors; sums by count and partition come to the driver. Nothing is changed, no group is joined and
    nothing is committed, and neither a controller nor a mode log is needed.

    ``modeaware.plan.text.plan_text``, ``modeaware.plan.report.plan_json`` and ``modeaware.plan.html.plan_html`` show
    the result as ``modeaware plan`` does.

    Args:
        spark: a session with Spark's Kafka connector (:func:`modeaware.spark.packages`).
        conf: as for :class:`modeaware.Consumer`; of it what says where the cluster is and how to get there.
        partitions: the number to plan for.
        sample: how many records the driver reads at most.
        options: further options of Spark's Kafka source, such as ``minPartitions``.

    Raises:
        RequestRefused: there is no such topic, or ``partitions`` is what the topic has, or not 1 to 100 000.
        ClusterError: the brokers do not answer, or the topic cannot be read.
        ConfigError: a setting that a client does not take.
        MissingExtra: kafka-python is not installed (``modeaware[controller]``), by which brokers are asked.
    """
    if partitions > MOST_PARTITIONS:
        raise RequestRefused(
            f"{partitions} partitions: at most {MOST_PARTITIONS} are planned for",
            code=ErrorCode.INVALID_PARTITIONS,
            topic=topic,
        )
    _, rest = split_client_config(conf)
    ours = connection_conf(rest, "plan")
    try:
        cluster = Cluster(ours)
    except KafkaException as error:
        raise ConfigError(f"client settings: {error.args[0].str()}") from error
    with closing(cluster):
        found = look(cluster, topic)
    read = read_sample(ours, topic, found.facts.partition_count, found.logs, sample)
    recognition = recognise(read)
    question = ask_for_counts(read, recognition, partitions)
    extra = {name: str(value) for name, value in options.items()}
    counted = count(spark, topic, conf, question, found.logs, extra)
    return make_counted_plan(found, read, recognition, counted, partitions, SYSTEM_CLOCK.now_ms())
