"""Deleting topics."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from modeaware.cluster.answers import refusal
from modeaware.cluster.effect_requests import OPERATION_TIMEOUT_MS
from modeaware.errors import ClusterError
from modeaware.wire.brokers.client import Brokers
from modeaware.wire.brokers.controller import ask_controller, route_to_controller
from modeaware.wire.brokers.messages import DeleteTopicsRequest

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
    by_id = {UUID(bytes=b64decode(topic_id + "==", altchars=b"-_")): name for name, topic_id in topics.items()}

    def request() -> Any:
        wanted = [DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id) for topic_id in by_id]
        return DeleteTopicsRequest(topics=wanted, timeout_ms=OPERATION_TIMEOUT_MS, min_version=_BY_ID)

    answer = ask_controller(brokers, route_to_controller(brokers), request, _codes)
    if isinstance(answer, ClusterError):
        raise ClusterError(f"cannot delete {', '.join(topics)}: {answer}", code=answer.code)
    results: dict[str, ClusterError | None] = {}
    for told in answer.responses:
        name, failed = by_id[told.topic_id], told.error_code
        results[name] = refusal(f"delete topic {name!r}", failed, told.error_message, topic=name) if failed else None
    return results


def _codes(answer: Any) -> list[int]:
    return [told.error_code for told in answer.responses]
