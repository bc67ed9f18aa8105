"""Brokers that know reassignments, as far as :mod:`modeaware.admin.reassignments` asks them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from modeaware.admin.reassignments import PartitionKey, PartitionReassignment, Replicas
from modeaware.errors import ClusterError, ErrorCode
from modeaware.wire.brokers.client import Ask


class FakeCluster:
    """Brokers whose metadata agree unless ``behind`` says otherwise; what was altered is in ``altered``.

    Attributes:
        option: whether they know KIP-860's option (version 1 of the request).
        refuse: error codes of single partitions.
        refuse_all: an error code of the whole request.
        controller: who takes requests for the controller; None: anybody, as KRaft's brokers do.
        silent: brokers that do not answer.
        down: brokers that are not alive.
        before_change: called before reassignments are altered.
    """

    def __init__(self, replicas: dict[PartitionKey, Replicas], *, option: bool = True) -> None:
        self.replicas = replicas
        self.option = option
        self.behind: dict[int, dict[PartitionKey, Replicas]] = {}
        self.in_progress: list[dict[PartitionKey, PartitionReassignment]] = [{}]
        self.refuse: dict[PartitionKey, int] = {}
        self.refuse_all = 0
        self.controller: int | None = None
        self.silent: set[int] = set()
        self.altered: list[tuple[bool, dict[PartitionKey, Replicas | None]]] = []
        self.asked: list[str] = []
        self.down: set[int] = set()
        self.before_change: Callable[[str], None] = lambda name: None

    def node_ids(self) -> tuple[int, ...]:
        return tuple(node for node in (1, 2, 3) if node not in self.down)

    def ask(self, request: Any, node_id: int | None = None) -> Any:
        (answer,) = self.ask_each([Ask(node_id or self.node_ids()[0], request)])
        if isinstance(answer, ClusterError):
            raise answer
        return answer

    def ask_any(self, request: Any) -> tuple[int, Any]:
        return self.node_ids()[0], self.ask(request)

    def ask_each(self, asks: Iterable[Ask], timeout_s: float | None = None) -> list[Any]:
        return [self._answer(ask.node_id, ask.request) for ask in asks]

    def _answer(self, node: int, request: Any) -> Any:
        name = type(request).__name__.removesuffix("Request")
        if node in self.silent | self.down:
            return ClusterError("no answer", code=ErrorCode.REQUEST_TIMED_OUT)
        if name == "Metadata":
            return self._metadata(node, request)
        self.asked.append(name)
        if self.controller not in (None, node):
            return SimpleNamespace(
                error_code=int(ErrorCode.NOT_CONTROLLER), error_message=None, topics=[], responses=[]
            )
        return self._listed(request) if name == "ListPartitionReassignments" else self._altered(request)

    def _metadata(self, node: int, request: Any) -> Any:
        known = self.behind.get(node, self.replicas)
        topics = [
            SimpleNamespace(
                name=asked.name,
                error_code=0 if any(topic == asked.name for topic, _ in known) else 3,
                partitions=[
                    SimpleNamespace(partition_index=p, replica_nodes=list(ids))
                    for (topic, p), ids in known.items()
                    if topic == asked.name
                ],
            )
            for asked in request.topics
        ]
        brokers = [SimpleNamespace(node_id=each, rack=None) for each in self.node_ids()]
        return SimpleNamespace(controller_id=self.controller or 1, topics=topics, brokers=brokers)

    def _listed(self, request: Any) -> Any:
        """The next of ``in_progress``, and the last again and again."""
        found = self.in_progress.pop(0) if len(self.in_progress) > 1 else self.in_progress[0]
        topics = [
            SimpleNamespace(
                name=topic,
                partitions=[
                    SimpleNamespace(
                        partition_index=p,
                        replicas=list(each.replicas),
                        adding_replicas=list(each.adding_replicas),
                        removing_replicas=list(each.removing_replicas),
                    )
                ],
            )
            for (topic, p), each in found.items()
        ]
        return SimpleNamespace(error_code=0, error_message=None, topics=topics)

    def _altered(self, request: Any) -> Any:
        self.before_change("AlterPartitionReassignments")
        if request._min_version and not self.option:
            return ClusterError("broker 1: too old", code=ErrorCode.UNSUPPORTED_VERSION)
        wanted = {
            (topic.name, p.partition_index): None if p.replicas is None else tuple(p.replicas)
            for topic in request.topics
            for p in topic.partitions
        }
        if self.refuse_all:
            return SimpleNamespace(error_code=self.refuse_all, error_message="not today", responses=[])
        self.altered.append((request.allow_replication_factor_change, wanted))
        responses = [
            SimpleNamespace(
                name=topic,
                partitions=[
                    SimpleNamespace(partition_index=p, error_code=self.refuse.get((topic, p), 0), error_message=None)
                ],
            )
            for topic, p in wanted
        ]
        return SimpleNamespace(error_code=0, error_message=None, responses=responses)
