"""A drain waits for Spark: streaming queries, their published progress, and a real controller."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from modeaware.modelog.group_rules import REQUIRE
from modeaware.modelog.reader import read_mode_log
from modeaware.modes import PartitionMode
from modeaware.spark import ProgressListener, read_stream_from_kafka
from modeaware.spark.read.progress import progress_group
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled, left, produce
from tests.support.group import Keyed
from tests.support.plain import watermarks
from tests.support.streaming import Reading, listening
from tests.support.waiting import eventually

RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE


def conf_of(served: Controlled) -> dict[str, str]:
    return {**served.conf, "modeaware.mode.log.topic": served.log}


@pytest.fixture
def listener(spark: SparkSession, served: Controlled) -> Iterator[ProgressListener]:
    made = ProgressListener(conf_of(served))
    with listening(spark, made):
        yield made


@pytest.fixture
def make_reading(spark: SparkSession, served: Controlled, tmp_path: Path) -> Iterator[Callable[..., Reading]]:
    """Makes a query that reads a topic with Spark's source, or with ours, and stops it in the end."""
    made: list[Reading] = []

    def make(topic: str, source: str = "kafka") -> Reading:
        def stream() -> DataFrame:
            if source == "kafka":
                return read_stream_from_kafka(spark, topic, served.conf, startingOffsets="earliest")
            options = {**conf_of(served), "topic": topic, "startingOffsets": "earliest"}
            return spark.readStream.format(source).options(**options).load()

        made.append(Reading(f"q-{uuid.uuid4().hex[:8]}", stream, tmp_path / f"checkpoint-{len(made)}"))
        return made[-1]

    yield make
    for reading in made:
        reading.stop()


def committed(served: Controlled, group: str, topic: str, count: int) -> list[int]:
    consumer = Consumer({**served.conf, "group.id": group})
    try:
        return [p.offset for p in consumer.committed([TopicPartition(topic, p) for p in range(count)], timeout=30)]
    finally:
        consumer.close()


def ends(served: Controlled, topic: str) -> list[int]:
    return [end for _, (_, end) in sorted(watermarks(served.servers, topic).items())]


def required(served: Controlled) -> set[tuple[str, str]]:
    """The groups that are required, and on which topic."""
    rules = read_mode_log(served.conf, served.log, 20).group_rules
    assert rules is not None
    return {(rule.group, rule.topic) for rule in rules.rules if rule.kind == REQUIRE}


@pytest.mark.parametrize("source", ["kafka", "modeaware"])
def test_a_shrink_waits_for_a_query_that_is_behind_and_ends_when_it_has_read(
    source: str,
    served: Controlled,
    listener: ProgressListener,
    make_reading: Callable[..., Reading],
    make_topic: MakeTopic,
) -> None:
    topic, others = make_topic(6), make_topic(2)
    values = produce(served, topic, 300)
    reading = make_reading(topic, source)
    reading.start(once=True)
    reading.stop()
    group = progress_group(reading.name)
    eventually(lambda: committed(served, group, topic, 6) == ends(served, topic), message="progress is published")
    assert listener.flush()
    assert (group, topic) in required(served)

    values |= produce(served, topic, 300, "late")  # the query is not running: its checkpoint needs these
    served.shrink(topic, 2)
    served.shrink(others, 1)
    served.wait_done(others)  # this much time has passed, and more
    served.wait_for(topic, lambda _: any(group in (reason or "") for reason in served.reasons(topic)))
    assert served.modes(topic) == (RW,) * 2 + (RO,) * 4
    assert min(left(served, topic)[p] for p in range(2, 6)) > 0

    reading.start()
    served.wait_done(topic, 90)
    assert served.modes(topic) == (RW,) * 2 + (NONE,) * 4
    eventually(lambda: all(left(served, topic)[p] == 0 for p in range(2, 6)), message="deleted")
    reading.await_read(values)
    assert set(reading.read) == values


def test_a_query_goes_on_through_shrinks_and_grows_under_load(
    served: Controlled, listener: ProgressListener, make_reading: Callable[..., Reading], make_topic: MakeTopic
) -> None:
    topic = make_topic(8)
    reading = make_reading(topic)
    listener.require(progress_group(reading.name), [topic])
    assert (progress_group(reading.name), topic) in required(served)
    with Keyed(conf_of(served), topic) as load:
        reading.start()
        eventually(lambda: len(reading.read) > 500, 60)
        served.shrink(topic, 3)
        served.wait_done(topic, 90)
        eventually(lambda: all(left(served, topic)[p] == 0 for p in range(3, 8)), message="deleted")
        before = len(load.values)
        eventually(lambda: len(load.values) > before + 500)
        served.grow(topic, 10)  # five come back, two are new
        served.wait_for(topic, lambda record: record.modes == (RW,) * 10, 90)
        before = ends(served, topic)
        eventually(lambda: all(now > then for now, then in zip(ends(served, topic), before, strict=True)))
        load.stop()
    reading.await_read(load.values)
    assert set(reading.read) == load.values
    reading.stop()
