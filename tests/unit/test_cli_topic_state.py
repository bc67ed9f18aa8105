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
    """Two topics of three partitions; ``old``: without DescribeTopicPartitions."""

    def __init__(self, *, old: bool = False) -> None:
        self.asked: list[str] = []
        self._old = old

    def ask_any(self, _: Any) -> tuple[int, Any]:
        return 1, SimpleNamespace(controller_id=-1)

    def ask_each(self, asks: list[Ask], timeout_s: float | None = None) -> list[Any]:
        (ask,) = asks
        return [self.ask(ask.request)]

    def ask(self, request: Any) -> Any:
        self.asked.append(type(request).__name__.removesuffix("Request"))
        handlers = {
            DescribeTopicPartitionsRequest: self._describe,
            MetadataRequest: self._metadata,
            ListPartitionReassignmentsRequest: self._reassignments,
            DescribeConfigsRequest: self._configs,
        }
        if self._old and isinstance(request, DescribeTopicPartitionsRequest):
            raise ClusterError(self.asked[-1], code=ErrorCode.UNSUPPORTED_VERSION)
        return handlers[type(request)](request)

    def _topic(self, name: str, partitions: range, **more: Any) -> Any:
        told = [
            SimpleNamespace(partition_index=p, leader_id=p + 1, replica_nodes=[1, 2], isr_nodes=[1], **more)
            for p in partitions
        ]
        return SimpleNamespace(name=name, topic_id=IDS[name], error_code=0, partitions=told)

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
        topics = [SimpleNamespace(name="a", partitions=[moved])]
        return SimpleNamespace(error_code=0, error_message=None, topics=topics)

    def _configs(self, request: Any) -> Any:
        told = [
            SimpleNamespace(name="min.insync.replicas", value="2", config_source=5),
            SimpleNamespace(name="retention.ms", value="7", config_source=1),
        ]
        names = [resource.resource_name for resource in request.resources]
        return SimpleNamespace(results=[SimpleNamespace(resource_name=n, error_code=0, configs=told) for n in names])


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
    assert (first.configs, first.min_isr, first.config_count) == ({"retention.ms": "7"}, 2, 2)
    assert brokers.asked.count("DescribeTopicPartitions") == -(-6 // limit)


def test_a_broker_without_describe_topic_partitions_is_asked_for_metadata() -> None:
    brokers = FakeBrokers(old=True)
    first, _ = states(brokers)
    assert [(p.partition, p.elr, p.last_known_elr) for p in first.partitions] == [(p, None, None) for p in range(3)]
    assert "Metadata" in brokers.asked


class Deleting:
    """A broker that deletes; what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[tuple[str | None, UUID]], bool]] = []

    def ask_any(self, _: Any) -> tuple[int, Any]:
        return 1, SimpleNamespace(controller_id=1)

    def ask_each(self, asks: list[Ask], timeout_s: float | None = None) -> list[Any]:
        (ask,) = asks
        assert isinstance(ask.request, DeleteTopicsRequest)
        self.asked.append(([(topic.name, topic.topic_id) for topic in ask.request.topics], ask.once))
        told = [SimpleNamespace(topic_id=topic.topic_id, error_code=0) for topic in ask.request.topics]
        return [SimpleNamespace(responses=told)]


def test_topics_are_deleted_by_id_and_asked_for_once() -> None:
    brokers = Deleting()
    ids = {name: urlsafe_b64encode(topic_id.bytes).decode().rstrip("=") for name, topic_id in IDS.items()}
    assert delete_topics(cast(Brokers, brokers), ids) == {"a": None, "b": None}
    assert brokers.asked == [([(None, topic_id) for topic_id in IDS.values()], True)]
