"""Effects: the requests by which the controller's decisions change something. An effect may be repeated without harm.

Only requests that delete topics name topic ids; all other requests name topics. So right before such a request is sent,
the topics' ids are compared with those of the decision, and then the lease is checked. If a topic is deleted and
recreated under its name between the comparison and the request's arrival, the request changes the recreated topic.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar
from uuid import UUID

from modeaware.cluster.fence import check_fences
from modeaware.cluster.metadata import TOPIC_RESOURCE, LeaderRequests, Led, ids_of_each_broker, no_topic_id, refusal
from modeaware.errors import ClusterError, ErrorCode
from modeaware.librdkafka import COORDINATOR_MOVES
from modeaware.lifecycle.commands import (
    CommitOffsets,
    CreatePartitions,
    CreateTopic,
    DeleteOldTopic,
    DeleteRecords,
    DeleteTopic,
    Effect,
    FenceTopic,
    RemoveConfigs,
)
from modeaware.lifecycle.replacement import FENCE_CONFIGS
from modeaware.wire.brokers import Brokers, ask_controller, route_to_controller
from modeaware.wire.requests import (
    AlterShareGroupOffsetsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    OffsetCommitRequest,
    in_requests,
)

OPERATION_TIMEOUT_MS = 3_000
"""The time that a broker has for a change. The wait for its response is longer, so that brokers can report timeouts."""
Check = Callable[[], None]
"""Called right before a request that changes something is sent; an exception prevents the sending."""
SET, DELETE = 0, 1
"""Operations of IncrementalAlterConfigs."""
_E = TypeVar("_E", bound=Effect)


def no_check() -> None:
    """Check nothing."""


def replaced_topics(brokers: Brokers, ids: Mapping[str, str]) -> dict[str, ClusterError]:
    """Return an error for each topic of ``ids`` (name -> id) that some broker does not have under that id.

    If a topic was recreated under the name, its records must not be deleted (invariant I1).
    """
    ids_by_node = ids_of_each_broker(brokers, sorted(ids))
    return {
        topic: ClusterError(
            f"topic {topic!r} no longer has the id {topic_id}; nothing was done",
            code=ErrorCode.UNKNOWN_TOPIC_ID,
            topic=topic,
        )
        for topic, topic_id in ids.items()
        if any(live_ids.get(topic) != topic_id for live_ids in ids_by_node.values())
    }


def delete_records(
    brokers: Brokers, effects: Sequence[DeleteRecords], check: Check = no_check
) -> list[ClusterError | None]:
    """Make the partitions' leaders delete the records below the effects' offsets (invariant I1).

    A leader whose epoch is not that of the snapshot gets no request. The request has no epoch, so an election right
    before its arrival goes unnoticed. One request per leader carries all effects, which are on different topics.

    Returns:
        For each effect, the error of the first partition whose deletion failed or whose leader epoch has changed.
        Records of the effect's other partitions may be deleted nevertheless.
    """
    ids = {effect.topic: effect.topic_id for effect in effects}
    offsets = {(effect.topic, p): offset for effect in effects for p, offset in effect.offsets.items()}
    epochs = {(effect.topic, p): epoch for effect in effects for p, epoch in effect.leader_epochs.items()}

    def replaced(topics: Collection[str]) -> dict[str, ClusterError]:
        failures = replaced_topics(brokers, {name: ids[name] for name in topics})
        check()
        return failures

    def request(led: Led) -> Any:
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        partition = DeleteRecordsRequest.DeleteRecordsTopic.DeleteRecordsPartition
        below = [
            topic(name=name, partitions=[partition(partition_index=p, offset=offsets[name, p]) for p in epochs])
            for name, epochs in led.items()
        ]
        return DeleteRecordsRequest(topics=below, timeout_ms=OPERATION_TIMEOUT_MS)

    try:
        answers = LeaderRequests(brokers).ask(offsets, "delete the records of", request, epochs, replaced)
    except ClusterError as error:
        return [error] * len(effects)

    def failure(effect: DeleteRecords) -> ClusterError | None:
        for p, offset in sorted(effect.offsets.items()):
            answer = answers[effect.topic, p]
            if isinstance(answer, ClusterError):
                return answer
            if answer.low_watermark < offset:
                text = f"{effect.topic}-{p}: records below {offset} were to be deleted, but the log starts at "
                return ClusterError(f"{text}{answer.low_watermark}", topic=effect.topic, partition=p)
        return None

    return [failure(effect) for effect in effects]


def create_partitions(
    brokers: Brokers, effects: Sequence[CreatePartitions], check: Check = no_check, *, validate_only: bool = False
) -> list[ClusterError | None]:
    """Create partitions of different topics, many topics in one request; return each effect's failure."""
    topic = CreatePartitionsRequest.CreatePartitionsTopic

    def entry(effect: CreatePartitions) -> Any:
        placed = [topic.CreatePartitionsAssignment(broker_ids=list(ids)) for ids in effect.assignments or ()]
        return topic(name=effect.topic, count=effect.total_count, assignments=placed or None)

    def request(entries: list[Any]) -> Any:
        return CreatePartitionsRequest(topics=entries, timeout_ms=OPERATION_TIMEOUT_MS, validate_only=validate_only)

    change = _Batch("create partitions of topic", "results", lambda e: e.topic, lambda e: e.total_count, entry, request)
    return change.send(brokers, effects, check, compare_ids=not validate_only)


def create_topics(
    brokers: Brokers, effects: Sequence[CreateTopic], check: Check = no_check, *, validate_only: bool = False
) -> list[ClusterError | None]:
    """Create new topics of replacements, many in one request; return each effect's failure. If the topic exists,
    the failure is TOPIC_ALREADY_EXISTS."""
    topic = CreateTopicsRequest.CreatableTopic

    def entry(effect: CreateTopic) -> Any:
        return topic(
            name=effect.new_topic,
            num_partitions=effect.num_partitions,
            replication_factor=effect.replication_factor,
            assignments=[],
            configs=[topic.CreatableTopicConfig(name=name, value=value) for name, value in effect.configs.items()],
        )

    def request(entries: list[Any]) -> Any:
        return CreateTopicsRequest(
            topics=entries, timeout_ms=OPERATION_TIMEOUT_MS, validate_only=validate_only, min_version=4
        )

    change = _Batch(
        "create topic", "topics", lambda e: e.new_topic, lambda e: 1 + e.num_partitions + len(e.configs), entry, request
    )
    return change.send(brokers, effects, check, compare_ids=not validate_only)


def fence_topics(
    brokers: Brokers, effects: Sequence[FenceTopic], check: Check = no_check, *, validate_only: bool = False
) -> list[ClusterError | None]:
    """Make brokers refuse data for topics, many in one request; return each effect's failure.

    Args:
        validate_only: set nothing, but validate the whole fence, see :func:`modeaware.cluster.fence.check_fences`.
    """
    unproved: dict[str, ClusterError] = {}
    if effects and validate_only:
        try:
            unproved = check_fences(brokers, [effect.topic for effect in effects])
        except ClusterError as error:
            return [error] * len(effects)
    refused = _alter_each(
        brokers, effects, lambda e: _configs_of(e.topic, e.configs), check, validate_only=validate_only
    )
    return [unproved.get(effect.topic) or failure for effect, failure in zip(effects, refused, strict=True)]


@dataclass(frozen=True)
class _Batch(Generic[_E]):
    """A request for the cluster's controller that changes many topics.

    Attributes:
        what: the change, for an error message.
        answers: the attribute of the response that has an entry for each topic.
        name: returns the topic that an effect changes.
        records: returns the number of records that an effect writes to the brokers' metadata.
        entry: returns the part of the request for one effect.
        request: makes the request from the entries.
    """

    what: str
    answers: str
    name: Callable[[_E], str]
    records: Callable[[_E], int]
    entry: Callable[[_E], Any]
    request: Callable[[list[Any]], Any]

    def send(
        self, brokers: Brokers, effects: Sequence[_E], check: Check, *, compare_ids: bool
    ) -> list[ClusterError | None]:
        """Send effects, which are on different topics, in as few requests as possible; return each effect's failure.

        Args:
            compare_ids: whether to compare topic ids with those of the decisions right before a request is sent.
        """
        parts = in_requests(effects, self.records)
        return [failure for some in parts for failure in self._send(brokers, some, check, compare_ids)]

    def _send(
        self, brokers: Brokers, effects: Sequence[_E], check: Check, compare_ids: bool
    ) -> list[ClusterError | None]:
        ids = {effect.topic: effect.topic_id for effect in effects}
        failures: dict[str, ClusterError] = {}

        def request() -> Any:
            failures.update(replaced_topics(brokers, ids) if compare_ids else {})
            if failures.keys() >= ids.keys():
                raise next(iter(failures.values()))
            check()
            return self.request([self.entry(effect) for effect in effects if effect.topic not in failures])

        try:
            what = f"{self.what} {self.name(effects[0])!r}" if len(effects) == 1 else f"{self.what}s"
            entries = _ask_controller(brokers, what, self.answers, request)
        except ClusterError as error:
            return [
                failures.get(effect.topic) or ClusterError(error.message, code=error.code, topic=effect.topic)
                for effect in effects
            ]
        answered = {getattr(entry, "resource_name", None) or entry.name: entry for entry in entries}
        for effect in effects:
            if effect.topic in failures:
                continue
            what, answer = f"{self.what} {self.name(effect)!r}", answered.get(self.name(effect))
            if answer is None:
                text = f"cannot {what}: the brokers' response lacks the topic"
                failures[effect.topic] = ClusterError(text, topic=effect.topic)
            elif answer.error_code:
                failures[effect.topic] = refusal(what, answer.error_code, answer.error_message, topic=effect.topic)
        return [failures.get(effect.topic) for effect in effects]


def remove_configs(
    brokers: Brokers, effects: Sequence[RemoveConfigs], check: Check = no_check
) -> list[ClusterError | None]:
    """Remove configs of topics, many in one request; return each effect's failure."""
    return _alter_each(brokers, effects, lambda e: _configs_of(e.topic, {}, e.names), check)


def _alter_each(
    brokers: Brokers,
    effects: Sequence[_E],
    entry: Callable[[_E], Any],
    check: Check,
    *,
    validate_only: bool = False,
) -> list[ClusterError | None]:
    """Set or remove the fence's configs on the effects' topics; return each effect's failure."""

    def request(entries: list[Any]) -> Any:
        return IncrementalAlterConfigsRequest(resources=entries, validate_only=validate_only)

    change = _Batch(
        "alter configs of topic", "responses", lambda e: e.topic, lambda _: len(FENCE_CONFIGS), entry, request
    )
    return change.send(brokers, effects, check, compare_ids=not validate_only)


def alter_configs(
    brokers: Brokers,
    topic: str,
    to_set: Mapping[str, str],
    to_remove: Iterable[str] = (),
    *,
    validate_only: bool = False,
) -> None:
    """Set and remove configs of a topic, all of them or none. After a ClusterError, the call may be repeated."""
    wanted = _configs_of(topic, to_set, to_remove)
    answer = brokers.ask(IncrementalAlterConfigsRequest(resources=[wanted], validate_only=validate_only))
    for response in answer.responses:
        if response.error_code:
            raise refusal(f"alter configs of topic {topic!r}", response.error_code, response.error_message, topic=topic)


def _configs_of(topic: str, to_set: Mapping[str, str], to_remove: Iterable[str] = ()) -> Any:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig
    configs = [config(name=name, config_operation=SET, value=value) for name, value in to_set.items()]
    configs += [config(name=name, config_operation=DELETE, value=None) for name in to_remove]
    return resource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=configs)


def delete_topics(
    brokers: Brokers, topics: Mapping[str, str], check: Check = no_check
) -> dict[str, ClusterError | None]:
    """Delete topics by id, so that a topic recreated under the name stays. Brokers before Kafka 2.8 reject this.

    ``topics``: name -> id, in Kafka's base64 form. A topic with an empty id is not deleted, and its result is a
    failure. Return name -> the failure, or None.
    """
    by_id = {
        UUID(bytes=b64decode(topic_id + "==", altchars=b"-_")): name for name, topic_id in topics.items() if topic_id
    }

    def request() -> Any:
        check()
        wanted = [DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id) for topic_id in by_id]
        return DeleteTopicsRequest(topics=wanted, timeout_ms=OPERATION_TIMEOUT_MS, min_version=6)  # with ids

    results: dict[str, ClusterError | None] = {
        name: ClusterError(f"delete topic {name!r}: the response does not mention it; outcome unknown", topic=name)
        if topic_id
        else no_topic_id(name)
        for name, topic_id in topics.items()
    }
    for result in _ask_controller(brokers, f"delete {', '.join(topics)}", "responses", request):
        name, code = by_id[result.topic_id], result.error_code
        results[name] = refusal(f"delete topic {name!r}", code, result.error_message, topic=name) if code else None
    return results


def deletes_topics(brokers: Brokers) -> bool:
    """Return whether brokers delete topics at all (``delete.topic.enable``). The answer does not depend on the user.

    The request names no topic, so it is rejected in any case. Brokers check the setting first: if they delete no
    topics, the error code is TOPIC_DELETION_DISABLED.
    """
    nameless = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=UUID(int=0))
    request = DeleteTopicsRequest(topics=[nameless], timeout_ms=OPERATION_TIMEOUT_MS, min_version=6)
    answers = _ask_controller(brokers, "check whether topics can be deleted", "responses", lambda: request)
    return not any(answer.error_code == ErrorCode.TOPIC_DELETION_DISABLED for answer in answers)


def deletion_disabled(effect: DeleteTopic | DeleteOldTopic) -> ClusterError:
    """Return the error of a deletion in a cluster that deletes no topics."""
    why, remedy = "a replacement ends with a deletion", "; or keep the topic (--fence none)"
    if isinstance(effect, DeleteTopic):
        why, remedy = f"an undo of its replacement deletes {effect.new_topic!r}", ""
    text = f"topic {effect.topic!r}: the brokers delete no topics, and {why}: set delete.topic.enable=true{remedy}"
    return ClusterError(text, code=ErrorCode.TOPIC_DELETION_DISABLED, topic=effect.topic)


def check_deletions(brokers: Brokers, effects: Sequence[DeleteTopic | DeleteOldTopic]) -> list[ClusterError | None]:
    """Return for each effect an error if brokers delete no topics, else None."""
    if not effects or deletes_topics(brokers):
        return [None] * len(effects)
    return [deletion_disabled(effect) for effect in effects]


def _ask_controller(brokers: Brokers, what: str, entries: str, request: Callable[[], Any]) -> list[Any]:
    """Send a request to the cluster's controller; return the ``entries`` of the response."""

    def codes(answer: Any) -> list[int]:
        return [entry.error_code for entry in getattr(answer, entries)]

    answer = ask_controller(brokers, route_to_controller(brokers), request, codes)
    if isinstance(answer, ClusterError):
        raise ClusterError(f"cannot {what}: {answer}", code=answer.code)
    responses: list[Any] = getattr(answer, entries)
    return responses


def commit_offsets(brokers: Brokers, effect: CommitOffsets, check: Check = no_check) -> None:
    failed: dict[int, int] = {}
    for _ in range(2):  # the coordinator may move once
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[effect.group], min_version=4, max_version=6)
        (coordinator,) = brokers.ask(request).coordinators
        failed = {-1: int(coordinator.error_code)}
        if not coordinator.error_code:
            check()
            send = _set_starts if effect.kind == "share" else _commit
            failed = send(brokers, int(coordinator.node_id), effect)
        if not COORDINATOR_MOVES.intersection(failed.values()):
            break
    if failed:
        partition, number = min(failed.items())
        where = f"{effect.topic}-{partition}" if partition >= 0 else f"topic {effect.topic!r}"
        raise refusal(f"commit the offset of group {effect.group!r} on {where}", number, topic=effect.topic)


def _commit(brokers: Brokers, node_id: int, effect: CommitOffsets) -> dict[int, int]:
    """Return partition -> error code, for the partitions that were not committed."""
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partitions = [
        topic.OffsetCommitRequestPartition(partition_index=p, committed_offset=offset, committed_metadata="")
        for p, offset in sorted(effect.offsets.items())
    ]
    request = OffsetCommitRequest(
        group_id=effect.group,
        member_id="",
        topics=[topic(name=effect.topic, partitions=partitions)],
        min_version=6,
        max_version=9,  # version 10 has topic ids instead of names, and older brokers lack it
    )
    answer = brokers.ask(request, node_id)
    return _failed(effect, answer.topics)


def _set_starts(brokers: Brokers, node_id: int, effect: CommitOffsets) -> dict[int, int]:
    """Set a share group's start offsets. Return partition -> error code; -1 -> the error of the whole request."""
    topic = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
    partition = topic.AlterShareGroupOffsetsRequestPartition
    partitions = [partition(partition_index=p, start_offset=offset) for p, offset in sorted(effect.offsets.items())]
    topics = [topic(topic_name=effect.topic, partitions=partitions)]
    answer = brokers.ask(AlterShareGroupOffsetsRequest(group_id=effect.group, topics=topics), node_id)
    if answer.error_code:
        return {-1: int(answer.error_code)}
    return _failed(effect, answer.responses)


def _failed(effect: CommitOffsets, topics: Iterable[Any]) -> dict[int, int]:
    codes = {entry.partition_index: int(entry.error_code) for topic in topics for entry in topic.partitions}
    return {p: codes.get(p, ErrorCode.UNKNOWN_SERVER_ERROR) for p in effect.offsets if codes.get(p, -1)}


BATCHED: dict[type[Effect], Callable[..., list[ClusterError | None]]] = {
    DeleteRecords: delete_records,
    CreatePartitions: create_partitions,
    CreateTopic: create_topics,
    FenceTopic: fence_topics,
    RemoveConfigs: remove_configs,
}
"""The effects that are performed for many topics at once."""
VALIDATED: dict[type[Effect], Callable[..., list[ClusterError | None]]] = {
    kind: partial(BATCHED[kind], validate_only=True) for kind in (CreatePartitions, CreateTopic, FenceTopic)
} | {
    DeleteTopic: check_deletions,
    DeleteOldTopic: check_deletions,
}
