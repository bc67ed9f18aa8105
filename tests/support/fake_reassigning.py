"""Brokers that know reassignments, as far as :mod:`modeaware.admin.reassignments` asks them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from modeaware.admin.reassignments import PartitionKey, PartitionReassignment, Replicas
from modeaware.errors import ClusterError, ErrorCode
from tests.support.fake_brokers import FakeBrokers


class FakeCluster(FakeBrokers):
    """Brokers 1 to 3, whose metadata agree unless ``behind`` says otherwise; what was altered is in ``altered``.

    Attributes:
        option: whether they know KIP-860's option (version 1 of the request).
        refuse: error codes of single partitions.
        refuse_all: an error code of the whole request.
        configs: what was set: (2, topic) or (4, broker) -> its configs.
        before_change: called before configs or reassignments are altered.
    """

    def __init__(self, replicas: dict[PartitionKey, Replicas]) -> None:
        super().__init__(nodes=(1, 2, 3))
        self.replicas = replicas
        self.option = True
        self.behind: dict[int, dict[PartitionKey, Replicas]] = {}
        self.in_progress: list[dict[PartitionKey, PartitionReassignment]] = [{}]
        self.refuse: dict[PartitionKey, int] = {}
        self.refuse_all = 0
        self.altered: list[tuple[bool, dict[PartitionKey, Replicas | None]]] = []
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.before_change: Callable[[str], None] = lambda name: None

    def on_describe_log_dirs(self, node: int, request: Any) -> Any:
        return {"results": []}

    def on_metadata(self, node: int, request: Any) -> Any:
        known = self.behind.get(node, self.replicas)
        topics = []
        for name in [asked.name for asked in request.topics]:
            partitions = [
                {"partition_index": p, "replica_nodes": list(ids)} for (topic, p), ids in known.items() if topic == name
            ]
            topics.append({"name": name, "error_code": 0 if partitions else 3, "partitions": partitions})
        brokers = [{"node_id": each, "rack": None} for each in self.node_ids()]
        return {"controller_id": 1, "topics": topics, "brokers": brokers}

    def on_incremental_alter_configs(self, node: int, request: Any) -> Any:
        self.before_change("IncrementalAlterConfigs")
        for each in request.resources:
            configs = self.configs.setdefault((each.resource_type, each.resource_name), {})
            for change in each.configs:
                configs.pop(change.name, None)
                if change.value is not None:
                    configs[change.name] = change.value
            if not configs:
                del self.configs[each.resource_type, each.resource_name]
        return {"responses": []}

    def on_list_partition_reassignments(self, node: int, request: Any) -> Any:
        """The next of ``in_progress``, and the last again and again."""
        found = self.in_progress.pop(0) if len(self.in_progress) > 1 else self.in_progress[0]
        topics = [
            {"name": topic, "partitions": [{"partition_index": p, **asdict(each)}]}
            for (topic, p), each in found.items()
        ]
        return {"error_code": 0, "error_message": None, "topics": topics}

    def on_alter_partition_reassignments(self, node: int, request: Any) -> Any:
        self.before_change("AlterPartitionReassignments")
        if request._min_version and not self.option:
            return ClusterError("broker 1: too old", code=ErrorCode.UNSUPPORTED_VERSION)
        wanted = {
            (topic.name, p.partition_index): None if p.replicas is None else tuple(p.replicas)
            for topic in request.topics
            for p in topic.partitions
        }
        if self.refuse_all:
            return {"error_code": self.refuse_all, "error_message": "not today", "responses": []}
        self.altered.append((request.allow_replication_factor_change, wanted))
        responses = []
        for topic, p in wanted:
            told = {"partition_index": p, "error_code": self.refuse.get((topic, p), 0), "error_message": None}
            responses.append({"name": topic, "partitions": [told]})
        return {"error_code": 0, "error_message": None, "responses": responses}
