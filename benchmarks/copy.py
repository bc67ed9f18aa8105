"""A shrink against the usual alternative: a new topic, everything copied to it, then writers and readers moved.

Both with a group that keeps up and a writer of 200 records a second. The copy is by plain clients of one process, which
also are the application; in a real move every client is configured anew, so its pauses are the least there can be.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition

import modeaware
from benchmarks.harness import Result
from benchmarks.requests import controlled
from benchmarks.scale import SEAL_QUIET_MS, all_done
from benchmarks.setting import Setting
from tests.support.plain import commit, create_topic, watermarks

PARTITIONS, KEPT = 12, 4
RECORD_BYTES = 1_000
GIGABYTES = (0.1, 1.0, 4.0)
WRITE_EVERY_S = 0.005
SETTLE_S = 5.0
"""How long writer and reader run before and after the change."""
NEARLY = 1_000
"""Records left to copy when the writer is stopped."""
KEYS = [b"key-%d" % number for number in range(1_000)]
UNCOPIED = {"linger.ms": 5, "queue.buffering.max.messages": 200_000, "queue.buffering.max.kbytes": 500_000}


def measure(setting: Setting) -> Iterator[Result]:
    """``moved_bytes`` are those of the values; pauses are the longest times between two records of a client."""
    times: dict[float, float] = {}
    for gigabytes in GIGABYTES[:1] if setting.quick else GIGABYTES:
        times[gigabytes], details = _shrink(setting, gigabytes)
        yield Result(f"shrink 12 to 4, {gigabytes:g} GB: until reclaimed", times[gigabytes], "s", details=details)
        took_s, details = _copy(setting, gigabytes)
        yield Result(f"copy 12 to 4, {gigabytes:g} GB: until all clients have moved", took_s, "s", details=details)
    yield Result("shrink: largest beside smallest topic", times[max(times)] / times[min(times)], "x slower", below=1.2)


class Pauses:
    """The longest time between two events of a client."""

    def __init__(self) -> None:
        self._last_s: float | None = None
        self.longest_s = 0.0

    def event(self, *_: Any) -> None:
        now_s = time.monotonic()
        if self._last_s is not None:
            self.longest_s = max(self.longest_s, now_s - self._last_s)
        self._last_s = now_s


@contextmanager
def running(work: Callable[[threading.Event], None]) -> Iterator[threading.Thread]:
    """``work`` in a thread, until the block ends."""
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(stop,))
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        thread.join()


def writing(producer: Any, topic: str, pauses: Pauses) -> Callable[[threading.Event], None]:
    def work(stop: threading.Event) -> None:
        for key in itertools.cycle(KEYS):
            if stop.is_set():
                break
            producer.produce(topic, b"x" * RECORD_BYTES, key, on_delivery=pauses.event)
            producer.poll(WRITE_EVERY_S)
        producer.flush(30)

    return work


def reading(consumer: Any, pauses: Pauses) -> Callable[[threading.Event], None]:
    def work(stop: threading.Event) -> None:
        while not stop.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                pauses.event()
        consumer.close()

    return work


def _shrink(setting: Setting, gigabytes: float) -> tuple[float, dict[str, Any]]:
    written, read = Pauses(), Pauses()
    with controlled(setting, modeaware_seal_quiet_ms=SEAL_QUIET_MS) as (admin, log, _), ExitStack() as stack:
        topic, group = _filled(setting, gigabytes)
        conf = {"bootstrap.servers": setting.bootstrap_servers, "modeaware.mode.log.topic": log.topic}
        producer = modeaware.Producer({**conf, "modeaware.on.resize": "ignore"})
        consumer = modeaware.Consumer({**conf, "group.id": group, "auto.commit.interval.ms": 1000})
        consumer.subscribe([topic])
        stack.enter_context(running(reading(consumer, read)))
        stack.enter_context(running(writing(producer, topic, written)))
        time.sleep(SETTLE_S)  # both are at work
        start_s = time.monotonic()
        admin.delete_partitions({topic: modeaware.DeletePartitions(KEPT)}, 0)[topic].result()
        while not all_done(setting, log.topic, [topic]):
            time.sleep(0.2)  # the log is read as a client would
        took_s = time.monotonic() - start_s
        time.sleep(SETTLE_S)  # the pauses at its end are seen
    setting.delete(topic)
    return took_s, _details(0, written, read)


def _copy(setting: Setting, gigabytes: float) -> tuple[float, dict[str, Any]]:
    written, read = Pauses(), Pauses()
    plain = {"bootstrap.servers": setting.bootstrap_servers}
    topic, group = _filled(setting, gigabytes)
    producer = confluent_kafka.Producer({**plain, **UNCOPIED})
    with ExitStack() as stack:
        consumer = confluent_kafka.Consumer({**plain, "group.id": group})
        consumer.subscribe([topic])
        reader = ExitStack()
        reader.enter_context(running(reading(consumer, read)))
        writer = ExitStack()
        writer.enter_context(running(writing(producer, topic, written)))
        stack.callback(reader.close)
        time.sleep(SETTLE_S)  # both are at work
        start_s = time.monotonic()
        target = _created(setting, KEPT)
        copier = Copier(setting, topic, target)
        copier.run_to(NEARLY)
        writer.close()
        copier.run_to(0)
        ends = [TopicPartition(target, p, end) for p, (_, end) in watermarks(setting.bootstrap_servers, target).items()]
        _await_read(setting, group, topic)
        reader.close()
        moved = confluent_kafka.Consumer({**plain, "group.id": group, "auto.offset.reset": "error"})
        moved.assign(ends)
        stack.enter_context(running(reading(moved, read)))
        stack.enter_context(running(writing(producer, target, written)))
        took_s = time.monotonic() - start_s
        time.sleep(SETTLE_S)  # the pauses at its end are seen
    setting.delete(topic, target)
    return took_s, _details(copier.copied_bytes, written, read)


class Copier:
    """Copies one topic to another with plain clients, keys in their order."""

    def __init__(self, setting: Setting, source: str, target: str) -> None:
        plain = {"bootstrap.servers": setting.bootstrap_servers}
        self._servers, self._source, self._target = setting.bootstrap_servers, source, target
        self._producer = confluent_kafka.Producer({**plain, **UNCOPIED, "enable.idempotence": True})
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
                self._send(message.value() or b"", message.key())
                self._next[message.partition() or 0] = (message.offset() or 0) + 1
        if self._producer.flush(120):
            raise RuntimeError("not all copies were acknowledged")

    def _send(self, value: bytes, key: Any) -> None:
        while True:
            try:
                self._producer.produce(self._target, value, key)
                break
            except BufferError:
                self._producer.poll(0.05)
        self.copied_bytes += len(value)

    def _left(self) -> int:
        ends = watermarks(self._servers, self._source)
        return sum(end - self._next[p] for p, (_, end) in ends.items())


def _await_read(setting: Setting, group: str, topic: str) -> None:
    """Return once the group has committed every end; nothing writes any more."""
    ends = {p: end for p, (_, end) in watermarks(setting.bootstrap_servers, topic).items()}
    looker = confluent_kafka.Consumer({"bootstrap.servers": setting.bootstrap_servers, "group.id": group})
    while True:
        committed = looker.committed([TopicPartition(topic, p) for p in ends], timeout=30)
        if all(place.offset >= ends[place.partition] for place in committed):
            looker.close()
            return
        time.sleep(0.1)  # automatic commits come every few seconds


def _filled(setting: Setting, gigabytes: float) -> tuple[str, str]:
    """A topic of so many bytes, and a group that has read them."""
    topic, group = _created(setting, PARTITIONS), f"reader-{uuid.uuid4().hex[:8]}"
    producer = confluent_kafka.Producer({"bootstrap.servers": setting.bootstrap_servers, **UNCOPIED})
    for number in range(round(gigabytes * 1e9 / RECORD_BYTES)):
        while True:
            try:
                producer.produce(topic, os.urandom(RECORD_BYTES), KEYS[number % len(KEYS)])
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush(120)
    ends = {p: end for p, (_, end) in watermarks(setting.bootstrap_servers, topic).items()}
    commit(setting.bootstrap_servers, group, topic, ends)
    return topic, group


def _created(setting: Setting, partitions: int) -> str:
    name = f"bench-copy-{uuid.uuid4().hex[:8]}"
    create_topic(setting.bootstrap_servers, name, partitions, configs={})
    setting.topics.append(name)
    return name


def _details(moved_bytes: int, written: Pauses, read: Pauses) -> dict[str, Any]:
    return {
        "moved_bytes": moved_bytes,
        "writer_pause_s": round(written.longest_s, 2),
        "reader_pause_s": round(read.longest_s, 2),
    }
