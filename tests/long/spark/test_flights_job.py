"""All flights of a year from topic to topic in one streaming job, while both topics shrink and grow."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, Message
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from modeaware.confluent.consumer import Consumer
from modeaware.confluent.producer import Producer
from modeaware.demo import Flight, load_flights
from modeaware.modes import PartitionMode
from modeaware.spark import ProgressListener, foreach_batch_writer, progress_group, read_stream_from_kafka
from modeaware.spark.snapshot import topic_view
from tests.conftest import MakeTopic
from tests.support.background import Background
from tests.support.controlled import Controlled, left
from tests.support.plain import watermarks
from tests.support.streaming import listening
from tests.support.waiting import eventually


class Feed:
    """Writes flights to the source in order, each with its number before it. Use it from one thread.

    Attributes:
        placed: flight number -> the source's partition, of what was acknowledged.
    """

    def __init__(self, conf: Mapping[str, Any], topic: str) -> None:
        self._producer = Producer(
            {**conf, "enable.idempotence": True, "linger.ms": 20, "topic.metadata.refresh.interval.ms": 1_000}
        )
        self._topic = topic
        self._failed: list[KafkaError] = []
        self.placed: dict[int, int] = {}

    def send(self, first: int, flights: Iterable[Flight]) -> None:
        """Flights from number ``first`` on."""
        for number, flight in enumerate(flights, first):
            while True:
                try:
                    self._producer.produce(
                        self._topic, b"%d %b" % (number, flight.value), flight.key, on_delivery=self._note
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
            if not number % 1000:
                self._producer.poll(0)

    def flush(self) -> None:
        """Every flight is acknowledged."""
        assert self._producer.flush(60) == 0
        assert not self._failed, self._failed[:3]

    def _note(self, error: KafkaError | None, message: Message) -> None:
        value, partition = message.value(), message.partition()
        if error is not None or value is None or partition is None:
            self._failed.append(error or KafkaError(KafkaError._FAIL))
        else:
            self.placed[number_of(value)] = partition


def number_of(value: bytes) -> int:
    """The number of a flight, by the value of its record."""
    return int(value[: value.index(b" ")])


class Batch(NamedTuple):
    """What one micro-batch left in the target's retired partitions.

    Attributes:
        batch_id: Spark's.
        retired: the partitions that were not writable when it began.
        written: how many records it has added to them.
    """

    batch_id: int
    retired: frozenset[int]
    written: int


class Watched:
    """A writer for ``foreachBatch``, and the batches that it has finished."""

    def __init__(self, writer: Callable[[DataFrame, int], None], conf: Mapping[str, Any], topic: str) -> None:
        self._writer = writer
        self._conf = conf
        self._topic = topic
        self.batches: list[Batch] = []

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        view = topic_view(self._conf, self._topic)
        retired = frozenset(p for p in range(len(view.modes)) if not view.is_writable(p))
        before = self._ends(retired)
        self._writer(frame, batch_id)
        self.batches.append(Batch(batch_id, retired, self._ends(retired) - before))

    def _ends(self, partitions: frozenset[int]) -> int:
        if not partitions:
            return 0
        marks = watermarks(self._conf["bootstrap.servers"], self._topic)
        return sum(marks[partition][1] for partition in partitions)


class Arrival(NamedTuple):
    """A record of the target."""

    partition: int
    offset: int
    key: bytes | None
    number: int


class Arrivals(Background):
    """A consumer of ours on the target, of a group that drains wait for. ``stop`` when all have arrived.

    Attributes:
        records: what it was given, in order.
        numbers: the flights among them.
    """

    def __init__(self, conf: Mapping[str, Any], topic: str, group: str) -> None:
        super().__init__()
        settings = {"group.id": group, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 200}
        self._consumer = Consumer({**conf, **settings})
        self._topic = topic
        self.records: list[Arrival] = []
        self.numbers: set[int] = set()

    def work(self) -> None:
        self._consumer.subscribe([self._topic])
        while not self.done.is_set():
            for message in self._consumer.consume(5000, 0.2):
                self._take(message)
        self._consumer.close()

    def _take(self, message: Message) -> None:
        assert message.error() is None, message.error()
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        assert offset is not None
        arrival = Arrival(partition, offset, message.key(), number_of(value))
        self.records.append(arrival)
        self.numbers.add(arrival.number)


def out_of_order(records: Iterable[Arrival], placed: Mapping[int, int]) -> list[tuple[Arrival, int]]:
    """First arrivals of a flight behind a later flight of the same tail number.

    Within one epoch a tail number has one partition in the source and one in the target, so it is such pairs of
    partitions that keep an order; two epochs with the same pair keep it between them, too. A flight that comes again,
    because a batch was written again, counts where it came first.
    """
    last: dict[tuple[bytes, int, int], int] = defaultdict(lambda: -1)
    seen: set[tuple[int, int]] = set()
    wrong = []
    for arrival in sorted(records, key=lambda record: (record.partition, record.offset)):
        if arrival.key is None or (arrival.number, arrival.partition) in seen:
            continue
        seen.add((arrival.number, arrival.partition))
        lane = (arrival.key, placed[arrival.number], arrival.partition)
        if arrival.number < last[lane]:
            wrong.append((arrival, last[lane]))
        last[lane] = max(last[lane], arrival.number)
    return wrong


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
    with Job(spark, conf, source, target, tmp_path) as job, listening(spark, listener):
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
