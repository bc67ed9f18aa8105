"""From the start of an append to the first ``produce()`` that goes by the new view."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator

import modeaware
from benchmarks.harness import Result, percentile
from benchmarks.setting import PARTITIONS, WRITABLE, Setting
from modeaware.confluent.errors import RetiredPartitionChosen

CHANGES = 200
PAUSE_S = 0.0005
"""Between two sends: without it the sending thread would take the interpreter from the tail's, as no program does that
waits for anything."""


class Sender:
    """A thread that sends to the last partition all the time and notes when that begins, and ceases, to be refused."""

    def __init__(self, producer: modeaware.Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._over = threading.Event()
        self.refused_since_s: float | None = None
        self.accepted_since_s: float | None = time.monotonic()
        self.changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        send = self._producer.produce
        while not self._over.is_set():
            called_s = time.monotonic()
            try:
                send(self._topic, b"v", partition=PARTITIONS - 1)
                refused = False
            except RetiredPartitionChosen:
                refused = True
            if refused == (self.refused_since_s is None):
                with self.changed:
                    self.refused_since_s, self.accepted_since_s = (called_s, None) if refused else (None, called_s)
                    self.changed.notify_all()
            self._producer.poll(0)
            time.sleep(PAUSE_S)  # see there

    def wait(self, refused: bool) -> float:
        """Since when (the call's start) the last partition is refused, or accepted."""
        with self.changed:
            if not self.changed.wait_for(lambda: self._since(refused) is not None, 30):
                raise RuntimeError("a change of modes did not reach the producer in 30 s")
            return self._since(refused) or 0.0

    def _since(self, refused: bool) -> float | None:
        return self.refused_since_s if refused else self.accepted_since_s

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


def measure(setting: Setting) -> Iterator[Result]:
    topic, log = setting.make_topic(), setting.make_log()
    producer = modeaware.Producer(
        {"bootstrap.servers": setting.bootstrap_servers, "modeaware.mode.log.topic": log.topic}
    )
    setting.shrink(log, topic, PARTITIONS, epoch=1)
    sender = Sender(producer, topic)
    took_ms: list[float] = []
    for change in range(setting.rounds(CHANGES) + 1):
        retire = change % 2 == 0
        start_s = time.monotonic()
        setting.shrink(log, topic, WRITABLE if retire else PARTITIONS, epoch=change + 2)
        took_ms.append((sender.wait(retire) - start_s) * 1000)
        time.sleep(0.02)  # changes come one by one
    sender.stop()
    producer.close()
    log.close()
    took_ms = took_ms[1:]  # the first append opens the writer
    details = {
        "changes": len(took_ms),
        "median_ms": round(statistics.median(took_ms), 1),
        "most_ms": round(max(took_ms), 1),
    }
    yield Result(
        "append to first produce() by the new view, p99", percentile(took_ms, 99), "ms", below=100, details=details
    )
