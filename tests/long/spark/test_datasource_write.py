"""``format("modeaware")`` for writing, in batches and as a stream."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import murmur2
from pyspark.sql import DataFrame, SparkSession

from modeaware.local import Kafka
from tests.conftest import MakeTopic
from tests.support.modelog import RealLog, topic_record
from tests.support.plain import drain_topic, produce_keyed
from tests.support.waiting import eventually


@pytest.fixture
def log(kafka: Kafka) -> Iterator[RealLog]:
    made = RealLog(kafka.bootstrap_servers)
    made.create()
    yield made
    made.close()


@pytest.fixture
def options(log: RealLog) -> dict[str, Any]:
    ours = {"modeaware.mode.log.topic": log.topic, "modeaware.mode.source": "log"}
    return {**log.conf, **ours, "partitioner": "murmur2_random"}


def write(frame: DataFrame, topic: str, options: dict[str, Any]) -> None:
    frame.write.format("modeaware").options(topic=topic, **options).mode("append").save()


def test_every_column_is_kept(
    spark: SparkSession, kafka: Kafka, options: dict[str, Any], make_topic: MakeTopic
) -> None:
    topic, other = make_topic(3, retention_ms=-1), make_topic(1, retention_ms=-1)
    at = datetime(2013, 1, 1, 10, 0, 0, 123_000, tzinfo=UTC)
    schema = (
        "key BINARY, value BINARY, partition INT, timestamp TIMESTAMP, topic STRING, "
        "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    )
    rows = [
        (b"k", b"v", 2, at, None, [("a", b"1"), ("a", None)]),
        (None, None, None, at, other, None),
    ]
    write(spark.createDataFrame(rows, schema), topic, options)
    (kept,) = drain_topic(kafka.bootstrap_servers, topic)
    assert (kept.key(), kept.value(), kept.partition(), kept.headers()) == (b"k", b"v", 2, [("a", b"1"), ("a", None)])
    assert kept.timestamp()[1] == int(at.timestamp() * 1000)
    (elsewhere,) = drain_topic(kafka.bootstrap_servers, other)
    assert (elsewhere.key(), elsewhere.value(), elsewhere.headers()) == (None, None, None)


def test_a_stream_follows_the_modes_and_its_checkpoint(
    spark: SparkSession,
    kafka: Kafka,
    log: RealLog,
    options: dict[str, Any],
    make_topic: MakeTopic,
    tmp_path: Path,
) -> None:
    source, target = make_topic(2), make_topic(6)

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
        log.append(topic_record(target, 1, writable=4, count=6))
        second = feed("second")
        where = arrived(second)
        third = feed("third")
        assert arrived(third) == {value: murmur2(value, 4) for value in third}
        assert where.keys() == second
        query.processAllAvailable()
        query.stop()
        fourth = feed("fourth")
        query = start()
        assert arrived(fourth) == {value: murmur2(value, 4) for value in fourth}
        assert query.exception() is None
    finally:
        query.stop()
