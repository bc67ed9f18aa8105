"""One streaming job over the flights: what its source is fed, what it writes, what a consumer gets of its target."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Message
from pyspark.sql import DataFrame

from modeaware.confluent.consumer import Consumer
from modeaware.confluent.producer import Producer
from modeaware.demo.flights import Flight
from modeaware.spark.driver import topic_view
from tests.support.background import Background
from tests.support.plain import watermarks


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
