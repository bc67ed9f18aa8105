"""What is asked of brokers about topics: paging, older brokers, missing rights, topics that go away meanwhile."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from modeaware.cluster.topic_deletion import delete_topics
from modeaware.errors import ClusterError, ErrorCode
from modeaware.reports.topic_state import TopicState, topic_states
from modeaware.wire.brokers.client import Ask, Brokers
from modeaware.wire.brokers.messages import (
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeTopicPartitionsRequest,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
)

IDS = {"a": UUID(int=1), "b": UUID(int=2)}
LIVE = frozenset({1, 2})


class FakeBrokers:
    """Two topics of three partitions; ``codes``: what is answered about a name, or in place of an answer.

    ``moved_to``: the broker that is the controller of a cluster with ZooKeeper.
    """

    def __init__(self, moved_to: int | None = None, **codes: int | ErrorCode) -> None:
        self.asked: list[str] = []
        self.nodes: list[int] = []
        self._moved_to = moved_to
        self._codes = codes

    def ask_any(self, _: Any) -> tuple[int, Any]:
        return 1, SimpleNamespace(controller_id=self._moved_to or -1)

    def ask_each(self, asks: list[Ask], timeout_s: float | None = None) -> list[Any]:
        (ask,) = asks
        self.nodes.append(ask.node_id)
        if self._moved_to not in (None, ask.node_id):
            return [SimpleNamespace(error_code=ErrorCode.NOT_CONTROLLER, error_message=None, topics=[])]
        try:
            return [self.ask(ask.request)]
        except ClusterError as error:
            return [error]

    def ask(self, request: Any) -> Any:
        self.asked.append(type(request).__name__.removesuffix("Request"))
        handlers = {
            DescribeTopicPartitionsRequest: self._describe,
            MetadataRequest: self._metadata,
            ListPartitionReassignmentsRequest: self._reassignments,
            DescribeConfigsRequest: self._configs,
        }
        code = self._codes.get(self.asked[-1])
        if isinstance(code, ErrorCode):
            raise ClusterError(self.asked[-1], code=code)
        return handlers[type(request)](request)

    def _topic(self, name: str, partitions: range, **more: Any) -> Any:
        told = [
            SimpleNamespace(partition_index=p, leader_id=p + 1, replica_nodes=[1, 2], isr_nodes=[1], **more)
            for p in partitions
        ]
        code = self._codes.get(name, 0)
        return SimpleNamespace(name=name, topic_id=IDS[name], error_code=code, partitions=[] if code else told)

    def _describe(self, request: Any) -> Any:
        """As brokers do it: so many partitions, beginning at the cursor."""
        elr: dict[str, Any] = {"eligible_leader_replicas": [], "last_known_elr": None}
        start = (request.cursor.topic_name, request.cursor.partition_index) if request.cursor else ("", 0)
        todo = [(t.name, p) for t in request.topics for p in range(3) if (t.name, p) >= start]
        now, later = todo[: request.response_partition_limit], todo[request.response_partition_limit :]
        topics = [self._topic(name, range(p, p + 1), **elr) for name, p in now]
        cursor = SimpleNamespace(topic_name=later[0][0], partition_index=later[0][1]) if later else None
        return SimpleNamespace(topics=topics, next_cursor=cursor)

    def _metadata(self, request: Any) -> Any:
        return SimpleNamespace(topics=[self._topic(topic.name, range(2, -1, -1)) for topic in request.topics])

    def _reassignments(self, _: Any) -> Any:
        moved = SimpleNamespace(partition_index=1, adding_replicas=[2], removing_replicas=[])
        code = self._codes.get("ListPartitionReassignments", 0)
        topics = [] if code else [SimpleNamespace(name="a", partitions=[moved])]
        return SimpleNamespace(error_code=code, error_message=None, topics=topics)

    def _configs(self, request: Any) -> Any:
        told = [
            SimpleNamespace(name="min.insync.replicas", value="2", config_source=5),
            SimpleNamespace(name="retention.ms", value="7", config_source=1),
        ]
        code = self._codes.get("DescribeConfigs", 0)
        return SimpleNamespace(
            results=[
                SimpleNamespace(resource_name=r.resource_name, error_code=code, error_message=None, configs=told)
                for r in request.resources
            ]
        )


def states(brokers: FakeBrokers, limit: int = 2000) -> list[TopicState]:
    return topic_states(cast(Brokers, brokers), ["a", "b"], LIVE, limit)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 2000])
def test_topics_that_span_answers_are_put_together(limit: int) -> None:
    brokers = FakeBrokers()
    first, second = states(brokers, limit)
    assert [(p.partition, p.leader, p.elr, p.last_known_elr) for p in first.partitions] == [
        (0, 1, (), ()),
        (1, 2, (), ()),
        (2, None, (), ()),  # broker 3 is not alive
    ]
    assert [p.adding for p in first.partitions] == [None, (2,), None]
    assert [p.adding for p in second.partitions] == [None] * 3
    assert (first.configs, first.min_isr) == ({"retention.ms": "7"}, 2)
    assert brokers.asked.count("DescribeTopicPartitions") == -(-6 // limit)


def test_a_broker_without_describe_topic_partitions_is_asked_for_metadata() -> None:
    brokers = FakeBrokers(DescribeTopicPartitions=ErrorCode.UNSUPPORTED_VERSION)
    first, _ = states(brokers)
    assert [(p.partition, p.elr, p.last_known_elr) for p in first.partitions] == [(p, None, None) for p in range(3)]
    assert "Metadata" in brokers.asked


class Deleting:
    """A broker, and another one that is the controller of a cluster with ZooKeeper."""

    def __init__(self, controller: int, codes: list[int]) -> None:
        self.asked: list[tuple[int, list[UUID], bool]] = []
        self._controller = controller
        self._codes = codes

    def ask_any(self, _: Any) -> tuple[int, Any]:
        return 1, SimpleNamespace(controller_id=self._controller)

    def ask_each(self, asks: list[Ask], timeout_s: float | None = None) -> list[Any]:
        (ask,) = asks
        assert isinstance(ask.request, DeleteTopicsRequest)
        wanted = [topic.topic_id for topic in ask.request.topics]
        assert [topic.name for topic in ask.request.topics] == [None] * len(wanted)
        self.asked.append((ask.node_id, wanted, ask.once))
        code = self._codes.pop(0)
        return [
            SimpleNamespace(
                responses=[SimpleNamespace(topic_id=each, error_code=code, error_message=None) for each in wanted]
            )
        ]


def ids() -> dict[str, str]:
    return {name: urlsafe_b64encode(topic_id.bytes).decode().rstrip("=") for name, topic_id in IDS.items()}


def test_topics_are_deleted_by_id_and_asked_for_once() -> None:
    brokers = Deleting(2, [0])
    assert delete_topics(cast(Brokers, brokers), ids()) == {"a": None, "b": None}
    assert brokers.asked == [(1, list(IDS.values()), True)]
