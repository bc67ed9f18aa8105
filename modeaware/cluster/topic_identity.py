"""Which topic stands behind a name: what one broker says of many names, and what every broker says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from modeaware.errors import ClusterError
from modeaware.librdkafka import KafkaError
from modeaware.topic_view import known_id
from modeaware.wire.brokers.client import BULK_TIMEOUT_S, Ask, Brokers
from modeaware.wire.brokers.messages import MetadataRequest

Ids = Mapping[str, str | None]
"""Name -> topic id (Kafka's base64 form); None: no topic of that name is known. A name that the broker refuses to
describe, or describes without an id, is missing."""


def ids_of_one_broker(brokers: Brokers, names: Sequence[str]) -> Ids:
    """What some broker says, in one request. It may be stale: nothing may be concluded from it.

    Raises:
        ClusterError: no broker answered.
    """
    return _ids(brokers.ask(_metadata(names)))


def ids_of_each_broker(brokers: Brokers, names: Sequence[str]) -> dict[int, Ids]:
    """What each live broker says, by node id.

    Raises:
        ClusterError: one of them did not answer.
    """
    nodes = brokers.node_ids()
    found: dict[int, Ids] = {}
    asks = [Ask(node, _metadata(names)) for node in nodes]
    for node, answer in zip(nodes, brokers.ask_each(asks, BULK_TIMEOUT_S), strict=True):
        if isinstance(answer, ClusterError):
            raise answer
        found[node] = _ids(answer)
    return found


def topic_ids(brokers: Brokers, topic: str) -> dict[int, str | None]:
    """What each live broker says of one topic: node id -> topic id, None: it knows none of that name.

    Raises:
        ClusterError: a broker did not answer, or refused.
    """
    each = ids_of_each_broker(brokers, [topic])
    for node, ids in each.items():
        if topic not in ids:
            raise ClusterError(f"broker {node} does not describe topic {topic!r}", topic=topic)
    return {node: ids[topic] for node, ids in each.items()}


def _metadata(names: Sequence[str]) -> Any:
    named = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=named, allow_auto_topic_creation=False, min_version=10)  # topic ids came with it


def _ids(answer: Any) -> Ids:
    found: dict[str, str | None] = {}
    for topic in answer.topics:
        if topic.error_code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            found[topic.name] = None
        elif topic.error_code in (0, KafkaError.LEADER_NOT_AVAILABLE) and (topic_id := known_id(topic.topic_id)):
            found[topic.name] = topic_id
    return found
