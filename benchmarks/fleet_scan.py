"""CPU and memory of ``modeaware plan --all`` on answers that are made up, encoded as brokers encode them.

The answers are prepared in a process of their own, so that the figures are of encoding requests, decoding responses and
all that follows. Rates of topics differ by a factor of 30 million, and one in ten has its peak in an hour.

``python -m benchmarks.fleet_scan`` measures it without a Kafka.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from kafka.protocol.admin.cluster import DescribeLogDirsResponse
from kafka.protocol.metadata import MetadataResponse

from benchmarks.harness import Result
from benchmarks.setting import Setting
from modeaware.clock import SYSTEM_CLOCK
from modeaware.cluster.metadata import EARLIEST, LATEST, MAX_TIMESTAMP
from modeaware.config import ClientConfig, ControllerConfig
from modeaware.modelog.replay import Replay
from modeaware.plan.fleet import Sizing, make_fleet_plan
from modeaware.plan.rates import DAY_MS
from modeaware.plan.scan import scan
from modeaware.reports.session import ModeLog, Session
from tests.support.fake_brokers import FakeBrokers, FakeGroup

VERSION_OF = {"Metadata": 12, "DescribeLogDirs": 4, "OffsetsForTimes": 7}
WEEK_MS = 7 * DAY_MS
SIZE = "size.json"


def prepare(folder: Path, topics: int, partitions: int, brokers: int) -> None:
    """Write the large answers."""
    topic, directory = MetadataResponse.MetadataResponseTopic, DescribeLogDirsResponse.DescribeLogDirsResult
    part, held = topic.MetadataResponsePartition, directory.DescribeLogDirsTopic
    described = [
        topic(
            name=f"topic-{n}", topic_id=uuid5(NAMESPACE_OID, str(n)), is_internal=False, error_code=0,
            partitions=[
                part(
                    partition_index=p, error_code=0, leader_id=(n + p) % brokers, leader_epoch=0, offline_replicas=[],
                    replica_nodes=[(n + p + r) % brokers for r in range(3)], isr_nodes=[],
                )
                for p in range(partitions)
            ],
        )
        for n in range(topics)
    ]  # fmt: skip
    nodes = [MetadataResponse.MetadataResponseBroker(node_id=n, host="h", port=1, rack=None) for n in range(brokers)]
    answer = MetadataResponse(throttle_time_ms=0, brokers=nodes, cluster_id="c", controller_id=0, topics=described)
    (folder / "Metadata").write_bytes(bytes(answer.encode(version=VERSION_OF["Metadata"])))
    for node in range(brokers):
        sizes = [
            held(
                name=f"topic-{n}",
                partitions=[
                    held.DescribeLogDirsPartition(
                        partition_index=p, partition_size=100 * written(n), offset_lag=0, is_future_key=False
                    )
                    for p in range(partitions)
                    if (node - n - p) % brokers < 3
                ],
            )
            for n in range(topics)
        ]
        full = DescribeLogDirsResponse(
            throttle_time_ms=0, error_code=0, results=[directory(error_code=0, log_dir="/d", topics=sizes)]
        )
        (folder / f"DescribeLogDirs-{node}").write_bytes(bytes(full.encode(version=VERSION_OF["DescribeLogDirs"])))


def written(topic: int) -> int:
    """The records in each partition, evenly over a week."""
    return int(10 ** (topic % 61 / 8))


class Answers(FakeBrokers):
    """What :func:`prepare` has written; offsets are computed and packed. ``spent_s``: the CPU of that."""

    def __init__(self, folder: Path, topics: int, partitions: int, brokers: int, groups: int, now_ms: int) -> None:
        super().__init__(range(brokers))
        self._folder, self._now_ms = folder, now_ms
        self.topics = [f"topic-{n}" for n in range(topics)]
        self.spent_s = 0.0
        for n in range(groups):
            used = {f"topic-{(n + k) % topics}": dict.fromkeys(range(partitions), (1, 0)) for k in range(10)}
            self.add(FakeGroup(f"g{n}")).committed = used

    def _answer(self, node: int, request: Any) -> Any:
        name = type(request).__name__.removesuffix("Request")
        if name in VERSION_OF and not (name == "Metadata" and request.topics is not None):
            self.asked.append((node, name))
            request.API_VERSION = VERSION_OF[name]
            request.with_header(1, "modeaware")
            encoded = request.encode(framed=True, header=True)
            began_s = time.process_time()
            data = self._packed(request) if name == "OffsetsForTimes" else self._read(name, node)
            self.spent_s += time.process_time() - began_s
            assert encoded
            return request.header.get_response_class().decode(data)
        began_s = time.process_time()
        answer = super()._answer(node, request)
        self.spent_s += time.process_time() - began_s
        return answer

    def _read(self, name: str, node: int) -> bytes:
        return (self._folder / (name if name == "Metadata" else f"{name}-{node}")).read_bytes()

    def _packed(self, request: Any) -> bytes:
        out = [bytes(4), _varint(len(request.topics) + 1)]
        for topic, partitions in request.topics:
            name = topic.encode()
            offset, stamp = self._offset(topic, request.times_ms[topic])
            tail = bytes(2) + stamp.to_bytes(8, "big", signed=True) + offset.to_bytes(8, "big", signed=True) + bytes(5)
            out += [_varint(len(name) + 1), name, _varint(len(partitions) + 1)]
            out += [p.to_bytes(4, "big") + tail for p in partitions]
            out.append(b"\0")
        return b"".join([*out, b"\0"])

    def _offset(self, name: str, time_ms: int) -> tuple[int, int]:
        number = int(name.removeprefix("topic-"))
        total = written(number)
        if time_ms in (LATEST, EARLIEST):
            return (total if time_ms == LATEST else 0), -1
        if time_ms == MAX_TIMESTAMP:
            return total - 1, self._now_ms - WEEK_MS // total
        share = min(max((time_ms - self._now_ms + WEEK_MS) / WEEK_MS, 0.0), 1.0)
        if number % 10 == 0:  # all of a day in its first hour
            share = (int(share * 7) + min(1.0, share * 7 % 1 * 24)) / 7
        offset = int(share * total)
        return (offset, time_ms) if offset < total else (-1, -1)

    def on_describe_configs(self, node: int, request: Any) -> Any:
        configs = [{"name": "cleanup.policy", "value": "delete"}, {"name": "retention.ms", "value": "604800000"}]
        names = [each.resource_name for each in request.resources]
        return {"results": [{"resource_name": name, "error_code": 0, "configs": configs} for name in names]}

    def on_api_versions(self, node: int, request: Any) -> Any:
        return {"api_keys": [{"api_key": 55}]}


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


class _Session(Session):
    def read_log(self) -> ModeLog:
        return ModeLog("", Replay())


def scan_answers(folder: Path) -> dict[str, Any]:
    """Scan, and return the figures."""
    topics, partitions, brokers, groups = json.loads((folder / SIZE).read_text())
    before_mb = _resident_mb()
    answers = Answers(folder, topics, partitions, brokers, groups, SYSTEM_CLOCK.now_ms())
    session: Any = _Session({}, ClientConfig(), ControllerConfig(), answers)  # type: ignore[arg-type]  # its part
    began_s, wall_s = time.process_time(), time.monotonic()
    plan = make_fleet_plan(scan(session, lambda name: True, 7, Sizing()), Sizing())
    cpu_s = time.process_time() - began_s - answers.spent_s
    return {
        "topics": topics,
        "partitions": plan.partitions,
        "cpu_s": round(cpu_s, 2),
        "wall_s": round(time.monotonic() - wall_s, 2),
        "peak_mb": round(_resident_mb()),
        "before_mb": round(before_mb),
        "requests": dict(Counter(name for _, name in answers.asked)),
        "to_replace": len(plan.advised("replace")),
        "frees": plan.frees,
    }


def _resident_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(setting: Setting | None = None) -> Iterator[Result]:
    """Measure 10 000 topics of 20 partitions; they need no Kafka."""
    topics = 1_000 if setting is not None and setting.quick else 10_000
    with TemporaryDirectory() as folder:
        (Path(folder) / SIZE).write_text(json.dumps([topics, 20, 6, 1_000]))
        command = [sys.executable, "-m", "benchmarks.fleet_scan", folder]
        subprocess.run([*command, "prepare"], check=True)
        found = json.loads(subprocess.run([*command, "scan"], check=True, capture_output=True, text=True).stdout)
    name = f"plan --all, {topics:,} topics of 20 partitions"
    yield Result(f"{name}: CPU", found["cpu_s"], "s", below=40, details=found)
    yield Result(f"{name}: memory", found["peak_mb"], "MB", below=300)


def main() -> None:
    """Without arguments: measure. With a folder and a step: do that step."""
    if len(sys.argv) == 1:
        for result in measure():
            print(f"{result.name}: {result.figure:g} {result.unit}, limit {result.limit} {dict(result.details) or ''}")
        return
    folder, step = Path(sys.argv[1]), sys.argv[2]
    if step == "prepare":
        prepare(folder, *json.loads((folder / SIZE).read_text())[:3])
    else:
        print(json.dumps(scan_answers(folder)))


if __name__ == "__main__":
    main()
