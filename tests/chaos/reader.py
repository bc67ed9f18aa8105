"""A reader process (see :mod:`tests.chaos.client`): ``FOLDER GROUP MEMBER RUN``.

At least once: what was read is in the journal before its offset is committed.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable

from confluent_kafka import Consumer as PlainConsumer
from confluent_kafka import KafkaException, Message, TopicPartition

import modeaware
from tests.chaos.client import Client, main
from tests.chaos.journal import Journal, Kind
from tests.chaos.record import number_of
from tests.chaos.setting import GROUPS, Setting

log = logging.getLogger("reader")

BATCH = 500
CONSUME_S = 0.2
COMMIT_S = 0.3
# Now and then a reader dawdles, well within its session: a group that is always at the end proves little of a drain.
AWAKE_S = (5.0, 20.0)
NAP_S = (1.0, 5.0)


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

    def work(self) -> bool:
        self._consumer.subscribe(
            [self.setting.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        nap_at_s = time.monotonic() + self.chance.uniform(*AWAKE_S)
        while not self.stopping:
            if time.monotonic() >= nap_at_s:
                time.sleep(self.chance.uniform(*NAP_S))  # the nap
                nap_at_s = time.monotonic() + self.chance.uniform(*AWAKE_S)
            self._note(self._consumer.consume(BATCH, CONSUME_S))
            if self._read and time.monotonic() - self._committed_s >= COMMIT_S:
                self._commit(list(self._read))
        self._commit(list(self._read))
        self._consumer.close()
        return True

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

    def _assigned(self, consumer: object, partitions: Iterable[TopicPartition]) -> None:
        self._hold(Kind.TAKEN, partitions)

    def _revoked(self, consumer: object, partitions: Iterable[TopicPartition]) -> None:
        self._commit([p.partition for p in partitions])
        self._hold(Kind.DROPPED, partitions)

    def _lost(self, consumer: object, partitions: Iterable[TopicPartition]) -> None:
        log.warning("partitions were lost")
        now_ms = self.setting.now_ms()
        self.journal.add(Kind.COMMIT_FAILED, at_ms=now_ms, offset=self._unsure_ms if self._read else now_ms)
        self._hold(Kind.DROPPED, partitions)

    def _hold(self, kind: Kind, partitions: Iterable[TopicPartition]) -> None:
        log.info("%s %s", kind.name, sorted((p.partition, p.offset) for p in partitions))
        for partition in partitions:
            self._read.pop(partition.partition, None)
            self.journal.add(kind, at_ms=self.setting.now_ms(), partition=partition.partition)
        self.journal.flush()


if __name__ == "__main__":
    sys.exit(main("reader", Reader))
