"""``poll`` and ``consume`` with all partitions writable: records that are fetched already, read from the local
queue."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import confluent_kafka

import modeaware
from benchmarks.harness import Result, Timing, compare, interleave, stopwatch
from benchmarks.setting import Setting

PARTITIONS = 4
RECORDS = 40_000
READ, ROUNDS = 2_000, 120
"""Rounds of a few milliseconds: most of them run through without another process of the machine in between."""
BATCH = 500


class Empty(confluent_kafka.Consumer):
    """What any subclass costs."""


class Contender:
    """A consumer that reads the same records again and again."""

    def __init__(self, kind: type[Any], conf: dict[str, Any], topic: str) -> None:
        self._topic = topic
        self._left = 0
        self.consumer = kind(
            {
                "group.id": f"bench-{uuid.uuid4()}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "queued.min.messages": RECORDS,
                **conf,
            }
        )

    def read(self, reader: Callable[[Any, int], None]) -> Timing:
        if self._left < READ:
            self._fetch()
        with stopwatch() as timing:
            reader(self.consumer, READ)
        self._left -= READ
        return timing()

    def _fetch(self) -> None:
        start = [confluent_kafka.TopicPartition(self._topic, partition, 0) for partition in range(PARTITIONS)]
        self.consumer.assign(start)
        first = self.consumer.poll(30)
        if first is None or first.error():
            raise RuntimeError(f"nothing to read: {first and first.error()}")
        time.sleep(0.5)  # until the rest is in the local queue: fetching is not what is measured
        self._left = RECORDS - 1


def by_poll(consumer: Any, count: int) -> None:
    poll = consumer.poll
    while count:
        if poll(1.0) is not None:
            count -= 1


def by_consume(consumer: Any, count: int) -> None:
    while count:
        count -= len(consumer.consume(min(BATCH, count), 1.0))


def measure(setting: Setting) -> Iterator[Result]:
    log = setting.make_log()
    for size in (100, 1000):
        topic = setting.make_topic(PARTITIONS)
        _fill(setting.bootstrap_servers, topic, b"x" * size)
        plain = {"bootstrap.servers": setting.bootstrap_servers}
        aware = {**plain, "modeaware.mode.log.topic": log.topic}
        contenders = {
            "plain": Contender(confluent_kafka.Consumer, plain, topic),
            "empty subclass": Contender(Empty, plain, topic),
            "modeaware": Contender(modeaware.Consumer, aware, topic),
        }
        for name, reader in (("poll", by_poll), ("consume", by_consume)):
            rounds = {kind: partial(contender.read, reader) for kind, contender in contenders.items()}
            times = interleave(rounds, setting.rounds(ROUNDS))
            yield compare(f"{name}, all writable, {size} B", times, READ, at_least=0.95)
        for contender in contenders.values():
            contender.consumer.close()
    log.close()


def _fill(bootstrap_servers: str, topic: str, value: bytes) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(RECORDS):
        producer.produce(topic, value, partition=number % PARTITIONS)
    if left := producer.flush(60):
        raise RuntimeError(f"{left} records were not delivered in 60 s")
