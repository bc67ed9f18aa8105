"""An application whose topic is replaced while it works: writers with keys, groups that read, and what each has seen.

Every writer has keys of its own and counts per key, so that the order of a key is known. The verdict is about what was
acknowledged and what was delivered, and about where records lie.
"""

from __future__ import annotations

import itertools
import threading
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.background import Background
from tests.support.plain import drain_topic, leave

KEYS = 40


@dataclass
class Gaps:
    """The times at which something happened; its longest gap is the application's pause."""

    times: list[float] = field(default_factory=list)

    def event(self) -> None:
        self.times.append(time.monotonic())

    def longest_s(self, since_s: float = 0.0) -> float:
        """Return the longest time between two events, of those after ``since_s`` (monotonic)."""
        times = [at for at in self.times if at >= since_s]
        return max((after - before for before, after in itertools.pairwise(times)), default=0.0)


class Writer(Background):
    """Writes to the topic's first name for as long as it runs.

    Args:
        make: makes the producer, in this thread.
        name: the prefix of its keys.
        per_s: how many records a second.
    """

    def __init__(self, make: Callable[[], Any], topic: str, name: str, per_s: float = 100) -> None:
        super().__init__()
        self._make, self._topic, self._name, self._pause_s = make, topic, name, 1 / per_s
        self.acknowledged: dict[tuple[bytes, int], tuple[str, int]] = {}
        self.refused: list[tuple[bytes, int, Any]] = []
        self.gaps = Gaps()

    def work(self) -> None:
        producer, number = self._make(), 0
        while not self.done.is_set():
            key, count = f"{self._name}-{number % KEYS}".encode(), number // KEYS
            try:
                producer.produce(self._topic, b"%d" % count, key, on_delivery=self._delivered)
                number += 1
            except BufferError:
                pass  # full, or a key that is held: the same record again
            producer.poll(self._pause_s)
        assert producer.flush(30) == 0

    def _delivered(self, error: Any, message: Any) -> None:
        record = (bytes(message.key()), int(message.value()))
        if error is None:
            self.acknowledged[record] = (message.topic(), message.partition())
            self.gaps.event()
        else:
            self.refused.append((*record, error))


@dataclass
class Delivered:
    """What one group was given, by all of its members, in the order in which it was."""

    records: list[tuple[bytes, int, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, message: Any) -> None:
        self.add(bytes(message.key()), int(message.value()), message.topic())

    def add(self, key: bytes, count: int, topic: str) -> None:
        with self.lock:
            self.records.append((key, count, topic))

    def distinct(self) -> set[tuple[bytes, int]]:
        return {(key, count) for key, count, _ in self.records}

    def out_of_order(self) -> list[tuple[bytes, int]]:
        """Return records that were first delivered after a later one of their key."""
        seen: set[tuple[bytes, int]] = set()
        highest: dict[bytes, int] = {}
        late = []
        for key, count, _ in self.records:
            if (key, count) not in seen and count < highest.get(key, -1):
                late.append((key, count))
            seen.add((key, count))
            highest[key] = max(count, highest.get(key, -1))
        return late


class Member(Background):
    """One consumer of a group.

    Args:
        make: makes the consumer, in this thread.
        work_s: how long a record takes.
    """

    def __init__(self, make: Callable[[], Any], topics: list[str], delivered: Delivered, work_s: float = 0.0) -> None:
        super().__init__()
        self._make, self._topics, self._delivered, self._work_s = make, topics, delivered, work_s
        self.gaps = Gaps()

    @property
    def stats(self) -> Any:
        """What a consumer of ours says of itself."""
        return self._consumer.modeaware_stats()

    @property
    def held(self) -> set[str]:
        """The topics of which it holds partitions."""
        return {partition.topic for partition in self._consumer.assignment()}

    def work(self) -> None:
        consumer = self._consumer = self._make()
        consumer.subscribe(self._topics)
        try:
            while not self.done.is_set():
                message = consumer.poll(0.05)
                if message is None:
                    continue
                if message.error() is not None:
                    raise KafkaException(message.error())
                self._delivered.take(message)
                self.gaps.event()
                if self._work_s:
                    time.sleep(self._work_s)  # the work on a record
        finally:
            leave(consumer)


def move_stock_group(conf: dict[str, Any], group: str, successor: str, count: int) -> None:
    """What the owner of a stopped group does: its offsets on the successor are 0."""
    consumer = Consumer({**conf, "group.id": group})
    try:
        consumer.commit(offsets=[TopicPartition(successor, p, 0) for p in range(count)], asynchronous=False)
    finally:
        consumer.close()


@dataclass(frozen=True)
class Verdict:
    """What became of the records.

    Attributes:
        acknowledged: how many records were.
        absent: acknowledged records that no topic of the chain holds.
        unread: group -> acknowledged records that it was not given.
        out_of_order: group -> records that it was given after a later one of their key.
        misplaced: records that do not lie where the hash of their key says, for the topic's partition count.
        doubled: records that lie in the chain more than once.
    """

    acknowledged: int
    absent: int
    unread: dict[str, int]
    out_of_order: dict[str, int]
    misplaced: int
    doubled: int

    @property
    def is_well(self) -> bool:
        faults = (self.absent, self.misplaced, self.doubled, *self.unread.values(), *self.out_of_order.values())
        return self.acknowledged > 0 and not any(faults)


def judge(
    servers: str,
    chain: dict[str, int],
    writers: Iterable[Writer],
    groups: dict[str, Delivered],
    place: Callable[[bytes, int], int] = lambda key, count: zlib.crc32(key) % count,
) -> Verdict:
    """Compare what was acknowledged with what groups got, and with what the ``chain`` holds (topic -> partition count).

    Args:
        place: where keys are placed: by librdkafka's ``consistent_random``, if not otherwise.
    """
    acknowledged = {record for writer in writers for record in writer.acknowledged}
    stored: list[tuple[bytes, int]] = []
    misplaced = 0
    for topic, count in chain.items():
        for message in drain_topic(servers, topic):
            key = message.key()
            assert isinstance(key, bytes)
            stored.append((key, int(message.value() or b"")))
            misplaced += message.partition() != place(key, count)
    return Verdict(
        acknowledged=len(acknowledged),
        absent=len(acknowledged - set(stored)),
        unread={name: len(acknowledged - got.distinct()) for name, got in groups.items()},
        out_of_order={name: len(got.out_of_order()) for name, got in groups.items()},
        misplaced=misplaced,
        doubled=len(stored) - len(set(stored)),
    )
