"""What tests of Spark's writers share: a topic whose modes a test sets, and what lies in it afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Message

from modeaware.local import Kafka
from modeaware.modelog.records import Replacement
from modeaware.spark.snapshot import release_kept
from tests.support.modelog import RealLog, topic_record
from tests.support.plain import drain_topic


class WritingSite:
    """A mode log of its own on a running Kafka.

    Attributes:
        conf: for writers: the cluster and the log.
        plain: for plain clients: the cluster.
    """

    def __init__(self, kafka: Kafka, log: RealLog) -> None:
        self.log = log
        self.plain: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap_servers}
        self.conf: dict[str, Any] = {**self.plain, "modeaware.mode.log.topic": log.topic}
        self._epochs: Counter[str] = Counter()

    def shrink(self, topic: str, writable: int, count: int = 12) -> None:
        """The next epoch: the first ``writable`` of ``count`` partitions are ReadWrite."""
        self._epochs[topic] += 1
        self.log.append(topic_record(topic, self._epochs[topic], writable=writable, count=count))

    def replace(self, topic: str, new_topic: str, count: int = 12) -> None:
        """The next epoch: ``new_topic`` has replaced the topic of ``count`` partitions."""
        self._epochs[topic] += 1
        replacement = Replacement(new_topic, 4, 0, new_topic_id=self.log.live_id(new_topic), switched_ms=1)
        epoch = self._epochs[topic]
        self.log.append(topic_record(topic, epoch, writable=0, count=count, replacement=replacement))

    def records(self, topic: str) -> list[Message]:
        return drain_topic(self.plain["bootstrap.servers"], topic)

    def places(self, topic: str) -> dict[bytes | None, set[int]]:
        """In which partitions the records of each key lie."""
        found: dict[bytes | None, set[int]] = {}
        for message in self.records(topic):
            found.setdefault(message.key(), set()).add(message.partition())
        return found

    def counts(self, topic: str) -> Counter[int]:
        return Counter(message.partition() for message in self.records(topic))


@contextmanager
def writing_site(kafka: Kafka) -> Iterator[WritingSite]:
    log = RealLog(kafka.bootstrap_servers)
    log.create()
    try:
        yield WritingSite(kafka, log)
    finally:
        log.close()
        release_kept()


def expected_places(keys: list[bytes], count: int, name: str) -> Mapping[bytes, set[int]]:
    """Where librdkafka puts keys with the partitioner ``name``, by its own functions."""
    from modeaware.librdkafka import C_HASHES
    from partitioners import named

    partitioner = named(name, hashes=C_HASHES).for_topic("any")
    return {key: {partitioner.partition(key, count)} for key in keys}
