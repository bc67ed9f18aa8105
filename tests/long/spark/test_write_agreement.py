"""100 000 keys, before and after a shrink: every way from Spark to Kafka puts them where plain producers do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from modeaware.kafka_python import KafkaProducer
from modeaware.local import Kafka
from modeaware.spark import foreach_partition_writer, write_arrow, write_to_kafka
from tests.conftest import MakeTopic
from tests.support.plain import produce_keyed
from tests.support.random_keys import random_keys
from tests.support.spark_writing import WritingSite, writing_site

NUMBER = 100_000
PARTITIONS, WRITABLE = 12, 5
DEADLINE_S = 120


@pytest.fixture(scope="module")
def keys() -> list[bytes]:
    """Different keys of any bytes, of 1 to 40 bytes."""
    found = {*random_keys(NUMBER, 7, shortest=6, longest=40).listed(), *(bytes([byte]) for byte in range(256))}
    return sorted(found)[:NUMBER]


@pytest.fixture(scope="module")
def frame(spark: SparkSession, keys: list[bytes]) -> Iterator[DataFrame]:
    made = spark.createDataFrame([(key, b"v") for key in keys], "key binary, value binary").repartition(4).cache()
    yield made
    made.unpersist()


@pytest.fixture
def site(kafka: Kafka) -> Iterator[WritingSite]:
    with writing_site(kafka) as made:
        yield made


def through_confluent(site: WritingSite, topic: str, keys: list[bytes], name: str) -> dict[bytes, int]:
    """Where librdkafka's own producer puts keys: into a topic that has as many partitions as are writable."""
    pairs = ((key, None) for key in keys)
    delivered = produce_keyed(site.plain["bootstrap.servers"], topic, pairs, partitioner=name)
    return {message.key(): message.partition() for message in delivered}


def through_kafka_python(site: WritingSite, topic: str, keys: list[bytes], name: str) -> None:
    """With the modes: kafka-python's producer of ours."""
    settings: Mapping[str, Any] = {"modeaware_mode_log_topic": site.log.topic, "partitioner": name}
    with KafkaProducer(bootstrap_servers=site.plain["bootstrap.servers"], linger_ms=20, **settings) as producer:
        for key in keys:
            producer.send(topic, value=b"v", key=key)
        producer.flush(DEADLINE_S)


@pytest.mark.parametrize("name", ["murmur2_random", "consistent_random"])
@pytest.mark.parametrize("writable", [PARTITIONS, WRITABLE], ids=["all writable", "shrunk"])
def test_all_agree(
    site: WritingSite, make_topic: MakeTopic, frame: DataFrame, keys: list[bytes], name: str, writable: int
) -> None:
    assert len(keys) == NUMBER
    expected = through_confluent(site, make_topic(writable), keys, name)
    assert len(expected) == NUMBER
    conf = {**site.conf, "partitioner": name}

    def topic() -> str:
        made = make_topic(PARTITIONS)
        if writable < PARTITIONS:
            site.shrink(made, writable, PARTITIONS)
        return made

    ways: dict[str, str] = {way: topic() for way in ("NumPy", "JVM", "Arrow", "rows", "kafka-python")}
    write_to_kafka(frame, ways["NumPy"], conf)
    write_to_kafka(frame, ways["JVM"], conf, hash_in="jvm")
    assert write_arrow(frame, ways["Arrow"], conf) == NUMBER
    frame.foreachPartition(foreach_partition_writer(ways["rows"], conf))
    through_kafka_python(site, ways["kafka-python"], keys, name)
    for way, written in ways.items():
        found = [(message.key(), message.partition()) for message in site.records(written)]
        assert len(found) == NUMBER, way
        assert dict(found) == expected, way
