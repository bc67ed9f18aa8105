"""Time, CPU, memory and requests of ``modeaware plan --all`` on two brokers with 1 900 topics of 10 partitions and 500
groups. Some topics were written at a rate that needs several partitions. The scan is a process of its own.

``python -m benchmarks.fleet_live`` measures it alone; it takes some minutes to make the topics.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.harness import Result, peak_mb
from benchmarks.setting import Setting
from modeaware.config import ClientConfig, ControllerConfig
from modeaware.local import LocalKafka
from modeaware.plan.fleet import Sizing, make_fleet_plan
from modeaware.plan.scan import scan
from modeaware.reports.session import Session
from modeaware.wire.brokers import Ask, Brokers
from tests.support.plain import commit
from tests.support.waiting import eventually

TOPICS, PARTITIONS, NODES, GROUPS, LIVE_GROUPS = (500, 1_900), 10, 2, 500, 5
MEMBERS = 5
"""Of one more group, on a topic without records. So many that they decide about its number of partitions."""
COUNTS = 3
"""The least number of partitions, what the busiest hour of a busy topic needs, and MEMBERS: each is recommended."""
LONGEST_POLL_MS = 3_600_000
"""Members stay in their groups until the end, although nothing polls them."""
GROUPS_AT_ONCE = 10
BATCH = 100
BUSY_EVERY, BUSY_RECORDS, RECORD_BYTES = 25, 4_000, 1_000
PARTITION_BYTES_PER_S = 200
"""So few that the busiest hour of a busy topic needs several partitions."""
HOUR_MS = 3_600_000
ANSWER_S = 120.0


def measure(setting: Setting | None = None) -> Iterator[Result]:
    """Measure on a Kafka of its own."""
    sizes = TOPICS[:1] if setting is not None and setting.quick else TOPICS
    with LocalKafka(NODES) as kafka, ExitStack() as members:
        fleet = _Fleet(kafka.bootstrap_servers, members)
        found = []
        for topics in sizes:
            fleet.grow(topics)
            command = [sys.executable, "-m", "benchmarks.fleet_live", kafka.bootstrap_servers]
            found.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    name, last = f"plan --all, {sizes[-1]:,} topics on two brokers", found[-1]
    yield Result(f"{name}: time", last["wall_s"], "s", below=30, details=last)
    yield Result(f"{name}: CPU", last["cpu_s"], "s", below=6)
    yield Result(f"{name}: memory", last["peak_mb"], "MB", below=150)
    yield Result(f"{name}: requests", last["requests"], "", below=250)
    yield Result(f"{name}: distinct recommended counts", last["counts"], "", at_least=COUNTS)
    if len(found) > 1:
        ratio = last["cpu_s"] / found[0]["cpu_s"]
        yield Result(f"{name}: CPU, against {sizes[0]:,} topics", round(ratio, 2), "", below=5, details=found[0])


class _Fleet:
    """The topics and groups of one Kafka."""

    def __init__(self, servers: str, members: ExitStack) -> None:
        self._servers, self._members = servers, members
        self._admin = AdminClient({"bootstrap.servers": servers})
        self._names: list[str] = []

    def grow(self, topics: int) -> None:
        """Make topics up to that number, write to some of them, and give the first ones groups."""
        new = [f"fleet-{number:04d}" for number in range(len(self._names), topics)]
        for first in range(0, len(new), BATCH):
            wanted = [NewTopic(name, PARTITIONS, 1) for name in new[first : first + BATCH]]
            for future in self._admin.create_topics(wanted, request_timeout=ANSWER_S).values():
                future.result(ANSWER_S)
        if not self._names:
            self._make_groups(new)
        self._names += new
        self._write([name for number, name in enumerate(new) if number % BUSY_EVERY == 0])

    def _write(self, names: list[str]) -> None:
        """Write what the busiest hour of some days had, and little in the others."""
        producer = Producer(
            {"bootstrap.servers": self._servers, "linger.ms": 50, "queue.buffering.max.messages": 50_000}
        )
        now_ms = time.time_ns() // 1_000_000
        for name in names:
            for number in range(BUSY_RECORDS):
                ago_h = 30 if number % 2 else number % (6 * 24)
                while True:
                    try:
                        producer.produce(
                            name, bytes(RECORD_BYTES), partition=number % PARTITIONS, timestamp=now_ms - ago_h * HOUR_MS
                        )
                        break
                    except BufferError:
                        producer.poll(0.1)
        assert producer.flush(ANSWER_S) == 0

    def _make_groups(self, names: list[str]) -> None:
        # Not alter_consumer_group_offsets: librdkafka aborts (rdkafka_queue.h) if it has to find many coordinators.
        with ThreadPoolExecutor(GROUPS_AT_ONCE) as pool:
            list(pool.map(self._commit, (f"group-{number:03d}" for number in range(GROUPS)), names))
        for number in range(LIVE_GROUPS):
            self._join(f"live-{number}", names[number])
        self._join("crowd", names[LIVE_GROUPS], MEMBERS)

    def _join(self, group: str, name: str, count: int = 1) -> None:
        conf = {"bootstrap.servers": self._servers, "group.id": group, "max.poll.interval.ms": LONGEST_POLL_MS}
        members = [Consumer(conf) for _ in range(count)]
        for member in members:
            self._members.callback(member.close)
            member.subscribe([name])

        def all_hold_some() -> bool:
            for member in members:
                member.poll(0.1)
            held = [len(member.assignment()) for member in members]
            return all(held) and sum(held) == PARTITIONS

        eventually(all_hold_some, ANSWER_S)

    def _commit(self, group: str, name: str) -> None:
        """Commit offset 0. New brokers reject commits while the partitions of the offsets topic are being created."""

        def is_committed() -> bool:
            try:
                commit(self._servers, group, name, dict.fromkeys(range(PARTITIONS), 0))
            except KafkaException as error:
                raise AssertionError(error) from error
            return True

        eventually(is_committed, ANSWER_S)


def _scan(servers: str) -> dict[str, float]:
    """Scan once; the figures of this process, imports included."""
    asked = 0
    ask_each = Brokers._ask_each  # private: all requests pass it

    def counted(brokers: Brokers, wanted: Sequence[Ask], deadline_s: float) -> list[object]:
        nonlocal asked
        asked += len(wanted)
        return ask_each(brokers, wanted, deadline_s)

    Brokers._ask_each = counted  # type: ignore[method-assign,assignment] # for this process
    began_s = time.monotonic()
    sizing = Sizing(bytes_per_s=PARTITION_BYTES_PER_S)
    with Session({"bootstrap.servers": servers}, ClientConfig(), ControllerConfig()) as session:
        plan = make_fleet_plan(scan(session, lambda name: True, 7, sizing), sizing)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "wall_s": round(time.monotonic() - began_s, 2),
        "cpu_s": round(used.ru_utime + used.ru_stime, 2),
        "peak_mb": round(peak_mb()),
        "requests": asked,
        "partitions": plan.partitions,
        "to_replace": len(plan.advised("replace")),
        "counts": len({topic.to for topic in plan.advised("replace")}),
    }


def main() -> None:
    """Without arguments: measure. With bootstrap servers: scan them."""
    if len(sys.argv) > 1:
        print(json.dumps(_scan(sys.argv[1])))
        return
    for result in measure():
        print(f"{result.name}: {result.figure:g} {result.unit}, limit {result.limit} {dict(result.details) or ''}")


if __name__ == "__main__":
    main()
