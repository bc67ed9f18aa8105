"""A replacement of 12 partitions by 4 under load: how long writers go without an acknowledgement, and readers without
a record.

A group that keeps up pauses from the switch until the old topic is sealed and its members have committed it to the
end: that is ``modeaware.seal.quiet.ms``, the time until the fence is proved, and a commit.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import modeaware
from benchmarks.harness import Result
from benchmarks.requests import DEADLINE_S, controlled
from benchmarks.scale import await_done
from benchmarks.setting import Setting
from modeaware.lifecycle.report import KeptNameReport
from modeaware.modelog.reader import read_mode_log
from tests.support.endpoint import free_port
from tests.support.plain import create_topic
from tests.support.waiting import eventually
from tests.workload.load import Load

PARTITIONS, KEPT = 12, 4
WRITERS, MEMBERS = 2, 3
SETTLE_S = 5.0
"""How long writers and readers run before and after the replacement."""
PAUSES_S = {1_000: 3.0, 10_000: 12.0}
"""``modeaware.seal.quiet.ms`` -> the longest pause of readers that is allowed for."""
KEPT_NAME_S = 90.0
"""A change that keeps the name is to end within this time. At least 45 s of it lie between its halves."""


def measure(setting: Setting) -> Iterator[Result]:
    """With two writers and a group of three that keep up, by the mode log; with clients of the endpoint; and keeping
    the name."""
    for quiet_ms, limit_s in PAUSES_S.items():
        yield from _results(setting, quiet_ms, limit_s)
    yield from _results(setting, min(PAUSES_S), None, wire=True)
    yield from _keeps_name(setting)


def _results(setting: Setting, quiet_ms: int, limit_s: float | None, *, wire: bool = False) -> Iterator[Result]:
    writer_s, reader_s, took_s = _replace(setting, quiet_ms, wire=wire)
    name = f"replace 12 by 4, seal quiet {quiet_ms // 1000} s{', over the wire' * wire}"
    yield Result(f"{name}: writers' longest time without an answer", writer_s, "s", below=1.0)
    yield Result(f"{name}: readers' longest pause", reader_s, "s", below=limit_s, details={"done_s": round(took_s, 1)})


def _keeps_name(setting: Setting) -> Iterator[Result]:
    writer_s, reader_s, took_s = _replace(setting, min(PAUSES_S), wire=False, keep_name=True)
    name = f"keep the name, 12 to 4, seal quiet {min(PAUSES_S) // 1000} s"
    yield Result(f"{name}: time until the interim topic is deleted", took_s, "s", below=KEPT_NAME_S)
    details = {"readers_s": round(reader_s, 1)}
    yield Result(f"{name}: writers' longest time without an answer", writer_s, "s", below=3.0, details=details)


def _replace(setting: Setting, quiet_ms: int, *, wire: bool, keep_name: bool = False) -> tuple[float, float, float]:
    endpoint = f"127.0.0.1:{free_port()}" if wire else None
    config = {"modeaware_seal_quiet_ms": quiet_ms, "listen": endpoint}
    with controlled(setting, **config) as (admin, log, _), ExitStack() as stack:
        topic = f"bench-replace-{uuid.uuid4().hex[:8]}"
        create_topic(setting.bootstrap_servers, topic, PARTITIONS, configs={})
        setting.topics += [topic] if keep_name else [topic, f"{topic}-v2"]
        conf = {"bootstrap.servers": setting.bootstrap_servers, "modeaware.mode.log.topic": log.topic}
        if endpoint is not None:  # clients have to see the announcement before the switch
            conf = {"bootstrap.servers": endpoint, "topic.metadata.refresh.interval.ms": "1000"}

        def producer() -> Any:
            return modeaware.Producer({**conf, "enable.idempotence": True, "linger.ms": 5})

        def consumer() -> Any:
            return modeaware.Consumer({**conf, "group.id": topic, "auto.offset.reset": "earliest"})

        load = Load()
        for _ in range(MEMBERS):
            stack.enter_context(load.reader(consumer, [topic], batch=0))
        for _ in range(WRITERS):
            stack.enter_context(load.writer(producer, topic))
        time.sleep(2 * SETTLE_S)  # the group has formed, and a steady state has no long pauses
        since_s = time.monotonic()
        for pace in load.paces:
            pace.restart()
        new = modeaware.TopicReplacement(f"{topic}-v2", num_partitions=KEPT)
        if keep_name:
            new = replace(new, new_topic=topic, keep_name=True, delete_partitions_delay_ms=0)
        admin.replace_topics({topic: new})[topic].result()
        if keep_name:
            eventually(lambda: _has_name_again(setting, log.topic, topic), DEADLINE_S, interval_s=0.2)
        else:
            await_done(setting, log.topic, [topic], since_s + DEADLINE_S)
        took_s = time.monotonic() - since_s
        time.sleep(SETTLE_S)  # a pause that begins at the end shows only once it is over
    load.check(reused=[topic] if keep_name else [])
    writers_s, readers_s = (
        [pace.longest_s for pace in load.paces[:WRITERS]],
        [p.longest_s for p in load.paces[WRITERS:]],
    )
    return max(writers_s), max(readers_s), took_s


def _has_name_again(setting: Setting, log: str, topic: str) -> bool:
    records = read_mode_log({"bootstrap.servers": setting.bootstrap_servers}, log, 30).records.values()
    kept = KeptNameReport.of(topic, (record for record in records if record.replacement is not None))
    return kept is not None and kept.second_gone_ms is not None
