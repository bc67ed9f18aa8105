"""What the members of groups consume, by each group type's own description."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from modeaware.cluster.groups.listing import ListedGroup, error_name
from modeaware.errors import ClusterError
from modeaware.librdkafka import KafkaError
from modeaware.wire.brokers.client import BULK_TIMEOUT_S, Ask, Brokers
from modeaware.wire.brokers.messages import (
    ConsumerGroupDescribeRequest,
    DescribeGroupsRequest,
    ShareGroupDescribeRequest,
    StreamsGroupDescribeRequest,
    assigned_topics,
    subscribed_topics,
)

BATCH = 250
STREAMS_PROTOCOL = "stream"
_IN_REBALANCE = ("PreparingRebalance", "CompletingRebalance")


@dataclass(frozen=True)
class Members:
    """What a group's members consume.

    ``topics`` are those they are subscribed to or assigned; ``unknown`` says why that may not be all. ``streams``: they
    are Kafka Streams'.
    """

    any: bool = False
    topics: frozenset[str] = frozenset()
    streams: bool = False
    unknown: str | None = None

    def use(self, topic: str) -> bool:
        """Whether they are known to consume ``topic``."""
        return topic in self.topics


NOBODY = Members()
_GONE = Members(any=True, unknown="was gone when it was to be described")
_NOT_ANSWERED = Members(any=True, unknown="cannot be described: its coordinator left it out of the answer")


def describe_groups(brokers: Brokers, groups: Iterable[ListedGroup]) -> dict[str, Members]:
    """The members of ``groups``; one without any is not asked about.

    Raises:
        ClusterError: the cluster cannot be reached.
    """
    found: dict[str, Members] = {}
    batches: dict[tuple[int, str], list[str]] = {}
    for group in groups:
        if group.state in ("Empty", "Dead"):
            found[group.name] = NOBODY
        elif group.kind not in _KINDS:
            found[group.name] = Members(any=True, unknown=f"is of type {group.kind!r}, which is not known here")
        else:
            batches.setdefault((group.coordinator, group.kind), []).append(group.name)
    asks, asked = [], []
    for (node, kind), names in sorted(batches.items()):
        for start in range(0, len(names), BATCH):
            asks.append(Ask(node, _KINDS[kind].request(names[start : start + BATCH])))
            asked.append((kind, names[start : start + BATCH]))
    for (kind, names), answer in zip(asked, brokers.ask_each(asks, BULK_TIMEOUT_S), strict=True):
        found |= _read(kind, names, answer)
    return found


def _read(kind: str, names: Iterable[str], answer: Any) -> dict[str, Members]:
    if isinstance(answer, ClusterError):
        return {name: Members(any=True, unknown=f"cannot be described: {answer}") for name in names}
    described = {group.group_id: _members(kind, group) for group in answer.groups}
    return {name: described.get(name, _NOT_ANSWERED) for name in names}


def _members(kind: str, group: Any) -> Members:
    if group.error_code == KafkaError.GROUP_ID_NOT_FOUND or group.group_state == "Dead":
        return _GONE  # deleted, or it has become one of another type, or moved: the next look tells
    if group.error_code:
        return Members(any=True, unknown=f"cannot be described: {error_name(group.error_code)}")
    return _KINDS[kind].members(group) if group.members else NOBODY


def _classic(group: Any) -> Members:
    if group.protocol_type not in ("consumer", ""):
        return Members(any=True)
    if group.group_state in _IN_REBALANCE:  # then a broker shows neither subscriptions nor assignments
        return Members(any=True, unknown="is in a rebalance: what it consumes is not known yet")
    topics: set[str] = set()
    unknown = None
    for member in group.members:
        try:
            topics |= subscribed_topics(bytes(member.member_metadata or b""))
            topics |= assigned_topics(bytes(member.member_assignment or b""))
        except ValueError as error:
            unknown = f"has a member whose subscription cannot be read: {error}"
    streams = group.protocol_data == STREAMS_PROTOCOL
    return Members(any=True, topics=frozenset(topics), streams=streams, unknown=unknown)


def _consumer(group: Any) -> Members:
    """Patterns are the broker's to read, whose expressions (RE2) are not Python's: assignments tell what they match."""
    topics: set[str] = set()
    settled, by_pattern = group.group_state == "Stable", False
    for member in group.members:
        assigned, target = _assigned(member.assignment), _assigned(member.target_assignment)
        topics |= {*member.subscribed_topic_names, *(topic for topic, _ in assigned | target)}
        by_pattern = by_pattern or bool(member.subscribed_topic_regex)
        settled = settled and assigned == target
    unknown = None
    if by_pattern and not settled:
        unknown = "subscribes by a pattern and is not settled: what it consumes is not known yet"
    return Members(any=True, topics=frozenset(topics), unknown=unknown)


def _share(group: Any) -> Members:
    topics: set[str] = set()
    for member in group.members:
        topics |= {*member.subscribed_topic_names, *(topic for topic, _ in _assigned(member.assignment))}
    return Members(any=True, topics=frozenset(topics))


def _streams(group: Any) -> Members:
    if group.topology is None or group.topology.subtopologies is None:
        return Members(
            any=True, streams=True, unknown="has not settled its topology yet: what it consumes is not known"
        )
    topics: set[str] = set()
    for part in group.topology.subtopologies:
        topics |= {*part.source_topics, *(source.name for source in part.repartition_source_topics)}
    return Members(any=True, topics=frozenset(topics), streams=True)


def _assigned(assignment: Any) -> set[tuple[str, int]]:
    return {(each.topic_name, partition) for each in assignment.topic_partitions for partition in each.partitions}


@dataclass(frozen=True)
class _Kind:
    request: Callable[[list[str]], Any]
    members: Callable[[Any], Members]


_KINDS: Mapping[str, _Kind] = {
    "classic": _Kind(lambda names: DescribeGroupsRequest(groups=names), _classic),
    "consumer": _Kind(lambda names: ConsumerGroupDescribeRequest(group_ids=names), _consumer),
    "share": _Kind(lambda names: ShareGroupDescribeRequest(group_ids=names), _share),
    "streams": _Kind(lambda names: StreamsGroupDescribeRequest(group_ids=names), _streams),
}
