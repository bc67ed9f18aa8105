"""The client processes of a run: ``python -m tests.chaos.clients writer FOLDER NAME RUN`` and ``... reader FOLDER GROUP
MEMBER RUN``.

Each ends in good order on SIGTERM, with exit status 0; with 4 when its client failed for good (the run starts another
one). Readers read at least once: what was read is in the journal before its offset is committed.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer as PlainConsumer
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka import Producer as PlainProducer

import modeaware
from modeaware.topic_view import TopicView
from tests.chaos.journal import UNPLACED, Journal, Kind, pack_bounds
from tests.chaos.lifeline import BROKERS_LOST, Lifeline
from tests.chaos.record import NO_VERSION, Identity, key_bytes, number_of, value_bytes, version_number
from tests.chaos.setting import GROUPS, IDEMPOTENT, KEYS, LOWEST_TARGET, PARTITIONS, WRITERS, Setting
from tests.chaos.tasks import insist

log = logging.getLogger("client")

GAVE_UP = "of no use any more"  # logged when the client has failed for good
FAILED = 4

READ_BATCH = 500
CONSUME_S = 0.2
COMMIT_S = 0.3
# Now and then a reader dawdles, well within its session: a group that is always at the end proves little of a drain.
AWAKE_S = (5.0, 20.0)
NAP_S = (1.0, 5.0)
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


class Client:
    """A writer or a reader. One thread owns it."""

    def __init__(self, setting: Setting, journal: Journal, name: str, run: str) -> None:
        self.setting = setting
        self.journal = journal
        self.chance = random.Random(f"{setting.seed}-{name}-{run}")
        self.stopping = False
        self.conf: dict[str, Any] = {
            "bootstrap.servers": setting.bootstrap_servers,
            "client.id": f"{name}-{run}",
            "log_level": 4,
            "reconnect.backoff.max.ms": 1_000,
            "error_cb": lambda error: log.warning("client: %s", error),
        }

    def work(self) -> bool:
        """Work until :attr:`stopping` is true; whether all is settled then.

        Raises:
            KafkaException: the client is of no use any more.
        """
        raise NotImplementedError

    def stop(self, *_: object) -> None:
        """Let :meth:`work` come to an end (signal handler)."""
        self.stopping = True


class Reader(Client):
    """Reads, notes, commits."""

    def __init__(self, setting: Setting, journal: Journal, name: str, member: str, run: str) -> None:
        super().__init__(setting, journal, member, run)
        self._read: dict[int, int] = {}  # partition -> the offset to commit
        self._committed_s = 0.0
        self._unsure_ms = 0  # the time of the first reading that is not committed, where there is one
        [group] = [each for each in GROUPS if each.name == name]
        self.conf |= {
            "group.id": f"{setting.topic}-{name}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            **group.conf,
        }
        self._consumer = modeaware.Consumer(self.conf) if group.aware else PlainConsumer(self.conf)
        self._lifeline = Lifeline(self._consumer, setting.conf, _leave)

    def work(self) -> bool:
        with self._lifeline:
            self._read_on()
        self._consumer.close()
        return True

    def _read_on(self) -> None:
        taken = partial(self._hold, Kind.TAKEN)
        self._consumer.subscribe([self.setting.topic], on_assign=taken, on_revoke=self._revoked, on_lost=self._lost)
        nap_at_s = time.monotonic() + self.chance.uniform(*AWAKE_S)
        while not self.stopping:
            if time.monotonic() >= nap_at_s:
                time.sleep(self.chance.uniform(*NAP_S))  # the nap
                nap_at_s = time.monotonic() + self.chance.uniform(*AWAKE_S)
            self._note(self._consumer.consume(READ_BATCH, CONSUME_S))
            if self._read and time.monotonic() - self._committed_s >= COMMIT_S:
                self._commit(list(self._read))
        self._commit(list(self._read))

    def _note(self, messages: Iterable[Message]) -> None:
        at_ms = self.setting.now_ms()
        for message in messages:
            error, partition, offset = message.error(), message.partition(), message.offset()
            if error is not None:
                log.warning("message: %s", error)
                if error.fatal():
                    raise KafkaException(error)
                continue
            assert partition is not None
            assert offset is not None
            number = number_of(message.value(), message.key())
            self.journal.add(Kind.READ, number=number, offset=offset, at_ms=at_ms, partition=partition)
            if not self._read:
                self._unsure_ms = at_ms
            self._read[partition] = offset + 1
            self._lifeline.read()
        self.journal.flush()

    def _commit(self, partitions: Iterable[int]) -> None:
        offsets = [TopicPartition(self.setting.topic, p, self._read.pop(p)) for p in partitions if p in self._read]
        self._committed_s = time.monotonic()
        if not offsets:
            return
        try:
            answers = self._consumer.commit(offsets=offsets, asynchronous=False)
            failed = [str(answer.error) for answer in answers or () if answer.error is not None]
        except KafkaException as error:
            failed = [str(error)]
        if failed:  # another member may read it again
            log.warning("commit: %s", failed)
            self.journal.add(Kind.COMMIT_FAILED, at_ms=self.setting.now_ms(), offset=self._unsure_ms)
            self.journal.flush()

    def _revoked(self, consumer: object, partitions: Iterable[TopicPartition]) -> None:
        self._commit([p.partition for p in partitions])
        self._hold(Kind.DROPPED, consumer, partitions)

    def _lost(self, consumer: object, partitions: Iterable[TopicPartition]) -> None:
        log.warning("partitions were lost")
        now_ms = self.setting.now_ms()
        self.journal.add(Kind.COMMIT_FAILED, at_ms=now_ms, offset=self._unsure_ms if self._read else now_ms)
        self._hold(Kind.DROPPED, consumer, partitions)

    def _hold(self, kind: Kind, consumer: object, partitions: Iterable[TopicPartition]) -> None:
        log.info("%s %s", kind.name, sorted((p.partition, p.offset) for p in partitions))
        for partition in partitions:
            self._read.pop(partition.partition, None)
            self.journal.add(kind, at_ms=self.setting.now_ms(), partition=partition.partition)
        self.journal.flush()


class Sender(Client):
    """Sends, and notes what is acknowledged."""

    def __init__(self, setting: Setting, journal: Journal, name: str, run: str) -> None:
        super().__init__(setting, journal, name, run)
        [writer] = [each for each in WRITERS if each.name == name]
        self._run = int(run)
        self._sequence = 0
        self._rate_per_s = setting.rate_per_s * writer.share
        self._sent_s, self._due = time.monotonic(), 0.0
        self.conf |= {"acks": "all", **IDEMPOTENT, "linger.ms": 20}
        if writer.transactional:
            self.conf |= {"transactional.id": name, "transaction.timeout.ms": 15_000}
        self._producer = modeaware.Producer(self.conf) if writer.aware else PlainProducer(self.conf)
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
        insist(lambda: self._producer.init_transactions(CALL_S), GIVE_UP_S, retriable_only=True)

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
        insist(lambda: self._producer.abort_transaction(CALL_S), GIVE_UP_S, retriable_only=True)
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
            insist(lambda: self._producer.commit_transaction(CALL_S), GIVE_UP_S, retriable_only=True)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            log.warning("aborting: %s", error)
            return False
        return True


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
        if self._topic in changed:
            self.lower = version_number(changed[self._topic].version)


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


def _leave() -> None:
    """End this process, whatever its threads are waiting for."""
    log.error("%s: %s", GAVE_UP, BROKERS_LOST)
    os._exit(FAILED)


def main(role: str, folder: Path, *words: str) -> int:
    """Run one client to its end; the exit status."""
    setting = Setting.load(folder)
    journal = Journal(setting.folder / ".".join([role, *words, "journal"]))
    kinds: dict[str, Callable[..., Client]] = {"reader": Reader, "writer": Sender}
    client = kinds[role](setting, journal, *words)
    signal.signal(signal.SIGTERM, client.stop)
    try:
        if client.work():
            journal.add(Kind.ENDED)
    except KafkaException as error:
        log.error("%s: %s", GAVE_UP, error)
        return FAILED
    finally:
        journal.close()
    return 0


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
