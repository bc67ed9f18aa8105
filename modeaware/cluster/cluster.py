"""The controller's connection to the brokers: what it reads there of topics, and the effects it performs there."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.cluster.fence import check_at_rest, check_fence, log_ends
from modeaware.cluster.metadata import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    SET_ON_TOPIC,
    TOPIC_RESOURCE,
    Leader,
    LeaderRequests,
    Led,
    Partition,
    ids_of_each_broker,
    list_offsets_request,
    metadata_request,
    refusal,
    topic_names,
)
from modeaware.errors import ClusterError, ErrorCode
from modeaware.librdkafka import NO_ANSWER, AdminClient, KafkaError, KafkaException
from modeaware.lifecycle.commands import (
    CommitOffsets,
    CreatePartitions,
    CreateTopic,
    DeletePredecessor,
    DeleteRecords,
    DeleteTopic,
    Effect,
    FenceTopic,
)
from modeaware.lifecycle.replacement import FENCE_CONFIGS
from modeaware.topic_view import base64_id
from modeaware.wire.brokers import REQUEST_TIMEOUT_S as BROKER_TIMEOUT_S
from modeaware.wire.brokers import Brokers, ask_controller, route_to_controller
from modeaware.wire.requests import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    OffsetCommitRequest,
)

REQUEST_TIMEOUT_S = 15.0
"""For requests through ``Cluster.admin``."""
TOPIC_NAMES_AGE_S = 10.0
OPERATION_TIMEOUT_MS = 3_000
"""How long a broker may take for a change; less than the wait for its answer, so that the broker reports a timeout."""
PARTITIONS_A_REQUEST = 5_000
"""KRaft refuses a request as a whole that takes more than 10 000 records."""
Check = Callable[[], None]
"""Called right before each sending of a request that changes something; what it raises prevents the sending."""
NO_FENCE = {"compression.type": "producer", "max.message.bytes": "1048588"}
"""Kafka's defaults for :data:`FENCE_CONFIGS`."""
SET, DELETE = 0, 1
"""Operations of IncrementalAlterConfigs."""
_COORDINATOR_MOVED = frozenset(
    {KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR}
)
_T = TypeVar("_T")


@dataclass(frozen=True)
class TopicShape:
    topic_id: str
    internal: bool
    partition_count: int
    leaders: Mapping[int, Leader] = field(default_factory=dict, compare=False)
    replication_factor: int | None = field(default=None, compare=False)
    """None: not all partitions have the same one."""


@dataclass(frozen=True)
class LogOffsets:
    log_start: int
    end_offset: int
    last_stable_offset: int
    leader_epoch: int


def no_check() -> None:
    """Check nothing."""


class Cluster:
    """The controller's connections to the brokers. Used by one thread at a time.

    Every request raises :class:`ClusterError` where brokers refuse or do not answer (REQUEST_TIMED_OUT: the outcome is
    unknown).

    Requests go through :attr:`brokers` and not through librdkafka's admin client, which aborts the process when a
    group's coordinator is away for longer than a request's timeout, keeps asking former leaders, and waits 15 s for a
    broker that has just died.

    Attributes:
        admin: librdkafka's admin client, for creating the mode log and describing the cluster; never for groups.
    """

    def __init__(
        self, conf: Mapping[str, Any], timeout_s: float = BROKER_TIMEOUT_S, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._conf = dict(conf)
        self._clock = clock
        self._topic_names: tuple[float, list[str]] | None = None
        self._timeout_s = timeout_s
        self.admin = AdminClient(self._conf)
        self._brokers: Brokers | None = None

    @property
    def brokers(self) -> Brokers:
        if self._brokers is None:
            self._brokers = Brokers(self._conf, timeout_s=self._timeout_s)
        return self._brokers

    def close(self) -> None:
        if self._brokers is not None:
            self._brokers.close()

    def reconnect(self) -> None:
        """Drop the connections, as is right after a request that timed out."""
        if self._brokers is not None:
            self._brokers.disconnect()

    def renew_admin(self) -> None:
        """Make a new :attr:`admin`, as is right after a request of it that timed out.

        librdkafka keeps asking the broker it is connected to, frozen or not, until ``socket.timeout.ms`` has passed.
        """
        self.admin = AdminClient(self._conf)

    def topic_names(self) -> list[str]:
        """Return the names of all topics that the user may see, at most :data:`TOPIC_NAMES_AGE_S` old."""
        now_s = self._clock.monotonic_s()
        if self._topic_names is None or now_s - self._topic_names[0] >= TOPIC_NAMES_AGE_S:
            self._topic_names = now_s, topic_names(self.brokers)
        return self._topic_names[1]

    def describe(self, topics: Iterable[str]) -> dict[str, TopicShape | ClusterError | None]:
        """Return what one broker says of each topic: None where it has none of that name."""
        names = sorted(set(topics))
        if not names:
            return {}
        if "" in names:  # brokers reject the whole request for it
            raise ClusterError("a topic's name cannot be empty", code=ErrorCode.INVALID_TOPIC_EXCEPTION)
        found = {topic.name: topic for topic in self.brokers.ask(metadata_request(names, 10)).topics}
        return {name: _shape(name, found[name]) for name in names}

    def shape(self, topic: str) -> TopicShape | None:
        """Return what one broker says of a topic; None: it has none of that name."""
        found = self.describe([topic])[topic]
        if isinstance(found, ClusterError):
            raise found
        return found

    def cleanup_policies(self, topics: Iterable[str]) -> dict[str, str | ClusterError]:
        resource, names = DescribeConfigsRequest.DescribeConfigsResource, sorted(set(topics))
        if not names:
            return {}
        wanted = [
            resource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=["cleanup.policy"])
            for name in names
        ]
        found: dict[str, str | ClusterError] = {}
        for result in self.brokers.ask(DescribeConfigsRequest(resources=wanted)).results:
            name, code = result.resource_name, result.error_code
            if code:
                found[name] = refusal(f"describe the configs of topic {name!r}", code, result.error_message, topic=name)
            else:
                found[name] = str({config.name: config.value for config in result.configs}["cleanup.policy"])
        return found

    def own_configs(self, topics: Iterable[str]) -> dict[str, dict[str, str] | ClusterError]:
        """Return what is set on each topic itself."""
        resource, names = DescribeConfigsRequest.DescribeConfigsResource, sorted(set(topics))
        if not names:
            return {}
        wanted = [resource(resource_type=TOPIC_RESOURCE, resource_name=n, configuration_keys=None) for n in names]
        found: dict[str, dict[str, str] | ClusterError] = {}
        for result in self.brokers.ask(DescribeConfigsRequest(resources=wanted, min_version=1)).results:
            name, code = result.resource_name, result.error_code
            if code:
                found[name] = refusal(f"describe the configs of topic {name!r}", code, result.error_message, topic=name)
            else:
                found[name] = {c.name: str(c.value) for c in result.configs if c.config_source == SET_ON_TOPIC}
        return found

    def offsets(
        self, partitions: Iterable[Partition], leaders_seen: Mapping[Partition, Leader] | None = None
    ) -> dict[Partition, LogOffsets]:
        """Return the log offsets of ``partitions``; one whose leader does not answer is missing.

        Args:
            leaders_seen: where they were a moment ago; others are looked up.
        """
        leaders = LeaderRequests(self.brokers, leaders_seen)

        def listed(some: Iterable[Partition], timestamp: int, isolation_level: int) -> dict[Partition, Any]:
            def request(led: Led) -> Any:
                return list_offsets_request(led, timestamp, isolation_level)

            return leaders.found(some, "list the offsets of", request)

        # The last stable offset is read first: read after the end, it could hide a transaction that began in between.
        stable = listed(partitions, LATEST, READ_COMMITTED)
        start = listed(stable, EARLIEST, READ_UNCOMMITTED)
        end = listed(start, LATEST, READ_UNCOMMITTED)
        return {
            key: LogOffsets(start[key].offset, end[key].offset, stable[key].offset, end[key].leader_epoch)
            for key in sorted(end)
        }

    def perform(self, effects: Sequence[Effect], check: Check = no_check) -> list[ClusterError | None]:
        """Perform effects, each if every broker confirms that its topic is still the one it was decided for; return the
        failure of each. Records of all topics are deleted in one request a leader.

        The requests name topics, not ids, so the ids are compared right before each sending. Between that and the
        request's arrival a window remains in which a topic deleted and recreated under its name would be hit.

        Args:
            check: called after that, right before a request is sent; what it raises prevents the sending (invariant
                I5).
        """
        deletions = [effect for effect in effects if isinstance(effect, DeleteRecords)]
        growths = [effect for effect in effects if isinstance(effect, CreatePartitions)]
        deleted = iter(delete_records(self.brokers, deletions, check))
        created = iter(create_partitions(self.brokers, growths, check=check))
        return [
            next(deleted)
            if isinstance(effect, DeleteRecords)
            else next(created)
            if isinstance(effect, CreatePartitions)
            else self._perform(effect, check)
            for effect in effects
        ]

    def _perform(self, effect: Effect, check: Check) -> ClusterError | None:
        def last_checks() -> None:
            for replaced in replaced_topics(self.brokers, {effect.topic: effect.topic_id}).values():
                raise replaced
            check()

        try:
            check()  # first of all: where it is too late, nothing is asked any more
            if isinstance(effect, CommitOffsets):
                commit_offsets(self.brokers, effect, last_checks)
            elif isinstance(effect, CreateTopic):
                create_topic(self.brokers, effect, last_checks)
                if effect.after_fence:
                    remove_kept_fence(self.brokers, effect)
            elif isinstance(effect, DeleteTopic):
                self._check_untouched(effect)
                return delete_topics(self.brokers, {effect.successor: effect.successor_id}, last_checks)[
                    effect.successor
                ]
            elif isinstance(effect, DeletePredecessor):

                def still_at_rest() -> None:
                    shape = self.shape(effect.topic)
                    check_at_rest(self.brokers, effect, {} if shape is None else shape.leaders)
                    last_checks()

                return delete_topics(self.brokers, {effect.topic: effect.topic_id}, still_at_rest)[effect.topic]
            elif isinstance(effect, FenceTopic):
                last_checks()
                alter_configs(self.brokers, effect.topic, effect.configs)
        except ClusterError as error:
            return error
        return None

    def _check_untouched(self, effect: DeleteTopic) -> None:
        """Raise unless nothing was ever appended to the successor, by what its leaders say now (invariant I1)."""
        shape = self.shape(effect.successor)
        if shape is None or shape.topic_id != effect.successor_id:
            return  # the deletion goes by the id, and will tell
        wanted = [(effect.successor, p) for p in range(shape.partition_count)]
        ends = log_ends(self.brokers, wanted, {(effect.successor, p): each for p, each in shape.leaders.items()})
        if len(ends) < len(wanted) or any(end.offset for end in ends.values()):
            text = f"topic {effect.successor!r} is not deleted: it has records, or not every leader answers"
            raise ClusterError(text, topic=effect.topic)

    def validate(self, effects: Sequence[Effect]) -> list[ClusterError | None]:
        """Have brokers check what effects are to create and to alter; that changes nothing. Return the failure of each.

        A fence is checked as a whole: see :func:`modeaware.cluster.fence.check_fence`.
        """
        growths = [effect for effect in effects if isinstance(effect, CreatePartitions)]
        checked = iter(create_partitions(self.brokers, growths, validate_only=True))
        return [next(checked) if isinstance(effect, CreatePartitions) else self._validate(effect) for effect in effects]

    def _validate(self, effect: Effect) -> ClusterError | None:
        try:
            if isinstance(effect, CreateTopic):
                create_topic(self.brokers, effect, validate_only=True)
            elif isinstance(effect, FenceTopic):
                check_fence(self.brokers, effect.topic)
                alter_configs(self.brokers, effect.topic, effect.configs, validate_only=True)
        except ClusterError as error:
            return error
        return None


def _shape(name: str, topic: Any) -> TopicShape | ClusterError | None:
    if topic.error_code == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return None
    if topic.error_code not in (0, KafkaError.LEADER_NOT_AVAILABLE):
        return refusal(f"describe topic {name!r}", topic.error_code, topic=name)
    leaders = {p.partition_index: (int(p.leader_id), int(p.leader_epoch)) for p in topic.partitions}
    factors = {len(p.replica_nodes) for p in topic.partitions}
    factor = factors.pop() if len(factors) == 1 else None
    return TopicShape(base64_id(topic.topic_id), bool(topic.is_internal), len(topic.partitions), leaders, factor)


# Requests that change something. Each may be sent again later without harm.


def replaced_topics(brokers: Brokers, ids: Mapping[str, str]) -> dict[str, ClusterError]:
    """Return the error for each topic that some broker does not have under its id (name -> id).

    Records of a topic that was recreated under the name must not be deleted (invariant I1).
    """
    each = ids_of_each_broker(brokers, sorted(ids))
    return {
        topic: ClusterError(
            f"topic {topic!r} is not the topic {topic_id} any more: nothing was done",
            code=ErrorCode.UNKNOWN_TOPIC_ID,
            topic=topic,
        )
        for topic, topic_id in ids.items()
        if any(found.get(topic) != topic_id for found in each.values())
    }


def delete_records(
    brokers: Brokers, effects: Sequence[DeleteRecords], check: Check = no_check
) -> list[ClusterError | None]:
    """Have each partition's leader delete the records below the effects' offsets, if it leads under the epoch they were
    read under (invariant I1); one request a leader, for effects on different topics.

    The request itself has no epoch: an election right before its arrival goes unnoticed.

    Returns:
        For each effect, the error of its first partition that failed, or has another leader epoch by now; the others'
        records are deleted all the same.
    """
    ids = {effect.topic: effect.topic_id for effect in effects}
    offsets = {(effect.topic, p): offset for effect in effects for p, offset in effect.offsets.items()}
    epochs = {(effect.topic, p): epoch for effect in effects for p, epoch in effect.leader_epochs.items()}

    def replaced(topics: Collection[str]) -> dict[str, ClusterError]:
        found = replaced_topics(brokers, {name: ids[name] for name in topics})
        check()
        return found

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
    brokers: Brokers, effects: Sequence[CreatePartitions], validate_only: bool = False, check: Check = no_check
) -> list[ClusterError | None]:
    """Create partitions of different topics, of many in one request; return the failure of each."""
    failures: list[ClusterError | None] = []
    some: list[CreatePartitions] = []
    for effect in effects:
        if some and sum(each.total_count for each in some) + effect.total_count > PARTITIONS_A_REQUEST:
            failures += _create_partitions(brokers, some, validate_only, check)
            some = []
        some.append(effect)
    return failures + (_create_partitions(brokers, some, validate_only, check) if some else [])


def _create_partitions(
    brokers: Brokers, effects: Sequence[CreatePartitions], validate_only: bool, check: Check
) -> list[ClusterError | None]:
    ids = {effect.topic: effect.topic_id for effect in effects}
    failures: dict[str, ClusterError] = {}

    def request() -> Any:
        failures.update(replaced_topics(brokers, ids) if not validate_only else {})
        if failures.keys() >= ids.keys():
            raise next(iter(failures.values()))
        check()
        topic = CreatePartitionsRequest.CreatePartitionsTopic
        grown = []
        for effect in effects:
            if effect.topic not in failures:
                placed = [topic.CreatePartitionsAssignment(broker_ids=list(ids)) for ids in effect.assignments or ()]
                grown.append(topic(name=effect.topic, count=effect.total_count, assignments=placed or None))
        return CreatePartitionsRequest(topics=grown, timeout_ms=OPERATION_TIMEOUT_MS, validate_only=validate_only)

    def what(topic: str) -> str:
        return f"create partitions of topic {topic!r}"

    try:
        results = _ask_controller(brokers, "create partitions", "results", request)
    except ClusterError as error:
        return [failures.get(topic) or ClusterError(error.message, code=error.code, topic=topic) for topic in ids]
    answered = {result.name: result for result in results}
    for topic in ids.keys() - failures.keys():
        if (result := answered.get(topic)) is None:
            failures[topic] = ClusterError(f"cannot {what(topic)}: the response leaves it out", topic=topic)
        elif result.error_code:
            failures[topic] = refusal(what(topic), result.error_code, result.error_message, topic=topic)
    return [failures.get(effect.topic) for effect in effects]


def create_topic(
    brokers: Brokers, effect: CreateTopic, check: Check = no_check, *, validate_only: bool = False
) -> None:
    """Create the successor of a topic. One that exists already is an error, TOPIC_ALREADY_EXISTS."""
    topic = CreateTopicsRequest.CreatableTopic
    wanted = topic(
        name=effect.successor,
        num_partitions=effect.num_partitions,
        replication_factor=effect.replication_factor,
        assignments=[],
        configs=[topic.CreatableTopicConfig(name=name, value=value) for name, value in effect.configs.items()],
    )

    def request() -> Any:
        check()
        return CreateTopicsRequest(
            topics=[wanted], timeout_ms=OPERATION_TIMEOUT_MS, validate_only=validate_only, min_version=4
        )

    what = f"create topic {effect.successor!r}"
    for result in _ask_controller(brokers, what, "topics", request):
        if result.error_code:
            raise refusal(what, result.error_code, result.error_message, topic=effect.topic)


def remove_kept_fence(brokers: Brokers, effect: CreateTopic) -> None:
    """Have brokers forget the fence of an earlier topic of a successor's name, right after the creation.

    A broker that restarts may give the configs of a deleted topic to the next one of its name, until its metadata have
    been in a snapshot in between (``ConfigurationsDelta`` of Kafka 4.2 drops none that it has read in the same go; see
    AutoMQ/automq#3556). What is set on the new topic, and then removed, is absent after any restart.
    """
    names = FENCE_CONFIGS.keys() - effect.configs.keys()
    alter_configs(brokers, effect.successor, {name: NO_FENCE[name] for name in names})
    alter_configs(brokers, effect.successor, {}, names)


def alter_configs(
    brokers: Brokers,
    topic: str,
    to_set: Mapping[str, str],
    to_remove: Iterable[str] = (),
    *,
    validate_only: bool = False,
) -> None:
    """Set and remove configs of a topic, all of them or none. After a ClusterError, to ask again is harmless."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig
    configs = [config(name=name, config_operation=SET, value=value) for name, value in to_set.items()]
    configs += [config(name=name, config_operation=DELETE, value=None) for name in to_remove]
    wanted = resource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=configs)
    answer = brokers.ask(IncrementalAlterConfigsRequest(resources=[wanted], validate_only=validate_only))
    for each in answer.responses:
        if each.error_code:
            raise refusal(f"alter configs of topic {topic!r}", each.error_code, each.error_message, topic=topic)


def delete_topics(
    brokers: Brokers, topics: Mapping[str, str], check: Check = no_check
) -> dict[str, ClusterError | None]:
    """Delete topics (name -> id, in Kafka's base64 form) by their ids, so that a topic recreated meanwhile under one of
    the names is not hit. Return name -> None, or why it was not deleted. Brokers before Kafka 2.8 refuse.
    """
    by_id = {UUID(bytes=b64decode(topic_id + "==", altchars=b"-_")): name for name, topic_id in topics.items()}

    def request() -> Any:
        check()
        wanted = [DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id) for topic_id in by_id]
        return DeleteTopicsRequest(topics=wanted, timeout_ms=OPERATION_TIMEOUT_MS, min_version=6)  # ids came with it

    results: dict[str, ClusterError | None] = {
        name: ClusterError(f"cannot delete topic {name!r}: the response leaves it out", topic=name) for name in topics
    }
    for result in _ask_controller(brokers, f"delete {', '.join(topics)}", "responses", request):
        name, code = by_id[result.topic_id], result.error_code
        results[name] = refusal(f"delete topic {name!r}", code, result.error_message, topic=name) if code else None
    return results


def _ask_controller(brokers: Brokers, what: str, entries: str, request: Callable[[], Any]) -> list[Any]:
    """Return the ``entries`` of the response of the cluster's controller."""

    def codes(answer: Any) -> list[int]:
        return [entry.error_code for entry in getattr(answer, entries)]

    answer = ask_controller(brokers, route_to_controller(brokers), request, codes)
    if isinstance(answer, ClusterError):
        raise ClusterError(f"cannot {what}: {answer}", code=answer.code)
    found: list[Any] = getattr(answer, entries)
    return found


def commit_offsets(brokers: Brokers, effect: CommitOffsets, check: Check = no_check) -> None:
    failed: dict[int, int] = {}
    for _ in range(2):  # the coordinator may move once
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[effect.group], min_version=4, max_version=6)
        (found,) = brokers.ask(request).coordinators
        failed = {-1: int(found.error_code)}
        if not found.error_code:
            check()
            failed = _commit(brokers, int(found.node_id), effect)
        if not _COORDINATOR_MOVED.intersection(failed.values()):
            break
    if failed:
        partition, number = min(failed.items())
        where = f"{effect.topic}-{partition}" if partition >= 0 else f"topic {effect.topic!r}"
        raise refusal(f"commit the offset of group {effect.group!r} on {where}", number, topic=effect.topic)


def _commit(brokers: Brokers, node_id: int, effect: CommitOffsets) -> dict[int, int]:
    """Return partition -> error code for those that were not committed."""
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
        max_version=9,  # version 10 has topic ids for names, which older brokers do not support
    )
    answer = brokers.ask(request, node_id)
    codes = {entry.partition_index: int(entry.error_code) for each in answer.topics for entry in each.partitions}
    return {p: codes.get(p, ErrorCode.UNKNOWN_SERVER_ERROR) for p in effect.offsets if codes.get(p, -1)}


# Futures and errors of librdkafka's admin client


def wait(future: Future[_T], what: str) -> _T:
    """Return the future's result; raise its failure as a ClusterError that says ``what`` failed."""
    try:
        return future.result(REQUEST_TIMEOUT_S + 5)
    except KafkaException as error:
        raise cluster_error(what, error) from error
    except FutureTimeoutError as error:
        raise ClusterError(f"cannot {what}: no answer in time", code=ErrorCode.REQUEST_TIMED_OUT) from error


def cluster_error(what: str, error: KafkaException) -> ClusterError:
    """Return the ClusterError for an error of librdkafka, with the broker's error code where it has one."""
    kafka_error = error.args[0]
    number = kafka_error.code()
    if number in NO_ANSWER:
        number = ErrorCode.REQUEST_TIMED_OUT
    code = ErrorCode(number) if number in ErrorCode.__members__.values() else None
    return ClusterError(f"cannot {what}: {kafka_error.str()} ({kafka_error.name()})", code=code)
