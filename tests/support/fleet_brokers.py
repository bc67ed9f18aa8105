"""Brokers with many topics, whose logs are lists of timestamps: what a scan of a fleet is answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from modeaware.admin.replacements import AUTO_CREATE, BROKER_RESOURCE
from modeaware.clock import Clock
from modeaware.cluster.metadata import EARLIEST, EARLIEST_LOCAL, LATEST, MAX_TIMESTAMP
from modeaware.config import ClientConfig, ControllerConfig
from modeaware.errors import ClusterError, ErrorCode
from modeaware.librdkafka import KafkaError
from modeaware.modelog.replay import Replay
from modeaware.reports.session import ModeLog, Session
from modeaware.wire.fence_probe import BATCH_HEADER
from tests.support.fake_brokers import FakeBrokers

DESCRIBE_QUORUM = 55
AUTHORIZATION = {"topic": 29, "cluster": 31}


@dataclass
class FakeTopic:
    """Timestamps of the records of each partition, by offset from ``start`` on; records of ``size`` bytes."""

    logs: list[list[int]]
    start: int = 0
    size: int = 100
    replicas: tuple[int, ...] = (1, 2)
    configs: Mapping[str, str] = field(default_factory=dict)
    internal: bool = False
    sizes: Mapping[int, int] = field(default_factory=dict)
    """Partition -> the bytes of its records, if not ``size``."""
    batches: Sequence[tuple[int, int, int]] = ()
    """What is read from any offset on, for each batch: records, bytes, attributes. By default, one of a mebibyte."""
    remote: int = 0
    """The number of records of each partition that only remote storage has."""

    def record_size(self, p: int) -> int:
        return self.sizes.get(p, self.size)

    def read(self, p: int, offset: int) -> bytes:
        size, found = self.record_size(p), b""
        fit = (1 << 20) // size
        for records, size_bytes, attributes in self.batches or [(fit, fit * size, 0)]:
            counts = (attributes, records - 1, 0, 0, -1, -1, -1, records)
            found += BATCH_HEADER.pack(offset, size_bytes - 12, 0, 2, 0, *counts).ljust(size_bytes, b"\0")
            offset += records
        return found

    def offset(self, p: int, time_ms: int) -> tuple[int, int]:
        """As ListOffsets returns it: offset and timestamp."""
        log = self.logs[p]
        if time_ms in (LATEST, EARLIEST):
            return self.start + (len(log) if time_ms == LATEST else 0), -1
        if time_ms == EARLIEST_LOCAL:
            return self.start + self.remote, -1
        if time_ms == MAX_TIMESTAMP:
            return (self.start + log.index(max(log)), max(log)) if log else (-1, -1)
        return next(((self.start + n, stamp) for n, stamp in enumerate(log) if stamp >= time_ms), (-1, -1))


class FleetBrokers(FakeBrokers):
    """Brokers 1 and 2; partition p of a topic is led by broker ``1 + p % 2``.

    Attributes:
        moved: (topic, partition) -> its leader, other than metadata say until they are requested by name.
        refused: topics whose records may not be read.
        kraft, sizes_shown, configs_shown: what the brokers are, and what the user may see.
        creating: the brokers that create topics automatically.
        tiers: whether the brokers have the version of ListOffsets that tiering needs.
        points: the number of partitions in each ListOffsets request, by node and the time of its first one.
    """

    def __init__(self, topics: Mapping[str, FakeTopic]) -> None:
        super().__init__()
        self.fleet = dict(topics)
        self.topics = list(topics)
        self.moved: dict[tuple[str, int], int] = {}
        self.refused: set[str] = set()
        self.hidden_topics: list[str] = []
        self.kraft = self.sizes_shown = self.configs_shown = True
        self.creating: set[int] = set()
        self.tiers = True
        self.points: list[tuple[int, int, int]] = []

    def leader(self, name: str, p: int) -> int:
        return self.moved.get((name, p), 1 + p % 2)

    def on_api_versions(self, node: int, request: Any) -> Any:
        return {"api_keys": [{"api_key": DESCRIBE_QUORUM}] if self.kraft else []}

    def on_metadata(self, node: int, request: Any) -> Any:
        if request.topics is not None and [topic.name for topic in request.topics] == ["__consumer_offsets"]:
            return super().on_metadata(node, request)
        by_name = request.topics is not None
        names = [topic.name for topic in request.topics] if by_name else list(self.fleet)
        brokers = [{"node_id": n} for n in self.nodes]
        return {"brokers": brokers, "topics": [self._described(name, by_name=by_name) for name in names]}

    def _described(self, name: str, *, by_name: bool) -> Any:  # type: ignore[override]  # of topics here
        topic = self.fleet[name]
        partitions = [
            {
                "partition_index": p,
                "leader_id": self.leader(name, p) if by_name else 1 + p % 2,
                "leader_epoch": 0,
                "replica_nodes": list(topic.replicas),
            }
            for p in range(len(topic.logs))
        ]
        shown = {"topic_id": uuid5(NAMESPACE_OID, name), "is_internal": topic.internal, "error_code": 0}
        return {"name": name, "partitions": partitions, **shown}

    def on_offsets_for_times(self, node: int, request: Any) -> Any:
        if EARLIEST_LOCAL in request.times_ms.values() and not self.tiers:
            return ClusterError("version 8 is missing", code=ErrorCode.UNSUPPORTED_VERSION)
        self.points.append((node, next(iter(request.times_ms.values())), sum(len(some) for _, some in request.topics)))
        topics = [
            {"name": name, "partitions": [self._entry(node, name, p, request.times_ms[name]) for p in partitions]}
            for name, partitions in request.topics
        ]
        return {"topics": topics}

    def _entry(self, node: int, name: str, p: int, time_ms: int) -> Any:
        if self.leader(name, p) != node:
            return {"partition_index": p, "error_code": KafkaError.NOT_LEADER_FOR_PARTITION}
        offset, timestamp = self.fleet[name].offset(p, time_ms)
        return {"partition_index": p, "error_code": 0, "offset": offset, "timestamp": timestamp}

    def on_describe_log_dirs(self, node: int, request: Any) -> Any:
        if not self.sizes_shown:
            return {"error_code": AUTHORIZATION["cluster"], "results": []}
        topics = [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": p,
                        "partition_size": topic.record_size(p) * (len(log) - topic.remote),
                        "is_future_key": False,
                    }
                    for p, log in enumerate(topic.logs)
                ],
            }
            for name, topic in self.fleet.items()
        ]
        hidden = [{"name": name, "partitions": []} for name in self.hidden_topics]
        return {"error_code": 0, "results": [{"topics": topics + hidden}]}

    def on_describe_configs(self, node: int, request: Any) -> Any:
        of_brokers = request.resources[0].resource_type == BROKER_RESOURCE
        config = self._creation if of_brokers else self._config
        return {"results": [config(resource.resource_name) for resource in request.resources]}

    def _creation(self, node: str) -> Any:
        code = 0 if self.configs_shown else AUTHORIZATION["cluster"]
        configs = [{"name": AUTO_CREATE, "value": str(int(node) in self.creating).lower()}]
        return {"resource_name": node, "error_code": code, "error_message": None, "configs": configs}

    def _config(self, name: str) -> Any:
        if not self.configs_shown:
            return {"resource_name": name, "error_code": AUTHORIZATION["topic"], "error_message": None, "configs": []}
        values = {"cleanup.policy": "delete", "retention.ms": "604800000", **self.fleet[name].configs}
        configs = [{"name": key, "value": value} for key, value in values.items()]
        return {"resource_name": name, "error_code": 0, "error_message": None, "configs": configs}

    def on_fetch(self, node: int, request: Any) -> Any:
        responses = []
        for topic in request.topics:
            code = AUTHORIZATION["topic"] if topic.topic in self.refused else 0
            entries = [
                {
                    "partition_index": p.partition,
                    "error_code": code,
                    "records": self.fleet[topic.topic].read(p.partition, p.fetch_offset),
                }
                for p in topic.partitions
            ]
            responses.append({"topic": topic.topic, "partitions": entries})
        return {"responses": responses}


class FleetSession(Session):
    """On fake brokers, with a mode log that has what a test appends to ``replay``."""

    def __init__(self, brokers: FakeBrokers, clock: Clock) -> None:
        super().__init__({}, ClientConfig(), ControllerConfig(), brokers, clock)  # type: ignore[arg-type]  # its part
        self.replay = Replay()

    def read_log(self) -> ModeLog:
        return ModeLog("__modes", self.replay)
