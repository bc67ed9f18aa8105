"""What brokers return about topics and brokers: ids, leaders, and what only a partition's leader can answer.

Metadata of one broker may be stale, so nothing is concluded from them alone: a topic's id is compared on every broker
before anything is deleted, and a request that only a leader can answer is sent again where the leader has moved. An
answer that is missing counts as "unavailable" in every decision. Every function raises ClusterError where no broker
answers, or one refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from modeaware.errors import ClusterError, ErrorCode
from modeaware.librdkafka import KafkaError
from modeaware.lifecycle.facts import WriterFacts
from modeaware.topic_view import known_id
from modeaware.wire.brokers import BULK_TIMEOUT_S, Ask, Brokers
from modeaware.wire.codec import ACTIVE_NODE_ID, ENDPOINT_NODE_ID
from modeaware.wire.requests import (
    DescribeClusterRequest,
    DescribeProducersRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
)

_MOVED = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,  # Kafka's name today: NOT_LEADER_OR_FOLLOWER
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)


def refusal(
    what: str, number: int, message: str | None = None, *, topic: str | None = None, partition: int | None = None
) -> ClusterError:
    """Return the error for a broker's error code."""
    error = KafkaError(number)
    code = ErrorCode(number) if number in ErrorCode.__members__.values() else None
    text = f"cannot {what}: {message or error.str()} ({error.name()})"
    return ClusterError(text, code=code, topic=topic, partition=partition)


def metadata_request(names: Sequence[str], min_version: int = 0) -> Any:
    """Return a Metadata request for topics by name; topic ids need version 10, leader epochs 7."""
    named = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=named, allow_auto_topic_creation=False, min_version=min_version)


# Brokers


@dataclass(frozen=True)
class RegisteredBroker:
    node_id: int
    rack: str | None
    live: bool


@dataclass(frozen=True)
class Registered:
    """The brokers by id; ``complete``: brokers that are down are included, so others are not registered at all."""

    brokers: dict[int, RegisteredBroker]
    complete: bool


def registered_brokers(brokers: Brokers) -> Registered:
    """Return the cluster's brokers, those that are down included (KIP-1073); before Kafka 4.0 the live ones alone."""
    try:
        answer = brokers.ask(DescribeClusterRequest(include_fenced_brokers=True, min_version=2))
    except ClusterError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        answer = brokers.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        live = [RegisteredBroker(int(b.node_id), b.rack, True) for b in answer.brokers]
        no_brokers = (ENDPOINT_NODE_ID, ACTIVE_NODE_ID)
        return Registered({b.node_id: b for b in live if b.node_id not in no_brokers}, complete=False)
    if answer.error_code:
        raise refusal("describe the cluster", answer.error_code, answer.error_message)
    listed = (RegisteredBroker(int(b.broker_id), b.rack, not b.is_fenced) for b in answer.brokers)
    return Registered({broker.node_id: broker for broker in listed}, complete=True)


# Topic ids

Ids = Mapping[str, str | None]
"""Name -> topic id (Kafka's base64 form); None: there is no topic of that name. A name that the broker refuses to
describe, or describes without an id, is missing."""


def ids_of_one_broker(brokers: Brokers, names: Sequence[str]) -> Ids:
    """Return the ids from one broker, in one request. They may be stale."""
    return _ids(brokers.ask(metadata_request(names, 10)))


def ids_of_each_broker(brokers: Brokers, names: Sequence[str]) -> dict[int, Ids]:
    """Return the ids from each live broker, by node id; every one must answer."""
    nodes = brokers.node_ids()
    found: dict[int, Ids] = {}
    answers = brokers.ask_each([Ask(node, metadata_request(names, 10)) for node in nodes], BULK_TIMEOUT_S)
    for node, answer in zip(nodes, answers, strict=True):
        if isinstance(answer, ClusterError):
            raise answer
        found[node] = _ids(answer)
    return found


def topic_ids(brokers: Brokers, topic: str) -> dict[int, str | None]:
    """Return the id of one topic from each live broker: node id -> topic id, None: it has none of that name."""
    each = ids_of_each_broker(brokers, [topic])
    for node, ids in each.items():
        if topic not in ids:
            raise ClusterError(f"broker {node} does not describe topic {topic!r}", topic=topic)
    return {node: ids[topic] for node, ids in each.items()}


def _ids(answer: Any) -> Ids:
    found: dict[str, str | None] = {}
    for topic in answer.topics:
        if topic.error_code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            found[topic.name] = None
        elif topic.error_code in (0, KafkaError.LEADER_NOT_AVAILABLE) and (topic_id := known_id(topic.topic_id)):
            found[topic.name] = topic_id
    return found


# Leaders

Leader = tuple[int, int]
"""The node id of a leader, and its leader epoch."""
Build = Callable[[Mapping[int, int]], Any]
"""Makes the request for some partitions of one leader, given partition -> leader epoch, right before it is sent."""


class _Answered(NamedTuple):
    entry: Any
    """The partition's entry in the response, or a ClusterError."""
    by: Leader | None = None
    moved: bool = False


class LeaderRequests:
    """Sends requests to the leaders of one topic's partitions.

    The leaders are looked up when first needed and kept. Where one has moved or does not answer, they are looked up
    again, and the partition's new leader is asked once more.
    """

    def __init__(self, brokers: Brokers, topic: str, routes: Mapping[int, Leader] | None = None) -> None:
        self._brokers = brokers
        self._topic = topic
        self._routes = routes
        self._refusal: ClusterError | None = None

    def ask(
        self,
        partitions: Iterable[int],
        what: str,
        build: Build,
        only_under: Mapping[int, int] | None = None,
        index: str = "partition_index",
    ) -> dict[int, Any]:
        """Return each partition's entry of its leader's response (error code 0), or a :class:`ClusterError`.

        Args:
            only_under: partition -> the leader epoch it must have; under another one nothing is sent.
        """

        def attempt(partitions: Iterable[int], routes: Mapping[int, Leader]) -> dict[int, _Answered]:
            answered: dict[int, _Answered] = {}
            led: dict[int, dict[int, int]] = {}
            for partition in partitions:
                node, epoch = routes.get(partition, (-1, -1))
                if node < 0:
                    error = self._refusal or self._error(what, partition, KafkaError.LEADER_NOT_AVAILABLE)
                    answered[partition] = _Answered(error, None, self._refusal is None)
                elif only_under is not None and epoch != only_under.get(partition):
                    text = f"put off: {what} {self._topic}-{partition}: led under epoch {epoch}, not the one observed"
                    error = ClusterError(text, topic=self._topic, partition=partition)
                    answered[partition] = _Answered(error, (node, epoch), True)
                else:
                    led.setdefault(node, {})[partition] = epoch
            asks = [Ask(node, build(some)) for node, some in sorted(led.items())]
            for ask, answer in zip(asks, self._brokers.ask_each(asks), strict=True):
                entries = {}
                if not isinstance(answer, ClusterError):
                    entries = {getattr(entry, index): entry for topic in answer.topics for entry in topic.partitions}
                for partition, epoch in led[ask.node_id].items():
                    entry = answer if isinstance(answer, ClusterError) else entries.get(partition)
                    answered[partition] = self._read(what, partition, (ask.node_id, epoch), entry)
            return answered

        answered = attempt(sorted(set(partitions)), self._routes if self._routes is not None else self._find())
        failed = {p: each for p, each in answered.items() if isinstance(each.entry, ClusterError)}
        if any(each.moved or each.entry.code is ErrorCode.REQUEST_TIMED_OUT for each in failed.values()):
            routes = self._find()
            again = [p for p, each in failed.items() if p in routes and (each.moved or each.by != routes[p])]
            answered |= attempt(again, routes)
        return {p: each.entry for p, each in answered.items()}

    def found(
        self, partitions: Iterable[int], what: str, build: Build, index: str = "partition_index"
    ) -> dict[int, Any]:
        """Return the entries of :meth:`ask` without the failures."""
        answers = self.ask(partitions, what, build, index=index)
        return {p: entry for p, entry in answers.items() if not isinstance(entry, ClusterError)}

    def _read(self, what: str, partition: int, by: Leader, entry: Any) -> _Answered:
        if entry is None or isinstance(entry, ClusterError):
            text = f"cannot {what} {self._topic}-{partition}: {entry or f'broker {by[0]} left it out of its response'}"
            code = entry.code if entry is not None else None
            return _Answered(ClusterError(text, code=code, topic=self._topic, partition=partition), by)
        if entry.error_code:
            return _Answered(self._error(what, partition, entry.error_code), by, entry.error_code in _MOVED)
        return _Answered(entry, by)

    def _error(self, what: str, partition: int, number: int) -> ClusterError:
        return refusal(f"{what} {self._topic}-{partition}", number, topic=self._topic, partition=partition)

    def _find(self) -> Mapping[int, Leader]:
        (topic,) = self._brokers.ask(metadata_request([self._topic], 7)).topics
        self._refusal = None
        if topic.error_code not in (0, KafkaError.LEADER_NOT_AVAILABLE):
            self._refusal = refusal(f"find the leaders of topic {self._topic!r}", topic.error_code, topic=self._topic)
        self._routes = {p.partition_index: (int(p.leader_id), int(p.leader_epoch)) for p in topic.partitions}
        return self._routes


def list_offsets_request(topic: str, epochs: Mapping[int, int], timestamp: int, isolation_level: int) -> Any:
    """Return a ListOffsets request; ``timestamp`` -1 is the end, -2 the log start."""
    entry = ListOffsetsRequest.ListOffsetsTopic
    partitions = [
        entry.ListOffsetsPartition(partition_index=p, current_leader_epoch=epoch, timestamp=timestamp)
        for p, epoch in epochs.items()
    ]
    topics = [entry(name=topic, partitions=partitions)]
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics, min_version=4)


def end_offsets(
    brokers: Brokers, topic: str, partitions: Iterable[int], routes: Mapping[int, Leader] | None = None
) -> dict[int, int]:
    """Return the high watermarks; a partition whose leader does not answer, or does not have it yet, is missing."""

    def request(led: Mapping[int, int]) -> Any:
        return list_offsets_request(topic, dict.fromkeys(led, -1), -1, 0)

    entries = LeaderRequests(brokers, topic, routes).found(partitions, "list the offsets of", request)
    return {p: entry.offset for p, entry in entries.items()}


def epoch_ends(brokers: Brokers, topic: str, wanted: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Return where the leader's log ends for a leader epoch: (partition, epoch) -> end offset.

    -1: the leader has no epoch as late as that. A partition whose leader does not answer is missing.
    """
    epochs = {p: [epoch for _, epoch in pairs] for p, pairs in groupby(sorted(set(wanted)), lambda pair: pair[0])}
    leaders = LeaderRequests(brokers, topic)
    found: dict[tuple[int, int], int] = {}
    for nth in range(max(map(len, epochs.values()), default=0)):  # a request holds one epoch of a partition
        some = {p: each[nth] for p, each in epochs.items() if nth < len(each)}
        if not some:
            break

        def request(led: Mapping[int, int], some: Mapping[int, int] = some) -> Any:
            entry = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
            partitions = [
                entry.OffsetForLeaderPartition(partition=p, current_leader_epoch=-1, leader_epoch=some[p]) for p in led
            ]
            return OffsetForLeaderEpochRequest(replica_id=-1, topics=[entry(topic=topic, partitions=partitions)])

        entries = leaders.found(some, "find the end of an epoch of", request, "partition")
        found |= {(p, some[p]): entry.end_offset for p, entry in entries.items()}
        for silent in some.keys() - entries.keys():
            del epochs[silent]  # one wait for a leader, however many epochs
    return found


def writers(brokers: Brokers, topic: str, partitions: Iterable[int]) -> dict[int, tuple[WriterFacts, ...]]:
    """Return the producers that each partition's leader remembers (DescribeProducers), the latest first.

    For messages alone: a partition whose leader does not answer, or refuses, is missing.
    """
    wanted = set(partitions)
    if not wanted:
        return {}

    def request(led: Mapping[int, int]) -> Any:
        entry = DescribeProducersRequest.TopicRequest
        return DescribeProducersRequest(topics=[entry(name=topic, partition_indexes=sorted(led))])

    entries = LeaderRequests(brokers, topic).found(wanted, "describe the producers of", request)
    return {
        p: tuple(sorted(map(_writer, entry.active_producers), key=lambda writer: -writer.last_timestamp_ms))
        for p, entry in entries.items()
    }


def _writer(producer: Any) -> WriterFacts:
    start = producer.current_txn_start_offset
    return WriterFacts(
        producer.producer_id, producer.producer_epoch, producer.last_timestamp, start if start >= 0 else None
    )
