"""``format("modeaware")``, for reading and for writing, in batches and as a stream."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, murmur2
from pyspark.sql import DataFrame, SparkSession

from modeaware.local import Kafka
from modeaware.modelog.records import RetiredPartition
from modeaware.spark import register
from tests.conftest import MakeTopic
from tests.support.modelog import NONE, topic_record
from tests.support.plain import drain_topic, produce_keyed
from tests.support.spark_writing import WritingSite
from tests.support.streaming import Reading
from tests.support.waiting import eventually


def fill(kafka: Kafka, topic: str, partition: int, count: int, prefix: str = "v") -> set[bytes]:
    values = [b"%s-%d-%d" % (prefix.encode(), partition, number) for number in range(count)]
    produce_keyed(kafka.bootstrap_servers, topic, ((b"k", value) for value in values), partition=partition)
    return set(values)


def counts(spark: SparkSession, topic: str, options: dict[str, Any], **more: Any) -> dict[int, int]:
    """How many records are read of each partition."""
    frame = spark.read.format("modeaware").options(topic=topic, **options, **more).load()
    return {row["partition"]: row["count"] for row in frame.groupBy("partition").count().collect()}


def test_records_are_as_sparks_source_has_them(
    spark: SparkSession, kafka: Kafka, site: WritingSite, make_topic: MakeTopic
) -> None:
    register(spark)
    topic = make_topic(2, retention_ms=-1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    headers = [("a", b"1"), ("a", None), ("b", b"")]
    producer.produce(topic, b"\x00\xffvalue", b"key", 0, headers=headers, timestamp=1_357_034_400_123)
    producer.produce(topic, None, None, 1, timestamp=1_357_034_400_000)
    producer.produce(topic, b"", b"", 1, timestamp=1_357_034_400_001)
    assert producer.flush(30) == 0
    ours = spark.read.format("modeaware").options(topic=topic, **site.conf).load()
    theirs = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    frame = theirs.option("subscribe", topic).option("includeHeaders", "true").load()
    assert ours.columns == frame.columns
    order = ("partition", "offset")
    assert ours.orderBy(*order).collect() == frame.orderBy(*order).collect()
    assert ours.count() == 3


def test_a_batch_reads_the_readable_partitions_between_the_offsets(
    spark: SparkSession, kafka: Kafka, site: WritingSite, make_topic: MakeTopic
) -> None:
    topic = make_topic(6)
    for partition in range(6):
        fill(kafka, topic, partition, partition * 10)
    everything = {partition: partition * 10 for partition in range(1, 6)}
    assert counts(spark, topic, site.conf) == everything
    site.log.append(topic_record(topic, 1, writable=3, count=6))
    assert counts(spark, topic, site.conf) == everything, "ReadOnly"
    site.log.append(topic_record(topic, 2, writable=3, count=6, rest=NONE))
    assert counts(spark, topic, site.conf) == {1: 10, 2: 20}
    starting = json.dumps({topic: {"0": -2, "1": 4, "2": -2, "5": 3}})
    ending = json.dumps({topic: {"0": -1, "1": 6, "2": -1}})
    assert counts(spark, topic, site.conf, startingOffsets=starting, endingOffsets=ending) == {1: 2, 2: 20}
    assert counts(spark, topic, site.conf, startingOffsets="latest") == {}


def test_a_stream_goes_on_from_its_checkpoint_and_reads_each_record_once(
    spark: SparkSession, kafka: Kafka, site: WritingSite, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(3)
    options = {"topic": topic, "startingOffsets": "earliest", **site.conf}

    def stream() -> DataFrame:
        return spark.readStream.format("modeaware").options(**options).load()

    values = fill(kafka, topic, 0, 50) | fill(kafka, topic, 2, 30)
    with Reading(f"q-{uuid.uuid4().hex[:8]}", stream, tmp_path) as reading:
        reading.start()
        reading.await_read(values)
        values |= fill(kafka, topic, 1, 20) | fill(kafka, topic, 2, 20, "more")
        reading.await_read(values)
        reading.stop(settled=True)
        values |= fill(kafka, topic, 1, 20, "meanwhile")
        reading.start()
        reading.await_read(values)
        record = topic_record(topic, 1, writable=2, count=3, rest=NONE)
        site.log.append(replace(record, retired={2: RetiredPartition(seal_offset=50)}))
        values |= fill(kafka, topic, 0, 20, "shrunk")
        reading.await_read(values)
        reading.stop(settled=True)
        fill(kafka, topic, 2, 5, "straggler")  # beyond the seal: nobody reads it before the partition is ReadOnly again
        reading.start()
        values |= fill(kafka, topic, 0, 5, "none")
        reading.await_read(values)
        assert set(reading.read) == values
        site.log.append(topic_record(topic, 2, writable=3, count=3))
        values |= fill(kafka, topic, 2, 10, "revived") | {b"straggler-2-%d" % number for number in range(5)}
        reading.await_read(values)
        assert set(reading.read) == values
        assert set(reading.read.values()) == {1}, "each once"


def test_a_stream_writes_by_the_modes_and_its_checkpoint(
    spark: SparkSession, kafka: Kafka, site: WritingSite, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, target = make_topic(2), make_topic(6)
    options = {**site.conf, "partitioner": "murmur2_random"}

    def feed(prefix: str) -> set[bytes]:
        values = {f"{prefix}-{number}".encode() for number in range(200)}
        produce_keyed(kafka.bootstrap_servers, source, ((value, value) for value in values))
        return values

    def arrived(values: set[bytes]) -> dict[bytes, int]:
        def all_of_them() -> dict[bytes, int] | None:
            messages = drain_topic(kafka.bootstrap_servers, target)
            found = {m.value(): m.partition() for m in messages}
            return found if values <= found.keys() else None

        return {value: partition for value, partition in eventually(all_of_them, 90).items() if value in values}

    def start() -> Any:
        frame = spark.readStream.format("modeaware").options(topic=source, startingOffsets="earliest", **options).load()
        writer = frame.select("key", "value").writeStream.format("modeaware").options(topic=target, **options)
        return writer.option("checkpointLocation", str(tmp_path)).queryName(f"q-{uuid.uuid4().hex[:8]}").start()

    first = feed("first")
    query = start()
    try:
        assert arrived(first) == {value: murmur2(value, 6) for value in first}
        site.shrink(target, 4, 6)
        arrived(feed("second"))
        third = feed("third")
        assert arrived(third) == {value: murmur2(value, 4) for value in third}
        query.processAllAvailable()
        query.stop()
        fourth = feed("fourth")
        query = start()
        assert arrived(fourth) == {value: murmur2(value, 4) for value in fourth}
        assert query.exception() is None
    finally:
        query.stop()
