"""All flights of a year from topic to topic in one streaming job, while both topics shrink and grow."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from modeaware.confluent.producer import Producer
from modeaware.demo.flights import Flight, load_flights
from modeaware.modes import PartitionMode
from modeaware.spark import ProgressListener, foreach_batch_writer, progress_group, read_stream_from_kafka
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled, left
from tests.support.group import place_of
from tests.support.plain import produce_all
from tests.support.streaming import Arrival, Arrivals, listening, number_of
from tests.support.waiting import eventually

FLIGHTS = 336_776
RW, NONE = PartitionMode.READ_WRITE, PartitionMode.NONE


def send(conf: Mapping[str, Any], topic: str, first: int, flights: Iterable[Flight]) -> dict[int, int]:
    """Flights from number ``first`` on, in order; number -> partition, of each."""
    records = ({"key": flight.key, "value": b"%d %b" % (n, flight.value)} for n, flight in enumerate(flights, first))
    with Producer({**conf, "enable.idempotence": True, "linger.ms": 20}) as producer:
        return {number_of(message): place_of(message)[1] for message in produce_all(producer, topic, records)}


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


@pytest.mark.timeout(900)
def test_all_flights_arrive_while_both_topics_shrink_and_grow(
    spark: SparkSession, served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], tmp_path: Path
) -> None:
    flights, name = load_flights(), f"flights-{uuid.uuid4().hex[:8]}"
    assert len(flights) == FLIGHTS
    source, target = make_topic(12), make_topic(12)
    conf = {**served.conf, "modeaware.mode.log.topic": served.log, "partitioner": "murmur2_random"}
    writer, batches = foreach_batch_writer(target, conf), list[int]()
    placed: dict[int, int] = {}

    def start() -> StreamingQuery:
        """Start the job from its checkpoint, and wait until a batch is done."""
        frame = read_stream_from_kafka(spark, source, conf, startingOffsets="earliest", maxOffsetsPerTrigger=15_000)

        def write(batch: Any, number: int) -> None:
            writer(batch, number)
            batches.append(number)

        before = len(batches)
        stream = frame.select("key", "value").writeStream.foreachBatch(write).queryName(name)
        query = stream.option("checkpointLocation", str(tmp_path)).start()
        eventually(lambda: fine(query) and len(batches) > before, 90)
        return query

    def fine(query: StreamingQuery) -> bool:
        failure = query.exception()
        assert failure is None, failure
        return True

    def settled(topic: str, writable: int) -> bool:
        modes = (RW,) * writable + (NONE,) * (12 - writable)
        return served.modes(topic) == modes and not any(list(left(served, topic).values())[writable:])

    changes: list[tuple[Callable[[str, int], None], str, int]] = [
        (served.shrink, source, 4),
        (served.shrink, target, 5),
        (served.grow, source, 12),
        (served.grow, target, 12),
    ]
    listener, arrivals = ProgressListener(conf), Arrivals(conf, target, make_group())
    with arrivals, listening(spark, listener):
        listener.require(progress_group(name), [source])
        share = -(-FLIGHTS // (2 * len(changes)))
        placed.update(send(conf, source, 0, flights[:share]))
        query = start()
        try:
            for phase, (change, topic, writable) in enumerate(changes):
                middle, end = (2 * phase + 1) * share, min((2 * phase + 2) * share, FLIGHTS)
                change(topic, writable)
                placed.update(send(conf, source, middle, flights[middle:end]))
                fine(query)
                query.stop()  # where it is, in the middle of a batch as a rule
                query = start()
                placed.update(send(conf, source, end, flights[end : end + share]))
                eventually(lambda t=topic, w=writable: settled(t, w), 120, interval_s=0.5, message=f"phase {phase}")
                eventually(lambda q=query: fine(q) and len(arrivals.numbers) == len(placed), 120, message=f"of {phase}")
            assert listener.flush()
        finally:
            query.stop()

    assert arrivals.numbers == set(range(FLIGHTS)) == placed.keys()
    assert out_of_order(arrivals.records, placed) == []
