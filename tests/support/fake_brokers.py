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
        return self.nodes

    def ask(self, request: Any, node_id: int | None = None) -> Any:
        (answer,) = self.ask_each([Ask(self.nodes[0] if node_id is None else node_id, request)])
        if isinstance(answer, ClusterError):
            raise answer
        return answer

    def ask_any(self, request: Any) -> tuple[int, Any]:
        return self.nodes[0], self.ask(request, self.nodes[0])

    def ask_each(self, asks: Iterable[Ask], timeout_s: float | None = None) -> list[Any]:
        return [self._answer(ask.node_id, ask.request) for ask in asks]

    def _answer(self, node: int, request: Any) -> Any:
        self.before(node, request)
        name = type(request).__name__.removesuffix("Request")
        self.asked.append((node, name))
        if node in self.silent:
            return ClusterError("no answer", code=ErrorCode.REQUEST_TIMED_OUT)
        return getattr(self, "on_" + re.sub("(?<!^)(?=[A-Z])", "_", name).lower())(node, request)

    def on_describe_cluster(self, node: int, request: Any) -> Any:
        return SimpleNamespace(error_code=0, authorized_operations=self.operations)

    def on_metadata(self, node: int, request: Any) -> Any:
        view = dict.fromkeys(self.ends, (self.nodes[0], 0))
        if [topic.name for topic in request.topics] == [OFFSETS_TOPIC]:
            view = {} if self.offsets_topic_error else self.views.get(node, self.leaders)
        partitions = [SimpleNamespace(partition_index=p, leader_id=n, leader_epoch=e) for p, (n, e) in view.items()]
        brokers = [SimpleNamespace(node_id=n) for n in self.alive.get(node, self.nodes)]
        topic = SimpleNamespace(error_code=self.offsets_topic_error, partitions=partitions)
        return SimpleNamespace(brokers=brokers, topics=[topic])

    def on_list_offsets(self, node: int, request: Any) -> Any:
        (topic,) = request.topics
        ends = dict.fromkeys(self.leaders, 0) if topic.name == OFFSETS_TOPIC else self.ends
        partitions = [
            SimpleNamespace(
                partition_index=p.partition_index,
                offset=ends[p.partition_index],
                error_code=OFFSET_NOT_AVAILABLE if p.partition_index in self.behind else 0,
            )
            for p in topic.partitions
        ]
        return SimpleNamespace(topics=[SimpleNamespace(partitions=partitions)])

    def on_find_coordinator(self, node: int, request: Any) -> Any:
        found = [SimpleNamespace(key=k, error_code=0, node_id=self.coordinator(k)) for k in request.coordinator_keys]
        return SimpleNamespace(coordinators=found)

    def on_list_groups(self, node: int, request: Any) -> Any:
        listed = [
            SimpleNamespace(group_id=g.name, group_type=g.kind, group_state=g.state, protocol_type=g.protocol_type)
            for g in self.groups.values()
            if self.coordinator(g.name) == node and partition_of(g.name, len(self.leaders)) not in self.loading
        ]
        return SimpleNamespace(error_code=self.list_error.get(node, 0), groups=listed)

    def on_offset_fetch(self, node: int, request: Any) -> Any:
        return SimpleNamespace(groups=[self._offsets(node, asked) for asked in request.groups])

    def _offsets(self, node: int, asked: Any) -> Any:
        error = 14 if partition_of(asked.group_id, len(self.leaders)) in self.loading else 0
        group = self.groups.get(asked.group_id, FakeGroup(asked.group_id))
        topics = [
            SimpleNamespace(
                name=topic.name,
                partitions=[
                    SimpleNamespace(
                        partition_index=p,
                        committed_offset=group.committed.get(topic.name, {}).get(p, (-1, -1))[0],
                        committed_leader_epoch=group.committed.get(topic.name, {}).get(p, (-1, -1))[1],
                        error_code=0,
                    )
                    for p in topic.partition_indexes
                ],
            )
            for topic in asked.topics
        ]
        return SimpleNamespace(group_id=asked.group_id, error_code=error or group.offsets_error, topics=topics)

    def on_describe_share_group_offsets(self, node: int, request: Any) -> Any:
        groups = []
        for asked in request.groups:
            group = self.groups[asked.group_id]
            partitions = [
                SimpleNamespace(
                    partition_index=p,
                    start_offset=group.committed.get(topic.topic_name, {}).get(p, (-1, -1))[0],
                    leader_epoch=group.committed.get(topic.topic_name, {}).get(p, (-1, -1))[1],
                    lag=self.lag,
                    error_code=0,
                )
                for topic in asked.topics
                for p in topic.partitions
            ]
            topics = [SimpleNamespace(partitions=partitions)]
            groups.append(SimpleNamespace(group_id=group.name, error_code=group.offsets_error, topics=topics))
        return SimpleNamespace(groups=groups)

    def on_describe_groups(self, node: int, request: Any) -> Any:
        return self._described(request.groups)

    def on_consumer_group_describe(self, node: int, request: Any) -> Any:
        return self._described(request.group_ids)

    on_share_group_describe = on_streams_group_describe = on_consumer_group_describe

    def _described(self, names: Iterable[str]) -> Any:
        groups = []
        for name in names:
            group = self.groups[name]
            fields = {"protocol_type": group.protocol_type, "protocol_data": "range", "members": [], **group.describe}
            fields |= {"group_id": name, "group_state": group.state, "error_code": group.describe_error}
            groups.append(SimpleNamespace(**fields))
        return SimpleNamespace(groups=groups)
