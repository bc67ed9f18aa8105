"""A process that starts in mid-shrink: until its first record is sent to the right partition; and what importing
costs."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.harness import Result
from benchmarks.setting import PARTITIONS, WRITABLE, Setting
from tests.support.modelog import topic_record

TOPICS = 1_000
STARTS = 11

FIRST_RECORD = """
import sys, time
started_s = time.monotonic()
import json
from modeaware import Producer
servers, log, topic, key = sys.argv[1:]
producer = Producer({"bootstrap.servers": servers, "modeaware.mode.log.topic": log, "partitioner": "murmur2_random"})
found = []
producer.produce(topic, b"v", key=key, on_delivery=lambda error, message: found.append((error, message.partition())))
sent_s = time.monotonic()
known = producer.modeaware_stats()
producer.flush(30)
error, partition = found[0]
print(json.dumps({"partition": None if error else partition, "sent_s": sent_s, "inside_s": sent_s - started_s,
                  "known": known}, default=str))
producer.close()
"""

IMPORTS = """
import json, time
t0 = time.perf_counter()
import confluent_kafka
t1 = time.perf_counter()
import modeaware
t2 = time.perf_counter()
modeaware.Producer, modeaware.Consumer
t3 = time.perf_counter()
print(json.dumps([t1 - t0, t2 - t1, t3 - t2]))
"""


def _run(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def measure(setting: Setting) -> Iterator[Result]:
    from modeaware.librdkafka import murmur2

    topic, log = setting.make_topic(), setting.make_log()
    log.append(*(topic_record(f"other-{number}", writable=WRITABLE, count=PARTITIONS) for number in range(TOPICS - 1)))
    setting.shrink(log, topic)
    appended_s = time.monotonic()
    took_s, inside_s = [], []
    for number in range(setting.rounds(STARTS)):
        key = f"key-{number}"
        start_s = time.monotonic()
        said = json.loads(_run(FIRST_RECORD, setting.bootstrap_servers, log.topic, topic, key))
        if said["partition"] != murmur2(key.encode(), WRITABLE):
            # Never to be waved through: either the view was wrong, or what was appended could not be read yet.
            raise RuntimeError(
                f"start {number}, {(start_s - appended_s) * 1000:.0f} ms after the append: the first record went to "
                f"{said['partition']} of {PARTITIONS}; what was known: {said['known']}"
            )
        took_s.append(said["sent_s"] - start_s)
        inside_s.append(said["inside_s"])
    log.close()
    details = {
        "starts": len(took_s),
        "without_python_s": round(statistics.median(inside_s), 3),
        "most_s": round(max(took_s), 3),
    }
    name = f"process start to first routed record, {TOPICS} topics in the log"
    yield Result(name, statistics.median(took_s), "s", below=1.0, details=details)


def measure_import(setting: Setting) -> Iterator[Result]:
    samples = [json.loads(_run(IMPORTS)) for _ in range(setting.rounds(STARTS) + 1)][1:]
    stock_ms, ours_ms, clients_ms = (statistics.median(column) * 1000 for column in zip(*samples, strict=True))
    details = {"confluent_kafka_ms": round(stock_ms, 1), "clients_ms": round(clients_ms, 1)}
    yield Result("import modeaware, on top of confluent_kafka", ours_ms, "ms", below=30, details=details)
    yield Result("... and Producer and Consumer", ours_ms + clients_ms, "ms")
