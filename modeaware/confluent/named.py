"""confluent_kafka's calls that name topics. They are made for the topics that the names stand for
(:mod:`modeaware.clients.named`), and their results have the application's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from modeaware.librdkafka import ClusterMetadata, TopicPartition

PointsTo = Callable[[str, float], str]
"""Returns the topic that a name stands for. The second argument limits the wait for the first view, in seconds. If it
is -1, the application has given no limit."""


def list_topics(
    stock: Callable[..., ClusterMetadata], points_to: PointsTo, *args: Any, **kwargs: Any
) -> ClusterMetadata:
    """As ``list_topics``. If ``topic`` is given, describe the topic that this name stands for, under the given name."""
    given = {**dict(zip(("topic", "timeout"), args, strict=False)), **kwargs}
    name = given.get("topic")
    if not isinstance(name, str) or len(args) > 2 or (topic := points_to(name, _seconds(given))) == name:
        return stock(*args, **kwargs)
    metadata = stock(**{**given, "topic": topic})
    metadata.topics = {name: metadata.topics[topic]}
    return metadata


def offsets(
    stock: Callable[..., list[TopicPartition]], points_to: PointsTo, partitions: Any, *args: Any, **kwargs: Any
) -> list[TopicPartition]:
    """As ``committed`` and ``offsets_for_times``. A result with an error keeps the name that librdkafka returned."""
    asked = led(points_to, partitions, {**dict(zip(("timeout",), args, strict=False)), **kwargs})
    answer = stock(asked, *args, **kwargs)
    if asked is partitions:
        return answer
    return [
        result if result.error is not None or result.topic == given.topic else placed(result, given.topic)
        for given, result in zip(partitions, answer, strict=True)
    ]


def led(points_to: PointsTo, partitions: Any, options: dict[str, Any]) -> Any:
    """Return ``partitions`` with the topics that their names stand for. If no name changes, or librdkafka will refuse
    the call, return ``partitions`` itself."""
    if not isinstance(partitions, list) or not all(isinstance(partition, TopicPartition) for partition in partitions):
        return partitions
    timeout_s = _seconds(options)
    topics = {partition.topic: points_to(partition.topic, timeout_s) for partition in partitions}
    if all(name == topic for name, topic in topics.items()):
        return partitions
    return [placed(partition, topics[partition.topic]) for partition in partitions]


def placed(partition: TopicPartition, topic: str) -> TopicPartition:
    """Return ``partition`` with the topic ``topic``."""
    more = {"metadata": partition.metadata, "leader_epoch": partition.leader_epoch}
    given: dict[str, Any] = {name: value for name, value in more.items() if value is not None}
    return TopicPartition(topic, partition.partition, partition.offset, **given)


def _seconds(given: dict[str, Any]) -> float:
    timeout = given.get("timeout")
    return float(timeout) if isinstance(timeout, int | float) else -1.0
