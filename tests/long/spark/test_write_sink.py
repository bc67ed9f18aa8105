"""``write_to_kafka``: Spark's own sink, and the column that it gets where partitions are retired."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from modeaware.local import Kafka
from modeaware.spark import write_to_kafka
from modeaware.spark.write import column
from tests.conftest import MakeTopic
from tests.support.spark_writing import WritingSite, expected_places, writing_site

KEYS = [b"", *(b"key-%d" % number for number in range(2_000)), b"\x00\xff" * 40]


@pytest.fixture
def site(kafka: Kafka) -> Iterator[WritingSite]:
    with writing_site(kafka) as made:
        yield made


def frame_of(spark: SparkSession, keys: list[bytes | None], *, tasks: int = 3) -> DataFrame:
    rows = [(key, b"value of %d" % number) for number, key in enumerate(keys)]
    return spark.createDataFrame(rows, "key binary, value binary").repartition(tasks)


@pytest.fixture
def columns_made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Each call that adds a column."""
    calls: list[tuple[Any, ...]] = []
    real = column.with_partition

    def with_partition(*arguments: Any) -> DataFrame:
        calls.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(column, "with_partition", with_partition)
    return calls


def test_nothing_is_added_while_all_are_writable(
    spark: SparkSession, site: WritingSite, make_topic: MakeTopic, columns_made: list[Any]
) -> None:
    topic = make_topic(12)
    write_to_kafka(frame_of(spark, [*KEYS, None]), topic, site.conf)
    site.shrink(topic, 12)  # a record that retires nothing
    write_to_kafka(frame_of(spark, [*KEYS, None]), topic, {**site.conf, "partitioner": "murmur2_random"})
    assert columns_made == []
    places = site.places(topic)
    assert places.pop(None)
    assert places == expected_places(KEYS, 12, "murmur2_random")


@pytest.mark.parametrize("hash_in", ["python", "jvm"])
@pytest.mark.parametrize("name", ["murmur2_random", "consistent_random", "consistent", "murmur2"])
def test_keys_and_null_keys_after_a_shrink(
    spark: SparkSession, site: WritingSite, make_topic: MakeTopic, name: str, hash_in: column.HashIn
) -> None:
    topic = make_topic(12)
    site.shrink(topic, 5)
    frame = frame_of(spark, [*KEYS, *[None] * 3_000])
    write_to_kafka(frame, topic, {**site.conf, "partitioner": name}, hash_in=hash_in)
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


def test_the_jvm_hashes_where_it_is_asked_to(
    spark: SparkSession, site: WritingSite, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(12)
    site.shrink(topic, 4)
    monkeypatch.delattr(column, "index_udf")
    write_to_kafka(frame_of(spark, list(KEYS)), topic, site.conf, hash_in="jvm")
    assert site.places(topic) == expected_places(KEYS, 4, "murmur2_random")


def test_headers_tombstones_and_strings(spark: SparkSession, site: WritingSite, make_topic: MakeTopic) -> None:
    topic = make_topic(12)
    site.shrink(topic, 4)
    schema = "key string, value string, headers array<struct<key:string,value:binary>>"
    rows = [("käse", "v", [("h", b"1"), ("h", None)]), ("weg", None, None)]
    write_to_kafka(spark.createDataFrame(rows, schema), topic, site.conf)
    by_key = {message.key(): message for message in site.records(topic)}
    kept, gone = by_key["käse".encode()], by_key[b"weg"]
    assert (kept.value(), kept.headers()) == (b"v", [("h", b"1"), ("h", None)])
    assert gone.value() is None
    assert site.places(topic) == expected_places(["käse".encode(), b"weg"], 4, "murmur2_random")


def test_an_explicit_partition_is_kept_and_a_retired_one_fails_the_job(
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
