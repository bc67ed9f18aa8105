"""What clients and a controller use beside their work: threads, connections, memory. Clients: on top of plain ones.

Each process is made anew, plain and mode-aware by turns, and looked at once it is at rest. Linux alone: /proc is read.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import Result
from benchmarks.setting import Setting
from modeaware import AdminClient, DeletePartitions
from tests.support.modelog import topic_record
from tests.support.takeover import ControllerProcess
from tests.support.waiting import eventually

PARTITIONS, WRITABLE = 12, 4
TOPICS = (1, 10, 100)
MANY_CLIENTS, THEIR_TOPICS = 10, 10
ROUNDS = 3
REST_S = 2.0
ESTABLISHED = "01"

CLIENTS = """
import json, sys, time
kind, library, servers, log, count, topics = sys.argv[1:]
topics = topics.split(",")
conf = {"bootstrap.servers": servers}
if library == "modeaware":
    from modeaware import Consumer, Producer
    conf["modeaware.mode.log.topic"] = log
else:
    from confluent_kafka import Consumer, Producer
clients = []
for number in range(int(count)):
    if kind == "producer":
        client = Producer(conf)
        for topic in topics:
            client.produce(topic, b"v", b"k")
        assert client.flush(60) == 0
    else:
        client = Consumer({**conf, "group.id": f"{log}-{library}-{number}-{time.time_ns()}"})
        client.subscribe(topics)
    clients.append(client)
if kind == "consumer":
    deadline_s = time.monotonic() + 60
    while not all(client.assignment() for client in clients):
        for client in clients:
            client.poll(0.1)
        assert time.monotonic() < deadline_s, "no assignment"
print("at rest", flush=True)
until_s = time.monotonic() + 60
while time.monotonic() < until_s and kind == "consumer":
    for client in clients:
        client.poll(0.05)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Use:
    """What a process uses: threads, established TCP connections, and MiB of memory, all it maps (RSS) and its share of
    that (PSS)."""

    threads: int
    connections: int
    rss_mib: float
    pss_mib: float


def use_of(pid: int) -> Use:
    """What process ``pid`` uses now, by /proc."""
    process = Path("/proc", str(pid))
    memory = {}
    for line in (process / "smaps_rollup").read_text().splitlines()[1:]:
        name, kib, *_ = line.split()
        memory[name] = int(kib) / 1024
    return Use(len(os.listdir(process / "task")), _connections(process), memory["Rss:"], memory["Pss:"])


def _connections(process: Path) -> int:
    own = set()
    for handle in (process / "fd").iterdir():
        try:
            own.add(os.readlink(handle))
        except FileNotFoundError:
            continue  # closed meanwhile
    lines = [line.split() for name in ("tcp", "tcp6") for line in (process / "net" / name).read_text().splitlines()[1:]]
    return sum(line[3] == ESTABLISHED and f"socket:[{line[9]}]" in own for line in lines)


def measure(setting: Setting) -> Iterator[Result]:
    names = [setting.make_topic(PARTITIONS) for _ in range(max(TOPICS))]
    for kind in ("producer", "consumer"):
        for topics in TOPICS:
            yield _compared(setting, kind, 1, names[:topics])
        yield _compared(setting, kind, MANY_CLIENTS, names[:THEIR_TOPICS])
    for topics in TOPICS:
        yield _controller(setting, names[:topics])


def _compared(setting: Setting, kind: str, clients: int, names: Sequence[str]) -> Result:
    """``clients`` in one process, of topics that were all shrunk."""
    log = setting.make_log()
    log.append(*(topic_record(name, writable=WRITABLE, count=PARTITIONS) for name in names))
    log.close()
    used: dict[str, list[Use]] = {"plain": [], "modeaware": []}
    for _ in range(1 if setting.quick else ROUNDS):
        for library, uses in used.items():
            arguments = [kind, library, setting.bootstrap_servers, log.topic, str(clients), ",".join(names)]
            uses.append(_use_at_rest(arguments))
    plain, ours = (_median(used[library]) for library in ("plain", "modeaware"))
    details = {
        "threads_added": ours.threads - plain.threads,
        "connections_added": ours.connections - plain.connections,
        "pss_added_mib": round(ours.pss_mib - plain.pss_mib, 1),
        "threads_plain": plain.threads,
        "connections_plain": plain.connections,
        "rss_plain_mib": round(plain.rss_mib, 1),
    }
    return Result(
        f"{_counted(clients, kind)}, {_counted(len(names), 'topic')}: RSS on top of plain",
        ours.rss_mib - plain.rss_mib,
        "MiB",
        details=details,
    )


def _use_at_rest(arguments: Sequence[str]) -> Use:
    command = [sys.executable, "-c", CLIENTS, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "at rest\n":
                raise RuntimeError(f"the clients did not get to work: {arguments[:2]}")
            time.sleep(REST_S)  # connections of the first moments end, and views arrive
            return use_of(process.pid)
        finally:
            process.kill()


def _controller(setting: Setting, names: Sequence[str]) -> Result:
    """An active controller that has shrunk all these topics."""
    log = setting.make_log()
    log.close()
    conf = {"bootstrap.servers": setting.bootstrap_servers, "modeaware.mode.log.topic": log.topic}
    with tempfile.TemporaryDirectory() as folder:
        process = ControllerProcess(conf, log.topic, Path(folder), modeaware_seal_quiet_ms=200)
        try:
            process.wait_until_it_says("active: epoch")
            admin = AdminClient(conf)
            wanted = {name: DeletePartitions(total_count=WRITABLE) for name in names}
            for future in admin.delete_partitions(wanted, request_timeout=120).values():
                future.result(120)
            admin.close()
            eventually(lambda: process.said.count("phase done") >= len(names), 120)
            time.sleep(REST_S)  # the last looks
            used = use_of(process.pid)
        finally:
            process.kill()
    details = {"threads": used.threads, "connections": used.connections, "pss_mib": round(used.pss_mib, 1)}
    return Result(f"controller, {_counted(len(names), 'topic')}: RSS", used.rss_mib, "MiB", details=details)


def _median(uses: Sequence[Use]) -> Use:
    def middle(name: str) -> float:
        return statistics.median(getattr(use, name) for use in uses)

    return Use(round(middle("threads")), round(middle("connections")), middle("rss_mib"), middle("pss_mib"))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def table(results: Iterable[Mapping[str, Any]]) -> str:
    """Results of a report as the rows of docs/footprint.md."""
    lines = []
    for one in results:
        what, memory = one["name"].partition(":")[0], one["figure"]
        if what.startswith("controller"):
            cells = [what, str(one["threads"]), str(one["connections"]), f"{memory:.0f} MiB"]
        else:
            cells = [
                what,
                f"{one['threads_plain']} {one['threads_added']:+}",
                f"{one['connections_plain']} {one['connections_added']:+}",
                f"{one['rss_plain_mib']:.0f} MiB {memory:+.1f}",
            ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":  # python -m benchmarks.footprint REPORT
    print(table(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["results"]))
