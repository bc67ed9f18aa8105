"""A reader process: ``python -m tests.chaos.reader FOLDER GROUP MEMBER RUN``. Ends in good order on SIGTERM.

At least once: what was read is in the journal before its offset is committed.
"""

from __future__ import annotations

import logging
import random
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer as PlainConsumer
from confluent_kafka import KafkaException, Message, TopicPartition

import modeaware
from tests.chaos.journal import Journal, Kind
from tests.chaos.record import number_of
from tests.chaos.setting import GROUPS, Group, Setting

log = logging.getLogger("reader")

BATCH = 500
CONSUME_S = 0.2
COMMIT_S = 0.3
# Now and then a reader dawdles, well within its session: a group that is always at the end proves little of a drain.
AWAKE_S = (5.0, 20.0)
NAP_S = (1.0, 5.0)
FAILED = 4


class Reader:
    """Reads, notes, commits. One thread owns it."""

    def __init__(self, setting: Setting, group: Group, member: str, run: int, journal: Journal) -> None:
        self._setting = setting
        self._journal = journal
        self._stopping = False
        self._read: dict[int, int] = {}  # partition -> the offset to commit
        self._committed_s = 0.0
        self._unsure_ms = 0  # since when there is something read and not committed, where there is
        self._chance = random.Random(f"{setting.seed}-{member}-{run}")
        self._nap_at_s = time.monotonic() + self._chance.uniform(*AWAKE_S)
        conf: dict[str, Any] = {
            "bootstrap.servers": setting.bootstrap_servers,
            "group.id": f"{setting.topic}-{group.name}",
            "client.id": member,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 4,
            "reconnect.backoff.max.ms": 1_000,
            "error_cb": lambda error: log.warning("consumer: %s", error),
            **group.conf,
        }
        self._consumer = modeaware.Consumer(conf) if group.aware else PlainConsumer(conf)

    def stop(self, *_: object) -> None:
        """Let :meth:`work` come to an end (signal handler)."""
        self._stopping = True

    def work(self) -> None:
        """Read until told to stop.

        Raises:
            KafkaException: the consumer is of no use any more.
        """
        self._consumer.subscribe(
            [self._setting.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        while not self._stopping:
            if time.monotonic() >= self._nap_at_s:
                time.sleep(self._chance.uniform(*NAP_S))  # the nap
                self._nap_at_s = time.monotonic() + self._chance.uniform(*AWAKE_S)
            self._note(self._consumer.consume(BATCH, CONSUME_S))
            if self._read and time.monotonic() - self._committed_s >= COMMIT_S:
                self._commit(list(self._read))
        self._commit(list(self._read))
        self._consumer.close()
        self._journal.add(Kind.ENDED)
        self._journal.flush()

    def _note(self, messages: Iterable[Message]) -> None:
        at_ms = self._setting.now_ms()
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
            self._journal.add(Kind.READ, number=number, offset=offset, at_ms=at_ms, partition=partition)
            if not self._read:
                self._unsure_ms = at_ms
            self._read[partition] = offset + 1
        self._journal.flush()

    def _commit(self, partitions: Iterable[int]) -> None:
        offsets = [TopicPartition(self._setting.topic, p, self._read.pop(p)) for p in partitions if p in self._read]
        self._committed_s = time.monotonic()
        if not offsets:
            return
        try:
            answers = self._consumer.commit(offsets=offsets, asynchronous=False)
            failed = [str(answer.error) for answer in answers or () if answer.error is not None]
        except KafkaException as error:
            failed = [str(error)]
        if failed:  # it may be read again, by whoever holds it then
            log.warning("commit: %s", failed)
            self._journal.add(Kind.COMMIT_FAILED, at_ms=self._setting.now_ms(), offset=self._unsure_ms)
            self._journal.flush()

    def _assigned(self, consumer: object, partitions: Iterable[TopicPartition]) -> None:
        log.info("assigned %s", sorted((p.partition, p.offset) for p in partitions))
        self._hold(Kind.TAKEN, partitions)

    def _revoked(self, consumer: object, partitions: Iterable[TopicPartition]) -> None:
        log.info("revoked %s", sorted(p.partition for p in partitions))
        self._commit([p.partition for p in partitions])
        self._hold(Kind.DROPPED, partitions)

    def _lost(self, consumer: object, partitions: Iterable[TopicPartition]) -> None:
        log.warning("lost %s", sorted(p.partition for p in partitions))
        now_ms = self._setting.now_ms()
        self._journal.add(Kind.COMMIT_FAILED, at_ms=now_ms, offset=self._unsure_ms if self._read else now_ms)
        self._hold(Kind.DROPPED, partitions)

    def _hold(self, kind: Kind, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._read.pop(partition.partition, None)
            self._journal.add(kind, at_ms=self._setting.now_ms(), partition=partition.partition)
        self._journal.flush()


def main(folder: Path, name: str, member: str, run: int) -> int:
    setting = Setting.load(folder)
    [group] = [each for each in GROUPS if each.name == name]
    reader = Reader(setting, group, member, run, Journal(setting.reader_path(name, member, run)))
    signal.signal(signal.SIGTERM, reader.stop)
    try:
        reader.work()
    except KafkaException as error:
        log.error("of no use any more: %s", error)
        return FAILED
    return 0


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])))
