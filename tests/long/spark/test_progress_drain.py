"""A drain waits for Spark: a streaming query, its published progress, and a real controller."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from modeaware.modelog.group_rules import REQUIRE
from modeaware.modelog.reader import read_mode_log
from modeaware.modes import PartitionMode
from modeaware.spark import ProgressListener, progress_group, read_stream_from_kafka
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled, left, produce
from tests.support.plain import committed, ends
from tests.support.streaming import Reading, listening
from tests.support.waiting import eventually

RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE


@pytest.mark.parametrize("source", ["kafka", "modeaware"])
def test_a_shrink_waits_for_a_query_that_is_behind_and_ends_when_it_has_read(
    spark: SparkSession, served: Controlled, make_topic: MakeTopic, tmp_path: Path, source: str
) -> None:
    topic, others = make_topic(6), make_topic(2)
    conf = {**served.conf, "modeaware.mode.log.topic": served.log}
    listener = ProgressListener(conf)

    def stream() -> DataFrame:
        if source == "kafka":
            return read_stream_from_kafka(spark, topic, served.conf, startingOffsets="earliest")
        options = {**conf, "topic": topic, "startingOffsets": "earliest"}
        return spark.readStream.format(source).options(**options).load()

    with listening(spark, listener), Reading(f"q-{uuid.uuid4().hex[:8]}", stream, tmp_path) as reading:
        values = produce(served, topic, 300)
        reading.start(once=True)
        reading.stop()
        group = progress_group(reading.name)
        written = ends(served.servers, topic)
        eventually(lambda: committed(served.servers, group, topic) == written, message="progress is published")
        assert listener.flush()
        rules = read_mode_log(served.conf, served.log, 20).group_rules
        assert rules is not None
        assert (REQUIRE, group, topic) in {(rule.kind, rule.group, rule.topic) for rule in rules.rules}

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
