"""Deleting topics."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from modeaware.cluster.answers import refusal
from modeaware.cluster.effect_requests import OPERATION_TIMEOUT_MS
from modeaware.errors import ClusterError
from modeaware.librdkafka import KafkaError
from modeaware.wire.brokers.client import Ask, Brokers
from modeaware.wire.brokers.messages import DeleteTopicsRequest, MetadataRequest

_BY_ID = 6


def delete_topics(brokers: Brokers, topics: Mapping[str, str]) -> dict[str, ClusterError | None]:
    """Have topics deleted by their ids, so that none is hit that was made meanwhile under the name of another.

    Args:
        topics: name -> id (Kafka's base64 form).

    Returns:
        Per name None, or why it was not deleted.

    Raises:
        ClusterError: not asked; or (REQUEST_TIMED_OUT) not known to be done; or a broker before Kafka 2.8.
    """
    node, cluster = brokers.ask_any(MetadataRequest(topics=[], allow_auto_topic_creation=False))
    answers = _asked(brokers, node, topics)
    if cluster.controller_id >= 0 and all(a.error_code == KafkaError.NOT_CONTROLLER for a in answers.values()):
        answers = _asked(brokers, int(cluster.controller_id), topics)
    results: dict[str, ClusterError | None] = {}
    for name, answer in answers.items():
        failed = answer.error_code
        results[name] = refusal(f"delete topic {name!r}", failed, answer.error_message, topic=name) if failed else None
    return results


def _asked(brokers: Brokers, node_id: int, topics: Mapping[str, str]) -> dict[str, Any]:
    by_id = {UUID(bytes=b64decode(topic_id + "==", altchars=b"-_")): name for name, topic_id in topics.items()}
    wanted = [DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id) for topic_id in by_id]
    request = DeleteTopicsRequest(topics=wanted, timeout_ms=OPERATION_TIMEOUT_MS, min_version=_BY_ID)
    (answer,) = brokers.ask_each([Ask(node_id, request, once=True)])
    if isinstance(answer, ClusterError):
        raise ClusterError(f"cannot delete {', '.join(topics)}: {answer}", code=answer.code)
    return {by_id[told.topic_id]: told for told in answer.responses}
