"""Brokers that answer as a test tells them, in kafka-python's message objects as far as the controller reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

from modeaware.admin.reassignments import PartitionKey, PartitionReassignment, Replicas
from modeaware.cluster.group_listing import OFFSETS_TOPIC, partition_of
from modeaware.errors import ClusterError, ErrorCode
from modeaware.wire.brokers import Ask

CLUSTER_DESCRIBE = 8
OFFSET_NOT_AVAILABLE = 78
TOPIC_AUTHORIZATION_FAILED = 29


class FakeGroup:
    """A group as its coordinator knows it; ``describe`` is what its own description says, ``committed`` its offsets,
    and ``metadata`` what was committed beside them."""

    def __init__(self, name: str, kind: str = "classic", state: str = "Empty", protocol_type: str = "consumer") -> None:
        self.name, self.kind, self.state, self.protocol_type = name, kind, state, protocol_type
        self.committed: dict[str, dict[int, tuple[int, int]]] = {}
        self.metadata: dict[str, dict[int, str]] = {}
        self.describe: dict[str, Any] = {}
        self.offsets_error = self.describe_error = 0
        self.everywhere = False

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
        self.offsets_topic_error = self.cluster_error = 0
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
        self.hidden: set[str] = set()

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
        live = [{"broker_id": n, "rack": None, "is_fenced": False} for n in self.nodes]
        return {"error_code": self.cluster_error, "authorized_operations": self.operations, "brokers": live}

    def on_metadata(self, node: int, request: Any) -> Any:
        view = dict.fromkeys(self.ends, (self.nodes[0], 0))
        if [topic.name for topic in request.topics] == [OFFSETS_TOPIC]:
            view = {} if self.offsets_topic_error else self.views.get(node, self.leaders)
        partitions = [
            {"partition_index": p, "leader_id": n, "leader_epoch": e, "replica_nodes": [n]}
            for p, (n, e) in view.items()
        ]
        brokers = [{"node_id": n} for n in self.alive.get(node, self.nodes)]
        answer = {"error_code": self.offsets_topic_error, "partitions": partitions}
        return {"brokers": brokers, "topics": [{"name": topic.name, **answer} for topic in request.topics]}

    def on_list_offsets(self, node: int, request: Any) -> Any:
        (topic,) = request.topics
        ends = dict.fromkeys(self.leaders, 0) if topic.name == OFFSETS_TOPIC else self.ends
        asked = [p.partition_index for p in topic.partitions]
        codes = dict.fromkeys(self.behind, OFFSET_NOT_AVAILABLE)
        partitions = [{"partition_index": p, "offset": ends[p], "error_code": codes.get(p, 0)} for p in asked]
        return {"topics": [{"name": topic.name, "partitions": partitions}]}

    def on_find_coordinator(self, node: int, request: Any) -> Any:
        keys = request.coordinator_keys
        return {"coordinators": [{"key": key, "error_code": 0, "node_id": self.coordinator(key)} for key in keys]}

    def on_list_groups(self, node: int, request: Any) -> Any:
        listed = [
            {"group_id": g.name, "group_type": g.kind, "group_state": g.state, "protocol_type": g.protocol_type}
            for g in self.groups.values()
            if (g.everywhere or self.coordinator(g.name) == node)
            and partition_of(g.name, len(self.leaders)) not in self.loading
        ]
        return {"error_code": self.list_error.get(node, 0), "groups": listed}

    def on_offset_fetch(self, node: int, request: Any) -> Any:
        return {"groups": [self._offsets(asked) for asked in request.groups]}

    def _offsets(self, asked: Any) -> Any:
        error = 14 if partition_of(asked.group_id, len(self.leaders)) in self.loading else 0
        group = self.groups.get(asked.group_id, FakeGroup(asked.group_id))
        if asked.topics is None:  # all there is, but for what the user may not see
            wanted = {topic: list(offsets) for topic, offsets in group.committed.items() if topic not in self.hidden}
        else:
            wanted = {topic.name: topic.partition_indexes for topic in asked.topics}
        topics = [{"name": topic, "partitions": self._entries(group, topic, some)} for topic, some in wanted.items()]
        return {"group_id": asked.group_id, "error_code": error or group.offsets_error, "topics": topics}

    def _entries(self, group: FakeGroup, topic: str, partitions: Iterable[int]) -> list[dict[str, Any]]:
        noted = group.metadata.get(topic, {})
        offsets = group.offsets(topic, partitions, "committed_")
        entries = [each | {"metadata": noted.get(each["partition_index"], "")} for each in offsets]
        return (
            [each | {"error_code": TOPIC_AUTHORIZATION_FAILED} for each in entries] if topic in self.hidden else entries
        )

    def on_describe_share_group_offsets(self, node: int, request: Any) -> Any:
        groups = []
        for asked in request.groups:
            group = self.groups[asked.group_id]
            topics = [
                {
                    "topic_name": topic.topic_name,
                    "partitions": [
                        {**each, "start_offset": each["offset"], "lag": -1}
                        for each in group.offsets(topic.topic_name, topic.partitions)
                    ],
                }
                for topic in asked.topics
            ]
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


class CreatingBrokers(FakeBrokers):
    """Brokers 1 to 3, of which ``down`` are dead, and topics with replicas; creations are carried out.

    ``unseen``: so many looks at the metadata do not show any topic. ``old``: they do not have DescribeCluster.
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
        self.unseen = 0

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
        placed = [] if self.unseen else self.placed.get(name, [])
        self.unseen = max(self.unseen - 1, 0)
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


class FakeCluster(FakeBrokers):
    """Brokers 1 to 3, whose metadata agree unless ``behind`` says otherwise; what was altered is in ``altered``.

    Attributes:
        option: whether they know KIP-860's option (version 1 of the request).
        refuse: error codes of single partitions.
        refuse_all: an error code of the whole request.
        before_change: called before reassignments are altered.
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
        self.before_change: Callable[[str], None] = lambda name: None

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
