"""A writer process: ``python -m tests.chaos.writer FOLDER NAME RUN``. Ends in good order on SIGTERM.

Exit status: 0 all it sent is settled; 4 its producer failed for good (the run starts another one).
"""

from __future__ import annotations

import logging
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as PlainProducer

import modeaware
from tests.chaos.journal import UNPLACED, Journal, Kind, pack_bounds
from tests.chaos.pace import Manners, Pace
from tests.chaos.record import NO_VERSION, Identity, key_bytes, number_of, value_bytes
from tests.chaos.seen_views import SeenViews
from tests.chaos.setting import KEYS, WRITERS, Setting, Writer
from tests.chaos.transactions import Transactions

log = logging.getLogger("writer")

TURN_S = 0.02
FLUSH_S = 90.0
MOST_WAITING = 20_000
FAILED = 4


class Sender:
    """Sends, and notes what is acknowledged. One thread owns it."""

    def __init__(self, setting: Setting, writer: Writer, run: int, journal: Journal) -> None:
        self._setting = setting
        self._writer = writer
        self._run = run
        self._journal = journal
        self._sequence = 0
        self._bounds: tuple[int, int] | None = None
        self._chance = random.Random(f"{setting.seed}-{writer.name}-{run}")
        self._manners = Manners(self._chance, setting.now_ms() / 1000)
        self._pace = Pace(setting.rate_per_s * writer.share, time.monotonic())
        self._stopping = False
        self._producer = self._make()
        self._views = SeenViews(setting) if writer.aware else None
        self._transactions = (
            Transactions(self._producer, journal, self._chance, time.monotonic) if writer.transactional else None
        )

    def stop(self, *_: object) -> None:
        """Let :meth:`work` come to an end (signal handler)."""
        self._stopping = True

    def work(self) -> None:
        """Send until told to stop, then settle all that was sent.

        Raises:
            KafkaException: the producer is of no use any more.
        """
        if self._transactions is not None:
            self._transactions.start()
        while not self._stopping:
            if self._transactions is not None:
                self._transactions.turn(self._sequence)
            self._send_due()
            self._producer.poll(TURN_S)
            self._journal.flush()
        if self._transactions is not None:
            self._transactions.finish(self._sequence)
        left = self._producer.flush(FLUSH_S)
        if not left:
            self._journal.add(Kind.ENDED)
        self._journal.flush()
        log.info("stopped, %d not settled", left)

    def _send_due(self) -> None:
        due = self._pace.due(time.monotonic())
        if len(self._producer) > MOST_WAITING:
            return
        now_s = self._setting.now_ms() / 1000
        aware = self._writer.aware
        everywhere = aware or self._manners.everywhere(now_s)
        for count in range(due):
            key = self._chance.randrange(KEYS)
            self._send(key, None if everywhere else self._manners.partition(key))
            if count % 64 == 0:
                self._producer.poll(0)
        if not aware:
            for partition in self._manners.burst(now_s):
                self._send(self._chance.randrange(KEYS), partition)

    def _send(self, key: int, partition: int | None) -> None:
        if self._transactions is not None and not self._transactions.open:
            return  # it was abandoned: nothing is sent until the next turn
        number = Identity(self._run, key, self._sequence).number
        lower = self._views.lower if self._views is not None else NO_VERSION
        arguments: dict[str, Any] = {} if partition is None else {"partition": partition}
        value = value_bytes(number, lower)
        while True:
            try:
                self._producer.produce(
                    self._setting.topic, value, key_bytes(key), on_delivery=self._delivered, **arguments
                )
                break
            except BufferError:  # the queue is full, or there is no view yet
                self._producer.poll(0.1)
                if self._stopping:
                    return
            except KafkaException as error:
                if self._transactions is None or error.args[0].fatal():
                    raise
                log.warning("the transaction is aborted: %s", error)
                self._transactions.abandon(self._sequence)
                return
        if self._views is not None:
            self._note_bounds(lower, self._views.upper)
        self._sequence += 1

    def _note_bounds(self, lower: int, upper: int) -> None:
        if (lower, upper) != self._bounds:
            self._bounds = (lower, upper)
            self._journal.add(Kind.VIEW, number=pack_bounds(lower, upper), offset=self._sequence)

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
        self._journal.add(Kind.ACKED, number=number, offset=offset, partition=partition, at_ms=self._setting.now_ms())

    def _make(self) -> PlainProducer:
        conf: dict[str, Any] = {
            "bootstrap.servers": self._setting.bootstrap_servers,
            "client.id": f"{self._writer.name}-{self._run}",
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 20,
            "log_level": 4,
            "reconnect.backoff.max.ms": 1_000,
            "error_cb": lambda error: log.warning("producer: %s", error),
        }
        if self._writer.transactional:
            conf |= {"transactional.id": self._writer.name, "transaction.timeout.ms": 15_000}
        return modeaware.Producer(conf) if self._writer.aware else PlainProducer(conf)


def main(folder: Path, name: str, run: int) -> int:
    setting = Setting.load(folder)
    [writer] = [each for each in WRITERS if each.name == name]
    journal = Journal(setting.writer_path(name, run))
    sender = Sender(setting, writer, run, journal)
    signal.signal(signal.SIGTERM, sender.stop)
    try:
        sender.work()
    except KafkaException as error:
        log.error("of no use any more: %s", error)
        journal.flush()
        return FAILED
    return 0


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
