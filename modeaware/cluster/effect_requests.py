"""The requests by which the controller changes things on the brokers. Each may be sent again later without harm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from modeaware.cluster.answers import refusal
from modeaware.cluster.leader_requests import LeaderRequests
from modeaware.errors import ClusterError, ErrorCode
from modeaware.librdkafka import KafkaError
from modeaware.lifecycle.effects import CommitOffsets, CreatePartitions, DeleteRecords
from modeaware.wire.brokers.client import Brokers
from modeaware.wire.brokers.controller import ask_controller, route_to_controller
from modeaware.wire.brokers.messages import (
    CreatePartitionsRequest,
    DeleteRecordsRequest,
    FindCoordinatorRequest,
    OffsetCommitRequest,
)

OPERATION_TIMEOUT_MS = 3_000
"""How long a broker may take; less than is waited for its answer, so that it is the broker who says so."""
Check = Callable[[], None]
"""Called right before a request that changes something is sent, each time; what it raises keeps it from being sent."""
_GROUP_KEY = 0
_LOOKS = 2
_COORDINATOR_MOVED = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)


def no_check() -> None:
    """Nothing to check."""


def delete_records(brokers: Brokers, effect: DeleteRecords, check: Check = no_check) -> None:
    """Have each partition's leader delete the records below the effect's offset, if it leads under the effect's epoch
    (invariant I1).

    The request itself names no epoch: an election right before it arrives is not noticed.

    Raises:
        ClusterError: of the first partition where that failed, or that has another leader epoch by now; the others were
            asked all the same.
    """

    def request(led: Mapping[int, int]) -> Any:  # built when the leader is known, right before it is sent
        check()
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        below = [topic.DeleteRecordsPartition(partition_index=p, offset=effect.offsets[p]) for p in led]
        topics = [topic(name=effect.topic, partitions=below)]
        return DeleteRecordsRequest(topics=topics, timeout_ms=OPERATION_TIMEOUT_MS)

    answers = LeaderRequests(brokers, effect.topic).ask(
        effect.offsets, "delete the records of", request, effect.leader_epochs
    )
    for partition, offset in sorted(effect.offsets.items()):
        answer = answers[partition]
        if isinstance(answer, ClusterError):
            raise answer
        if answer.low_watermark < offset:
            raise ClusterError(
                f"{effect.topic}-{partition}: records below {offset} were to go, but the log starts at "
                f"{answer.low_watermark}",
                topic=effect.topic,
                partition=partition,
            )


def create_partitions(brokers: Brokers, effect: CreatePartitions, validate_only: bool, check: Check = no_check) -> None:
    """Grow the topic, or only have it checked.

    Raises:
        ClusterError: refused, or (REQUEST_TIMED_OUT) not known to be done.
    """
    what = f"create partitions of topic {effect.topic!r}"

    def request() -> Any:
        check()
        return _growth(effect, validate_only)

    answer = ask_controller(brokers, route_to_controller(brokers), request, _codes)
    if isinstance(answer, ClusterError):
        raise ClusterError(f"cannot {what}: {answer}", code=answer.code, topic=effect.topic)
    (result,) = answer.results
    if result.error_code:
        raise refusal(what, result.error_code, result.error_message, topic=effect.topic)


def _codes(answer: Any) -> list[int]:
    return [result.error_code for result in answer.results]


def _growth(effect: CreatePartitions, validate_only: bool) -> Any:
    topic = CreatePartitionsRequest.CreatePartitionsTopic
    assignments = [topic.CreatePartitionsAssignment(broker_ids=list(ids)) for ids in effect.assignments or ()]
    grown = topic(name=effect.topic, count=effect.total_count, assignments=assignments or None)
    return CreatePartitionsRequest(topics=[grown], timeout_ms=OPERATION_TIMEOUT_MS, validate_only=validate_only)


def commit_offsets(brokers: Brokers, effect: CommitOffsets, check: Check = no_check) -> None:
    """Commit for a group without members.

    Raises:
        ClusterError: refused as a whole, or for a partition; or its coordinator is not there.
    """
    for _ in range(_LOOKS):
        node, number = _coordinator(brokers, effect.group)
        failed = {-1: number}
        if not number:
            check()
            failed = _commit(brokers, node, effect)
        if not failed:
            return
        if not _COORDINATOR_MOVED.intersection(failed.values()):
            break
    partition, number = min(failed.items())
    where = f"{effect.topic}-{partition}" if partition >= 0 else f"topic {effect.topic!r}"
    raise refusal(f"commit the offset of group {effect.group!r} on {where}", number, topic=effect.topic)


def _coordinator(brokers: Brokers, group: str) -> tuple[int, int]:
    """The broker and an error code, which is 0 where there is one."""
    request = FindCoordinatorRequest(key_type=_GROUP_KEY, coordinator_keys=[group], min_version=4, max_version=6)
    (found,) = brokers.ask(request).coordinators
    return int(found.node_id), int(found.error_code)


def _commit(brokers: Brokers, node_id: int, effect: CommitOffsets) -> dict[int, int]:
    """Partition -> error code, of those that were not committed."""
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
        max_version=9,  # version 10 takes topic ids for names, which older brokers do not know
    )
    answer = brokers.ask(request, node_id)
    codes = {entry.partition_index: int(entry.error_code) for each in answer.topics for entry in each.partitions}
    return {p: codes.get(p, ErrorCode.UNKNOWN_SERVER_ERROR) for p in effect.offsets if codes.get(p, -1)}
