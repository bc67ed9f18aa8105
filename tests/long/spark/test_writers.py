"""Records on a shrunk topic: our Producer on the executors (by row, by Arrow batch, as a source), Spark's own sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from modeaware.spark import column, foreach_partition_writer, write_arrow, write_to_kafka
from tests.conftest import MakeTopic
from tests.support.spark_writing import WritingSite, expected_places

KEYS = [b"", *(b"key-%d" % number for number in range(2_000)), b"\x00\xff" * 40]
Write = Callable[[DataFrame, str, Mapping[str, Any]], object]


def by_rows(df: DataFrame, topic: str, conf: Mapping[str, Any]) -> None:
    df.foreachPartition(foreach_partition_writer(topic, conf))


def by_source(df: DataFrame, topic: str, conf: Mapping[str, Any]) -> None:
    df.write.format("modeaware").options(topic=topic, **conf).mode("append").save()


@pytest.mark.parametrize("write", [by_rows, write_arrow, by_source])
def test_what_a_row_says_is_kept(spark: SparkSession, site: WritingSite, make_topic: MakeTopic, write: Write) -> None:
    topic, other = make_topic(12, retention_ms=-1), make_topic(3, retention_ms=-1)
    site.shrink(topic, 4)
    headers = "array<struct<key:string,value:binary>>"
    schema = f"key string, value binary, partition int, timestamp timestamp, headers {headers}, topic string, other int"
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


@pytest.fixture(params=["plug-ins", "column"])
def way(request: pytest.FixtureRequest) -> str:
    """How the sink's records get their partitions."""
    if request.param == "column":
        request.getfixturevalue("by_column")
    return str(request.param)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", ["murmur2_random", "consistent_random", "minimal_movement", "consistent", "murmur2"])
def test_the_sink_places_keys_and_null_keys_after_a_shrink(
    spark: SparkSession, site: WritingSite, make_topic: MakeTopic, name: str
) -> None:
    topic = make_topic(12)
    site.shrink(topic, 5)
    rows = [(key, b"value of %d" % number) for number, key in enumerate([*KEYS, *[None] * 3_000])]
    frame = spark.createDataFrame(rows, "key binary, value binary").repartition(3)
    small = {"kafka.batch.size": "1000"}  # records without a key take turns by the batch
    write_to_kafka(frame, topic, {**site.conf, "partitioner": name}, **small)
    places, counts = site.places(topic), site.counts(topic)
    nulls, empty = places.pop(None), places[b""]
    expected = dict(expected_places(KEYS, 5, name))
    if name == "consistent_random":  # spreads empty keys as well
        expected.pop(b"")
        places.pop(b"")
        assert empty <= {0, 1, 2, 3, 4}
    assert places == expected
    assert nulls == (empty if name in ("consistent", "murmur2") else {0, 1, 2, 3, 4})
    assert sum(counts.values()) == len(KEYS) + 3_000


def test_the_sink_with_the_plug_ins_keeps_headers_tombstones_and_strings(
    spark: SparkSession, site: WritingSite, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(12)
    site.shrink(topic, 4)
    monkeypatch.delattr(column, "with_partition")
    schema = "key string, value string, headers array<struct<key:string,value:binary>>"
    rows = [("käse", "v", [("h", b"1"), ("h", None)]), ("weg", None, None)]
    write_to_kafka(spark.createDataFrame(rows, schema), topic, site.conf)
    by_key = {message.key(): message for message in site.records(topic)}
    kept, gone = by_key["käse".encode()], by_key[b"weg"]
    assert (kept.value(), kept.headers()) == (b"v", [("h", b"1"), ("h", None)])
    assert gone.value() is None
    assert site.places(topic) == expected_places(["käse".encode(), b"weg"], 4, "murmur2_random")


def test_the_sink_keeps_an_explicit_partition_and_a_retired_one_fails_the_job(
    spark: SparkSession, site: WritingSite, make_topic: MakeTopic
) -> None:
    topic = make_topic(12)
    site.shrink(topic, 4)
    schema = "key binary, value binary, partition int"
    rows = [(b"a", b"v", 3), (b"b", b"v", 0), (b"key-7", b"v", None)]
    write_to_kafka(spark.createDataFrame(rows, schema), topic, site.conf)
    assert site.places(topic) == {b"a": {3}, b"b": {0}, **expected_places([b"key-7"], 4, "murmur2_random")}
    with pytest.raises(Exception, match=f"partition 4 of {topic} takes no records") as failed:
        write_to_kafka(spark.createDataFrame([(b"a", b"v", 4)], schema), topic, site.conf)
    assert "ReadOnly 4-11" in str(failed.value)
    assert len(site.records(topic)) == 3
