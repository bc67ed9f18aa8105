"""Writers of keyed records: each for as long as it runs, at a steady rate."""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from tests.support.background import Background
from tests.workload.journal import UNPLACED, Kind, Sink
from tests.workload.record import Identity, key_bytes, log_of, number_of, value_bytes

KEYS, PER_S = 40, 100.0
TURN_S = 0.02
FLUSH_S = 90.0
MOST_WAITING = 20_000
CATCH_UP_S, LONG_S = 0.1, 3.0
CALL_S = 15.0
GIVE_UP_S = 90.0
AGAIN_S = 0.2

log = logging.getLogger("workload")


class Pace:
    """Watches how often something happens: its longest gap is the application's pause."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._last_s: float | None = None

    def event(self) -> None:
        now_s = time.monotonic()
        if self._last_s is not None:
            self.longest_s = max(self.longest_s, now_s - self._last_s)
        self._last_s = now_s

    def restart(self) -> None:
        """Forget the gaps until now."""
        self.longest_s, self._last_s = 0.0, None


class Writer(Background):
    """Writes records by a producer of confluent_kafka's kind. What was refused is not written again.

    Args:
        make: makes the producer, in this thread.
        sink: where it notes what was acknowledged, and what was not.
        incarnation: the run of its records.
        keys: how many keys; they are written in turn.
        per_s: how many records a second.
        catch_up_s: how much of a pause it makes up for. A busy machine gets no more records than it takes.
        batch: it sends what is due by ``produce_batch``.

    Attributes:
        failures: why records were not acknowledged, by the error's name.
        pace: its acknowledgements.
        written: how many acknowledgements it has had.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        topic: str,
        sink: Sink,
        incarnation: int,
        *,
        keys: int = KEYS,
        per_s: float = PER_S,
        batch: bool = False,
        catch_up_s: float = CATCH_UP_S,
    ) -> None:
        super().__init__()
        self.make, self.topic, self.sink, self.incarnation = make, topic, sink, incarnation
        self.sequence = 0
        self.failures: Counter[str] = Counter()
        self.pace = Pace()
        self.written = 0
        self._next: tuple[Sink, int] | None = None
        self._keys = itertools.cycle(range(keys))
        self._per_s, self._batch, self._catch_up_s = per_s, batch, catch_up_s

    def work(self) -> None:
        self.producer = self.make()
        self.begin()
        last_s, due = time.monotonic(), 0.0
        while not self.done.is_set():
            now_s = time.monotonic()
            due, last_s = min(due + (now_s - last_s) * self._per_s, self._catch_up_s * self._per_s), now_s
            count = int(due) if self.has_room() else 0
            due -= count
            self._take_over()
            self.turn(count)
            self.wait()
            self.sink.flush()
        self.finish()

    def begin(self) -> None:
        """Called once the producer is made."""

    def renew(self, sink: Sink, incarnation: int) -> None:
        """Number records anew, as another incarnation's, from the next turn on. Any thread may call it."""
        self._next = sink, incarnation

    def _take_over(self) -> None:
        """Become the next incarnation, where there is one."""
        following, self._next = self._next, None
        if following is not None:
            self.sink, self.incarnation = following
            self.sequence = 0

    def has_room(self) -> bool:
        """Whether the producer takes more records now."""
        return len(self.producer) <= MOST_WAITING

    def turn(self, count: int) -> None:
        """Write what is due."""
        self.write([self.choose() for _ in range(count)])

    def wait(self) -> None:
        """Let the producer work until the next turn."""
        self.producer.poll(TURN_S)

    def finish(self) -> None:
        """Wait until everything is settled.

        Raises:
            TimeoutError: it is not.
        """
        if left := self.producer.flush(FLUSH_S):
            raise TimeoutError(f"{left} records are not settled after {FLUSH_S:g} s")
        self.sink.note(Kind.ENDED)
        self.sink.flush()

    def choose(self) -> int:
        """The key of the next record."""
        return next(self._keys)

    def write(self, keys: Sequence[int]) -> None:
        """Queue a record of each of these keys."""
        if self._batch:
            self._write_batch(keys)
            return
        for count, key in enumerate(keys):
            self.send(key)
            if count % 64 == 0:
                self.producer.poll(0)

    def send(self, key: int, partition: int | None = None) -> None:
        """Queue a record, once there is room for it.

        Raises:
            KafkaException: it was refused.
        """
        number = Identity(self.incarnation, key, self.sequence).number
        while True:
            try:
                self.produce(number, key, partition)
                break
            except BufferError:  # the queue is full, the key is held, or there is no view yet
                self.producer.poll(0.1)
                if self.done.is_set():
                    return
        self.sequence += 1

    def produce(self, number: int, key: int, partition: int | None) -> None:
        """Call the producer."""
        arguments: dict[str, Any] = {} if partition is None else {"partition": partition}
        self.producer.produce(self.topic, value_bytes(number), key_bytes(key), on_delivery=self.delivered, **arguments)

    def _write_batch(self, keys: Sequence[int]) -> None:
        messages: list[dict[str, Any]] = []
        for key in keys:
            number = Identity(self.incarnation, key, self.sequence).number
            messages.append({"key": key_bytes(key), "value": value_bytes(number)})
            self.sequence += 1
        while messages:
            try:
                self.producer.produce_batch(self.topic, messages, on_delivery=self.delivered)
                messages = [message for message in messages if _is_full(message.pop("_error", None))]
            except BufferError:
                pass  # no view of the modes yet
            if messages and self.done.is_set():
                return
            self.producer.poll(TURN_S if messages else 0)

    def delivered(self, error: KafkaError | None, message: Any) -> None:
        """A delivery report."""
        number = number_of(message.value(), message.key())
        if error is not None:
            self.refused(number, error.code(), error.name())
        else:
            self.acknowledged(number, message.topic(), message.partition(), message.offset())

    def acknowledged(self, number: int, topic: str, partition: int, offset: int | None) -> None:
        """Note a record that lies there; an offset below 0 is of a retry that was answered with "I have it already"."""
        offset = UNPLACED if offset is None or offset < 0 else offset
        self.sink.note(Kind.ACKED, number, log_of(topic, partition), offset)
        self.written += 1
        self.pace.event()

    def refused(self, number: int, code: int, why: str) -> None:
        """Note a record that is not acknowledged."""
        self.failures[why] += 1
        self.sink.note(Kind.REFUSED, number, offset=code & 0xFFFFFFFF)


class TransactionalWriter(Writer):
    """Keeps one transaction open at a time, and notes when they begin and end.

    What is not noted as committed or aborted is of unknown outcome: also where a call failed.

    Args:
        length_s: how long a transaction lasts (from, to).
        aborted_share: how many of them it aborts.
    """

    def __init__(
        self,
        *args: Any,
        chance: random.Random | None = None,
        length_s: tuple[float, float] = (0.1, 0.6),
        aborted_share: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.chance = chance or random.Random()
        self._length_s, self._aborted_share = length_s, aborted_share
        self._end_s = 0.0
        self._open = False

    def begin(self) -> None:
        """Fence the last incarnation, end its transaction."""
        insist(lambda: self.producer.init_transactions(CALL_S), GIVE_UP_S, retriable_only=True)
        self._open = False

    def turn(self, count: int) -> None:
        """Write what is due; end the open transaction where it is time, and begin the next."""
        if self._open and time.monotonic() >= self._end_s:
            self._end()
        if not self._open:
            self.producer.begin_transaction()
            self._open = True
            self._end_s = time.monotonic() + self.chance.uniform(*self._length_s)
            self.sink.note(Kind.BEGUN, offset=self.sequence)
        super().turn(count)

    def send(self, key: int, partition: int | None = None) -> None:
        """Queue a record; where it is refused the transaction has failed, and nothing is sent until the next turn."""
        if not self._open:
            return
        try:
            super().send(key, partition)
        except KafkaException as error:
            if error.args[0].fatal():
                raise
            self.failed(error)

    def refused(self, number: int, code: int, why: str) -> None:
        """Note a record that is not acknowledged; not one of an abort."""
        if code not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            super().refused(number, code, why)

    def finish(self) -> None:
        """End what is open."""
        self._end()
        super().finish()

    def failed(self, error: KafkaException) -> None:
        """Called where the open transaction cannot be committed any more: abort it."""
        log.warning("the transaction is aborted: %s", error)
        self.abandon()

    def abandon(self) -> None:
        """Abort what is open."""
        insist(lambda: self.producer.abort_transaction(CALL_S), GIVE_UP_S, retriable_only=True)
        self._ended(Kind.ABORTED)

    def _end(self) -> None:
        if not self._open:
            return
        if self.chance.random() < self._aborted_share:
            # librdkafka skips the sequence numbers of records that it purges: the next transaction would fail.
            self.producer.flush(CALL_S)
            self.abandon()
        else:
            self._commit()

    def _ended(self, outcome: Kind) -> None:
        self.producer.poll(0)
        self.sink.note(outcome, offset=self.sequence)
        self.sink.flush()
        self._open = False

    def _commit(self) -> None:
        try:
            self.producer.flush(CALL_S)  # so that every acknowledgement is noted before the commit is
        except SystemError as error:  # confluent_kafka's, when a signal comes just then: nothing is wrong but the call
            log.warning("again: %s", error)
            self.producer.flush(CALL_S)
        try:
            insist(lambda: self.producer.commit_transaction(CALL_S), GIVE_UP_S, retriable_only=True)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self.failed(error)
        else:
            self._ended(Kind.COMMITTED)


def insist(call: Callable[[], object], timeout_s: float, *, retriable_only: bool = False) -> None:
    """Call until it succeeds.

    Raises:
        KafkaException, TimeoutError: the latest failure, when the time is up, or it is of no use to call again.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            call()
            return
        except (KafkaException, TimeoutError) as error:
            hopeless = retriable_only and not (isinstance(error, KafkaException) and error.args[0].retriable())
            if hopeless or time.monotonic() > deadline_s:
                raise
            log.warning("again: %s", error)
        time.sleep(AGAIN_S)  # a broker is coming back


def _is_full(error: KafkaError | None) -> bool:
    if error is not None and error.code() != KafkaError._QUEUE_FULL:
        raise KafkaException(error)
    return error is not None
