"""All flights of a year from topic to topic in one streaming job, while both topics shrink and grow."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from modeaware.demo import load_flights
from modeaware.modes import PartitionMode
from modeaware.spark import ProgressListener, foreach_batch_writer, read_stream_from_kafka
from modeaware.spark.read.progress import progress_group
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled, left
from tests.support.flights_job import Arrivals, Feed, Watched, out_of_order
from tests.support.streaming import Listening
from tests.support.waiting import eventually

FLIGHTS = 336_776
RW, NONE = PartitionMode.READ_WRITE, PartitionMode.NONE


class Job:
    """The query, started again and again from one checkpoint. A context manager that stops it.

    Attributes:
        begun: the batch with which each start began.
    """

    def __init__(self, spark: SparkSession, conf: dict[str, str], source: str, target: str, checkpoint: Path) -> None:
        self.name = f"flights-{uuid.uuid4().hex[:8]}"
        self.watched = Watched(foreach_batch_writer(target, conf), conf, target)
        self._spark, self._conf, self._source, self._checkpoint = spark, conf, source, checkpoint
        self._query: StreamingQuery | None = None
        self.begun: list[int] = []

    def start(self) -> None:
        """Start it, and wait until a batch is done."""
        frame = read_stream_from_kafka(
            self._spark, self._source, self._conf, startingOffsets="earliest", maxOffsetsPerTrigger=15_000
        )
        before = len(self.watched.batches)
        writer = frame.select("key", "value").writeStream.foreachBatch(self.watched).queryName(self.name)
        self._query = writer.option("checkpointLocation", str(self._checkpoint)).start()
        eventually(lambda: self._fine() and len(self.watched.batches) > before, 90)
        self.begun.append(self.watched.batches[before].batch_id)

    def restart(self) -> None:
        """Stop it where it is, in the middle of a batch as a rule, and start it again."""
        self.stop()
        self.start()

    def stop(self) -> None:
        """Stop it; it has not failed."""
        if self._query is not None and self._fine():
            self._query.stop()
            self._query = None

    def _fine(self) -> bool:
        assert self._query is not None
        failure = self._query.exception()
        assert failure is None, failure
        return True

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        if self._query is not None:
            self._query.stop()


@pytest.mark.timeout(900)
def test_all_flights_arrive_while_both_topics_shrink_and_grow(
    spark: SparkSession,
    served: Controlled,
    make_topic: MakeTopic,
    make_group: Callable[[], str],
    tmp_path: Path,
) -> None:
    flights = load_flights()
    assert len(flights) == FLIGHTS
    source, target = make_topic(12, prefix="flights"), make_topic(12, prefix="target")
    conf = {**served.conf, "modeaware.mode.log.topic": served.log, "partitioner": "murmur2_random"}
    feed, arrivals = Feed(conf, source), Arrivals(conf, target, make_group())
    arrivals.start()
    changes: list[Callable[[], None]] = [
        lambda: None,
        lambda: served.shrink(source, 4),
        lambda: served.shrink(target, 5),
        lambda: served.grow(source, 12),
        lambda: served.grow(target, 12),
    ]
    results = [
        lambda: True,
        lambda: served.modes(source) == (RW,) * 4 + (NONE,) * 8 and not any(list(left(served, source).values())[4:]),
        lambda: served.modes(target) == (RW,) * 5 + (NONE,) * 7 and not any(list(left(served, target).values())[5:]),
        lambda: served.modes(source) == (RW,) * 12,
        lambda: served.modes(target) == (RW,) * 12,
    ]
    listener = ProgressListener(conf)
    with Job(spark, conf, source, target, tmp_path) as job, Listening(spark, listener):
        listener.require(progress_group(job.name), [source])
        share = -(-FLIGHTS // len(changes))
        for phase, (change, done) in enumerate(zip(changes, results, strict=True)):
            first, middle, end = phase * share, phase * share + share // 2, min((phase + 1) * share, FLIGHTS)
            feed.send(first, flights[first:middle])
            if not phase:
                job.start()
            change()
            feed.send(middle, flights[middle:end])
            job.restart()
            eventually(done, 120, interval_s=0.5, message=f"phase {phase}")
            feed.flush()
            eventually(lambda end=end: job._fine() and len(arrivals.numbers) >= end, 120, message=f"flights of {phase}")
        assert listener.flush()
        job.stop()
    arrivals.stop()

    assert arrivals.numbers == set(range(FLIGHTS)) == feed.placed.keys()
    after_the_switch = [batch for batch in job.watched.batches if batch.retired]
    assert len(after_the_switch) > 2
    assert {batch.retired for batch in after_the_switch} >= {frozenset(range(5, 12))}
    assert [batch for batch in after_the_switch if batch.written] == []
    assert out_of_order(arrivals.records, feed.placed) == []
    assert len(job.begun) == 1 + len(changes)
    assert job.begun == sorted(job.begun)
    assert job.begun[0] == 0 < job.begun[1]
