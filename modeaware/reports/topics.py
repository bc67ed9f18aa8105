"""Topics as brokers return them: selected by name or pattern, with configs, leaders, replicas and reassignments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from modeaware.admin.reassignments import PartitionKey, PartitionReassignment, list_reassignments
from modeaware.cluster.metadata import TOPIC_RESOURCE, configs_request, metadata_request, refusal
from modeaware.errors import ClusterError, ErrorCode, ModeAwareError, RequestRefused
from modeaware.librdkafka import KafkaError
from modeaware.lifecycle.objections import is_topic_name
from modeaware.topic_view import known_id
from modeaware.wire.brokers import REQUEST_TIMEOUT_S, Brokers
from modeaware.wire.requests import DescribeTopicPartitionsRequest, MetadataRequest

PARTITIONS_PER_ANSWER = 2000
"""The default of ``--partition-size-limit-per-response`` in ``kafka-topics``."""
_TOPICS_PER_REQUEST = 200
_TOPIC_CONFIG, _DEFAULT_CONFIG = 1, 5
_TOPIC_IDS = 10
"""The first version of Metadata that has topic ids."""
_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID)


@dataclass(frozen=True)
class ListedTopic:
    """A topic. ``topic_id`` has Kafka's base64 form, or is empty if brokers return none. ``internal``: whether the
    topic is one of Kafka's own (``__consumer_offsets``)."""

    name: str
    topic_id: str
    internal: bool
    partition_count: int


@dataclass(frozen=True)
class TopicList:
    """One broker's response: all topics that the user may see, by name, and the ids of the live brokers."""

    topics: tuple[ListedTopic, ...]
    live_brokers: frozenset[int]


def list_topics(brokers: Brokers) -> TopicList:
    """Request all topics from any broker."""
    answer = brokers.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False, min_version=_TOPIC_IDS))
    topics = [
        ListedTopic(topic.name, known_id(topic.topic_id) or "", bool(topic.is_internal), len(topic.partitions))
        for topic in answer.topics
        if topic.name
    ]
    live = frozenset(int(broker.node_id) for broker in answer.brokers)
    return TopicList(tuple(sorted(topics, key=lambda topic: topic.name)), live)


def matching(
    topics: Iterable[ListedTopic], pattern: str | None, *, exclude_internal: bool = False
) -> list[ListedTopic]:
    """Return the topics whose whole name matches ``pattern``, or all topics without a pattern.

    As in ``kafka-topics``, commas in a pattern separate alternatives; blanks and outer quotes are ignored.

    Raises:
        RequestRefused: the pattern is no regular expression.
    """
    shown = [topic for topic in topics if not (exclude_internal and topic.internal)]
    if pattern is None:
        return shown
    try:
        wanted = re.compile(pattern.strip().replace(",", "|").replace(" ", "").strip("\"'"))
    except re.error as error:
        raise RequestRefused(f"{pattern!r} is an invalid regex: {error}", code=ErrorCode.INVALID_REQUEST) from error
    return [topic for topic in shown if wanted.fullmatch(topic.name)]


def named(topics: Sequence[ListedTopic], pattern: str) -> list[ListedTopic]:
    """Return the topics to show: the topic of the name ``pattern`` or, if there is none, all that match ``pattern``."""
    return [topic for topic in topics if topic.name == pattern] or matching(topics, pattern)


def named_for_change(topics: Iterable[ListedTopic], pattern: str, mode_log_topic: str) -> list[ListedTopic]:
    """Return the topics to alter or delete. A pattern that is a valid topic name selects only the topic of that name.

    (In ``kafka-topics``, ``a.b`` also selects ``aXb``, even for a deletion.) An internal topic or the mode log is
    selected only by its own name.
    """
    if is_topic_name(pattern):
        return [topic for topic in topics if topic.name == pattern]
    matches = matching(topics, pattern, exclude_internal=True)
    return [topic for topic in matches if topic.name != mode_log_topic]


@dataclass(frozen=True)
class PartitionReplicas:
    """One partition.

    Attributes:
        leader: None if no live broker leads.
        elr, last_known_elr: KIP-966's eligible leader replicas; None if the broker does not return them.
        adding, removing: the replicas of a reassignment in progress; None without a reassignment.
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
        """Return the number of replicas, without those that a reassignment adds."""
        if set(self.replicas) & {*(self.adding or ()), *(self.removing or ())}:
            return len(self.replicas) - len(self.adding or ())
        return len(self.replicas)


@dataclass(frozen=True)
class TopicState:
    """One topic.

    Attributes:
        configs: the configs that are not Kafka's defaults; None if the user lacks DESCRIBE_CONFIGS.
        overrides: the configs that were set on this topic itself; None if the user lacks DESCRIBE_CONFIGS.
        min_isr: the topic's ``min.insync.replicas``; None if the user lacks DESCRIBE_CONFIGS.
    """

    name: str
    topic_id: str
    partitions: tuple[PartitionReplicas, ...]
    configs: Mapping[str, str | None] | None
    overrides: Mapping[str, str] | None = None
    min_isr: int | None = None


def topic_states(
    brokers: Brokers, names: Sequence[str], live_brokers: frozenset[int], limit: int = PARTITIONS_PER_ANSWER
) -> list[TopicState]:
    """Return the states of those topics that still exist, in the order of ``names``.

    Args:
        limit: the most partitions in a response of DescribeTopicPartitions.
    """
    if not names:
        return []
    partitions_by_topic = _partitions(brokers, names, live_brokers, limit)
    moves = _reassignments(brokers) if partitions_by_topic else {}
    configs = _configs(brokers, list(partitions_by_topic))
    states = []
    for name in names:
        if name in partitions_by_topic and name in configs:
            topic_id, partitions = partitions_by_topic[name]
            partitions = [_moving(p, moves.get((name, p.partition))) for p in partitions]
            states.append(TopicState(name, topic_id, tuple(partitions), **configs[name]))
    return states


def _moving(partition: PartitionReplicas, move: PartitionReassignment | None) -> PartitionReplicas:
    return (
        partition if move is None else replace(partition, adding=move.adding_replicas, removing=move.removing_replicas)
    )


_Found = dict[str, tuple[str, list[PartitionReplicas]]]


def _partitions(brokers: Brokers, names: Sequence[str], live: frozenset[int], limit: int) -> _Found:
    partitions_by_topic: _Found = {}
    try:
        for topic in _described(brokers, names, limit):
            _add(partitions_by_topic, topic, live, has_elr=True)
    except ClusterError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:  # brokers before Kafka 3.8 do not support it
            raise
        partitions_by_topic.clear()
        for some in _slices(names):
            for topic in brokers.ask(metadata_request(some, _TOPIC_IDS)).topics:
                _add(partitions_by_topic, topic, live, has_elr=False)
    for _, partitions in partitions_by_topic.values():
        partitions.sort(key=lambda partition: partition.partition)
    return partitions_by_topic


def _described(brokers: Brokers, names: Sequence[str], limit: int) -> Iterator[Any]:
    """Yield topics by DescribeTopicPartitions. A topic that spans several responses comes in pieces."""
    left, cursor = sorted(names), None  # brokers return topics in this order
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
        left = [other for other in left if other >= name]


def _add(partitions_by_topic: _Found, topic: Any, live: frozenset[int], *, has_elr: bool) -> None:
    if topic.error_code in _GONE:
        return
    if topic.error_code not in (0, KafkaError.LEADER_NOT_AVAILABLE):
        raise refusal(f"describe topic {topic.name!r}", topic.error_code, topic=topic.name)
    _, partitions = partitions_by_topic.setdefault(topic.name, (known_id(topic.topic_id) or "", []))
    for p in topic.partitions:
        leader = p.leader_id if p.leader_id in live else None
        partition = PartitionReplicas(p.partition_index, leader, tuple(p.replica_nodes), tuple(p.isr_nodes))
        if has_elr:
            elr, last_known = tuple(p.eligible_leader_replicas or ()), tuple(p.last_known_elr or ())
            partition = replace(partition, elr=elr, last_known_elr=last_known)
        partitions.append(partition)


def _reassignments(brokers: Brokers) -> dict[PartitionKey, PartitionReassignment]:
    """Return the reassignments in progress; none if the user lacks the right, or brokers do not support the request."""
    try:
        return list_reassignments(brokers, timeout_s=REQUEST_TIMEOUT_S)
    except ModeAwareError as error:
        if error.code not in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            raise
        return {}


def _configs(brokers: Brokers, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return topic -> the fields of :class:`TopicState` about configs; only topics that exist."""
    configs: dict[str, dict[str, Any]] = {}
    for some in _slices(names):
        for result in brokers.ask(configs_request(TOPIC_RESOURCE, some, min_version=1)).results:
            name, code = result.resource_name, result.error_code
            if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                configs[name] = {"configs": None}
            elif code and code not in _GONE:
                raise refusal(f"describe the configs of topic {name!r}", code, result.error_message, topic=name)
            elif not code:
                values = {config.name: config.value for config in result.configs}
                source = {config.name: config.config_source for config in result.configs}
                configs[name] = {
                    "configs": {key: value for key, value in values.items() if source[key] != _DEFAULT_CONFIG},
                    "overrides": {key: value or "" for key, value in values.items() if source[key] == _TOPIC_CONFIG},
                    "min_isr": int(values.get("min.insync.replicas") or 1),
                }
    return configs


def _slices(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), _TOPICS_PER_REQUEST):
        yield names[start : start + _TOPICS_PER_REQUEST]
