"""The lines in which ``kafka-topics --describe`` shows topics, with the mode of each partition at the end. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from modeaware.printable import printable
from modeaware.reports.topic_state import PartitionReplicas, TopicState

UNKNOWN = "unknown"
"""In the place of a mode: the topic has a record that cannot be used here."""


def topic_line(topic: TopicState) -> str:
    """The line of the topic itself."""
    return (
        f"Topic: {topic.name}\tTopicId: {topic.topic_id}\tPartitionCount: {len(topic.partitions)}"
        f"\tReplicationFactor: {topic.partitions[0].replication_factor}\tConfigs: {_configs(topic)}"
    )


def partition_line(topic: str, partition: PartitionReplicas, mode: str) -> str:
    """The line of one partition."""
    moves = ""
    if partition.adding is not None:
        moves = f"\tAdding Replicas: {_ids(partition.adding)}\tRemoving Replicas: {_ids(partition.removing)}"
    leader = "none" if partition.leader is None else partition.leader
    return (
        f"\tTopic: {topic}\tPartition: {partition.partition}\tLeader: {leader}"
        f"\tReplicas: {_ids(partition.replicas)}\tIsr: {_ids(partition.isr)}{moves}"
        f"\tElr: {_ids(partition.elr)}\tLastKnownElr: {_ids(partition.last_known_elr)}\tMode: {mode}"
    )


def _ids(brokers: Iterable[int] | None) -> str:
    return "N/A" if brokers is None else ",".join(map(str, brokers))


def _configs(topic: TopicState) -> str:
    if topic.configs is None:  # the user may not know; kafka-topics gives up then
        return "N/A"
    pairs = {name: "null" if value is None else printable(value) for name, value in topic.configs.items()}
    return ",".join(f"{name}={pairs[name]}" for name in in_java_order(pairs, topic.config_count))


def in_java_order(names: Iterable[str], count: int) -> list[str]:
    """Names as a Java HashMap of ``count`` strings lists them: a diff with ``kafka-topics`` shows the modes alone."""
    buckets = 16
    while count > buckets * 3 // 4:
        buckets *= 2
    return sorted(names, key=lambda name: _spread_hash(name) % buckets)


def _spread_hash(text: str) -> int:
    value = 0
    for character in text:
        value = (value * 31 + ord(character)) & 0xFFFFFFFF
    return value ^ value >> 16


PartitionFilter = Callable[[PartitionReplicas, int | None], bool]
"""Whether a partition is shown, given its topic's ``min.insync.replicas`` (None: not known, nothing is shown by it)."""


def is_under_replicated(partition: PartitionReplicas, _: int | None) -> bool:
    """``--under-replicated-partitions``"""
    return partition.replication_factor > len(partition.isr)


def is_unavailable(partition: PartitionReplicas, _: int | None) -> bool:
    """``--unavailable-partitions``"""
    return partition.leader is None


def is_under_min_isr(partition: PartitionReplicas, min_isr: int | None) -> bool:
    """``--under-min-isr-partitions``"""
    return partition.leader is None or (min_isr is not None and len(partition.isr) < min_isr)


def is_at_min_isr(partition: PartitionReplicas, min_isr: int | None) -> bool:
    """``--at-min-isr-partitions``"""
    return len(partition.isr) == min_isr


def filtered_lines(topic: TopicState, modes: Sequence[str], filters: Sequence[PartitionFilter]) -> list[str]:
    """The lines of the partitions that a filter lets through."""
    return [
        partition_line(topic.name, partition, modes[partition.partition])
        for partition in topic.partitions
        if any(lets_through(partition, topic.min_isr) for lets_through in filters)
    ]


def topic_lines(topic: TopicState, modes: Sequence[str]) -> list[str]:
    """The line of the topic and those of all its partitions."""
    return [topic_line(topic), *(partition_line(topic.name, p, modes[p.partition]) for p in topic.partitions)]
