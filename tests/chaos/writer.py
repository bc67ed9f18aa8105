"""A writer process (see :mod:`tests.chaos.client`): ``FOLDER NAME RUN``."""

from __future__ import annotations

import logging
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as PlainProducer

import modeaware
from modeaware.topic_view import TopicView
from tests.chaos.client import Client, main
from tests.chaos.journal import UNPLACED, Journal, Kind, pack_bounds
from tests.chaos.record import NO_VERSION, Identity, key_bytes, number_of, value_bytes, version_number
from tests.chaos.setting import KEYS, LOWEST_TARGET, PARTITIONS, WRITERS, Setting
from tests.chaos.tasks import insist

log = logging.getLogger("writer")

TURN_S = 0.02
FLUSH_S = 90.0
MOST_WAITING = 20_000
MOST_DEBT_S = 3.0
CYCLE_S = 40.0
EVERYWHERE_S = 5.0
BURST_PAUSE_S = (15.0, 60.0)
BURST_RECORDS = 40
LENGTH_S = (0.1, 0.6)
ABORTED_SHARE = 0.08
CALL_S = 15.0
GIVE_UP_S = 90.0


class Sender(Client):
    """Sends, and notes what is acknowledged."""

    def __init__(self, setting: Setting, journal: Journal, name: str, run: str) -> None:
        super().__init__(setting, journal, name, run)
        [writer] = [each for each in WRITERS if each.name == name]
        self._run = int(run)
        self._sequence = 0
        self._rate_per_s = setting.rate_per_s * writer.share
        self._sent_s, self._due = time.monotonic(), 0.0
        self._producer = self._make(writer.aware, name if writer.transactional else None)
        self._views = SeenViews(setting, journal) if writer.aware else None
        self._manners = None if writer.aware else Manners(self.chance, setting.now_ms() / 1000)
        self._transactions = Transactions(self._producer, journal, self.chance) if writer.transactional else None

    def work(self) -> bool:
        if self._transactions is not None:
            self._transactions.start()
        while not self.stopping:
            if self._transactions is not None:
                self._transactions.turn(self._sequence)
            self._send_due()
            self._producer.poll(TURN_S)
            self.journal.flush()
        if self._transactions is not None:
            self._transactions.finish(self._sequence)
        left = self._producer.flush(FLUSH_S)
        log.info("stopped, %d not settled", left)
        return not left

    def _send_due(self) -> None:
        """Send at the writer's rate; what could not be sent is made up for, up to :data:`MOST_DEBT_S` of it."""
        rate_per_s, last_s, self._sent_s = self._rate_per_s, self._sent_s, time.monotonic()
        self._due = min(self._due + (self._sent_s - last_s) * rate_per_s, MOST_DEBT_S * rate_per_s)
        due, self._due = divmod(self._due, 1)
        if len(self._producer) > MOST_WAITING:
            return
        now_s = self.setting.now_ms() / 1000
        for count in range(int(due)):
            key = self.chance.randrange(KEYS)
            self._send(key, None if self._manners is None else self._manners.partition(key, now_s))
            if count % 64 == 0:
                self._producer.poll(0)
        if self._manners is not None:
            for partition in self._manners.burst(now_s):
                self._send(self.chance.randrange(KEYS), partition)

    def _send(self, key: int, partition: int | None) -> None:
        if self._transactions is not None and not self._transactions.open:
            return  # it was abandoned: nothing is sent until the next turn
        number = Identity(self._run, key, self._sequence).number
        lower = self._views.lower if self._views is not None else NO_VERSION
        arguments: dict[str, Any] = {} if partition is None else {"partition": partition}
        while True:
            try:
                self._producer.produce(
                    self.setting.topic, value_bytes(number), key_bytes(key), on_delivery=self._delivered, **arguments
                )
                break
            except BufferError:  # the queue is full, or there is no view yet
                self._producer.poll(0.1)
                if self.stopping:
                    return
            except KafkaException as error:
                if self._transactions is None or error.args[0].fatal():
                    raise
                log.warning("the transaction is aborted: %s", error)
                self._transactions.abandon(self._sequence)
                return
        if self._views is not None:
            self._views.note(lower, self._sequence)
        self._sequence += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            if error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):  # those of an abort
                log.warning("not delivered: %s", error)
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        if offset is None or offset < 0:  # a retry was answered with "I have it already"
            log.info("acknowledged without an offset, in partition %d", partition)
            offset = UNPLACED
        number = number_of(message.value(), message.key())
        self.journal.add(Kind.ACKED, number=number, offset=offset, partition=partition, at_ms=self.setting.now_ms())

    def _make(self, aware: bool, transactional_id: str | None) -> PlainProducer:
        self.conf |= {"acks": "all", "enable.idempotence": True, "linger.ms": 20}
        if transactional_id is not None:
            self.conf |= {"transactional.id": transactional_id, "transaction.timeout.ms": 15_000}
        return modeaware.Producer(self.conf) if aware else PlainProducer(self.conf)


class Transactions:
    """Keeps one transaction open at a time, and notes when they begin and end. One thread owns it.

    What is not noted as committed or aborted is of unknown outcome: also where a call failed. All methods raise
    KafkaException when the producer is of no use any more. ``sequence`` is the number of the record sent next.
    """

    def __init__(self, producer: PlainProducer, journal: Journal, chance: random.Random) -> None:
        self._producer = producer
        self._journal = journal
        self._chance = chance
        self._end_s = 0.0
        self.open = False

    def start(self) -> None:
        """Fence the last incarnation, end its transaction."""
        _insist(lambda: self._producer.init_transactions(CALL_S))

    def turn(self, sequence: int) -> None:
        """End the open transaction where it is time, and begin the next."""
        if self.open and time.monotonic() >= self._end_s:
            self.finish(sequence)
        if not self.open:
            self._producer.begin_transaction()
            self.open = True
            self._end_s = time.monotonic() + self._chance.uniform(*LENGTH_S)
            self._journal.add(Kind.BEGUN, offset=sequence)

    def finish(self, sequence: int) -> None:
        """Commit or abort what is open."""
        if not self.open:
            return
        if self._chance.random() < ABORTED_SHARE or not self._commit():
            self.abandon(sequence)
        else:
            self._ended(Kind.COMMITTED, sequence)

    def abandon(self, sequence: int) -> None:
        """Abort what is open."""
        _insist(lambda: self._producer.abort_transaction(CALL_S))
        self._ended(Kind.ABORTED, sequence)

    def _ended(self, outcome: Kind, sequence: int) -> None:
        self._producer.poll(0)
        self._journal.add(outcome, offset=sequence)
        self._journal.flush()
        self.open = False

    def _commit(self) -> bool:
        """False: it has to be aborted."""
        try:
            self._producer.flush(CALL_S)  # so that every acknowledgement is noted before the commit is
        except SystemError as error:  # confluent_kafka's, when a signal comes just then: nothing is wrong but the call
            log.warning("again: %s", error)
            self._producer.flush(CALL_S)
        try:
            _insist(lambda: self._producer.commit_transaction(CALL_S))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            log.warning("aborting: %s", error)
            return False
        return True


def _insist(call: Callable[[], object]) -> None:
    insist(call, GIVE_UP_S, lambda error: isinstance(error, KafkaException) and error.args[0].retriable())


class SeenViews:
    """Between which versions the view lies under which the producer chooses a partition. Make it after the producer.

    Its listener is subscribed after the producer's own: once it was called with a version, the producer chooses by that
    one or a later one. And the shared views have a version before any listener is called.

    Attributes:
        lower: the lowest version the producer may choose by.
    """

    def __init__(self, setting: Setting, journal: Journal) -> None:
        self._topic = setting.topic
        self._journal = journal
        self._noted: tuple[int, int] | None = None
        self.lower = NO_VERSION
        self._views = setting.views()
        self._views.subscribe(self._changed)

    def note(self, lower: int, sequence: int) -> None:
        """Note the versions by which the record ``sequence`` may have been routed, where they are new."""
        bounds = lower, version_number(self._views.view(self._topic).version)
        if bounds != self._noted:
            self._noted = bounds
            self._journal.add(Kind.VIEW, number=pack_bounds(*bounds), offset=sequence)

    def _changed(self, changed: Mapping[str, TopicView]) -> None:
        view = changed.get(self._topic)
        if view is not None:
            self.lower = version_number(view.version)


class Manners:
    """Where an unaware writer sends: for some seconds of each cycle wherever its partitioner says, retired partitions
    included; else to partitions that no shrink retires, so that the others can be drained at all; and now and then a
    burst into the last ones, whatever they are at that moment.

    All unaware writers are in the same part of the cycle: their time is the run's.
    """

    def __init__(self, chance: random.Random, now_s: float) -> None:
        self._chance = chance
        self._burst_s = now_s + chance.uniform(*BURST_PAUSE_S)

    def partition(self, key: int, now_s: float) -> int | None:
        """Where a key goes; None: the partitioner's choice."""
        return None if now_s % CYCLE_S < EVERYWHERE_S else key % LOWEST_TARGET

    def burst(self, now_s: float) -> Iterator[int]:
        """The partitions of a burst, one for each record, if one is due."""
        if now_s < self._burst_s:
            return
        self._burst_s = now_s + self._chance.uniform(*BURST_PAUSE_S)
        width = self._chance.randint(1, PARTITIONS - LOWEST_TARGET)
        for number in range(BURST_RECORDS):
            yield PARTITIONS - 1 - number % width


if __name__ == "__main__":
    sys.exit(main("writer", Sender))
