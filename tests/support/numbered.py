"""Records whose keys are numbered 0, 1, 2, ...: writers of them, groups that read them, and an exact judge that keeps
counters instead of records.

A reader knows the next number of each key. A number below it is a duplicate, one beyond it leaves numbers missing. A
missing number that comes later is out of order, one that never comes is lost; unless its writer has no acknowledgement
of it. So memory grows with what goes wrong, not with the records.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from tests.support.background import Background

POLL_S = 0.02
READ_BATCH = 1_000
READ_S = 0.1
FLUSH_S = 45.0
MOST_JUMPS = 10_000

Number = tuple[bytes, int]
"""A record: its key, and its number among the records of that key."""


class Jump(NamedTuple):
    """Where a group skipped numbers of a key, by the record behind them.

    Attributes:
        at_s: when that record was taken, in seconds since the reading began.
    """

    key: bytes
    numbers: range
    topic: str
    partition: int
    offset: int
    at_s: float


class Written:
    """What one writer has written: the numbers 0 to :attr:`rounds` - 1 of each of its keys, but for :attr:`void`.

    Attributes:
        keys: of this writer alone.
        void: numbers that were not acknowledged. They need not be read, and may be.
    """

    def __init__(self, keys: Iterable[bytes]) -> None:
        self.keys = tuple(keys)
        self.rounds = 0
        self.void: set[Number] = set()

    @property
    def acknowledged(self) -> int:
        """How many records were acknowledged; those on the way are counted, too."""
        return self.rounds * len(self.keys) - len(self.void)


class Reading:
    """What one group was given, by all of its members. Thread-safe.

    Attributes:
        missing: numbers that were skipped, and have not come since.
        late: how many numbers came after a later one of their key, by key.
        duplicates: how many came again.
        errors: names of errors that are not fatal, and how often each came.
        jumps: where numbers were skipped, whether they came later or not; the first :data:`MOST_JUMPS`.
    """

    def __init__(self) -> None:
        self.jumps: list[Jump] = []
        self._began_s = time.monotonic()
        self.missing: set[Number] = set()
        self.late: Counter[bytes] = Counter()
        self.duplicates = 0
        self.errors: Counter[str] = Counter()
        self._next: dict[bytes, int] = {}
        self._turn = threading.Lock()

    def take(self, messages: Iterable[Any]) -> None:
        """Note messages in the order in which they were given.

        Raises:
            KafkaException: one is a fatal error.
        """
        with self._turn:
            for message in messages:
                if (error := message.error()) is not None:
                    if error.fatal():
                        raise KafkaException(error)
                    self.errors[error.name()] += 1
                    continue
                key, number = message.key(), int(message.value())
                expected = self._next.get(key, 0)
                if number == expected:
                    self._next[key] = number + 1
                elif number > expected:
                    skipped = range(expected, number)
                    if len(self.jumps) < MOST_JUMPS:
                        place = (message.topic(), message.partition(), message.offset())
                        self.jumps.append(Jump(key, skipped, *place, round(time.monotonic() - self._began_s, 3)))
                    self.missing.update((key, each) for each in skipped)
                    self._next[key] = number + 1
                elif (key, number) in self.missing:
                    self.missing.discard((key, number))
                    self.late[key] += 1
                else:
                    self.duplicates += 1

    @property
    def read(self) -> int:
        """How many different records were read."""
        with self._turn:
            return sum(self._next.values()) - len(self.missing)

    def lost(self, writers: Iterable[Written]) -> set[Number]:
        """Return acknowledged numbers that were skipped, so far."""
        with self._turn:
            return self.missing.difference(*(writer.void for writer in writers))

    def unread(self, writer: Written) -> set[Number]:
        """Return acknowledged numbers that were not read: those that are lost, and those beyond what was read."""
        with self._turn:
            beyond = ((key, n) for key in writer.keys for n in range(self._next.get(key, 0), writer.rounds))
            return {*beyond, *self.missing.intersection(_numbers(self.missing, writer))} - writer.void

    def skips(self, writer: Written) -> list[Jump]:
        """Return where acknowledged numbers were skipped that have not come since."""
        unread = self.unread(writer)
        return [jump for jump in self.jumps if any((jump.key, number) in unread for number in jump.numbers)]

    def out_of_order(self, writer: Written) -> int:
        """Return how many records of this writer came after a later one of their key."""
        return sum(self.late[key] for key in writer.keys)


def _numbers(numbers: Iterable[Number], writer: Written) -> set[Number]:
    keys = set(writer.keys)
    return {number for number in numbers if number[0] in keys}


class Writer(Background):
    """Writes rounds, one record of each key, for as long as it runs. What was refused is not written again.

    Args:
        make: makes the producer, in this thread.
        per_s: how many records a second. After a pause it catches up.
    """

    def __init__(self, make: Callable[[], Any], topic: str, name: str, keys: int, per_s: float) -> None:
        super().__init__()
        self.make, self.topic = make, topic
        self.written = Written(f"{name}-{key}".encode() for key in range(keys))
        self.failures: Counter[str] = Counter()
        """Why records are void."""
        self._round_s = keys / per_s

    def work(self) -> None:
        self.producer = self.make()
        since_s = time.monotonic()
        while not self.done.is_set():
            if time.monotonic() - since_s >= self.written.rounds * self._round_s:
                messages = [{"key": key, "value": b"%d" % self.written.rounds} for key in self.written.keys]
                self.written.rounds += 1
                self.send(messages)
            self.producer.poll(min(POLL_S, self._round_s))
        if left := self.producer.flush(FLUSH_S):
            raise TimeoutError(f"{left} records are not settled after {FLUSH_S:g} s")

    def send(self, messages: list[dict[str, Any]]) -> None:
        """Queue a round; what does not fit into the queue is queued before the next one.

        Raises:
            KafkaException: a record was refused for another reason.
        """
        while messages:
            try:
                self.producer.produce_batch(self.topic, messages, on_delivery=self.delivered)
                messages = [message for message in messages if _is_full(message.pop("_error", None))]
            except BufferError:
                pass  # no view of the modes yet
            if messages and self.done.is_set():
                self.give_up(messages, "stopped")
                return
            self.producer.poll(POLL_S if messages else 0)

    def delivered(self, error: KafkaError | None, message: Any) -> None:
        """A delivery report."""
        if error is not None:
            self.give_up([{"key": message.key(), "value": message.value()}], error.name())

    def give_up(self, messages: list[dict[str, Any]], why: str) -> None:
        """Note records that are not acknowledged, or not known to be."""
        void = {(message["key"], int(message["value"])) for message in messages}
        self.failures[why] += len(void - self.written.void)
        self.written.void |= void


def _is_full(error: KafkaError | None) -> bool:
    if error is not None and error.code() != KafkaError._QUEUE_FULL:
        raise KafkaException(error)
    return error is not None


class Member(Background):
    """One place in a group.

    Args:
        make: makes a consumer, in this thread.
        stays_s: how long a consumer stays in the group, until another one takes its place.
    """

    def __init__(
        self, make: Callable[[], Any], topic: str, reading: Reading, stays_s: Callable[[], float] = lambda: math.inf
    ) -> None:
        super().__init__()
        self._make, self._topic, self._reading, self._stays_s = make, topic, reading, stays_s

    def work(self) -> None:
        while not self.done.is_set():
            consumer, until_s = self._make(), time.monotonic() + self._stays_s()
            consumer.subscribe([self._topic])
            try:
                while not self.done.is_set() and time.monotonic() < until_s:
                    self._reading.take(consumer.consume(READ_BATCH, READ_S))
            finally:
                self.close(consumer)

    def close(self, consumer: Any) -> None:
        """Take a consumer out of the group."""
        consumer.close()
