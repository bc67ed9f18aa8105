"""Batch reads leave partitions in mode None out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from modeaware.errors import ConfigError
from modeaware.local import Kafka
from modeaware.modes import PartitionMode
from modeaware.spark import read_from_kafka
from tests.conftest import MakeTopic
from tests.support.modelog import RealLog, topic_record
from tests.support.plain import produce_keyed


@pytest.fixture
def log(kafka: Kafka) -> Iterator[RealLog]:
    made = RealLog(kafka.bootstrap_servers)
    made.create()
    yield made
    made.close()


@pytest.fixture
def conf(log: RealLog) -> dict[str, Any]:
    return {**log.conf, "modeaware.mode.log.topic": log.topic, "modeaware.mode.source": "log"}


@pytest.fixture
def topic(kafka: Kafka, make_topic: MakeTopic) -> str:
    """Six partitions, with as many records in each as its number, and one."""
    name = make_topic(6)
    for partition in range(6):
        values = [(None, b"%d" % partition)] * (partition + 1)
        produce_keyed(kafka.bootstrap_servers, name, values, partition=partition)
    return name


def counts(spark: SparkSession, topic: str, conf: dict[str, Any], **options: Any) -> dict[int, int]:
    """How many records are read of each partition."""
    frame = read_from_kafka(spark, topic, conf, **options)
    return {row["partition"]: row["count"] for row in frame.groupBy("partition").count().collect()}


def test_partitions_in_mode_none_are_left_out_and_only_these(
    spark: SparkSession, log: RealLog, conf: dict[str, Any], topic: str
) -> None:
    everything = {partition: partition + 1 for partition in range(6)}
    assert counts(spark, topic, conf) == everything
    log.append(topic_record(topic, 1, writable=2, count=6))
    assert counts(spark, topic, conf) == everything, "ReadOnly"
    log.append(topic_record(topic, 2, writable=2, count=6, rest=PartitionMode.NONE))
    assert counts(spark, topic, conf) == {0: 1, 1: 2}
    log.append(topic_record(topic, 3, writable=3, count=5, rest=PartitionMode.NONE))
    assert counts(spark, topic, conf) == {0: 1, 1: 2, 2: 3, 5: 6}, "one that is not listed is readable"


def test_options_are_sparks_and_offsets_may_name_what_is_left_out(
    spark: SparkSession, log: RealLog, conf: dict[str, Any], topic: str
) -> None:
    log.append(topic_record(topic, 1, writable=4, count=6, rest=PartitionMode.NONE))
    starts = json.dumps({topic: {str(partition): 1 for partition in range(6)}})
    assert counts(spark, topic, conf, startingOffsets=starts) == {1: 1, 2: 2, 3: 3}
    frame = read_from_kafka(spark, topic, conf, includeHeaders=True, **{"kafka.isolation.level": "read_committed"})
    assert "headers" in frame.columns
    with pytest.raises(ConfigError, match="subscribe"):
        read_from_kafka(spark, topic, conf, subscribe=topic)
