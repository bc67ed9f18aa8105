"""A fleet of any size, whose large answers are encoded as brokers encode them: prepared once, in files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from kafka.protocol.admin.cluster import DescribeLogDirsResponse
from kafka.protocol.metadata import MetadataResponse

from modeaware.cluster.metadata import EARLIEST, LATEST, MAX_TIMESTAMP
from modeaware.plan.rates import DAY_MS
from modeaware.wire.frames import varint
from tests.support.fake_brokers import FakeBrokers, FakeGroup

VERSION_OF = {"Metadata": 12, "DescribeLogDirs": 4, "OffsetsForTimes": 7}
WEEK_MS = 7 * DAY_MS


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
        out = [bytes(4), varint(len(request.topics) + 1)]
        for topic, partitions in request.topics:
            name = topic.encode()
            offset, stamp = self._offset(topic, request.times_ms[topic])
            tail = bytes(2) + stamp.to_bytes(8, "big", signed=True) + offset.to_bytes(8, "big", signed=True) + bytes(5)
            out += [varint(len(name) + 1), name, varint(len(partitions) + 1)]
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
