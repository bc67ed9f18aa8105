"""Streaming queries of the tests: what a query has read, and restarts from its checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from confluent_kafka import Message
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryListener

from modeaware import Consumer
from tests.support.background import Background
from tests.support.group import place_of
from tests.support.waiting import eventually


class Arrival(NamedTuple):
    """A record of a topic that a job writes; the number that stands first in its value."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    number: int


class Arrivals(Background):
    """A consumer of ours on the target, of a group that drains wait for; what it was given. ``stop`` it at the end."""

    def __init__(self, conf: Mapping[str, Any], topic: str, group: str) -> None:
        super().__init__()
        settings = {"group.id": group, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 200}
        self._consumer = Consumer({**conf, **settings})
        self._consumer.subscribe([topic])
        self.records: list[Arrival] = []
        self.numbers: set[int] = set()

    def work(self) -> None:
        while not self.done.is_set():
            for message in self._consumer.consume(5000, 0.2):
                assert message.error() is None, message.error()
                self.records.append(Arrival(*place_of(message), message.key(), number_of(message)))
                self.numbers.add(self.records[-1].number)
        self._consumer.close()


def number_of(message: Message) -> int:
    """The number that stands before the rest of the record's value."""
    return int((message.value() or b"").partition(b" ")[0])


class Reading:
    """A query that notes the values it reads, with a checkpoint of its own. A context manager that stops it.

    Args:
        stream: makes its frame, anew for each start.
    """

    def __init__(self, name: str, stream: Callable[[], DataFrame], checkpoint: Path) -> None:
        self.name = name
        self.read: Counter[bytes] = Counter()
        self._stream = stream
        self._checkpoint = checkpoint
        self.query: StreamingQuery | None = None

    def start(self, *, once: bool = False) -> None:
        """Start it, again from where its checkpoint is; ``once``: read what is there, and stop."""
        writer = self._stream().select("value").writeStream.foreachBatch(self._note).queryName(self.name)
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        self.query = (writer.trigger(availableNow=True) if once else writer).start()
        if once:
            self.query.awaitTermination()

    def stop(self, *, settled: bool = False) -> None:
        """Stop it; it has not failed. ``settled``: between two batches, or the last one comes again."""
        query, self.query = self.query, None
        if query is not None:
            if settled:
                query.processAllAvailable()
            failure = query.exception()
            query.stop()
            assert failure is None, failure

    def await_read(self, values: Iterable[bytes], deadline_s: float = 90) -> None:
        """Wait until it has read all of them; it must not fail meanwhile."""
        wanted = set(values)

        def missing() -> bool:
            assert self.query is not None
            if self.query.exception() is not None:
                raise RuntimeError(str(self.query.exception()))
            return wanted <= set(self.read)

        eventually(missing, deadline_s, message=f"{self.name} reads all of it")

    def _note(self, batch: DataFrame, _: int) -> None:
        self.read.update(bytes(row.value) for row in batch.collect())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def started(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query of ``format("modeaware")``, again where its source's process has missed the 10 s that Spark gives
    it to start: on a busy machine it may."""
    for _ in range(6):
        query = start()
        eventually(lambda q=query: q.exception() is not None or q.lastProgress is not None, 120)
        if "failed to connect back" not in str(query.exception() or ""):
            break
    return query


@contextmanager
def listening(spark: SparkSession, listener: StreamingQueryListener) -> Iterator[None]:
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        spark.streams.removeListener(listener)
        with suppress(AttributeError):
            listener.close()
