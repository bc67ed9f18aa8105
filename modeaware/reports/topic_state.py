"""What brokers say of topics: configs, leaders, replicas, reassignments under way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from modeaware.cluster.answers import refusal
from modeaware.errors import ClusterError, ErrorCode
from modeaware.librdkafka import KafkaError
from modeaware.topic_view import base64_id
from modeaware.wire.brokers.client import Brokers
from modeaware.wire.brokers.controller import ask_controller, route_to_controller
from modeaware.wire.brokers.messages import (
    DescribeConfigsRequest,
    DescribeTopicPartitionsRequest,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
)

PARTITIONS_PER_ANSWER = 2000
"""As ``kafka-topics`` asks for: ``--partition-size-limit-per-response``."""
_TOPICS_PER_REQUEST = 200
_TOPIC_RESOURCE, _DEFAULT_CONFIG = 2, 5
_TOPIC_IDS = 10
_TIMEOUT_MS = 3_000
_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID)


@dataclass(frozen=True)
class PartitionReplicas:
    """One partition.

    Attributes:
        leader: None where no live broker leads.
        elr, last_known_elr: KIP-966's eligible leader replicas; None where the broker does not tell them.
        adding, removing: of a reassignment under way; None where there is none.
    """

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None

    @property
    def replication_factor(self) -> int:
        """How many replicas there are, without those that a reassignment adds."""
        if set(self.replicas) & {*(self.adding or ()), *(self.removing or ())}:
            return len(self.replicas) - len(self.adding or ())
        return len(self.replicas)


@dataclass(frozen=True)
class TopicState:
    """One topic.

    Attributes:
        configs: those that are not Kafka's defaults; None where the user lacks DESCRIBE_CONFIGS.
        min_isr: its ``min.insync.replicas``; None likewise.
    """

    name: str
    topic_id: str
    partitions: tuple[PartitionReplicas, ...]
    configs: Mapping[str, str | None] | None
    min_isr: int | None = None


def topic_states(
    brokers: Brokers, names: Sequence[str], live_brokers: frozenset[int], limit: int = PARTITIONS_PER_ANSWER
) -> list[TopicState]:
    """Ask for these topics; one that does not exist any more is missing. In the order of ``names``.

    Args:
        limit: how many partitions an answer of DescribeTopicPartitions may have.

    Raises:
        ClusterError: no broker answered, or one refused.
    """
    found = _partitions(brokers, names, live_brokers, limit)
    moves = _reassignments(brokers) if found else {}
    configs = _configs(brokers, list(found))
    states = []
    for name in names:
        if name in found and name in configs:
            topic_id, partitions = found[name]
            moved = [_moved(partition, moves.get((name, partition.partition))) for partition in partitions]
            states.append(TopicState(name, topic_id, tuple(moved), **configs[name]))
    return states


_Found = dict[str, tuple[str, list[PartitionReplicas]]]


def _partitions(brokers: Brokers, names: Sequence[str], live: frozenset[int], limit: int) -> _Found:
    found: _Found = {}
    try:
        for topic in _described(brokers, names, limit):
            _add(found, topic, topic.name, (_described_partition(p, live) for p in topic.partitions))
    except ClusterError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:  # of a broker before Kafka 3.7
            raise
        found.clear()
        for some in _slices(names):
            wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in some]
            request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False, min_version=_TOPIC_IDS)
            for topic in brokers.ask(request).topics:
                _add(found, topic, topic.name, (_plain_partition(p, live) for p in topic.partitions))
    for _, partitions in found.values():
        partitions.sort(key=lambda partition: partition.partition)
    return found


def _add(found: _Found, topic: Any, name: str, partitions: Iterable[PartitionReplicas]) -> None:
    if topic.error_code in _GONE:
        return
    if topic.error_code not in (0, KafkaError.LEADER_NOT_AVAILABLE):
        raise refusal(f"describe topic {name!r}", topic.error_code, topic=name)
    found.setdefault(name, (base64_id(topic.topic_id), []))[1].extend(partitions)


def _described(brokers: Brokers, names: Sequence[str], limit: int) -> Iterator[Any]:
    """The topics of DescribeTopicPartitions; one that spans answers comes in pieces."""
    if not names:
        return
    left, cursor = sorted(names), None  # the order in which brokers go through them
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in left],
            response_partition_limit=limit,
            cursor=cursor,
        )
        answer = brokers.ask(request)
        yield from answer.topics
        if answer.next_cursor is None:
            return
        name, partition = answer.next_cursor.topic_name, answer.next_cursor.partition_index
        cursor = DescribeTopicPartitionsRequest.Cursor(topic_name=name, partition_index=partition)
        left = [each for each in left if each >= name]


def _described_partition(told: Any, live: frozenset[int]) -> PartitionReplicas:
    elr, last_known = told.eligible_leader_replicas or (), told.last_known_elr or ()
    return replace(_plain_partition(told, live), elr=tuple(elr), last_known_elr=tuple(last_known))


def _plain_partition(told: Any, live: frozenset[int]) -> PartitionReplicas:
    leader = told.leader_id if told.leader_id in live else None
    return PartitionReplicas(told.partition_index, leader, tuple(told.replica_nodes), tuple(told.isr_nodes))


def _reassignments(brokers: Brokers) -> dict[tuple[str, int], tuple[tuple[int, ...], tuple[int, ...]]]:
    """(topic, partition) -> what is being added and removed; nothing where the user may not know, or no broker does."""
    answer = ask_controller(
        brokers,
        route_to_controller(brokers),
        lambda: ListPartitionReassignmentsRequest(timeout_ms=_TIMEOUT_MS, topics=None),
        lambda told: [told.error_code],
        once=False,
    )
    if isinstance(answer, ClusterError):
        if answer.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise answer
        return {}
    if answer.error_code == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
        return {}
    if answer.error_code:
        raise refusal("list the reassignments", answer.error_code, answer.error_message)
    return {
        (topic.name, p.partition_index): (tuple(p.adding_replicas), tuple(p.removing_replicas))
        for topic in answer.topics
        for p in topic.partitions
    }


def _moved(partition: PartitionReplicas, move: tuple[tuple[int, ...], tuple[int, ...]] | None) -> PartitionReplicas:
    return partition if move is None else replace(partition, adding=move[0], removing=move[1])


def _configs(brokers: Brokers, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Per topic what :class:`TopicState` says of its configs; one that is gone is missing."""
    found: dict[str, dict[str, Any]] = {}
    resource = DescribeConfigsRequest.DescribeConfigsResource
    for some in _slices(names):
        wanted = [resource(resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=None) for name in some]
        for told in brokers.ask(DescribeConfigsRequest(resources=wanted)).results:
            name = told.resource_name
            if told.error_code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                found[name] = {"configs": None}
            elif told.error_code and told.error_code not in _GONE:
                raise refusal(
                    f"describe the configs of topic {name!r}", told.error_code, told.error_message, topic=name
                )
            elif not told.error_code:
                found[name] = _told_configs(told.configs)
    return found


def _told_configs(told: Sequence[Any]) -> dict[str, Any]:
    values = {config.name: config.value for config in told}
    return {
        "configs": {config.name: config.value for config in told if config.config_source != _DEFAULT_CONFIG},
        "min_isr": int(values.get("min.insync.replicas") or 1),
    }


def _slices(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), _TOPICS_PER_REQUEST):
        yield names[start : start + _TOPICS_PER_REQUEST]
