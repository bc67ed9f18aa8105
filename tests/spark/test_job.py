"""One Spark job through a shrink by a real controller: it writes, and it reads what the modes let it read."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from modeaware.spark import foreach_partition_writer, register, write_arrow, write_to_kafka
from partitioners import named
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.plain import drain_topic

BEFORE, AFTER = 6, 2
KEYS = [b"key-%d" % number for number in range(300)]


def by_rows(frame: DataFrame, topic: str, conf: dict[str, Any]) -> None:
    frame.foreachPartition(foreach_partition_writer(topic, conf))


def by_sink(frame: DataFrame, topic: str, conf: dict[str, Any]) -> None:
    write_to_kafka(frame, topic, {**conf, "partitioner": "consistent_random"})


def read(spark: SparkSession, topic: str, conf: dict[str, Any]) -> Counter[int]:
    """How many records are read of each partition."""
    frame = spark.read.format("modeaware").options(topic=topic, **conf).load()
    return Counter({row["partition"]: row["count"] for row in frame.groupBy("partition").count().collect()})


@pytest.mark.parametrize("write", [by_rows, write_arrow, by_sink])
def test_a_job_writes_and_reads_by_the_modes(
    spark: SparkSession, served: Controlled, make_topic: MakeTopic, write: Any
) -> None:
    register(spark)
    topic, place = make_topic(BEFORE), named("consistent_random").for_topic("").partition
    conf = {**served.conf, "modeaware.mode.log.topic": served.log}
    frame = spark.createDataFrame([(key, b"v") for key in KEYS], "key binary, value binary").repartition(2)

    write(frame, topic, conf)
    placed = Counter(place(key, BEFORE) for key in KEYS)
    assert read(spark, topic, conf) == placed

    served.shrink(topic, AFTER, delay_ms=0)
    served.wait_done(topic)
    write(frame, topic, conf)
    again = Counter(place(key, AFTER) for key in KEYS)
    assert read(spark, topic, conf) == Counter({p: placed[p] + again[p] for p in range(AFTER)})
    assert {message.partition() for message in drain_topic(served.servers, topic)} == set(range(AFTER))
