"""Brokers that answer as a test tells them, in kafka-python's message objects as far as the controller reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from modeaware.cluster.groups.listing import OFFSETS_TOPIC, partition_of
from modeaware.errors import ClusterError, ErrorCode
from modeaware.wire.brokers.client import Ask

CLUSTER_DESCRIBE = 8
OFFSET_NOT_AVAILABLE = 78


class FakeGroup:
    """A group as its coordinator knows it; ``describe`` is what its own description says, ``committed`` its offsets."""

    def __init__(self, name: str, kind: str = "classic", state: str = "Empty", protocol_type: str = "consumer") -> None:
        self.name, self.kind, self.state, self.protocol_type = name, kind, state, protocol_type
        self.committed: dict[str, dict[int, tuple[int, int]]] = {}
        self.describe: dict[str, Any] = {}
        self.offsets_error = 0
        self.describe_error = 0

    def described(self) -> dict[str, Any]:
        fields = {"protocol_type": self.protocol_type, "protocol_data": "range", "members": [], **self.describe}
        return fields | {"group_id": self.name, "group_state": self.state, "error_code": self.describe_error}

    def offsets(self, topic: str, partitions: Iterable[int], prefix: str = "") -> list[dict[str, int]]:
        found = {p: self.committed.get(topic, {}).get(p, (-1, -1)) for p in partitions}
        return [
            {"partition_index": p, f"{prefix}offset": offset, f"{prefix}leader_epoch": epoch, "error_code": 0}
            for p, (offset, epoch) in found.items()
        ]


class FakeBrokers:
    """Several brokers, and who leads which partition of ``__consumer_offsets``.

    ``before`` is called with every request before it is answered and may change anything.
    """

    def __init__(self, nodes: Iterable[int] = (1, 2), partitions: int = 4) -> None:
        self.nodes = tuple(nodes)
        self.leaders = {p: (self.nodes[p % len(self.nodes)], 7) for p in range(partitions)}
        self.groups: dict[str, FakeGroup] = {}
        self.operations = {CLUSTER_DESCRIBE}
        self.offsets_topic_error = 0
        self.views: dict[int, dict[int, tuple[int, int]]] = {}
        self.alive: dict[int, tuple[int, ...]] = {}
        self.silent: set[int] = set()
        self.down: set[int] = set()
        self.loading: set[int] = set()
        self.behind: set[int] = set()
        self.list_error: dict[int, int] = {}
        self.asked: list[tuple[int, str]] = []
        self.before: Callable[[int, Any], None] = lambda node, request: None
        self.topics: list[str] = []
        self.ends: dict[int, int] = {}
        self.lag = -1

    def add(self, group: FakeGroup) -> FakeGroup:
        self.groups[group.name] = group
        return group

    def coordinator(self, name: str) -> int:
        return self.leaders[partition_of(name, len(self.leaders))][0]

    # What Cluster has, as far as find_groups uses it.
    @property
    def brokers(self) -> FakeBrokers:
        return self

    def topic_names(self) -> list[str]:
        return self.topics

    # What Brokers has.
    def node_ids(self) -> tuple[int, ...]:
        return tuple(node for node in self.nodes if node not in self.down)

    def ask(self, request: Any, node_id: int | None = None) -> Any:
        (answer,) = self.ask_each([Ask(self.node_ids()[0] if node_id is None else node_id, request)])
        if isinstance(answer, ClusterError):
            raise answer
        return answer

    def ask_any(self, request: Any) -> tuple[int, Any]:
        return self.node_ids()[0], self.ask(request)

    def ask_each(self, asks: Iterable[Ask], timeout_s: float | None = None) -> list[Any]:
        return [self._answer(ask.node_id, ask.request) for ask in asks]

    def _answer(self, node: int, request: Any) -> Any:
        self.before(node, request)
        name = type(request).__name__.removesuffix("Request")
        self.asked.append((node, name))
        if node in self.silent | self.down:
            return ClusterError("no answer", code=ErrorCode.REQUEST_TIMED_OUT)
        return message(getattr(self, "on_" + re.sub("(?<!^)(?=[A-Z])", "_", name).lower())(node, request))

    # What brokers answer, as dicts: see message().
    def on_describe_cluster(self, node: int, request: Any) -> Any:
        return {"error_code": 0, "authorized_operations": self.operations}

    def on_metadata(self, node: int, request: Any) -> Any:
        view = dict.fromkeys(self.ends, (self.nodes[0], 0))
        if [topic.name for topic in request.topics] == [OFFSETS_TOPIC]:
            view = {} if self.offsets_topic_error else self.views.get(node, self.leaders)
        partitions = [{"partition_index": p, "leader_id": n, "leader_epoch": e} for p, (n, e) in view.items()]
        brokers = [{"node_id": n} for n in self.alive.get(node, self.nodes)]
        return {"brokers": brokers, "topics": [{"error_code": self.offsets_topic_error, "partitions": partitions}]}

    def on_list_offsets(self, node: int, request: Any) -> Any:
        (topic,) = request.topics
        ends = dict.fromkeys(self.leaders, 0) if topic.name == OFFSETS_TOPIC else self.ends
        asked = [p.partition_index for p in topic.partitions]
        codes = dict.fromkeys(self.behind, OFFSET_NOT_AVAILABLE)
        partitions = [{"partition_index": p, "offset": ends[p], "error_code": codes.get(p, 0)} for p in asked]
        return {"topics": [{"partitions": partitions}]}

    def on_find_coordinator(self, node: int, request: Any) -> Any:
        keys = request.coordinator_keys
        return {"coordinators": [{"key": key, "error_code": 0, "node_id": self.coordinator(key)} for key in keys]}

    def on_list_groups(self, node: int, request: Any) -> Any:
        listed = [
            {"group_id": g.name, "group_type": g.kind, "group_state": g.state, "protocol_type": g.protocol_type}
            for g in self.groups.values()
            if self.coordinator(g.name) == node and partition_of(g.name, len(self.leaders)) not in self.loading
        ]
        return {"error_code": self.list_error.get(node, 0), "groups": listed}

    def on_offset_fetch(self, node: int, request: Any) -> Any:
        return {"groups": [self._offsets(asked) for asked in request.groups]}

    def _offsets(self, asked: Any) -> Any:
        error = 14 if partition_of(asked.group_id, len(self.leaders)) in self.loading else 0
        group = self.groups.get(asked.group_id, FakeGroup(asked.group_id))
        topics = [
            {"name": topic.name, "partitions": group.offsets(topic.name, topic.partition_indexes, "committed_")}
            for topic in asked.topics
        ]
        return {"group_id": asked.group_id, "error_code": error or group.offsets_error, "topics": topics}

    def on_describe_share_group_offsets(self, node: int, request: Any) -> Any:
        groups = []
        for asked in request.groups:
            group = self.groups[asked.group_id]
            found = [each for topic in asked.topics for each in group.offsets(topic.topic_name, topic.partitions)]
            partitions = [{**each, "start_offset": each["offset"], "lag": self.lag} for each in found]
            topics = [{"partitions": partitions}]
            groups.append({"group_id": group.name, "error_code": group.offsets_error, "topics": topics})
        return {"groups": groups}

    def on_describe_groups(self, node: int, request: Any) -> Any:
        return self._described(request.groups)

    def on_consumer_group_describe(self, node: int, request: Any) -> Any:
        return self._described(request.group_ids)

    on_share_group_describe = on_streams_group_describe = on_consumer_group_describe

    def _described(self, names: Iterable[str]) -> Any:
        return {"groups": [self.groups[name].described() for name in names]}


def message(value: Any) -> Any:
    """As kafka-python's message objects: every dict is one, those in lists, too."""
    if isinstance(value, dict):
        return SimpleNamespace(**{name: message(each) for name, each in value.items()})
    return [message(each) for each in value] if isinstance(value, list) else value
