"""Reassignment of partitions and its cancellation (KIP-455), with KIP-860's guard of the replication factor.

Functions that send requests use the ``Brokers`` of their caller, on the caller's thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from modeaware.cluster.metadata import metadata_request, refusal
from modeaware.errors import ClusterError, ErrorCode, ModeAwareError, RequestRefused
from modeaware.wire.brokers import Brokers, Route, ask_controller, route_to_controller
from modeaware.wire.requests import AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest

PartitionKey = tuple[str, int]
"""Topic and partition."""
Replicas = tuple[int, ...]
"""Broker ids; the first is the preferred leader."""

REQUEST_TIMEOUT_S = 60.0
OPTION_NOT_SUPPORTED = (
    "The broker does not support the AllowReplicationFactorChange option for the AlterPartitionReassignments API. "
    "Consider re-sending the request without the option or updating the server version"
)
"""KIP-860's words."""
_OPTION_VERSION = 1
_PERHAPS_DONE = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_CONTROLLER)


@dataclass(frozen=True)
class PartitionReassignment:
    """A reassignment in progress, as the controller of the cluster reports it (KIP-455).

    Attributes:
        replicas: all replicas now, including added ones and those that will be removed.
        adding_replicas: brokers that are getting a replica.
        removing_replicas: brokers whose replica is removed at the end of the reassignment.
    """

    replicas: Replicas
    adding_replicas: Replicas
    removing_replicas: Replicas

    @property
    def target(self) -> Replicas:
        """The replicas after the reassignment."""
        return tuple(broker for broker in self.replicas if broker not in self.removing_replicas)

    @property
    def original(self) -> Replicas:
        """The replicas before the reassignment, which a cancellation restores. Their order may differ."""
        return tuple(broker for broker in self.replicas if broker not in self.adding_replicas)


def list_reassignments(
    brokers: Brokers,
    partitions: Iterable[PartitionKey] | None = None,
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> dict[PartitionKey, PartitionReassignment]:
    """Return the reassignments of ``partitions``, or of all, that the controller of the cluster reports as in progress.

    Raises:
        RequestRefused: the user is not authorized, for example.
        ClusterError: no broker answered, or none is the controller.
    """
    topic = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    topics = None
    if partitions is not None:
        topics = [topic(name=name, partition_indexes=indexes) for name, indexes in _by_topic(partitions).items()]
        if not topics:
            return {}

    def request() -> Any:
        return ListPartitionReassignmentsRequest(timeout_ms=_timeout_ms(timeout_s), topics=topics)

    answer = _asked(brokers, route_to_controller(brokers), request, timeout_s)
    if answer.error_code:
        raise request_failure("list partition reassignments", answer.error_code, answer.error_message)
    return {
        (entry.name, p.partition_index): PartitionReassignment(
            tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
        )
        for entry in answer.topics
        for p in entry.partitions
    }


def alter_reassignments(
    brokers: Brokers,
    wanted: Mapping[PartitionKey, Replicas | None],
    *,
    allow_replication_factor_change: bool = True,
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> dict[PartitionKey, ModeAwareError | None]:
    """Start reassignments, or cancel them (where the replicas are None).

    Args:
        allow_replication_factor_change: if False, the controller of the cluster refuses to change a replication factor
            (KIP-860). It accepts cancellations in any case.

    Returns:
        Partition -> None if the request was accepted, or an error. RequestRefused: nothing was changed for the
        partition, and ``code`` is Kafka's reason. ClusterError: the outcome is unknown.

    Raises:
        ClusterError: no broker answered, and nothing was sent.
    """
    route = route_to_controller(brokers)
    if allow_replication_factor_change or all(replicas is None for replicas in wanted.values()):
        return _alter(brokers, route, wanted, True, timeout_s) if wanted else {}
    answers = _alter(brokers, route, wanted, False, timeout_s)
    if any(error is None or error.code is not ErrorCode.UNSUPPORTED_VERSION for error in answers.values()):
        return answers
    # The whole request was refused: by this client, or by a controller that is older than the broker.
    unsupported = ErrorCode.UNSUPPORTED_VERSION
    refused: dict[PartitionKey, ModeAwareError | None] = {
        (topic, p): RequestRefused(OPTION_NOT_SUPPORTED, code=unsupported, topic=topic, partition=p)
        for (topic, p), replicas in wanted.items()
        if replicas is not None
    }
    cancelled = dict.fromkeys(wanted.keys() - refused.keys())
    return {**refused, **(_alter(brokers, route, cancelled, True, timeout_s) if cancelled else {})}


def assigned_replicas(brokers: Brokers, topics: Iterable[str]) -> dict[PartitionKey, Replicas]:
    """Return the replicas of all partitions of these topics, from one broker's metadata. Topics that are not in the
    metadata are left out.

    A partition that is being reassigned has all its replicas here, added and old (KIP-860 describes the consequences).
    :func:`list_reassignments` returns the partitions that are being reassigned.

    Raises:
        ClusterError: no broker answered.
    """
    names = sorted(set(topics))
    return _replicas_in(brokers.ask(metadata_request(names, min_version=4))) if names else {}


def _alter(
    brokers: Brokers,
    route: Route,
    wanted: Mapping[PartitionKey, Replicas | None],
    allow_change: bool,
    timeout_s: float,
) -> dict[PartitionKey, ModeAwareError | None]:
    try:
        answer = _asked(brokers, route, lambda: _request(wanted, allow_change, timeout_s), timeout_s, once=True)
    except ClusterError as error:
        known = error.code is ErrorCode.UNSUPPORTED_VERSION  # detected before anything was sent
        failure = RequestRefused if known else ClusterError
        return {
            (topic, p): failure(f"cannot reassign {topic}-{p}: {error}", code=error.code, topic=topic, partition=p)
            for topic, p in wanted
        }
    answered = {
        (topic.name, p.partition_index): (p.error_code, p.error_message)
        for topic in answer.responses
        for p in topic.partitions
    }
    if answer.error_code:
        answered = dict.fromkeys(wanted, (answer.error_code, answer.error_message))
    unanswered = (int(ErrorCode.UNKNOWN_SERVER_ERROR), "the brokers' response lacks the partition")
    return {key: _partition_failure(key, ids, *answered.get(key, unanswered)) for key, ids in wanted.items()}


def _request(wanted: Mapping[PartitionKey, Replicas | None], allow_change: bool, timeout_s: float) -> Any:
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic
    topics = []
    for name, indexes in _by_topic(wanted).items():
        replicas = {p: wanted[name, p] for p in indexes}
        partitions = [
            topic.ReassignablePartition(partition_index=p, replicas=None if ids is None else list(ids))
            for p, ids in replicas.items()
        ]
        topics.append(topic(name=name, partitions=partitions))
    return AlterPartitionReassignmentsRequest(
        timeout_ms=_timeout_ms(timeout_s),
        allow_replication_factor_change=allow_change,
        topics=topics,
        min_version=0 if allow_change else _OPTION_VERSION,
    )


def _asked(brokers: Brokers, route: Route, request: Callable[[], Any], timeout_s: float, *, once: bool = False) -> Any:
    answer = ask_controller(brokers, route, request, lambda answer: [answer.error_code], once=once, timeout_s=timeout_s)
    if isinstance(answer, ClusterError):
        raise answer
    return answer


def _replicas_in(answer: Any) -> dict[PartitionKey, Replicas]:
    return {
        (topic.name, partition.partition_index): tuple(partition.replica_nodes)
        for topic in answer.topics
        if not topic.error_code
        for partition in topic.partitions
    }


def _by_topic(partitions: Iterable[PartitionKey]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return by_topic


def _timeout_ms(timeout_s: float) -> int:
    return max(int(timeout_s * 900), 1)  # the broker's timeout ends before ours


def _partition_failure(
    key: PartitionKey, replicas: Replicas | None, number: int, message: str | None
) -> ModeAwareError | None:
    topic, partition = key
    what = f"cancel the reassignment of {topic}-{partition}"
    if replicas is not None:
        what = f"reassign {topic}-{partition} to {_ids(replicas)}"
    return request_failure(what, number, message, topic, partition) if number else None


def request_failure(
    what: str, number: int, message: str | None, topic: str | None = None, partition: int | None = None
) -> ModeAwareError:
    """Return the error for a broker's code: RequestRefused (nothing was changed) or ClusterError (unknown outcome)."""
    error = refusal(what, number, message, topic=topic, partition=partition)
    if number in _PERHAPS_DONE:
        return error
    code = error.code or ErrorCode.UNKNOWN_SERVER_ERROR
    return RequestRefused(error.message, code=code, topic=topic, partition=partition)


def _ids(replicas: Replicas) -> str:
    return f"[{', '.join(map(str, replicas))}]"


@dataclass(frozen=True)
class MoveState:
    """The progress of one planned partition.

    Attributes:
        current: its present replicas; empty if there is no such partition.
        target: the planned replicas.
        active: whether any reassignment of the partition, planned here or not, is in progress.
    """

    current: Replicas
    target: Replicas
    active: bool

    @property
    def completed(self) -> bool:
        """Whether the partition has its planned replicas and no reassignment in progress."""
        return not self.active and self.current == self.target


def move_states(
    brokers: Brokers, plan: Mapping[PartitionKey, Replicas], pauses_s: Iterable[float] = ()
) -> dict[PartitionKey, MoveState]:
    """Return the progress of each planned partition.

    Args:
        pauses_s: while a partition is neither moving nor on its planned brokers, check again after each of these
            pauses: the metadata of the broker that answers may be behind the controller's.

    Raises:
        RequestRefused: the user is not authorized, for example.
        ClusterError: no broker answered.
    """
    states: dict[PartitionKey, MoveState] = {}
    for pause_s in (0.0, *pauses_s):
        time.sleep(pause_s)  # no request waits for a broker to catch up
        in_progress = list_reassignments(brokers)
        current = assigned_replicas(brokers, (topic for topic, _ in plan))
        for key, target in plan.items():
            replicas = in_progress[key].replicas if key in in_progress else current.get(key, ())
            states[key] = MoveState(replicas, target, active=key in in_progress)
        if all(state.active or state.completed for state in states.values()):
            break
    return states


def replicas_before(
    current: Mapping[PartitionKey, Replicas], in_progress: Mapping[PartitionKey, PartitionReassignment]
) -> dict[PartitionKey, Replicas]:
    """Return the replicas before the reassignments in progress. A rollback restores these.

    In metadata, a moving partition has all its replicas, old and new. An assignment of all these would raise the
    partition's replication factor (KIP-860).
    """
    return {key: in_progress[key].original if key in in_progress else ids for key, ids in current.items()}


def uncertain_before(
    current: Mapping[PartitionKey, Replicas], in_progress: Mapping[PartitionKey, PartitionReassignment]
) -> list[PartitionKey]:
    """Return, sorted, the partitions for which :func:`replicas_before` may be wrong.

    A reassignment may be redirected while it is in progress. Kafka then counts all replicas of that moment, old and
    new, as the original ones. So the numbers of original and target replicas differ. They also differ if the
    replication factor is changed.
    """
    moving = {key: in_progress[key] for key in current if key in in_progress}
    return sorted(key for key, move in moving.items() if len(move.original) != len(move.target))
