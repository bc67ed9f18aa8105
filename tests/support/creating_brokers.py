"""Brokers that create what they are asked to, or answer as a test says."""

# ruff: noqa: N802 - the names are the requests'

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from modeaware.errors import ClusterError, ErrorCode
from modeaware.wire.brokers.client import Ask
from tests.support.fake_brokers import FakeBrokers

OLD = ClusterError("broker 1: IncompatibleBrokerVersion", code=ErrorCode.UNSUPPORTED_VERSION)


class CreatingBrokers(FakeBrokers):
    """Brokers 1 to 3, of which ``down`` are dead, and topics with replicas; creations are carried out.

    ``hidden``: so many looks at the metadata do not show any topic.
    """

    def __init__(self) -> None:
        super().__init__(nodes=(1, 2))
        self.racks: dict[int, str | None] = {1: "a", 2: "b", 3: "c"}
        self.down = {3}
        self.placed: dict[str, list[tuple[int, ...]]] = {"t": [(1, 2, 3)]}
        self.codes: dict[str, int] = {}
        self.message: str | None = None
        self.old: set[str] = set()
        self.controller = -1
        self.sent: list[Any] = []
        self.shown = True
        self.moving: set[str] = set()
        self.hidden = 0

    def ask_each(self, asks: Iterable[Ask], timeout_s: float | None = None) -> list[Any]:
        return [self._one(ask.node_id, ask.request) for ask in asks]

    def _one(self, node: int, request: Any) -> Any:
        name = type(request).__name__
        self.asked.append((node, name))
        if name in self.old:
            return OLD
        if node in self.silent and name not in ("MetadataRequest", "ListPartitionReassignmentsRequest"):
            return ClusterError("no answer", code=ErrorCode.REQUEST_TIMED_OUT)
        answer: Any = getattr(self, f"on_{name.removesuffix('Request')}")(node, request)
        return answer

    def on_DescribeCluster(self, node: int, request: Any) -> Any:
        listed = [SimpleNamespace(broker_id=n, rack=r, is_fenced=n in self.down) for n, r in self.racks.items()]
        return SimpleNamespace(error_code=0, error_message=None, brokers=listed)

    def on_Metadata(self, node: int, request: Any) -> Any:
        brokers = [SimpleNamespace(node_id=n, rack=r) for n, r in self.racks.items() if n not in self.down]
        topics = [self._topic(topic.name) for topic in request.topics]
        return SimpleNamespace(brokers=brokers, topics=topics, controller_id=self.controller)

    def _topic(self, name: str) -> Any:
        if self.hidden:
            self.hidden -= 1
            return SimpleNamespace(name=name, error_code=3, partitions=[])
        partitions = [
            SimpleNamespace(
                partition_index=p, replica_nodes=list(ids), isr_nodes=[n for n in ids if n not in self.down]
            )
            for p, ids in enumerate(self.placed.get(name, []))
        ]
        return SimpleNamespace(name=name, error_code=0 if partitions else 3, partitions=partitions)

    def on_ListPartitionReassignments(self, node: int, request: Any) -> Any:
        if "not authorized" in self.moving:
            return SimpleNamespace(error_code=31, error_message=None, topics=[])
        partition = SimpleNamespace(partition_index=0, replicas=[1, 2], adding_replicas=[2], removing_replicas=[1])
        topics = [SimpleNamespace(name=each.name, partitions=[partition]) for each in request.topics]
        listed = [topic for topic in topics if topic.name in self.moving]
        return SimpleNamespace(error_code=0, error_message=None, topics=listed)

    def on_CreatePartitions(self, node: int, request: Any) -> Any:
        self.sent.append(request)
        results = [self._grown(node, request, topic) for topic in request.topics]
        return SimpleNamespace(results=results)

    def _grown(self, node: int, request: Any, topic: Any) -> Any:
        code = self.codes.get(topic.name, 0)
        if self.controller >= 0 and node != self.controller:
            code = ErrorCode.NOT_CONTROLLER
        if not code and not request.validate_only and self.shown:
            ids = [tuple(each.broker_ids) for each in topic.assignments or ()]
            held = self.placed[topic.name]
            held += ids or [(1, 2, 3)] * (topic.count - len(held))
        return SimpleNamespace(name=topic.name, error_code=code, error_message=self.message)

    def on_CreateTopics(self, node: int, request: Any) -> Any:
        self.sent.append(request)
        (topic,) = request.topics
        code = self.codes.get(topic.name, 0)
        if not code and not request.validate_only:
            self.placed[topic.name] = [tuple(each.broker_ids) for each in topic.assignments]
        numbers = {"num_partitions": 2, "replication_factor": 3}
        return SimpleNamespace(
            topics=[SimpleNamespace(name=topic.name, error_code=code, error_message=self.message, **numbers)]
        )

    def close(self) -> None:
        """As Brokers has it."""
