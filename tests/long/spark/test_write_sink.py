"""``write_to_kafka``: Spark's own sink, and the column that it gets where partitions are retired."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from modeaware.errors import ClusterError, ConfigError, PartitionRetired, ViewTimeout
from modeaware.local import Kafka
from modeaware.spark import write_to_kafka
from modeaware.spark.write import column, jvm_hash, sink
from partitioners import Hash
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


@pytest.mark.parametrize("which", [Hash.MURMUR2, Hash.CRC32])
def test_a_jvm_that_hashes_otherwise_is_found_out_and_not_used(
    spark: SparkSession,
    site: WritingSite,
    make_topic: MakeTopic,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    which: Hash,
) -> None:
    monkeypatch.setattr(jvm_hash, "_checked", {})
    assert jvm_hash.self_test(spark, which) is None
    real = jvm_hash._FORMS[which]
    off_by_one = {**jvm_hash._FORMS, which: lambda spark, key, count: (real(spark, key, count) + 1) % count}
    monkeypatch.setattr(jvm_hash, "_FORMS", off_by_one)
    topic, name = make_topic(12), "murmur2_random" if which is Hash.MURMUR2 else "consistent_random"
    site.shrink(topic, 4)
    keys = KEYS[1:]
    write_to_kafka(frame_of(spark, list(keys)), topic, {**site.conf, "partitioner": name}, hash_in="jvm")
    assert "does not agree with ours" in caplog.text
    assert site.places(topic) == expected_places(keys, 4, name)


def test_a_jvm_without_the_class_is_found_out(spark: SparkSession) -> None:
    def missing(spark: SparkSession, key: Any, count: int) -> Any:
        assert spark._jvm is not None
        return spark._jvm.java.lang.Class.forName("org.apache.kafka.NoSuchClass")

    why = jvm_hash.self_test(spark, Hash.MURMUR2, missing)
    assert why is not None
    assert "cannot compute murmur2" in why


@pytest.mark.parametrize("name", ["minimal_movement", "fnv1a_random", "round_robin"])
def test_partitioners_that_java_does_not_have_choose_even_while_all_are_writable(
    spark: SparkSession, site: WritingSite, make_topic: MakeTopic, columns_made: list[Any], name: str
) -> None:
    topic = make_topic(6)
    keys = KEYS[1:]
    write_to_kafka(frame_of(spark, list(keys)), topic, {**site.conf, "partitioner": name}, hash_in="jvm")
    assert len(columns_made) == 1
    if name == "round_robin":
        assert set(site.counts(topic)) == set(range(6))
    else:
        assert site.places(topic) == expected_places(keys, 6, name)


def test_an_object_may_be_the_partitioner(spark: SparkSession, site: WritingSite, make_topic: MakeTopic) -> None:
    def by_length(key: bytes | None, count: int) -> int:
        return len(key or b"") % count

    topic = make_topic(12)
    site.shrink(topic, 5)
    write_to_kafka(frame_of(spark, [*KEYS, None]), topic, {**site.conf, "partitioner": by_length})
    places = site.places(topic)
    assert places == {key: {len(key or b"") % 5} for key in [*KEYS, None]}


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


def test_the_manual_partitioner_wants_partitions(spark: SparkSession, site: WritingSite, make_topic: MakeTopic) -> None:
    topic, conf = make_topic(2), {**site.conf, "partitioner": "manual"}
    with pytest.raises(ConfigError, match="needs a column 'partition'"):
        write_to_kafka(frame_of(spark, [b"k"]), topic, conf)
    named = spark.createDataFrame([(b"k", b"v", 1)], "key binary, value binary, partition int")
    write_to_kafka(named, topic, conf)
    assert site.places(topic) == {b"k": {1}}
    with pytest.raises(Exception, match="the partitioner 'manual' wants named"):
        write_to_kafka(named.selectExpr("key", "value", "CAST(NULL AS INT) AS partition"), topic, conf)


def test_partitions_that_are_not_the_first_ones(spark: SparkSession, make_topic: MakeTopic, kafka: Kafka) -> None:
    from tests.support.fake_views import FakeViews, modes_of

    topic = make_topic(6)
    view = FakeViews().set(topic, modes_of(6, [1, 3, 4]))
    for hash_in in ("python", "jvm"):
        conf = {"bootstrap.servers": kafka.bootstrap_servers}
        sink.write_by(view, frame_of(spark, list(KEYS)), conf, hash_in, {})
    with writing_site(kafka) as site:
        by_index = expected_places(KEYS, 3, "murmur2_random")
        assert site.places(topic) == {key: {(1, 3, 4)[index] for index in found} for key, found in by_index.items()}


def test_what_cannot_be_done_is_refused_before_anything_is_written(
    spark: SparkSession, site: WritingSite, make_topic: MakeTopic
) -> None:
    topic, frame = make_topic(3), frame_of(spark, [b"k"])
    with pytest.raises(ConfigError, match=r"kafka\.partitioner\.class"):
        write_to_kafka(frame, topic, site.conf, **{"kafka.partitioner.class": "X"})
    with pytest.raises(ConfigError, match="hash_in"):
        write_to_kafka(frame, topic, site.conf, hash_in="rust")  # type: ignore[arg-type] # what it refuses
    with pytest.raises(ConfigError, match="partitioner"):
        write_to_kafka(frame, topic, {**site.conf, "partitioner": "murmur3"})
    with pytest.raises(ClusterError, match="no-such-topic"):
        write_to_kafka(frame, "no-such-topic", {**site.conf, "partitioner": "consistent"})
    site.shrink(topic, 0, 3)
    with pytest.raises(PartitionRetired, match=f"no partition of {topic} takes records"):
        write_to_kafka(frame, topic, site.conf)
    assert site.records(topic) == []


def test_without_a_mode_source_the_job_fails_clearly(spark: SparkSession) -> None:
    conf = {"bootstrap.servers": "127.0.0.1:1", "modeaware.view.timeout.ms": 300, "log_level": 0}
    with pytest.raises(ViewTimeout, match=r"orders: no view of the partition modes within 300 ms"):
        write_to_kafka(frame_of(spark, [b"k"]), "orders", conf)
