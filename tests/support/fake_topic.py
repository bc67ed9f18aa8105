"""Brokers with one topic, whose leaders move and whose answers a test may change."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from modeaware.cluster.cluster import Cluster
from modeaware.librdkafka import KafkaError
from tests.support.fake_brokers import FakeBrokers

TOPIC = "orders"


class OverFakes(Cluster):
    """A real Cluster whose brokers are fakes."""

    def __init__(self, fakes: FakeBrokers) -> None:
        self._fakes = fakes

    @property
    def brokers(self) -> Any:
        return self._fakes


class TopicBrokers(FakeBrokers):
    """Knows ``TOPIC``: ``logs`` are (start, last stable offset, end), ``led`` is who truly leads under which epoch.

    ``told`` is what metadata say, one answer after the other, the truth after the last. ``codes`` are answers' error
    codes: (node, request) -> the codes to give in turn, then none. ``requests`` are all that were answered.
    """

    def __init__(self, nodes: Iterable[int] = (1, 2)) -> None:
        super().__init__(nodes)
        self.topic_id = uuid.UUID(int=5)
        self.topic_error = 0
        self.logs = {0: (2, 9, 10), 1: (0, 7, 7)}
        self.led = {0: (1, 4), 1: (2, 6)}
        self.told: list[dict[int, tuple[int, int]]] = []
        self.codes: dict[tuple[int, str], list[int]] = {}
        self.deleted: dict[int, int] = {}
        self.low: int | None = None
        self.controller = 1
        self.messages: dict[int, str] = {}
        self.requests: list[tuple[int, Any]] = []
        self.configs = {"cleanup.policy": "compact,delete"}
        self.before = lambda node, request: self.requests.append((node, request))

    def asked_for(self, name: str) -> list[int]:
        return [node for node, asked in self.asked if asked == name]

    def sent(self, name: str) -> list[Any]:
        return [request for _, request in self.requests if type(request).__name__ == f"{name}Request"]

    def _code(self, node: int, name: str) -> int:
        codes = self.codes.get((node, name), [])
        return codes.pop(0) if codes else 0

    def on_metadata(self, node: int, request: Any) -> Any:
        led = self.told.pop(0) if self.told and request.topics else self.led
        partitions = [{"partition_index": p, "leader_id": n, "leader_epoch": e} for p, (n, e) in led.items()]
        fields = {"topic_id": self.topic_id, "is_internal": False, "partitions": partitions}
        codes = {TOPIC: self.topic_error}
        topics = [
            {"name": topic.name, "error_code": codes.get(topic.name, KafkaError.UNKNOWN_TOPIC_OR_PART), **fields}
            for topic in request.topics or ()
        ]
        return {"topics": topics, "controller_id": self.controller}

    def on_list_offsets(self, node: int, request: Any) -> Any:
        return self._by_partition(node, request, "ListOffsets", self._offset)

    def _offset(self, request: Any, partition: Any) -> dict[str, Any]:
        start, stable, end = self.logs[partition.partition_index]
        offset = start if partition.timestamp == -2 else stable if request.isolation_level else end
        return {"offset": offset, "leader_epoch": self.led[partition.partition_index][1]}

    def on_delete_records(self, node: int, request: Any) -> Any:
        return self._by_partition(node, request, "DeleteRecords", self._delete)

    def _delete(self, _request: Any, partition: Any) -> dict[str, Any]:
        self.deleted[partition.partition_index] = partition.offset
        return {"low_watermark": partition.offset if self.low is None else self.low}

    def _by_partition(self, node: int, request: Any, name: str, carry_out: Any) -> Any:
        entries = []
        (topic,) = request.topics
        for partition in topic.partitions:
            index = partition.partition_index
            code = self._code(node, name) or (0 if self.led[index][0] == node else KafkaError.NOT_LEADER_FOR_PARTITION)
            entry = {"partition_index": index, "error_code": code}
            entries.append({**entry, **({} if code else carry_out(request, partition))})
        return {"topics": [{"partitions": entries}]}

    def on_create_partitions(self, node: int, request: Any) -> Any:
        return {"results": [self._result(node, "CreatePartitions")]}

    def on_describe_configs(self, node: int, request: Any) -> Any:
        configs = [{"name": name, "value": value} for name, value in self.configs.items()]
        return {"results": [{**self._result(node, "DescribeConfigs"), "configs": configs}]}

    def _result(self, node: int, name: str) -> dict[str, Any]:
        code = self._code(node, name)
        return {"error_code": code, "error_message": self.messages.get(code)}

    def on_find_coordinator(self, node: int, request: Any) -> Any:
        code = self._code(node, "FindCoordinator")
        (group,) = request.coordinator_keys
        node_id = -1 if code else self.coordinator(group)
        return {"coordinators": [{"key": group, "error_code": code, "node_id": node_id}]}

    def on_offset_commit(self, node: int, request: Any) -> Any:
        (topic,) = request.topics
        codes = [(p.partition_index, self._code(node, "OffsetCommit")) for p in topic.partitions]
        return {"topics": [{"partitions": [{"partition_index": p, "error_code": code} for p, code in codes]}]}
