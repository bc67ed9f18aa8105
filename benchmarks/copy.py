"""A shrink and a replacement against the usual alternative: a new topic, everything copied to it, then writers and
readers moved.

Each with a group that keeps up and a writer of 200 records a second. The copy is by plain clients of one process, which
also are the application; in a real move every client is configured anew, so its pauses are the least there can be.
"""

from __future__ import annotations

import itertools
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import modeaware
from benchmarks.harness import Result
from benchmarks.requests import DEADLINE_S, controlled
from benchmarks.scale import SEAL_QUIET_MS, await_done
from benchmarks.setting import Setting
from tests.support.background import Background
from tests.support.plain import commit, create_topic, ends, watermarks
from tests.support.waiting import eventually
from tests.workload.writer import Pace

PARTITIONS, KEPT = 12, 4
RECORD_BYTES = 1_000
GIGABYTES = (0.1, 1.0, 4.0)
WRITE_EVERY_S = 0.005
SETTLE_S = 5.0
"""How long writer and reader run before and after the change."""
NEARLY = 1_000
"""Records left to copy when the writer is stopped."""
KEYS = [b"key-%d" % number for number in range(1_000)]
QUEUE = {"linger.ms": 5, "queue.buffering.max.messages": 200_000, "queue.buffering.max.kbytes": 500_000}


def measure(setting: Setting) -> Iterator[Result]:
    """``moved_bytes`` are those of the values; pauses are the longest times between two records of a client."""
    ways: dict[str, tuple[Callable[[Setting, float], tuple[float, dict[str, Any]]], str]] = {
        "shrink": (_shrink, "until reclaimed"),
        "replace": (_replace, "until the count has dropped"),
        "copy": (_copy, "until all clients have moved"),
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    for gigabytes in GIGABYTES[:1] if setting.quick else GIGABYTES:
        for way, (change, until) in ways.items():
            took_s, details = change(setting, gigabytes)
            times[way].append(took_s)
            yield Result(f"{way} 12 to 4, {gigabytes:g} GB: {until}", took_s, "s", details=details)
    for way in ("shrink", "replace"):
        slower = times[way][-1] / times[way][0]
        yield Result(f"{way}: largest beside smallest topic", slower, "x slower", below=1.2)


class Writing(Background):
    """Writes at the benchmark's rate."""

    def __init__(self, producer: Any, topic: str, pauses: Pace) -> None:
        super().__init__()
        self._producer, self._topic, self._pauses = producer, topic, pauses

    def work(self) -> None:
        for key in itertools.cycle(KEYS):
            if self.done.is_set():
                break
            self._producer.produce(self._topic, b"x" * RECORD_BYTES, key, on_delivery=lambda *_: self._pauses.event())
            self._producer.poll(WRITE_EVERY_S)
        self._producer.flush(30)


class Reading(Background):
    """Reads whatever the consumer is given, and closes it."""

    def __init__(self, consumer: Any, pauses: Pace) -> None:
        super().__init__()
        self._consumer, self._pauses = consumer, pauses

    def work(self) -> None:
        with closing(self._consumer) as consumer:
            while not self.done.is_set():
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    self._pauses.event()


def _shrink(setting: Setting, gigabytes: float) -> tuple[float, dict[str, Any]]:
    def shrink(admin: modeaware.AdminClient, log: str, topic: str, deadline_s: float) -> None:
        admin.delete_partitions({topic: modeaware.DeletePartitions(KEPT)}, 0)[topic].result()
        await_done(setting, log, [topic], deadline_s)

    took_s, details, topic = _changed(setting, gigabytes, shrink)
    setting.delete(topic)
    return took_s, details


def _replace(setting: Setting, gigabytes: float) -> tuple[float, dict[str, Any]]:
    brokers = AdminClient({"bootstrap.servers": setting.bootstrap_servers})

    def replace(admin: modeaware.AdminClient, _log: str, topic: str, deadline_s: float) -> None:
        wanted = modeaware.TopicReplacement(f"{topic}-v2", num_partitions=KEPT, delete_partitions_delay_ms=0)
        admin.replace_topics({topic: wanted})[topic].result()
        eventually(lambda: topic not in brokers.list_topics(timeout=30).topics, deadline_s - time.monotonic())

    took_s, details, topic = _changed(setting, gigabytes, replace)
    setting.topics.remove(topic)
    setting.delete(f"{topic}-v2")
    return took_s, details


def _changed(
    setting: Setting, gigabytes: float, change: Callable[[modeaware.AdminClient, str, str, float], None]
) -> tuple[float, dict[str, Any], str]:
    """Let a topic be changed under mode-aware clients; what to report, and the topic.

    Args:
        change: changes the topic and returns once that is done: by this client, the mode log, before the deadline
            (monotonic).
    """
    written, read = Pace(), Pace()
    with controlled(setting, modeaware_seal_quiet_ms=SEAL_QUIET_MS) as (admin, log, _), ExitStack() as stack:
        topic, group = _filled(setting, gigabytes)
        conf = {"bootstrap.servers": setting.bootstrap_servers, "modeaware.mode.log.topic": log.topic}
        producer = modeaware.Producer({**conf, "modeaware.on.resize": "ignore"})
        consumer = modeaware.Consumer({**conf, "group.id": group, "auto.commit.interval.ms": 1000})
        consumer.subscribe([topic])
        stack.enter_context(Reading(consumer, read))
        stack.enter_context(Writing(producer, topic, written))
        time.sleep(SETTLE_S)  # a steady state is no event: the pauses are compared with those of quiet seconds
        start_s = time.monotonic()
        change(admin, log.topic, topic, start_s + DEADLINE_S)
        took_s = time.monotonic() - start_s
        time.sleep(SETTLE_S)  # a pause that begins at the end shows only once it is over
    return took_s, _details(0, written, read), topic


def _copy(setting: Setting, gigabytes: float) -> tuple[float, dict[str, Any]]:
    written, read = Pace(), Pace()
    plain = {"bootstrap.servers": setting.bootstrap_servers}
    topic, group = _filled(setting, gigabytes)
    producer = confluent_kafka.Producer({**plain, **QUEUE})
    with ExitStack() as stack:
        consumer = confluent_kafka.Consumer({**plain, "group.id": group})
        consumer.subscribe([topic])
        reader = stack.enter_context(Reading(consumer, read))
        with Writing(producer, topic, written):
            time.sleep(SETTLE_S)  # a steady state is no event: the pauses are compared with those of quiet seconds
            start_s = time.monotonic()
            target = _created(setting, KEPT)
            copier = stack.enter_context(closing(Copier(setting, topic, target)))
            copier.run_to(NEARLY)
        copier.run_to(0)
        places = [TopicPartition(target, p, end) for p, end in ends(setting.bootstrap_servers, target).items()]
        _await_read(setting, group, topic)
        reader.stop()
        moved = confluent_kafka.Consumer({**plain, "group.id": group, "auto.offset.reset": "error"})
        moved.assign(places)
        stack.enter_context(Reading(moved, read))
        stack.enter_context(Writing(producer, target, written))
        took_s = time.monotonic() - start_s
        time.sleep(SETTLE_S)  # a pause that begins at the end shows only once it is over
    setting.delete(topic, target)
    return took_s, _details(copier.copied_bytes, written, read)


class Copier:
    """Copies one topic to another with plain clients, keys in their order."""

    def __init__(self, setting: Setting, source: str, target: str) -> None:
        plain = {"bootstrap.servers": setting.bootstrap_servers}
        self._servers, self._source, self._target = setting.bootstrap_servers, source, target
        self._producer = confluent_kafka.Producer({**plain, **QUEUE, "enable.idempotence": True})
        self._consumer = confluent_kafka.Consumer({**plain, "group.id": f"copy-{source}", "enable.auto.commit": False})
        self._next = {p: start for p, (start, _) in watermarks(self._servers, source).items()}
        self._consumer.assign([TopicPartition(source, p, start) for p, start in self._next.items()])
        self.copied_bytes = 0

    def run_to(self, left: int) -> None:
        """Copy until at most so many records are left; all that was copied is acknowledged."""
        while self._left() > left:
            for message in self._consumer.consume(5_000, 0.5):
                if (error := message.error()) is not None:
                    raise confluent_kafka.KafkaException(error)
                value = message.value() or b""
                _send(self._producer, self._target, value, message.key())
                self.copied_bytes += len(value)
                self._next[message.partition() or 0] = (message.offset() or 0) + 1
        if self._producer.flush(120):
            raise RuntimeError("not all copies were acknowledged")

    def _left(self) -> int:
        return sum(end - self._next[p] for p, end in ends(self._servers, self._source).items())

    def close(self) -> None:
        self._consumer.close()


def _send(producer: Any, topic: str, value: bytes, key: Any) -> None:
    while True:
        try:
            producer.produce(topic, value, key)
            return
        except BufferError:
            producer.poll(0.05)


def _await_read(setting: Setting, group: str, topic: str) -> None:
    """Return once the group has committed every end; nothing writes any more."""
    wanted = ends(setting.bootstrap_servers, topic)
    looker = confluent_kafka.Consumer({"bootstrap.servers": setting.bootstrap_servers, "group.id": group})
    while True:
        committed = looker.committed([TopicPartition(topic, p) for p in wanted], timeout=30)
        if all(place.offset >= wanted[place.partition] for place in committed):
            looker.close()
            return
        time.sleep(0.1)  # the reader's automatic commits raise no event here


def _filled(setting: Setting, gigabytes: float) -> tuple[str, str]:
    """A topic of so many bytes, and a group that has read them."""
    topic, group = _created(setting, PARTITIONS), f"reader-{uuid.uuid4().hex[:8]}"
    producer = confluent_kafka.Producer({"bootstrap.servers": setting.bootstrap_servers, **QUEUE})
    for number in range(round(gigabytes * 1e9 / RECORD_BYTES)):
        _send(producer, topic, os.urandom(RECORD_BYTES), KEYS[number % len(KEYS)])
    producer.flush(120)
    commit(setting.bootstrap_servers, group, topic, ends(setting.bootstrap_servers, topic))
    return topic, group


def _created(setting: Setting, partitions: int) -> str:
    name = f"bench-copy-{uuid.uuid4().hex[:8]}"
    create_topic(setting.bootstrap_servers, name, partitions, configs={})
    setting.topics.append(name)
    return name


def _details(moved_bytes: int, written: Pace, read: Pace) -> dict[str, Any]:
    return {
        "moved_bytes": moved_bytes,
        "writer_pause_s": round(written.longest_s, 2),
        "reader_pause_s": round(read.longest_s, 2),
    }
