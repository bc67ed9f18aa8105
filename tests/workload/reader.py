"""Members of groups, which note what they are given."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from tests.support.background import Background
from tests.support.plain import leave
from tests.workload.journal import Kind, Sink
from tests.workload.record import log_of, number_of
from tests.workload.writer import Pace

BATCH, WAIT_S = 100, 0.1
LOST_TURN = (KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION)


class Reader(Background):
    """One place in a group, taken by a consumer of confluent_kafka's kind.

    Args:
        make: makes a consumer, in this thread.
        topics: what it subscribes to.
        sink: where it notes each record.
        work_s: how long it works on each record.
        batch: it calls ``consume`` for so many records; 0: ``poll``.
        every: it commits by itself after so many records; 0: never.
        stays_s: how long a consumer stays in the group until another one takes its place.

    Attributes:
        errors: what it was given beside records, by the error's name.
        held: the topics and partitions that it holds.
        pace: its records.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        topics: Sequence[str],
        sink: Sink,
        *,
        work_s: float = 0.0,
        batch: int = BATCH,
        every: int = 0,
        stays_s: Callable[[], float] = lambda: math.inf,
    ) -> None:
        super().__init__()
        self.make, self.topics, self.sink = make, list(topics), sink
        self.work_s = work_s
        self.errors: Counter[str] = Counter()
        self.held: frozenset[tuple[str, int]] = frozenset()
        self.pace = Pace()
        self.consumer: Any = None
        self._batch, self._every, self._stays_s = batch, every, stays_s
        self._uncommitted = 0

    @property
    def stats(self) -> Any:
        """What a consumer of ours says of itself."""
        return self.consumer.modeaware_stats() if hasattr(self.consumer, "modeaware_stats") else None

    def work(self) -> None:
        while not self.done.is_set():
            self.consumer, until_s = self.make(), time.monotonic() + self._stays_s()
            self.subscribe()
            try:
                while not self.done.is_set() and time.monotonic() < until_s:
                    self.turn()
            finally:
                self.close(self.consumer)

    def subscribe(self) -> None:
        self.consumer.subscribe(self.topics)

    def turn(self) -> None:
        """Read what there is, note it and work on it."""
        if self._batch:
            messages = self.consumer.consume(self._batch, WAIT_S)
        else:
            messages = [message for message in (self.consumer.poll(WAIT_S),) if message is not None]
        self.held = frozenset((each.topic, each.partition) for each in self.consumer.assignment())
        self._uncommitted += self.take(messages)
        if self._every and (self._uncommitted >= self._every or (self._uncommitted and not messages)):
            self._commit()

    def take(self, messages: Iterable[Any]) -> int:
        """Note messages; how many of them are records.

        Raises:
            KafkaException: one is a fatal error.
            ValueError: one is no record of a workload.
        """
        taken = 0
        for message in messages:
            if (error := message.error()) is not None:
                if error.fatal():
                    raise KafkaException(error)
                self.errors[error.name()] += 1
                continue
            number = number_of(message.value(), message.key())
            self.given(number, message.topic(), message.partition(), message.offset())
            taken += 1
        self.sink.flush()
        return taken

    def given(self, number: int, topic: str, partition: int, offset: int) -> None:
        """Note a record, and work on it."""
        self.sink.note(Kind.READ, number, log_of(topic, partition), offset)
        self.pace.event()
        if self.work_s:
            time.sleep(self.work_s)  # the work on a record

    def _commit(self) -> None:
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() in LOST_TURN:
                return
            if error.args[0].code() != KafkaError._NO_OFFSET:  # after a lost turn, the rebalance may have taken all
                raise
        self._uncommitted = 0

    def close(self, consumer: Any) -> None:
        """Take a consumer out of the group."""
        leave(consumer)
