"""The Kafka, the topics and the mode log that the benchmarks run on."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka.admin import AdminClient

from modeaware.local import start_kafka
from modeaware.modelog.records import Replacement
from tests.support.modelog import RealLog, topic_record
from tests.support.plain import create_topic

PARTITIONS = 48
WRITABLE = 12


@dataclass
class Setting:
    """A running Kafka; topics made here are deleted at the end.

    Attributes:
        bootstrap_servers: of the Kafka.
        quick: measure less, for a look.
    """

    bootstrap_servers: str
    quick: bool
    topics: list[str] = field(default_factory=list)

    def rounds(self, count: int) -> int:
        """``count`` rounds, or a few."""
        return max(count // 5, 5) if self.quick else count

    def make_topic(self, partitions: int = PARTITIONS) -> str:
        """A new topic; its records may go soon."""
        name = f"bench-{uuid.uuid4().hex[:12]}"
        configs = {"retention.ms": "60000", "segment.bytes": "16777216"}
        create_topic(self.bootstrap_servers, name, partitions, configs=configs)
        self.topics.append(name)
        return name

    def delete(self, *topics: str) -> None:
        """Delete topics before the end: large ones."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        for future in admin.delete_topics(list(topics)).values():
            future.result(30)
        self.topics = [name for name in self.topics if name not in topics]

    def make_log(self) -> RealLog:
        """A mode log of its own."""
        log = RealLog(self.bootstrap_servers)
        log.create()
        self.topics.append(log.topic)
        return log

    def shrink(self, log: RealLog, topic: str, writable: int = WRITABLE, *, epoch: int = 1) -> None:
        """Append that only the first ``writable`` of the topic's partitions are ReadWrite."""
        log.append(topic_record(topic, epoch, writable=writable, count=PARTITIONS))

    def make_shrunk(self) -> tuple[RealLog, str, str, str]:
        """A mode log, a topic with all partitions writable, a shrunk one, and one that has as many partitions as are
        writable in that."""
        log, whole, shrunk, few = self.make_log(), self.make_topic(), self.make_topic(), self.make_topic(WRITABLE)
        self.shrink(log, shrunk)
        return log, whole, shrunk, few

    def replace(self, log: RealLog, topic: str, new_topic: str, *, pause: bool = False) -> None:
        """Append that ``new_topic``, with as many partitions, has replaced the topic, or with ``pause`` will."""
        switched_ms = None if pause else 1
        replacement = Replacement(
            new_topic, PARTITIONS, 0, new_topic_id=log.live_id(new_topic), switched_ms=switched_ms
        )
        epoch, writable = (1, PARTITIONS) if pause else (2, 0)
        log.append(topic_record(topic, epoch, writable=writable, count=PARTITIONS, replacement=replacement))


@contextmanager
def setting(quick: bool) -> Iterator[Setting]:
    """A Kafka for the benchmarks: the one of KAFKA_BOOTSTRAP_SERVERS, or one started for them."""
    with start_kafka() as kafka:
        made = Setting(kafka.bootstrap_servers, quick)
        try:
            yield made
        finally:
            if made.topics:
                made.delete(*made.topics)
