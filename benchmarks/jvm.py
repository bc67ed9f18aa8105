"""``jvm``: Java's producer with the plug-ins beside the same one without, until acknowledged; where all partitions are
writable, and on a shrunk topic beside a topic of as many partitions as are writable there. A second plain producer
takes part, too: its ratio to the first shows what the comparison itself is worth. Then how long after a switch the
producer still writes to partitions that take no writes any more, beside a Python producer."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import modeaware
from benchmarks.harness import Result, Timing, compare
from benchmarks.setting import PARTITIONS, WRITABLE, Setting
from modeaware.local.jars import find_java
from tests.support.jvm import class_path, java_command
from tests.support.modelog import RealLog
from tests.support.plain import drain_topic
from tests.support.process import LoggedProcess
from tests.support.waiting import eventually

ROUND_RECORDS = {100: 400_000, 1000: 80_000}
"""Bytes of a record -> records in a round. The JVM counts CPU time in steps of 10 ms: a round has to take many."""
ROUNDS = 20
LIMIT = 0.95
TIMEOUT_S = 600
SWITCHES = 20
KINDS = ("keyed", "keyless", "transactional")
SHRUNK_S, WHOLE_S, PAUSE_S = 1.5, 0.5, 0.005
WARM_UP_RECORDS = 300
LATE_MS = 500


def measure(setting: Setting) -> Iterator[Result]:
    log, whole, shrunk, few = setting.make_shrunk()
    states = {"nothing shrunk": (whole, whole), "shrunk": (few, shrunk)}
    for (state, topics), size, kind in product(states.items(), ROUND_RECORDS, ("keyed", "keyless")):
        plain, again, own = _rounds(setting, log.topic, size, kind, topics)
        name, records = f"jvm, {state}, {size} B, {kind}", ROUND_RECORDS[size]
        result = compare(name, {"plain": plain, "modeaware": own}, records, at_least=LIMIT)
        yield result
        yield Result(f"{name}, CPU", result.details["cpu"], "x", at_least=LIMIT)
        null = compare(f"{name}, plain beside plain", {"plain": plain, "again": again}, records, ours="again")
        yield null
        yield Result(f"{null.name}, CPU", null.details["cpu"], "x")
    yield from _last_records(setting, log, setting.make_topic())
    log.close()


def _rounds(setting: Setting, log: str, size: int, kind: str, topics: tuple[str, str]) -> list[list[Timing]]:
    """The rounds of the plain producer, of another plain one, and of the one with the plug-ins, each with the process's
    CPU time."""
    counts = [str(setting.rounds(ROUNDS)), str(ROUND_RECORDS[size]), str(size)]
    settings = [f"bootstrap.servers={setting.bootstrap_servers}", f"modeaware.mode.log.topic={log}"]
    java = [find_java(), "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", class_path()]
    command = [*java, "modeaware.Producing", *counts, kind, *topics, *settings]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    seconds = [[int(number) / 1e9 for number in line.split()] for line in done.stdout.splitlines()]
    return [[Timing(*each[at : at + 2]) for each in seconds] for at in (0, 2, 4)]


def _last_records(setting: Setting, log: RealLog, topic: str) -> Iterator[Result]:
    """By the timestamps of records in partitions that take no writes any more: both clients have this host's clock."""
    spans = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ends:
        stop, conf = Path(folder, "stop"), {"bootstrap.servers": setting.bootstrap_servers}
        settings = [f"bootstrap.servers={setting.bootstrap_servers}", f"modeaware.mode.log.topic={log.topic}"]
        writers = [
            LoggedProcess(java_command("Writing", kind, topic, str(stop), *settings), Path(folder, kind))
            for kind in KINDS
        ]
        ends.callback(lambda: [each.kill() for each in writers])
        eventually(lambda: all(len(writer.said.splitlines()) > WARM_UP_RECORDS for writer in writers), 60)
        python = ends.enter_context(modeaware.Producer({**conf, "modeaware.mode.log.topic": log.topic, "linger.ms": 1}))
        setting.shrink(log, topic, PARTITIONS)  # the log's first append takes up to 0.8 s, and is no client's delay
        for number in range(1, setting.rounds(SWITCHES) + 1):
            begun_ms = time.time() * 1000
            setting.shrink(log, topic, epoch=2 * number)
            _write(python, topic, SHRUNK_S)
            spans.append((begun_ms, time.time() * 1000))
            setting.shrink(log, topic, PARTITIONS, epoch=2 * number + 1)
            _write(python, topic, WHOLE_S)
        stop.touch()
        for writer in writers:
            writer.wait_until_it_says("closed", 60)
    retired = [m for m in drain_topic(setting.bootstrap_servers, topic) if (m.partition() or 0) >= WRITABLE]
    for client in ("python", *KINDS):
        stored_ms = [m.timestamp()[1] for m in retired if (m.value() or b"").startswith(client.encode())]
        late_ms = [max((at - begin for at in stored_ms if begin <= at < end), default=0.0) for begin, end in spans]
        details = {"rounds": len(late_ms), "median_ms": round(statistics.median(late_ms), 1)}
        yield Result(
            f"last record after the switch, {client}, most", max(late_ms), "ms", below=LATE_MS, details=details
        )


def _write(producer: modeaware.Producer, topic: str, seconds: float) -> None:
    until_s = time.monotonic() + seconds
    while (now_s := time.monotonic()) < until_s:
        producer.produce(topic, "python", str(now_s))
        producer.poll(PAUSE_S)
