"""The requests that create topics and partitions, and the look at what came of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from modeaware.admin.placement import Assignments
from modeaware.cluster.answers import refusal
from modeaware.errors import ClusterError, ErrorCode, ModeAwareError, RequestRefused
from modeaware.librdkafka import KafkaError
from modeaware.librdkafka_admin import NewTopic
from modeaware.wire.brokers.client import BULK_TIMEOUT_S, Brokers
from modeaware.wire.brokers.controller import ask_controller, route_to_controller
from modeaware.wire.brokers.messages import CreatePartitionsRequest, CreateTopicsRequest, MetadataRequest

Growth = tuple[str, int, Assignments | None]
"""A topic, its new partition count, and where the new partitions go (None: the brokers decide)."""

LOOK_DELAY_S = 0.1
_UNKNOWN_OUTCOME = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_CONTROLLER)


def create_topics(
    brokers: Brokers, new: NewTopic, assignments: Assignments | None, validate_only: bool, timeout_s: float
) -> Any:
    """Create one topic, with ``assignments`` in place of its numbers; returns the broker's result for it.

    Raises:
        RequestRefused: nothing was created; ``code`` is the broker's.
        ClusterError: not known to be done.
    """
    topic = CreateTopicsRequest.CreatableTopic

    def request(timeout_ms: int) -> Any:
        wanted = topic(
            name=new.topic,
            num_partitions=-1 if assignments else int(new.num_partitions),
            replication_factor=-1 if assignments else int(new.replication_factor),
            assignments=[
                topic.CreatableReplicaAssignment(partition_index=p, broker_ids=list(ids))
                for p, ids in enumerate(assignments or ())
            ],
            configs=[
                topic.CreatableTopicConfig(name=str(name), value=str(value))
                for name, value in (new.config or {}).items()
            ],
        )
        return CreateTopicsRequest(topics=[wanted], timeout_ms=timeout_ms, validate_only=validate_only, min_version=4)

    what = f"create topic {new.topic!r}"
    (result,) = _sent(brokers, what, request, timeout_s).topics
    error = answer_error(what, result.error_code, result.error_message, new.topic)
    if error is not None:
        raise error
    return result


def create_partitions(
    brokers: Brokers, growths: Sequence[Growth], validate_only: bool, timeout_s: float
) -> dict[str, ModeAwareError]:
    """Grow topics by one request; returns what was refused, by topic, as :func:`answer_error` has it.

    Raises:
        RequestRefused: (UNSUPPORTED_VERSION) the cluster is older than KIP-195.
        ClusterError: not known to be done.
    """
    topic = CreatePartitionsRequest.CreatePartitionsTopic

    def request(timeout_ms: int) -> Any:
        wanted = []
        for name, count, assignments in growths:
            placed = [topic.CreatePartitionsAssignment(broker_ids=list(ids)) for ids in assignments or ()]
            wanted.append(topic(name=name, count=count, assignments=placed or None))
        return CreatePartitionsRequest(topics=wanted, timeout_ms=timeout_ms, validate_only=validate_only)

    answer = _sent(brokers, "create partitions", request, timeout_s)
    errors = {
        result.name: answer_error(
            f"create partitions of topic {result.name!r}", result.error_code, result.error_message, result.name
        )
        for result in answer.results
    }
    return {name: error for name, error in errors.items() if error is not None}


def created_partitions(brokers: Brokers, topics: Iterable[str]) -> dict[str, dict[int, tuple[int, ...]]]:
    """Topic -> partition -> its replicas, of those topics that are there and that the user may see.

    Raises:
        ClusterError: no broker answered.
    """
    return {
        topic.name: {int(p.partition_index): tuple(p.replica_nodes) for p in topic.partitions}
        for topic in _described(brokers, topics)
        if not topic.error_code or topic.error_code == KafkaError.LEADER_NOT_AVAILABLE
    }


def missing_replicas(
    brokers: Brokers, topic: str, partitions: Sequence[int], timeout_s: float
) -> dict[int, tuple[int, ...]]:
    """Those of ``partitions`` that are under-replicated, and their replicas that are not in sync, once they are shown.

    Raises:
        ClusterError: (REQUEST_TIMED_OUT) no broker shows all of them in time.
    """
    deadline_s = time.monotonic() + timeout_s
    wanted = set(partitions)
    while wanted:
        shown: dict[int, Any] = {}
        for each in _described(brokers, [topic]):
            shown = {int(p.partition_index): p for p in each.partitions if int(p.partition_index) in wanted}
        if wanted <= shown.keys():
            missing = {
                p: tuple(n for n in entry.replica_nodes if n not in entry.isr_nodes)
                for p, entry in sorted(shown.items())
            }
            return {p: nodes for p, nodes in missing.items() if nodes}
        if time.monotonic() > deadline_s:
            raise ClusterError(
                f"topic {topic!r}: the new partitions were created, and the brokers do not show all of them yet: "
                "whether all replicas are there is not known",
                code=ErrorCode.REQUEST_TIMED_OUT,
                topic=topic,
            )
        time.sleep(LOOK_DELAY_S)  # the brokers' metadata follows the controller's in its own time
    return {}


def answer_error(what: str, number: int, message: str | None, topic: str | None = None) -> ModeAwareError | None:
    """Our error for the code that a broker answered a creation with; None for no error.

    RequestRefused where the broker has said no: nothing was changed. ClusterError where it may have been done.
    """
    if not number:
        return None
    error = refusal(what, number, message, topic=topic)
    if number in _UNKNOWN_OUTCOME:
        return error
    return RequestRefused(error.message, code=error.code or ErrorCode.UNKNOWN_SERVER_ERROR, topic=topic)


def _sent(brokers: Brokers, what: str, request: Any, timeout_s: float) -> Any:
    """The answer to a request that must not be done twice."""
    wait_s = max(min(timeout_s, 3 * BULK_TIMEOUT_S), 1.0)
    answer = ask_controller(
        brokers,
        route_to_controller(brokers),
        lambda: request(int(wait_s * 900)),  # the broker is to answer before we stop waiting
        lambda told: [each.error_code for each in (told.topics if hasattr(told, "topics") else told.results)],
        timeout_s=wait_s,
    )
    if isinstance(answer, ClusterError):
        if answer.code is ErrorCode.UNSUPPORTED_VERSION:
            raise RequestRefused(
                f"cannot {what}: the brokers are too old for this request ({answer}); upgrade them",
                code=ErrorCode.UNSUPPORTED_VERSION,
            )
        raise ClusterError(f"cannot {what}: {answer}; it may have been done all the same", code=answer.code)
    return answer


def _described(brokers: Brokers, topics: Iterable[str]) -> list[Any]:
    wanted = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in dict.fromkeys(topics) if topic]
    if not wanted:
        return []
    return list(brokers.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False, min_version=4)).topics)
