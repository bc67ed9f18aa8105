"""Facts about topics and brokers: ids, leaders, and answers that only a partition's leader has.

One broker's metadata may be stale, and proves nothing alone. So before anything is deleted, the topic's id is compared
on every broker. A request that only a leader can answer is sent again if the leader has moved. If an answer is missing,
decisions treat the partition as unavailable. ClusterError is raised if no broker answers, or a broker rejects a whole
request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from modeaware.errors import ClusterError, ErrorCode
from modeaware.librdkafka import KafkaError
from modeaware.lifecycle.facts import WriterFacts
from modeaware.topic_view import known_id
from modeaware.wire.brokers import BULK_TIMEOUT_S, Ask, Brokers
from modeaware.wire.codec import ACTIVE_NODE_ID, ENDPOINT_NODE_ID
from modeaware.wire.requests import (
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeProducersRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
)

_NOT_REPORTED = 31
"""The only bit that is set in a response without authorized operations."""
_MOVED = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,  # Kafka calls it NOT_LEADER_OR_FOLLOWER
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


def metadata_request(names: Sequence[str], min_version: int = 0, max_version: int | None = None) -> Any:
    """Return a Metadata request for topics by name. Topic ids need version 10, leader epochs version 7."""
    named = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(
        topics=named, allow_auto_topic_creation=False, min_version=min_version, max_version=max_version
    )


def authorized_operations(bits: Iterable[int] | None) -> frozenset[int] | None:
    """Return the operations in a response's field of authorized operations (KIP-430); None if the broker reports
    none."""
    operations = frozenset((_NOT_REPORTED,) if bits is None else bits)
    return None if _NOT_REPORTED in operations else operations


def topic_names(brokers: Brokers) -> list[str]:
    """Return the names of all topics that the user may see.

    The response has every partition of the cluster; decoding takes some 10 ms per 1 000 partitions.
    """
    answer = brokers.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    return [topic.name for topic in answer.topics if topic.name is not None]


# Brokers


@dataclass(frozen=True)
class RegisteredBroker:
    node_id: int
    rack: str | None
    live: bool


@dataclass(frozen=True)
class Registered:
    """The brokers by id. If ``complete``, brokers that are down are included: a missing broker is not registered."""

    brokers: dict[int, RegisteredBroker]
    complete: bool


def registered_brokers(brokers: Brokers) -> Registered:
    """Return the cluster's brokers, including those that are down (KIP-1073); before Kafka 4.0, only live ones."""
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
"""Name -> topic id (Kafka's base64 form), or None if no topic has the name. A name is missing if the broker does not
describe the topic, or describes it without an id."""


def ids_of_each_broker(brokers: Brokers, names: Sequence[str]) -> dict[int, Ids]:
    """Return node id -> the broker's topic ids, for each live broker; raise ClusterError if any does not answer."""
    nodes = brokers.node_ids()
    ids: dict[int, Ids] = {}
    answers = brokers.ask_each([Ask(node, metadata_request(names, 10)) for node in nodes], BULK_TIMEOUT_S)
    for node, answer in zip(nodes, answers, strict=True):
        if isinstance(answer, ClusterError):
            raise answer
        ids[node] = topic_ids(answer)
    return ids


def no_topic_id(topic: str) -> ClusterError:
    """Return the error for a topic that brokers describe without an id. All such topics share one id (zeros), so a
    change of one such topic by its id could apply to another."""
    return ClusterError(
        f"topic {topic!r} has no topic id: the cluster's inter.broker.protocol.version is below 2.8; raise it",
        code=ErrorCode.UNSUPPORTED_VERSION,
        topic=topic,
    )


def topic_ids(answer: Any) -> Ids:
    """Return the ids in a Metadata response."""
    ids: dict[str, str | None] = {}
    for topic in answer.topics:
        if topic.error_code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            ids[topic.name] = None
        elif topic.error_code in (0, KafkaError.LEADER_NOT_AVAILABLE) and (topic_id := known_id(topic.topic_id)):
            ids[topic.name] = topic_id
    return ids


# Leaders

Partition = tuple[str, int]
"""A topic's name and the index of one of its partitions."""
Leader = tuple[int, int]
"""The node id of a leader, and its leader epoch."""
NO_LEADER: Leader = (-1, -1)
Led = Mapping[str, Mapping[int, int]]
"""Partitions of one leader: topic -> partition -> leader epoch."""
Build = Callable[[Led], Any]
"""Makes the request for some partitions of one leader."""


class _Answered(NamedTuple):
    entry: Any
    """The partition's entry in the response, or a ClusterError."""
    by: Leader | None = None
    moved: bool = False


class LeaderRequests:
    """Sends requests to the leaders of partitions: one request for each leader, however many topics.

    The leaders are looked up when first needed, and cached. If a partition's leader has moved or does not answer, the
    leader is looked up once more, and gets the request. A leader that did not answer gets no second request.

    Args:
        routes: the leaders that are known already.
    """

    def __init__(self, brokers: Brokers, routes: Mapping[Partition, Leader] | None = None) -> None:
        self._brokers = brokers
        self._routes = dict(routes or {})
        self._known = {topic for topic, _ in self._routes}
        self._refusals: dict[str, ClusterError] = {}

    def ask(
        self,
        partitions: Iterable[Partition],
        what: str,
        build: Build,
        only_under: Mapping[Partition, int] | None = None,
        before: Callable[[Collection[str]], Mapping[str, ClusterError]] | None = None,
        index: str = "partition_index",
        topic_name: str = "name",
        topics: str = "topics",
    ) -> dict[Partition, Any]:
        """Return each partition's entry in its leader's response, or a :class:`ClusterError` if the entry has an error.

        Args:
            only_under: partition -> the required leader epoch. A leader of another epoch gets no request.
            before: called with the topics right before requests are sent. Returns topics to leave out -> the error.
            index, topic_name, topics: the names of these fields in the response.
        """

        def attempt(partitions: Iterable[Partition]) -> dict[Partition, _Answered]:
            led, answered = self._by_leader(partitions, what, only_under)
            not_sent = before({topic for topics in led.values() for topic in topics}) if before and led else {}
            for node, led_here in led.items():
                for topic in led_here.keys() & not_sent.keys():
                    epochs = led_here.pop(topic)
                    answered |= {(topic, p): _Answered(not_sent[topic], (node, e)) for p, e in epochs.items()}
            asks = [Ask(node, build(led_here)) for node, led_here in sorted(led.items()) if led_here]
            for ask, answer in zip(asks, self._brokers.ask_each(asks), strict=True):
                entries = {}
                if not isinstance(answer, ClusterError):
                    entries = {
                        (getattr(topic, topic_name), getattr(entry, index)): entry
                        for topic in getattr(answer, topics)
                        for entry in topic.partitions
                    }
                for topic, epochs in led[ask.node_id].items():
                    for p, epoch in epochs.items():
                        entry = answer if isinstance(answer, ClusterError) else entries.get((topic, p))
                        answered[topic, p] = _read(what, (topic, p), (ask.node_id, epoch), entry)
            return answered

        wanted = sorted(set(partitions))
        self._find({topic for topic, _ in wanted} - self._known)
        answered = attempt(wanted)
        failed = {key: reply for key, reply in answered.items() if isinstance(reply.entry, ClusterError)}
        again = {k for k, reply in failed.items() if reply.moved or reply.entry.code is ErrorCode.REQUEST_TIMED_OUT}
        if again:
            self._find({topic for topic, _ in again})
            led = (key for key in sorted(again) if key in self._routes)
            answered |= attempt(key for key in led if failed[key].moved or failed[key].by != self._routes[key])
        return {key: reply.entry for key, reply in answered.items()}

    def entries(
        self,
        partitions: Iterable[Partition],
        what: str,
        build: Build,
        index: str = "partition_index",
        topic_name: str = "name",
        topics: str = "topics",
    ) -> dict[Partition, Any]:
        """Return the entries of :meth:`ask`, without the partitions that failed."""
        answers = self.ask(partitions, what, build, index=index, topic_name=topic_name, topics=topics)
        return {key: entry for key, entry in answers.items() if not isinstance(entry, ClusterError)}

    def _by_leader(
        self, partitions: Iterable[Partition], what: str, only_under: Mapping[Partition, int] | None
    ) -> tuple[dict[int, dict[str, dict[int, int]]], dict[Partition, _Answered]]:
        """Return node id -> topic -> partition -> leader epoch, and the errors of partitions without a usable
        leader."""
        led: dict[int, dict[str, dict[int, int]]] = {}
        errors: dict[Partition, _Answered] = {}
        for topic, p in partitions:
            node, epoch = self._routes.get((topic, p), NO_LEADER)
            if node < 0:
                refused = self._refusals.get(topic)
                error = refused or _leader_error(what, (topic, p), KafkaError.LEADER_NOT_AVAILABLE)
                errors[topic, p] = _Answered(error, None, refused is None)
            elif only_under is not None and epoch != only_under.get((topic, p)):
                text = f"put off: {what} {topic}-{p}: its leader epoch {epoch} is not the one that was checked"
                errors[topic, p] = _Answered(ClusterError(text, topic=topic, partition=p), (node, epoch), True)
            else:
                led.setdefault(node, {}).setdefault(topic, {})[p] = epoch
        return led, errors

    def _find(self, topics: Collection[str]) -> None:
        if not topics:
            return
        self._routes = {key: route for key, route in self._routes.items() if key[0] not in topics}
        for topic in self._brokers.ask(metadata_request(sorted(topics), 7)).topics:
            self._refusals.pop(topic.name, None)
            if topic.error_code not in (0, KafkaError.LEADER_NOT_AVAILABLE):
                what = f"find the leaders of topic {topic.name!r}"
                self._refusals[topic.name] = refusal(what, topic.error_code, topic=topic.name)
            self._routes |= {
                (topic.name, p.partition_index): (int(p.leader_id), int(p.leader_epoch)) for p in topic.partitions
            }
        self._known |= set(topics)


def _read(what: str, key: Partition, by: Leader, entry: Any) -> _Answered:
    if entry is None or isinstance(entry, ClusterError):
        text = f"cannot {what} {key[0]}-{key[1]}: {entry or f'the response of broker {by[0]} lacks the partition'}"
        code = entry.code if entry is not None else None
        return _Answered(ClusterError(text, code=code, topic=key[0], partition=key[1]), by)
    if entry.error_code:
        return _Answered(_leader_error(what, key, entry.error_code), by, entry.error_code in _MOVED)
    return _Answered(entry, by)


def _leader_error(what: str, key: Partition, number: int) -> ClusterError:
    return refusal(f"{what} {key[0]}-{key[1]}", number, topic=key[0], partition=key[1])


TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
"""The types of resources in requests about configs."""
SET_ON_TOPIC = 1
"""The ``config_source`` of a config that is set on the topic itself."""


def configs_request(kind: int, names: Iterable[str], *keys: str, min_version: int = 0) -> Any:
    """Return a DescribeConfigs request for resources of one kind; without ``keys``, for all of their configs."""
    resource = DescribeConfigsRequest.DescribeConfigsResource
    wanted = [resource(resource_type=kind, resource_name=n, configuration_keys=list(keys) or None) for n in names]
    return DescribeConfigsRequest(resources=wanted, min_version=min_version)


def read_configs(answer: Any) -> dict[str, Any]:
    """Return each topic's configs in a DescribeConfigs response, or a :class:`ClusterError` for a rejected entry."""
    configs = {}
    for result in answer.results:
        name, code = result.resource_name, result.error_code
        what = f"describe the configs of topic {name!r}"
        configs[name] = refusal(what, code, result.error_message, topic=name) if code else result.configs
    return configs


LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
"""Timestamps of ListOffsets: for the end, the log start, (version 7) the record with the greatest timestamp, and
(version 8) the start of the part of a tiered log that is on the leader's disks."""
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
"""Isolation levels. The end of a log is its high watermark at the first level, its last stable offset at the second."""


CONSUMER, DEBUGGING = -1, -2
"""Replica ids of ListOffsets. With ``DEBUGGING`` a leader returns the end of its own log, replicated or not."""


def list_offsets_request(led: Led, timestamp: int, isolation_level: int, replica_id: int = CONSUMER) -> Any:
    """Return a ListOffsets request for partitions of one leader."""
    entry = ListOffsetsRequest.ListOffsetsTopic
    topics = [
        entry(
            name=topic,
            partitions=[
                entry.ListOffsetsPartition(partition_index=p, current_leader_epoch=epoch, timestamp=timestamp)
                for p, epoch in epochs.items()
            ],
        )
        for topic, epochs in led.items()
    ]
    return ListOffsetsRequest(replica_id=replica_id, isolation_level=isolation_level, topics=topics, min_version=4)


def end_offsets(
    brokers: Brokers, partitions: Iterable[Partition], routes: Mapping[Partition, Leader] | None = None
) -> dict[Partition, int]:
    """Return the high watermarks. A partition is missing if its leader does not answer, or has no
    high watermark yet."""

    def request(led: Led) -> Any:
        any_epoch = {topic: dict.fromkeys(epochs, -1) for topic, epochs in led.items()}
        return list_offsets_request(any_epoch, LATEST, READ_UNCOMMITTED)

    entries = LeaderRequests(brokers, routes).entries(partitions, "list the offsets of", request)
    return {key: entry.offset for key, entry in entries.items()}


def epoch_ends(brokers: Brokers, wanted: Mapping[Partition, Collection[int]]) -> dict[tuple[str, int, int], int]:
    """Return the ends of leader epochs in the leaders' logs: (topic, partition, epoch) -> end offset.

    The end is -1 if the leader knows only earlier epochs. A partition whose leader does not answer is missing.
    """
    epochs = {key: sorted(some) for key, some in wanted.items()}
    leaders = LeaderRequests(brokers)
    ends: dict[tuple[str, int, int], int] = {}
    for nth in range(max(map(len, epochs.values()), default=0)):  # a request has one epoch per partition
        some = {key: of_partition[nth] for key, of_partition in epochs.items() if nth < len(of_partition)}
        if not some:
            break

        def request(led: Led, some: Mapping[Partition, int] = some) -> Any:
            entry = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
            topics = [
                entry(
                    topic=topic,
                    partitions=[
                        entry.OffsetForLeaderPartition(
                            partition=p, current_leader_epoch=-1, leader_epoch=some[topic, p]
                        )
                        for p in led_here
                    ],
                )
                for topic, led_here in led.items()
            ]
            return OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)

        entries = leaders.entries(some, "find the end of an epoch of", request, "partition", "topic")
        ends |= {(*key, some[key]): entry.end_offset for key, entry in entries.items()}
        for silent in some.keys() - entries.keys():
            del epochs[silent]  # a silent leader gets no further request for the partition
    return ends


def writers(brokers: Brokers, partitions: Iterable[Partition]) -> dict[Partition, tuple[WriterFacts, ...]]:
    """Return the producers that each partition's leader remembers (DescribeProducers), the latest first.

    A partition is missing if its leader does not answer, or rejects the request. The producers are for messages; only
    the seal of a fenced topic also depends on them (:mod:`modeaware.lifecycle.replacement`).
    """
    wanted = set(partitions)
    if not wanted:
        return {}

    def request(led: Led) -> Any:
        entry = DescribeProducersRequest.TopicRequest
        topics = [entry(name=topic, partition_indexes=sorted(epochs)) for topic, epochs in led.items()]
        return DescribeProducersRequest(topics=topics)

    entries = LeaderRequests(brokers).entries(wanted, "describe the producers of", request)
    return {
        key: tuple(sorted(map(_writer, entry.active_producers), key=lambda writer: -writer.last_timestamp_ms))
        for key, entry in entries.items()
    }


def _writer(producer: Any) -> WriterFacts:
    start = producer.current_txn_start_offset
    return WriterFacts(
        producer.producer_id, producer.producer_epoch, producer.last_timestamp, start if start >= 0 else None
    )
