"""Brokers that create what they are asked to, or answer as a test says."""

from __future__ import annotations

from typing import Any

from modeaware.errors import ClusterError, ErrorCode
from tests.support.fake_brokers import FakeBrokers


class CreatingBrokers(FakeBrokers):
    """Brokers 1 to 3, of which ``down`` are dead, and topics with replicas; creations are carried out.

    ``hidden``: so many looks at the metadata do not show any topic. ``old``: they do not have DescribeCluster.
    """

    def __init__(self) -> None:
        super().__init__(nodes=(1, 2))
        self.racks: dict[int, str | None] = {1: "a", 2: "b", 3: "c"}
        self.down = {3}
        self.placed: dict[str, list[tuple[int, ...]]] = {"t": [(1, 2, 3)]}
        self.codes: dict[str, int] = {}
        self.message: str | None = None
        self.old = False
        self.sent: list[Any] = []
        self.moving: set[str] = set()
        self.hidden = 0

    def on_describe_cluster(self, node: int, request: Any) -> Any:
        if self.old:
            return ClusterError("broker 1: IncompatibleBrokerVersion", code=ErrorCode.UNSUPPORTED_VERSION)
        listed = [{"broker_id": n, "rack": rack, "is_fenced": n in self.down} for n, rack in self.racks.items()]
        return {"error_code": 0, "error_message": None, "brokers": listed}

    def on_metadata(self, node: int, request: Any) -> Any:
        brokers = [{"node_id": n, "rack": rack} for n, rack in self.racks.items() if n not in self.down]
        return {
            "brokers": brokers,
            "topics": [self._topic(topic.name) for topic in request.topics],
            "controller_id": -1,
        }

    def _topic(self, name: str) -> Any:
        placed = [] if self.hidden else self.placed.get(name, [])
        self.hidden = max(self.hidden - 1, 0)
        partitions = [
            {"partition_index": p, "replica_nodes": list(ids), "isr_nodes": [n for n in ids if n not in self.down]}
            for p, ids in enumerate(placed)
        ]
        return {"name": name, "error_code": 0 if partitions else 3, "partitions": partitions}

    def on_list_partition_reassignments(self, node: int, request: Any) -> Any:
        partition = {"partition_index": 0, "replicas": [1, 2], "adding_replicas": [2], "removing_replicas": [1]}
        listed = [{"name": each.name, "partitions": [partition]} for each in request.topics if each.name in self.moving]
        return {"error_code": 0, "error_message": None, "topics": listed}

    def on_create_partitions(self, node: int, request: Any) -> Any:
        self.sent.append(request)
        return {"results": [self._grown(request, topic) for topic in request.topics]}

    def _grown(self, request: Any, topic: Any) -> Any:
        code = self.codes.get(topic.name, 0)
        if not code and not request.validate_only:
            held = self.placed[topic.name]
            held += [tuple(each.broker_ids) for each in topic.assignments or ()] or [(1, 2, 3)] * (
                topic.count - len(held)
            )
        return {"name": topic.name, "error_code": code, "error_message": self.message}

    def on_create_topics(self, node: int, request: Any) -> Any:
        self.sent.append(request)
        (topic,) = request.topics
        code = self.codes.get(topic.name, 0)
        if not code and not request.validate_only:
            self.placed[topic.name] = [tuple(each.broker_ids) for each in topic.assignments]
        numbers = {"num_partitions": 2, "replication_factor": 3}
        return {"topics": [{"name": topic.name, "error_code": code, "error_message": self.message, **numbers}]}

    def close(self) -> None:
        """As Brokers has it."""
