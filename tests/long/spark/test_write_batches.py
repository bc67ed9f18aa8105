"""``foreach_batch_writer``: each micro-batch by the modes of its own time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from modeaware.spark import foreach_batch_writer
from modeaware.spark.connector import spark_options
from modeaware.spark.sink import THROUGH, BatchWriter, Through
from tests.conftest import MakeTopic
from tests.support.plain import produce_keyed
from tests.support.spark_writing import WritingSite

RECORDS = 600
DEADLINE_S = 120


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    return spark.range(RECORDS, numPartitions=2).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")


class Shrinking(BatchWriter):
    """Puts a new epoch in force after each of the first writes: so many as ``changes`` has counts of partitions."""

    site: WritingSite
    changes: list[int]
    written = 0

    def _write(self, view: Any, df: DataFrame) -> bool:
        follows = super()._write(view, df)
        self.written += 1
        if self.changes:
            self.site.shrink(self.topic, self.changes.pop(0))
        return follows


def shrinking(site: WritingSite, topic: str, changes: list[int], through: Through, retries: int = 3) -> Shrinking:
    writer = Shrinking(topic, site.conf, through, retries, {})
    writer.site, writer.changes = site, changes
    return writer


@pytest.mark.usefixtures("by_column")
@pytest.mark.parametrize("through", THROUGH)
def test_each_batch_sees_the_modes_of_its_time(
    site: WritingSite, make_topic: MakeTopic, frame: DataFrame, through: Through
) -> None:
    topic = make_topic(12)
    writer = foreach_batch_writer(topic, site.conf, through=through)
    writer(frame, 0)
    before = site.counts(topic)
    assert set(before) == set(range(12))
    for batch, writable in enumerate((5, 3, 12), start=1):
        site.shrink(topic, writable)
        writer(frame, batch)
        now = site.counts(topic)
        assert set(now - before) == set(range(writable))
        assert sum(now.values()) == RECORDS * (batch + 1)
        before = now


@pytest.mark.usefixtures("by_column")
@pytest.mark.parametrize("through", THROUGH)
def test_a_batch_is_written_again_when_the_epoch_moved(
    site: WritingSite, make_topic: MakeTopic, frame: DataFrame, through: Through, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(12)
    writer = shrinking(site, topic, [5, 4], through)
    writer(frame, 7)
    assert writer.written == 3
    counts = site.counts(topic)
    assert sum(counts.values()) == 3 * RECORDS
    # What the last writing alone has put there covers every record.
    per_key = {}
    for message in site.records(topic):
        per_key.setdefault(message.key(), []).append(message.partition())
    assert all(min(partitions) < 4 for partitions in per_key.values())
    assert len(per_key) == RECORDS
    assert "moved from epoch 1 to 2 while batch 7 was written; writing it again" in caplog.text


def test_a_batch_of_a_sink_that_follows_is_written_once(
    site: WritingSite, make_topic: MakeTopic, frame: DataFrame
) -> None:
    topic = make_topic(12)
    writer = shrinking(site, topic, [5], "sink")
    writer(frame, 7)
    assert writer.written == 1
    assert sum(site.counts(topic).values()) == RECORDS


@pytest.mark.usefixtures("by_column")
def test_a_query_that_failed_writes_the_batch_again_from_its_checkpoint(
    spark: SparkSession, site: WritingSite, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, target = make_topic(3), make_topic(12)
    keys = [b"k%d" % number for number in range(RECORDS)]
    produce_keyed(site.plain["bootstrap.servers"], source, [(key, b"v") for key in keys])
    options = {**spark_options(site.conf, "consumer"), "startingOffsets": "earliest", "subscribe": source}

    def start(writer: BatchWriter) -> StreamingQuery:
        read = spark.readStream.format("kafka").options(**options).load().select("key", "value")
        stream = read.writeStream.foreachBatch(writer).trigger(availableNow=True)
        return stream.option("checkpointLocation", str(tmp_path)).start()

    failing = start(shrinking(site, target, [5], "sink", retries=0))
    with pytest.raises(StreamingQueryException, match="EpochMoved"):
        failing.awaitTermination(DEADLINE_S)
    before = site.counts(target)
    assert sum(before.values()) == RECORDS
    again = start(foreach_batch_writer(target, site.conf))
    assert again.awaitTermination(DEADLINE_S)
    grown = site.counts(target) - before
    assert set(grown) == {0, 1, 2, 3, 4}
    assert sum(grown.values()) == RECORDS
    assert set(site.places(target)) == set(keys)
