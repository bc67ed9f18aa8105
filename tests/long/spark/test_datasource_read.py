"""``format("modeaware")`` for reading, in batches and as a stream."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from modeaware.local import Kafka
from modeaware.modelog.records import RetiredPartition, TopicRecord
from modeaware.modes import PartitionMode
from modeaware.spark import register
from tests.conftest import MakeTopic
from tests.support.modelog import RealLog, topic_record
from tests.support.plain import produce_keyed
from tests.support.streaming import Reading

RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE


@pytest.fixture
def log(kafka: Kafka) -> Iterator[RealLog]:
    made = RealLog(kafka.bootstrap_servers)
    made.create()
    yield made
    made.close()


@pytest.fixture
def options(log: RealLog) -> dict[str, Any]:
    return {**log.conf, "modeaware.mode.log.topic": log.topic, "modeaware.mode.source": "log"}


def fill(kafka: Kafka, topic: str, partition: int, count: int, prefix: str = "v") -> set[bytes]:
    values = [b"%s-%d-%d" % (prefix.encode(), partition, number) for number in range(count)]
    produce_keyed(kafka.bootstrap_servers, topic, ((b"k", value) for value in values), partition=partition)
    return set(values)


def counts(spark: SparkSession, topic: str, options: dict[str, Any], **more: Any) -> dict[int, int]:
    """How many records are read of each partition."""
    frame = spark.read.format("modeaware").options(topic=topic, **options, **more).load()
    return {row["partition"]: row["count"] for row in frame.groupBy("partition").count().collect()}


def test_records_are_as_sparks_source_has_them(
    spark: SparkSession, kafka: Kafka, options: dict[str, Any], make_topic: MakeTopic
) -> None:
    register(spark)
    topic = make_topic(2, retention_ms=-1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    headers = [("a", b"1"), ("a", None), ("b", b"")]
    producer.produce(topic, b"\x00\xffvalue", b"key", 0, headers=headers, timestamp=1_357_034_400_123)
    producer.produce(topic, None, None, 1, timestamp=1_357_034_400_000)
    producer.produce(topic, b"", b"", 1, timestamp=1_357_034_400_001)
    assert producer.flush(30) == 0
    ours = spark.read.format("modeaware").options(topic=topic, **options).load()
    theirs = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    frame = theirs.option("subscribe", topic).option("includeHeaders", "true").load()
    assert ours.columns == frame.columns
    order = ("partition", "offset")
    assert ours.orderBy(*order).collect() == frame.orderBy(*order).collect()
    assert ours.count() == 3


def test_a_batch_reads_the_readable_partitions_between_the_offsets(
    spark: SparkSession, kafka: Kafka, log: RealLog, options: dict[str, Any], make_topic: MakeTopic
) -> None:
    topic = make_topic(6)
    for partition in range(6):
        fill(kafka, topic, partition, partition * 10)
    everything = {partition: partition * 10 for partition in range(1, 6)}
    assert counts(spark, topic, options) == everything
    log.append(topic_record(topic, 1, writable=3, count=6))
    assert counts(spark, topic, options) == everything, "ReadOnly"
    log.append(topic_record(topic, 2, writable=3, count=6, rest=NONE))
    assert counts(spark, topic, options) == {1: 10, 2: 20}
    starting = json.dumps({topic: {"0": -2, "1": 4, "2": -2, "5": 3}})
    ending = json.dumps({topic: {"0": -1, "1": 6, "2": -1}})
    assert counts(spark, topic, options, startingOffsets=starting, endingOffsets=ending) == {1: 2, 2: 20}
    assert counts(spark, topic, options, startingOffsets="latest") == {}


@pytest.fixture
def make_reading(spark: SparkSession, options: dict[str, Any], tmp_path: Path) -> Iterator[Callable[..., Reading]]:
    """Makes a query that reads a topic with our source, and stops it in the end."""
    made: list[Reading] = []

    def make(topic: str, **more: Any) -> Reading:
        def stream() -> DataFrame:
            given = {"topic": topic, "startingOffsets": "earliest", **options, **more}
            return spark.readStream.format("modeaware").options(**given).load()

        made.append(Reading(f"q-{uuid.uuid4().hex[:8]}", stream, tmp_path / f"checkpoint-{len(made)}"))
        return made[-1]

    yield make
    for reading in made:
        reading.query = None if reading.query is None or reading.query.exception() else reading.query
        reading.stop()


def sealed(topic: str, epoch: int, modes: list[PartitionMode], seals: dict[int, int]) -> TopicRecord:
    retired = {partition: RetiredPartition(seal_offset=seal) for partition, seal in seals.items()}
    return TopicRecord(
        topic=topic, topic_id=f"id-of-{topic}", epoch=epoch, controller_epoch=1, modes=tuple(modes), retired=retired
    )


def test_a_stream_goes_on_from_its_checkpoint_and_reads_each_record_once(
    kafka: Kafka, log: RealLog, make_reading: Callable[..., Reading], make_topic: MakeTopic
) -> None:
    topic = make_topic(3)
    values = fill(kafka, topic, 0, 50) | fill(kafka, topic, 2, 30)
    reading = make_reading(topic)
    reading.start()
    reading.await_read(values)
    values |= fill(kafka, topic, 1, 20) | fill(kafka, topic, 2, 20, "more")
    reading.await_read(values)
    reading.stop(settled=True)
    values |= fill(kafka, topic, 1, 20, "meanwhile")
    reading.start()
    reading.await_read(values)
    log.append(sealed(topic, 1, [RW, RW, NONE], {2: 50}))
    values |= fill(kafka, topic, 0, 20, "shrunk")
    reading.await_read(values)
    reading.stop(settled=True)
    fill(kafka, topic, 2, 5, "straggler")  # beyond the seal: nobody reads it before the partition is ReadOnly again
    reading.start()
    values |= fill(kafka, topic, 0, 5, "none")
    reading.await_read(values)
    assert set(reading.read) == values
    log.append(sealed(topic, 2, [RW, RW, RW], {}))
    values |= fill(kafka, topic, 2, 10, "revived") | {b"straggler-2-%d" % number for number in range(5)}
    reading.await_read(values)
    assert set(reading.read) == values
    assert set(reading.read.values()) == {1}, "each once"


def test_records_that_are_gone_fail_the_stream_unless_it_may_lose_them(
    kafka: Kafka, log: RealLog, make_reading: Callable[..., Reading], make_topic: MakeTopic
) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    topic = make_topic(1)
    strict, lax = make_reading(topic), make_reading(topic, failOnDataLoss="false")
    first = fill(kafka, topic, 0, 10)
    for reading in (strict, lax):
        reading.start(once=True)
        assert set(reading.read) == first
        reading.stop()
    later = fill(kafka, topic, 0, 10, "later")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 15)]).values()
    deleted.result(30)
    strict.start()
    assert strict.query is not None
    with pytest.raises(Exception, match=f"partition 0 of {topic}.*not there any more"):
        strict.query.awaitTermination(120)
    lax.start()
    lax.await_read({value for value in later if int(value.split(b"-")[2]) >= 5})
