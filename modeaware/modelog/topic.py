"""The mode log as a topic. Only the controller creates the topic; an existing topic is checked."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any

from modeaware.errors import ClusterError, ErrorCode
from modeaware.librdkafka import (
    AdminClient,
    ConfigResource,
    KafkaError,
    KafkaException,
    NewTopic,
    ResourceType,
    TopicCollection,
)
from modeaware.modelog.connection import is_transient
from modeaware.wire.retries import Deadline

ENSURE_TIMEOUT_S = 10.0
"""The time limit of :func:`ensure_mode_log`, for all its requests together."""
DESCRIBE_TIMEOUT_S = 3.0
"""The time limit of requests about an existing mode log."""
AGAIN_S = 0.1
_SLACK_S = 0.5


@dataclass(frozen=True)
class LogTopic:
    """The mode log as the brokers describe it; ``replicas`` has the number of replicas of each partition."""

    name: str
    topic_id: str
    replicas: tuple[int, ...]
    configs: Mapping[str, str | None]

    @property
    def unfit(self) -> str | None:
        """Return why the topic cannot be a mode log, or None if it can."""
        return unfit(self.name, len(self.replicas), self.configs)


def ensure_mode_log(admin: AdminClient, topic: str) -> str:
    """Create the mode log if it is missing, else check that the topic of that name can be a mode log.

    A new mode log has one partition, is compacted, and has ``min(3, brokers)`` replicas. With three replicas, two must
    acknowledge each append. An existing topic must have one partition, and ``cleanup.policy=compact`` alone; its owner
    decides on its replication.

    Returns:
        The topic id.

    Raises:
        ClusterError: the topic cannot be created or described (code REQUEST_TIMED_OUT: no answer within
            :data:`ENSURE_TIMEOUT_S`), or cannot be a mode log. The message has the remedy.
    """
    deadline = Deadline(ENSURE_TIMEOUT_S)
    try:
        return _checked(admin, topic, deadline)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise _failed(topic, "cannot be described", error) from error
    try:
        described = admin.describe_cluster(request_timeout=deadline.left_s())
        brokers = len(_result(described, deadline).nodes)
        new = NewTopic(topic, 1, min(3, brokers), config=log_configs(brokers))
        _result(admin.create_topics([new], request_timeout=deadline.left_s())[topic], deadline)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise _failed(topic, "cannot be created", error) from error
    return _checked_soon(admin, topic, deadline)


def log_configs(brokers: int) -> dict[str, str]:
    """Return the topic configs of a new mode log on a cluster with this number of brokers."""
    return {
        "cleanup.policy": "compact",
        # The cluster's default might be more than the number of replicas.
        "min.insync.replicas": "2" if brokers >= 3 else "1",
        "unclean.leader.election.enable": "false",
        # Small, because the last segment is not compacted, and every client reads the log from its beginning.
        "segment.bytes": str(10 * 1024 * 1024),
        # Kafka's default, which MAX_RECORD_BYTES fits. The brokers' message.max.bytes might be lower.
        "max.message.bytes": "1048588",
    }


def unfit(topic: str, partitions: int, configs: Mapping[str, str | None]) -> str | None:
    """Return why a topic cannot be a mode log, or None if it can."""
    if partitions != 1:
        return (
            f"topic {topic!r} has {partitions} partitions, but a mode log has 1: create it again, as after its loss "
            "(docs/runbook.md), or set modeaware.mode.log.topic to another topic"
        )
    policy = configs.get("cleanup.policy") or ""
    if policy != "compact":
        return (
            f"topic {topic!r} has cleanup.policy={policy}, which would delete modes in force; set it to compact if "
            "the topic is the mode log, or set modeaware.mode.log.topic to another topic"
        )
    return None


def weakness(replicas: int, min_in_sync: str | None, brokers: int) -> str | None:
    """Return why a mode log is less safe than a new one would be, and the remedy, or None if it is as safe."""
    wanted, faults = min(3, brokers), []
    if replicas < wanted:
        faults.append(
            f"it has {replicas} of the {wanted} replicas that {brokers} brokers can keep: give it {wanted} "
            "(modeaware reassign-partitions, or kafka-reassign-partitions.sh)"
        )
    if brokers >= 3 and min_in_sync is not None and int(min_in_sync) < 2:
        then = "then " if faults else ""
        faults.append(
            f"one in-sync replica is enough for an append: {then}set the mode log's min.insync.replicas to 2 "
            "(kafka-configs.sh)"
        )
    return "; ".join(faults) or None


def log_weakness(admin: AdminClient, topic: str) -> str | None:
    """Return the :func:`weakness` of the mode log. Return None also if brokers do not answer in time.

    Raises:
        ClusterError: the topic was altered, and can no longer be a mode log.
    """
    deadline = Deadline(DESCRIBE_TIMEOUT_S)
    try:
        log = _described(admin, topic, deadline)
        cluster = _result(admin.describe_cluster(request_timeout=deadline.left_s()), deadline)
    except (ClusterError, KafkaException):
        return None
    if log.unfit is not None:
        why = f"mode log: {log.unfit}. Until then no controller can start, and the active one performs no change"
        raise ClusterError(why, topic=topic)
    return weakness(min(log.replicas), log.configs.get("min.insync.replicas"), len(cluster.nodes))


def describe_mode_log(admin: AdminClient, topic: str, timeout_s: float) -> LogTopic:
    """Return the current description of the mode log, within ``timeout_s``.

    Raises:
        ClusterError: the mode log does not exist, or cannot be described (code REQUEST_TIMED_OUT: a retry may succeed).
    """
    try:
        return _described(admin, topic, Deadline(timeout_s))
    except KafkaException as error:
        raise _failed(topic, "cannot be described", error) from error


def _checked(admin: AdminClient, topic: str, deadline: Deadline) -> str:
    """Return the id of the topic; raise unless it can be a mode log."""
    log = _described(admin, topic, deadline)
    if log.unfit is not None:
        raise ClusterError(f"mode log: {log.unfit}", topic=topic)
    return log.topic_id


def _described(admin: AdminClient, topic: str, deadline: Deadline) -> LogTopic:
    # describe_topics, because AdminClient.list_topics(topic) creates a missing topic if the broker allows that.
    described = admin.describe_topics(TopicCollection([topic]), request_timeout=deadline.left_s())
    description = _result(described[topic], deadline)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = _result(admin.describe_configs([resource], request_timeout=deadline.left_s())[resource], deadline)
    replicas = tuple(len(partition.replicas) for partition in description.partitions)
    return LogTopic(topic, str(description.topic_id), replicas, {name: entry.value for name, entry in entries.items()})


def _checked_soon(admin: AdminClient, topic: str, deadline: Deadline) -> str:
    """Check a topic that a controller has just created, once a broker describes it."""
    while True:
        try:
            return _checked(admin, topic, deadline)
        except KafkaException as error:
            unknown = error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            if not unknown or deadline.left_s() < AGAIN_S:
                raise _failed(topic, "was created just now and cannot be described yet", error) from error
        time.sleep(AGAIN_S)  # metadata spread within milliseconds


def _result(future: Future[Any], deadline: Deadline) -> Any:
    try:
        return future.result(deadline.left_s() + _SLACK_S)
    except FutureTimeoutError as error:
        raise ClusterError(
            "mode log: no broker described or created it in time", code=ErrorCode.REQUEST_TIMED_OUT
        ) from error


def _failed(topic: str, what: str, error: KafkaException) -> ClusterError:
    cause = error.args[0]
    again = is_transient(cause) or cause.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    code = ErrorCode.REQUEST_TIMED_OUT if again else None
    return ClusterError(f"mode log: topic {topic!r} {what} ({cause.name()}: {cause.str()})", code=code, topic=topic)
