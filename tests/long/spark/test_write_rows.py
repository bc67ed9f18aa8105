"""Our Producer on the executors: row by row, and by Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from modeaware.local import Kafka
from modeaware.spark import foreach_partition_writer, write_arrow
from tests.conftest import MakeTopic
from tests.support.spark_writing import WritingSite, expected_places, writing_site

KEYS = [b"key-%d" % number for number in range(3_000)]
HEADERS = "array<struct<key:string,value:binary>>"
Write = Callable[[DataFrame, str, Mapping[str, Any]], object]


def by_rows(df: DataFrame, topic: str, conf: Mapping[str, Any]) -> None:
    df.foreachPartition(foreach_partition_writer(topic, conf))


BOTH = pytest.mark.parametrize("write", [by_rows, write_arrow])


@pytest.fixture
def site(kafka: Kafka) -> Iterator[WritingSite]:
    with writing_site(kafka) as made:
        yield made


@BOTH
@pytest.mark.parametrize("name", [None, "murmur2_random"])
def test_keys_before_and_after_a_shrink(
    spark: SparkSession, site: WritingSite, make_topic: MakeTopic, write: Write, name: str | None
) -> None:
    topic, conf = make_topic(12), site.conf if name is None else {**site.conf, "partitioner": name}
    frame = spark.createDataFrame([(key, b"v") for key in KEYS], "key binary, value binary").repartition(3)
    write(frame, topic, conf)
    assert site.places(topic) == expected_places(KEYS, 12, name or "consistent_random")
    site.shrink(topic, 5)
    before = site.counts(topic)
    write(frame, topic, conf)
    grown = site.counts(topic) - before
    assert set(grown) == {0, 1, 2, 3, 4}
    assert sum(grown.values()) == len(KEYS)


@BOTH
def test_what_a_row_says_is_kept(spark: SparkSession, site: WritingSite, make_topic: MakeTopic, write: Write) -> None:
    topic, other = make_topic(12, retention_ms=-1), make_topic(3, retention_ms=-1)
    site.shrink(topic, 4)
    schema = f"key string, value binary, partition int, timestamp timestamp, headers {HEADERS}, topic string, other int"
    when = datetime.fromisoformat("2013-01-02T03:04:05.678")
    rows = [
        ("full", b"1", 2, when, [("h", b"x"), ("h", None), ("", b"")], None, 1),
        ("none", None, None, None, None, None, 2),
        ("elsewhere", b"3", None, when, [], other, 3),
    ]
    write(spark.createDataFrame(rows, schema), topic, site.conf)
    by_key = {message.key(): message for message in site.records(topic)}
    full, none = by_key.pop(b"full"), by_key.pop(b"none")
    assert by_key == {}
    assert (full.partition(), full.value(), full.headers()) == (2, b"1", [("h", b"x"), ("h", None), ("", b"")])
    assert full.timestamp()[1] == int(when.timestamp() * 1000)
    assert (none.value(), none.headers()) == (None, None)
    assert none.partition() == expected_places([b"none"], 4, "consistent_random")[b"none"].pop()
    [elsewhere] = site.records(other)
    assert (elsewhere.key(), elsewhere.timestamp()[1]) == (b"elsewhere", int(when.timestamp() * 1000))


@BOTH
def test_a_full_queue_makes_the_task_wait(
    spark: SparkSession, site: WritingSite, make_topic: MakeTopic, write: Write
) -> None:
    topic = make_topic(3)
    frame = spark.range(20_000, numPartitions=2).selectExpr(
        "CAST(id AS STRING) AS key", "CAST(CAST(id AS STRING) AS BINARY) AS value"
    )
    write(frame, topic, {**site.conf, "queue.buffering.max.messages": 100})
    assert sum(site.counts(topic).values()) == 20_000
