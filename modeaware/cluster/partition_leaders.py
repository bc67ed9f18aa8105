"""What only a partition's leader can say: where its log ends for an earlier leader epoch, and who wrote to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from modeaware.errors import ClusterError
from modeaware.lifecycle.facts import WriterFacts
from modeaware.wire.brokers.client import Ask, Brokers
from modeaware.wire.brokers.messages import (
    DescribeProducersRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
)


def leaders(brokers: Brokers, topic: str) -> dict[int, int]:
    """Partition -> the node id of its leader; one without a leader is missing.

    Raises:
        ClusterError: no broker answered.
    """
    answer = brokers.ask(_metadata(topic))
    return {p.partition_index: int(p.leader_id) for t in answer.topics for p in t.partitions if p.leader_id >= 0}


def epoch_ends(brokers: Brokers, topic: str, wanted: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Where the leader's log ends for a leader epoch: (partition, epoch) -> end offset.

    -1: the leader knows of no epoch as late as that. A partition whose leader does not answer is missing.

    Raises:
        ClusterError: no broker answered.
    """
    pairs = sorted(set(wanted))
    if not pairs:
        return {}
    by_leader = leaders(brokers, topic)
    asks, asked = [], []
    for nth in _rounds(pairs):  # one epoch of a partition in a request
        for node, some in _by_node(nth, by_leader).items():
            asks.append(Ask(node, _epochs_request(topic, some)))
            asked.append(some)
    found: dict[tuple[int, int], int] = {}
    for some, answer in zip(asked, brokers.ask_each(asks), strict=True):
        if isinstance(answer, ClusterError):
            continue  # missing is "unavailable" to every decision
        for entry in (entry for each in answer.topics for entry in each.partitions):
            if not entry.error_code:
                found[(entry.partition, some[entry.partition])] = entry.end_offset
    return found


def end_offsets(
    brokers: Brokers, topic: str, partitions: Iterable[int], led_by: Mapping[int, int] | None = None
) -> dict[int, int]:
    """The high watermarks; a partition whose leader does not answer, or does not know it yet, is missing.

    Args:
        led_by: partition -> leader, where the caller knows it.

    Raises:
        ClusterError: no broker answered.
    """
    entry = ListOffsetsRequest.ListOffsetsTopic
    asks = []
    by_leader = leaders(brokers, topic) if led_by is None else led_by
    for node, some in _by_node(((p, _LATEST) for p in sorted(set(partitions))), by_leader).items():
        wanted = [
            entry.ListOffsetsPartition(partition_index=p, current_leader_epoch=-1, timestamp=latest)
            for p, latest in some.items()
        ]
        topics = [entry(name=topic, partitions=wanted)]
        asks.append(Ask(node, ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics)))
    return {
        found.partition_index: found.offset
        for answer in brokers.ask_each(asks)
        if not isinstance(answer, ClusterError)
        for each in answer.topics
        for found in each.partitions
        if not found.error_code
    }


def writers(brokers: Brokers, topic: str, partitions: Iterable[int]) -> dict[int, tuple[WriterFacts, ...]]:
    """The producers that each partition's leader remembers (DescribeProducers), the latest first.

    A partition whose leader does not answer, or does not say, is missing: it is told to people, nothing rests on it.

    Raises:
        ClusterError: no broker answered.
    """
    wanted = sorted(set(partitions))
    if not wanted:
        return {}
    led = _by_node(((p, 0) for p in wanted), leaders(brokers, topic))
    request = DescribeProducersRequest.TopicRequest
    asks = [
        Ask(node, DescribeProducersRequest(topics=[request(name=topic, partition_indexes=sorted(some))]))
        for node, some in led.items()
    ]
    found: dict[int, tuple[WriterFacts, ...]] = {}
    for answer in brokers.ask_each(asks):
        if isinstance(answer, ClusterError):
            continue  # see above
        for entry in (entry for each in answer.topics for entry in each.partitions):
            if not entry.error_code:
                known = [_writer(producer) for producer in entry.active_producers]
                found[entry.partition_index] = tuple(sorted(known, key=lambda w: -w.last_timestamp_ms))
    return found


def _metadata(topic: str) -> Any:
    named = MetadataRequest.MetadataRequestTopic(name=topic)
    return MetadataRequest(topics=[named], allow_auto_topic_creation=False)


def _rounds(pairs: Iterable[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    rounds: list[list[tuple[int, int]]] = []
    counts: dict[int, int] = {}
    for partition, epoch in pairs:
        nth = counts.get(partition, 0)
        counts[partition] = nth + 1
        if nth == len(rounds):
            rounds.append([])
        rounds[nth].append((partition, epoch))
    return rounds


def _by_node(pairs: Iterable[tuple[int, int]], by_leader: Mapping[int, int]) -> dict[int, dict[int, int]]:
    found: dict[int, dict[int, int]] = {}
    for partition, epoch in pairs:
        if partition in by_leader:
            found.setdefault(by_leader[partition], {})[partition] = epoch
    return found


def _epochs_request(topic: str, epochs: Mapping[int, int]) -> Any:
    entry = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partitions = [
        entry.OffsetForLeaderPartition(partition=p, current_leader_epoch=-1, leader_epoch=epoch)
        for p, epoch in sorted(epochs.items())
    ]
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=[entry(topic=topic, partitions=partitions)])


def _writer(producer: Any) -> WriterFacts:
    start = producer.current_txn_start_offset
    return WriterFacts(
        producer.producer_id, producer.producer_epoch, producer.last_timestamp, start if start >= 0 else None
    )


_LATEST = -1
