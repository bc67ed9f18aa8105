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
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer as PlainConsumer
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka import Producer as PlainProducer

import modeaware
from modeaware.topic_view import TopicView
from tests.chaos.lifeline import BROKERS_LOST, Lifeline
from tests.chaos.setting import (
    GROUPS,
    IDEMPOTENT,
    KEYS,
    LOWEST_TARGET,
    NO_VERSION,
    PARTITIONS,
    WRITERS,
    Setting,
    version_number,
)
from tests.workload.journal import Journal, Kind, Sink, pack_bounds
from tests.workload.reader import Reader
from tests.workload.record import log_of
from tests.workload.writer import LONG_S, TransactionalWriter, Writer

log = logging.getLogger("client")

GAVE_UP = "of no use any more"  # logged when the client has failed for good
TRANSACTION_FAILED = "a transaction failed, and its end would not be certain (librdkafka#5423)"
FAILED = 4

READ_BATCH = 500
CONSUME_S = 0.2
COMMIT_S = 0.3
# Now and then a reader dawdles, well within its session: a group that is always at the end proves little of a drain.
AWAKE_S = (5.0, 20.0)
NAP_S = (1.0, 5.0)
CYCLE_S = 40.0
EVERYWHERE_S = 5.0
BURST_PAUSE_S = (15.0, 60.0)
BURST_RECORDS = 40
ABORTED_SHARE = 0.08


class ChaosReader(Reader):
    """Reads, notes, commits; and notes which partitions it holds, and what it could not commit."""

    def __init__(self, setting: Setting, sink: Sink, name: str, member: str, run: str) -> None:
        [group] = [each for each in GROUPS if each.name == name]
        conf = {
            **_conf(setting, member, run),
            "group.id": f"{setting.topic}-{name}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            **group.conf,
        }
        super().__init__(lambda: (modeaware.Consumer if group.aware else PlainConsumer)(conf), [setting.topic], sink)
        self._setting = setting
        self._chance = random.Random(f"{setting.seed}-{member}-{run}")
        self._read: dict[int, int] = {}  # partition -> the offset to commit
        self._committed_s = 0.0
        self._unsure_ms = 0  # the time of the first reading that is not committed, where there is one
        self._nap_at_s = time.monotonic() + self._chance.uniform(*AWAKE_S)

    def work(self) -> None:
        self.consumer = self.make()
        taken = partial(self._hold, Kind.TAKEN)
        self.consumer.subscribe(self.topics, on_assign=taken, on_revoke=self._revoked, on_lost=self._lost)
        self._lifeline = Lifeline(self.consumer, self._setting.conf, _leave)
        with self._lifeline:
            while not self.done.is_set():
                self.turn()
            self._commit_read(list(self._read))
        self.consumer.close()

    def turn(self) -> None:
        if time.monotonic() >= self._nap_at_s:
            time.sleep(self._chance.uniform(*NAP_S))  # the nap
            self._nap_at_s = time.monotonic() + self._chance.uniform(*AWAKE_S)
        self.take(self.consumer.consume(READ_BATCH, CONSUME_S))
        if self._read and time.monotonic() - self._committed_s >= COMMIT_S:
            self._commit_read(list(self._read))

    def given(self, number: int, topic: str, partition: int, offset: int) -> None:
        if not self._read:
            self._unsure_ms = self.sink.now_ms()
        super().given(number, topic, partition, offset)
        self._read[partition] = offset + 1
        self._lifeline.read()

    def _commit_read(self, partitions: Iterable[int]) -> None:
        offsets = [TopicPartition(self._setting.topic, p, self._read.pop(p)) for p in partitions if p in self._read]
        self._committed_s = time.monotonic()
        if not offsets:
            return
        try:
            answers = self.consumer.commit(offsets=offsets, asynchronous=False)
            failed = [str(answer.error) for answer in answers or () if answer.error is not None]
        except KafkaException as error:
            failed = [str(error)]
        if failed:  # another member may read it again
            log.warning("commit: %s", failed)
            self.sink.note(Kind.COMMIT_FAILED, offset=self._unsure_ms)
            self.sink.flush()

    def _revoked(self, consumer: object, partitions: Iterable[TopicPartition]) -> None:
        self._commit_read([p.partition for p in partitions])
        self._hold(Kind.DROPPED, consumer, partitions)

    def _lost(self, consumer: object, partitions: Iterable[TopicPartition]) -> None:
        log.warning("partitions were lost")
        now_ms = self.sink.now_ms()
        self.sink.note(Kind.COMMIT_FAILED, offset=self._unsure_ms if self._read else now_ms, at_ms=now_ms)
        self._hold(Kind.DROPPED, consumer, partitions)

    def _hold(self, kind: Kind, consumer: object, partitions: Iterable[TopicPartition]) -> None:
        log.info("%s %s", kind.name, sorted((p.partition, p.offset) for p in partitions))
        for partition in partitions:
            self._read.pop(partition.partition, None)
            self.sink.note(kind, log=log_of(self._setting.topic, partition.partition))
        self.sink.flush()


class ChaosWriter(Writer):
    """Writes keys at random; and notes under which views, if it is aware."""

    def __init__(self, setting: Setting, sink: Sink, name: str, run: str, **options: Any) -> None:
        [kind] = [each for each in WRITERS if each.name == name]
        conf = {**_conf(setting, name, run), "acks": "all", **IDEMPOTENT, "linger.ms": 20}
        if kind.transactional:
            conf |= {"transactional.id": name, "transaction.timeout.ms": 15_000}
        producer = modeaware.Producer if kind.aware else PlainProducer
        options |= {"per_s": setting.rate_per_s * kind.share, "catch_up_s": LONG_S}
        super().__init__(lambda: producer(conf), setting.topic, sink, int(run), **options)
        self._setting = setting
        self._random = random.Random(f"{setting.seed}-{name}-{run}")
        self._views: SeenViews | None = None
        self._manners = None if kind.aware else Manners(self._random, setting.now_ms() / 1000)

    def begin(self) -> None:
        if self._manners is None:
            self._views = SeenViews(self._setting, self.sink)
        super().begin()

    def choose(self) -> int:
        return self._random.randrange(KEYS)

    def turn(self, count: int) -> None:
        super().turn(count)
        if self._manners is not None:
            for partition in self._manners.burst(self._setting.now_ms() / 1000):
                self.send(self.choose(), partition)

    def send(self, key: int, partition: int | None = None) -> None:
        if self._manners is not None and partition is None:
            partition = self._manners.partition(key, self._setting.now_ms() / 1000)
        super().send(key, partition)

    def produce(self, number: int, key: int, partition: int | None) -> None:
        if self._views is None:
            super().produce(number, key, partition)
            return
        lower = self._views.lower
        super().produce(number, key, partition)
        self._views.note(lower, self.sequence)


class TransactionalChaosWriter(ChaosWriter, TransactionalWriter):
    """Likewise, in transactions. Where one fails the process ends, and the next one fences it
    (:class:`tests.chaos.chains.RenewedWriter` says why)."""

    def failed(self, error: KafkaException) -> None:
        log.warning("%s", error)
        raise KafkaException(KafkaError(KafkaError._FAIL, TRANSACTION_FAILED))


class SeenViews:
    """Between which versions the view lies under which the producer chooses a partition. Make it after the producer.

    Its listener is subscribed after the producer's own: once it was called with a version, the producer chooses by that
    one or a later one. And the shared views have a version before any listener is called.

    Attributes:
        lower: the lowest version the producer may choose by.
    """

    def __init__(self, setting: Setting, sink: Sink) -> None:
        self._topic = setting.topic
        self._sink = sink
        self._noted: tuple[int, int] | None = None
        self.lower = NO_VERSION
        self._views = setting.views()
        self._views.subscribe(self._changed)

    def note(self, lower: int, sequence: int) -> None:
        """Note the versions by which the record ``sequence`` may have been routed, where they are new."""
        bounds = lower, version_number(self._views.view(self._topic).version)
        if bounds != self._noted:
            self._noted = bounds
            self._sink.note(Kind.VIEW, pack_bounds(*bounds), offset=sequence)

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


def _conf(setting: Setting, name: str, run: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": setting.bootstrap_servers,
        "client.id": f"{name}-{run}",
        "log_level": 4,
        "reconnect.backoff.max.ms": 1_000,
        "error_cb": lambda error: log.warning("client: %s", error),
    }


def _leave() -> None:
    """End this process, whatever its threads are waiting for."""
    log.error("%s: %s", GAVE_UP, BROKERS_LOST)
    os._exit(FAILED)


def _client(setting: Setting, journal: Journal, role: str, *words: str) -> Reader | Writer:
    if role == "reader":
        return ChaosReader(setting, journal, *words)
    [writer] = [each for each in WRITERS if each.name == words[0]]
    if not writer.transactional:
        return ChaosWriter(setting, journal, *words)
    chance = random.Random(f"{setting.seed}-{words}-transactions")
    return TransactionalChaosWriter(setting, journal, *words, chance=chance, aborted_share=ABORTED_SHARE)


def main(role: str, folder: Path, *words: str) -> int:
    """Run one client to its end; the exit status."""
    setting = Setting.load(folder)
    journal = Journal(setting.folder / ".".join([role, *words, "journal"]), setting.now_ms)
    client = _client(setting, journal, role, *words)
    signal.signal(signal.SIGTERM, lambda *_: client.done.set())
    try:
        client.work()
    except KafkaException as error:
        log.error("%s: %s", GAVE_UP, error)
        return FAILED
    except TimeoutError as error:  # it has not ended in good order, and the judge knows
        log.warning("stopped: %s", error)
    finally:
        journal.close()
    return 0


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
