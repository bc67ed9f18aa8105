"""A drain of many partitions by many groups: the size of the topic's record, and the CPU time of a pass. No broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.harness import Result
from benchmarks.setting import Setting
from modeaware.lifecycle.record_size import largest_bytes
from modeaware.lifecycle.state import topic_phase
from modeaware.modelog.records import TopicRecord
from tests.support.lifecycle import LATER_MS, admitted, facts, group, log, look, shrink

CASES = ((11, 1_500), (90, 200), (1_000, 1_000))
"""Retired partitions, groups."""
STEPS = 10
END = 1_000_000


def measure(_: Setting) -> Iterator[Result]:
    """The groups read the partitions in :data:`STEPS` parts, and the records of each part are deleted next."""
    for partitions, groups in CASES:
        yield from _drained(partitions, groups)


def _drained(partitions: int, groups: int) -> Iterator[Result]:
    names = [f"{number:040d}" for number in range(groups)]
    logs = {p: log(END + p) for p in range(partitions + 1)}
    seen = facts(partitions + 1, logs, dict.fromkeys(names, group(dict.fromkeys(logs, 0))))
    record = admitted(shrink(1), seen=seen)
    bound_bytes, sizes, passes_s = largest_bytes(record), [len(record.to_json())], []

    def look_twice(record: TopicRecord) -> TopicRecord:
        for _ in range(2):
            begun_s = time.thread_time()
            step = look(record, seen, LATER_MS)
            passes_s.append(time.thread_time() - begun_s)
            if step.record is not None:
                record = step.record
                sizes.append(len(record.to_json()))
        return record

    record = look_twice(record)
    for number in range(STEPS):
        read = [p for p in logs if p <= partitions * (number + 1) // STEPS]
        progress = group({p: END + p if p in read else 0 for p in logs})
        seen = replace(seen, groups=dict.fromkeys(names, progress))
        record = look_twice(record)
        seen = replace(seen, partitions=seen.partitions | {p: log(END + p, END + p) for p in read if p})
        record = look_twice(record)
    assert topic_phase(record) == "done"
    name = f"{partitions} partitions drained by {groups} groups"
    appended = {"appends": len(sizes), "kB_in_all": round(sum(sizes) / 1000), "kB_bound": round(bound_bytes / 1000)}
    yield Result(f"{name}: the largest record", max(sizes) / 1000, "kB", below=500, details=appended)
    whole = {"passes": len(passes_s), "s_in_all": round(sum(passes_s), 2)}
    yield Result(f"{name}: the longest pass", max(passes_s), "s", details=whole)
