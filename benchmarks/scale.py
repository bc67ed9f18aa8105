"""Many topics shrunk at once, beside groups that read them: how long it takes, and what it costs the controller."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient as PlainAdminClient

import modeaware
from benchmarks.harness import Result
from benchmarks.requests import DEADLINE_S, controlled, created
from benchmarks.setting import Setting
from modeaware.config import ControllerConfig
from modeaware.lifecycle.state import topic_phase
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import TopicRecord
from tests.support.takeover import ControllerProcess
from tests.support.waiting import eventually

KEPT = 2
SEAL_QUIET_MS = 3_000
TOPICS_A_GROUP = 20
SETTLED_FROM = 3_000
MINUTE_S = 60
CASES = (
    (200, 8, 10, 0),
    (800, 8, 40, 0),
    (200, 4, 10, 0),
    (800, 4, 40, 0),
    (3_200, 4, 160, 0),  # of 8, a broker would have more files open than it usually may
    (40, 8, 2, 40),
    (40, 8, 2, 2_000),
)
"""Topics, their partitions, groups that read them, groups that have nothing to do with them."""


def measure(setting: Setting) -> Iterator[Result]:
    """``admitted`` until every future has its result, ``done`` until every retired partition is reclaimed."""
    for case in ((40, 8, 2, 0),) if setting.quick else CASES:
        yield from _shrunk(setting, *case)


def _shrunk(setting: Setting, topics: int, partitions: int, groups: int, unrelated: int) -> Iterator[Result]:
    with controlled(setting, modeaware_seal_quiet_ms=SEAL_QUIET_MS) as (admin, log, process):
        names = created(setting, admin, topics, partitions)
        for number in range(groups):
            read = names[number * TOPICS_A_GROUP : (number + 1) * TOPICS_A_GROUP]
            commit_start(admin, f"{log.topic}-g{number}", read, range(partitions))
        other = created(setting, admin, 1, 1)
        for number in range(unrelated):
            commit_start(admin, f"{log.topic}-u{number}", other, range(1))
        start_s, start_cpu_s = time.monotonic(), cpu_s(process.pid)
        wanted = {name: modeaware.DeletePartitions(KEPT) for name in names}
        for future in admin.delete_partitions(wanted, 0, request_timeout=DEADLINE_S).values():
            future.result()
        admitted_s = time.monotonic() - start_s
        await_done(setting, log.topic, names, start_s + DEADLINE_S)
        done_s, spent_s = time.monotonic() - start_s, cpu_s(process.pid) - start_cpu_s
        beside = f", {unrelated} others" if unrelated else ""
        name = f"{topics} topics x {partitions}, {groups} groups{beside}"
        yield Result(f"{name}: admitted", admitted_s, "s")
        yield Result(f"{name}: done", done_s, "s")
        per_topic_ms = spent_s / topics * 1000
        yield Result(f"{name}: controller's CPU", spent_s, "s", details={"ms_a_topic": round(per_topic_ms, 1)})
        if topics >= SETTLED_FROM:
            process.kill()
            yield _settled(setting, log.topic, topics)
        setting.delete(*names)  # all cases' together would be more than a broker can have open


def _settled(setting: Setting, log: str, topics: int) -> Result:
    """What topics cost that were shrunk long ago: an hour's checks at the default interval, and the idle process."""

    def spent_s(**config: object) -> float:
        with tempfile.TemporaryDirectory() as folder:
            process = ControllerProcess({"bootstrap.servers": setting.bootstrap_servers}, log, Path(folder), **config)
            try:
                process.wait_until_it_says("active: epoch")
                time.sleep(MINUTE_S / 2)  # measured time: it checks all topics at the start
                before_s = cpu_s(process.pid)
                time.sleep(MINUTE_S)  # measured time
                return cpu_s(process.pid) - before_s
            finally:
                process.kill()

    passes = 6
    idle_s = spent_s()
    often_s = spent_s(delete_topic_partition_check_interval_ms=MINUTE_S * 1000 // passes)
    pass_s = (often_s - idle_s) / passes
    an_hour = 3_600_000 / ControllerConfig().check_interval_ms
    details = {"s_a_pass": round(pass_s, 2), "s_idle": round(idle_s * 60, 1)}
    return Result(
        f"{topics} settled topics: controller's CPU an hour", pass_s * an_hour + idle_s * 60, "s", details=details
    )


def commit_start(admin: PlainAdminClient, group: str, topics: list[str], partitions: range) -> None:
    """Commit offset 0; the coordinator may be busy with the topics that were just created."""
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, p, 0) for topic in topics for p in partitions])

    def committed() -> bool:
        try:
            return bool(admin.alter_consumer_group_offsets([wanted])[group].result())
        except KafkaException as error:
            if not error.args[0].retriable() and error.args[0].code() != KafkaError.NOT_COORDINATOR:
                raise
            return False

    eventually(committed, DEADLINE_S, interval_s=0.5)


def await_done(setting: Setting, log: str, names: list[str], deadline_s: float) -> None:
    """Return once the mode log says that these topics are shrunk, and their retired partitions reclaimed; or that they
    are replaced, and released."""
    while True:
        replay = read_mode_log({"bootstrap.servers": setting.bootstrap_servers}, log, 30)
        if all(_is_done(replay.record(name)) for name in names):
            return
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"{len(names)} topics are not done in time")
        time.sleep(0.2)  # reading the log to its end raises no event, and each reading is work for the broker measured


def _is_done(record: TopicRecord | None) -> bool:
    if record is None or not record.retired:
        return False
    return record.replacement.released_ms is not None if record.replacement else topic_phase(record) == "done"


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
