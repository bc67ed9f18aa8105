"""Requests to the controller: right after a topic's creation, during a takeover, and with hundreds of topics."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient as PlainAdminClient

import modeaware
from benchmarks.harness import Result
from benchmarks.setting import Setting
from modeaware.librdkafka import NewTopic
from modeaware.modelog.reader import read_mode_log
from tests.support.modelog import RealLog
from tests.support.plain import commit, produce_keyed, wait_until_led
from tests.support.takeover import ControllerProcess

CREATIONS = 30
LARGE, LARGER = 400, 900
PARTITIONS, KEPT = 2, 1
DEADLINE_S = 300.0
NEVER_MS = 3_600_000
"""A delay that ends after the benchmark."""


def measure(setting: Setting) -> Iterator[Result]:
    """With the default configs. ``answers_true`` counts the answers that agree with the mode log."""
    yield from _new_topics(setting)
    yield _takeover(setting)
    for count in (40,) if setting.quick else (LARGE, LARGER):
        yield from _large(setting, count)


def _new_topics(setting: Setting) -> Iterator[Result]:
    times: list[float] = []
    with controlled(setting) as (admin, _log, _process):
        for name in _names(setting, setting.rounds(CREATIONS)):
            admin.create_topics([NewTopic(name, num_partitions=12, replication_factor=1)])[name].result(30)
            start_s = time.monotonic()
            admin.delete_partitions({name: modeaware.DeletePartitions(4)})[name].result()
            times.append(time.monotonic() - start_s)
    details = {"topics": len(times), "median_s": round(statistics.median(times), 3)}
    yield Result("shrink right after the creation, longest", max(times), "s", details=details)


def _takeover(setting: Setting) -> Result:
    with controlled(setting) as (admin, log, active), tempfile.TemporaryDirectory() as folder:
        (name,) = created(setting, admin, 1)
        standby = ControllerProcess({"bootstrap.servers": setting.bootstrap_servers}, log.topic, Path(folder))
        try:
            standby.wait_until_it_says("standby:")
            time.sleep(3)  # some heartbeats later
            active.kill()
            time.sleep(0.1)  # the takeover has not begun
            start_s = time.monotonic()
            admin.delete_partitions({name: modeaware.DeletePartitions(KEPT)}, request_timeout=60)[name].result()
            return Result("shrink called 0.1 s after kill -9 of the active", time.monotonic() - start_s, "s", below=15)
        finally:
            standby.kill()


def _large(setting: Setting, count: int) -> Iterator[Result]:
    """One request with ``count`` topics, small ones beside it, and a waiver while all of them are pending."""
    with controlled(setting) as (admin, log, _process):
        names = created(setting, admin, count)
        others = iter(created(setting, admin, 120))
        _read_in_part(setting, names[0])
        epoch = _epoch(setting, log)
        start_s = time.monotonic()
        wanted = {name: modeaware.DeletePartitions(KEPT) for name in names}
        answers = admin.delete_partitions(wanted, NEVER_MS, request_timeout=DEADLINE_S)
        small: list[float] = []
        while not all(future.done() for future in answers.values()):
            other, at_s = next(others), time.monotonic()
            admin.delete_partitions({other: modeaware.DeletePartitions(KEPT)})[other].result()
            small.append(time.monotonic() - at_s)
            time.sleep(0.5)  # a pause between commands
        took_s = time.monotonic() - start_s
        details = {
            "failed": sum(future.exception() is not None for future in answers.values()),
            "answers_true": _true_answers(setting, log, answers),
            "takeovers": _epoch(setting, log) - epoch,
        }
        yield Result(f"{count} topics in one request: all answered", took_s, "s", details=details)
        beside = {"calls": len(small), "median_s": round(statistics.median(small), 3)}
        yield Result("  another topic's shrink beside it, longest", max(small), "s", details=beside)
        waive = ("waive", "lagging", "--reason", "measured", "--expires", "1d")
        for words in (waive, ("require", "lagging"), ("forget", "require", "lagging")):
            start_s = time.monotonic()
            _groups(setting, log, *words, "--topic", names[0])
            yield Result(f"  groups {words[0]} --topic beside them", time.monotonic() - start_s, "s", below=3)


@contextmanager
def controlled(
    setting: Setting, **config: object
) -> Iterator[tuple[modeaware.AdminClient, RealLog, ControllerProcess]]:
    """A controller with a mode log of its own, in a process, and a client of it."""
    log = setting.make_log()
    conf = {"bootstrap.servers": setting.bootstrap_servers}
    with tempfile.TemporaryDirectory() as folder:
        process = ControllerProcess(conf, log.topic, Path(folder), **config)
        try:
            process.wait_until_it_says("active: epoch")
            with modeaware.AdminClient({**conf, "modeaware.mode.log.topic": log.topic}) as admin:
                yield admin, log, process
        finally:
            process.kill()


def _names(setting: Setting, count: int) -> list[str]:
    """Names of topics that are deleted at the end."""
    first = len(setting.topics)
    names = [f"bench-requests-{time.time_ns()}-{n}" for n in range(first, first + count)]
    setting.topics += names
    return names


def created(setting: Setting, admin: PlainAdminClient, count: int, partitions: int = PARTITIONS) -> list[str]:
    names = _names(setting, count)
    for start in range(0, count, 100):
        topics = [
            NewTopic(name, num_partitions=partitions, replication_factor=1) for name in names[start : start + 100]
        ]
        for future in admin.create_topics(topics).values():
            future.result(60)
    for name in names:
        wait_until_led(admin, name, partitions)
    return names


def _read_in_part(setting: Setting, topic: str) -> None:
    """The group ``lagging`` has read 1 of 2 records of the partition that retires."""
    retired = PARTITIONS - 1
    produce_keyed(setting.bootstrap_servers, topic, [(None, b"read"), (None, b"unread")], partition=retired)
    commit(setting.bootstrap_servers, "lagging", topic, {retired: 1})


def _epoch(setting: Setting, log: RealLog) -> int:
    claim = read_mode_log({"bootstrap.servers": setting.bootstrap_servers}, log.topic, 30).claim
    return 0 if claim is None else claim.controller_epoch


def _true_answers(setting: Setting, log: RealLog, answers: dict[str, Future[object]]) -> int:
    """How many answers agree with the mode log."""
    replay = read_mode_log({"bootstrap.servers": setting.bootstrap_servers}, log.topic, 30)
    true = 0
    for name, future in answers.items():
        record = replay.record(name)
        shrunk = record is not None and record.writable_count == KEPT
        true += shrunk is (future.exception() is None)
    return true


def _groups(setting: Setting, log: RealLog, *words: str) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
        file.write(f"modeaware.mode.log.topic={log.topic}\n")
        file.flush()
        command = [sys.executable, "-m", "modeaware", "groups", *words, "--yes"]
        connection = ["--bootstrap-server", setting.bootstrap_servers, "--command-config", file.name]
        subprocess.run([*command, *connection], check=True, stdout=subprocess.DEVNULL)
