"""What the controller asks of the brokers, and what it has done there: one thin layer over Kafka's admin API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any, TypeVar

from modeaware.controller.partition_leaders import topic_ids
from modeaware.errors import ClusterError, ErrorCode
from modeaware.librdkafka import KafkaError, KafkaException, TopicPartition
from modeaware.librdkafka_admin import (
    AdminClient,
    ConfigResource,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    NewPartitions,
    OffsetSpec,
    ResourceType,
    TopicCollection,
)
from modeaware.lifecycle.effects import CommitOffsets, CreatePartitions, DeleteRecords, Effect
from modeaware.wire.brokers.client import Brokers
from modeaware.wire.brokers.messages import MetadataRequest

REQUEST_TIMEOUT_S = 15.0
_LEADER_MOVED = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)
_T = TypeVar("_T")


@dataclass(frozen=True)
class TopicShape:
    """A topic as the cluster describes it: its id (Kafka's base64 form) and its partitions."""

    topic_id: str
    internal: bool
    partition_count: int


@dataclass(frozen=True)
class LogOffsets:
    """A partition's log start, high watermark and last stable offset, and the leader epoch they were read under."""

    log_start: int
    end_offset: int
    last_stable_offset: int
    leader_epoch: int


class Cluster:
    """The controller's admin connection. Used by one thread at a time.

    Args:
        conf: librdkafka configuration (``bootstrap.servers``, security settings).
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        self._conf = dict(conf)
        self.admin = AdminClient(self._conf)
        self._brokers: Brokers | None = None

    @property
    def brokers(self) -> Brokers:
        """For what librdkafka does not ask, or filters.

        Raises:
            ConfigError: the configuration has a setting that cannot be translated for it.
            MissingExtra: kafka-python is not installed.
        """
        if self._brokers is None:
            self._brokers = Brokers(self._conf)
        return self._brokers

    def close(self) -> None:
        """Let go of all connections. Idempotent."""
        if self._brokers is not None:
            self._brokers.close()

    def reconnect(self) -> None:
        """Begin again with a new client, as is right after a request that timed out.

        librdkafka's admin requests to a group's coordinator go on timing out for ever once that broker was restarted.
        """
        self.admin = AdminClient(self._conf)
        if self._brokers is not None:
            self._brokers.disconnect()

    def topic_names(self) -> list[str]:
        """The names of all topics the user may see.

        Raises:
            ClusterError: the cluster did not answer.
        """
        answer = self.brokers.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        return [topic.name for topic in answer.topics if topic.name is not None]

    def describe(self, topics: Iterable[str]) -> dict[str, TopicShape | None]:
        """Each topic's shape; None for a topic the cluster does not know.

        Raises:
            ClusterError: the cluster did not answer, or refused.
        """
        names = sorted(set(topics))
        if not names:
            return {}
        shapes: dict[str, TopicShape | None] = {}
        if "" in names:  # librdkafka answers this one with a ValueError, the others are the broker's business
            raise ClusterError("a topic's name cannot be empty", code=ErrorCode.INVALID_TOPIC_EXCEPTION)
        futures = self.admin.describe_topics(TopicCollection(names), request_timeout=REQUEST_TIMEOUT_S)
        for name, future in futures.items():
            try:
                found = future.result(REQUEST_TIMEOUT_S + 5)
            except FutureTimeoutError as error:
                raise _no_answer(f"describe topic {name!r}") from error
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise cluster_error(f"describe topic {name!r}", error) from error
                shapes[name] = None
                continue
            shapes[name] = TopicShape(_topic_id(found.topic_id), found.is_internal, len(found.partitions))
        return shapes

    def cleanup_policy(self, topic: str) -> str:
        """The topic's ``cleanup.policy``."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        future = self.admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource]
        return str(wait(future, f"describe the configs of topic {topic!r}")["cleanup.policy"].value)

    def offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, LogOffsets]:
        """The log offsets of ``partitions``; one whose leader does not answer is missing."""
        wanted = [TopicPartition(topic, partition) for partition in partitions]
        if not wanted:
            return {}
        # The last stable offset is read first: read after the end, it could hide a transaction that began in between.
        stable = self._list_offsets(wanted, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
        start = self._list_offsets(wanted, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)
        end = self._list_offsets(wanted, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        return {
            p: LogOffsets(start[p][0], end[p][0], stable[p][0], end[p][1])
            for p in sorted(stable.keys() & start.keys() & end.keys())
        }

    def _list_offsets(
        self, wanted: list[TopicPartition], spec: OffsetSpec, isolation_level: IsolationLevel
    ) -> dict[int, tuple[int, int]]:
        offsets, moved = self._list_offsets_once(wanted, spec, isolation_level)
        if moved:  # librdkafka's list_offsets goes on asking the old leader until its metadata happen to be refreshed
            self._refresh_leaders()
            offsets |= self._list_offsets_once(moved, spec, isolation_level)[0]
        return offsets

    def _list_offsets_once(
        self, wanted: list[TopicPartition], spec: OffsetSpec, isolation_level: IsolationLevel
    ) -> tuple[dict[int, tuple[int, int]], list[TopicPartition]]:
        """The offsets there are, and the partitions whose leader is another one by now."""
        futures = self.admin.list_offsets(
            dict.fromkeys(wanted, spec), isolation_level=isolation_level, request_timeout=REQUEST_TIMEOUT_S
        )
        offsets, moved = {}, []
        for partition, future in futures.items():
            try:
                found = future.result(REQUEST_TIMEOUT_S + 5)
            except FutureTimeoutError:
                continue  # a missing partition is "unavailable" to every decision: nothing is concluded from it
            except KafkaException as error:
                if error.args[0].code() in _LEADER_MOVED:
                    moved.append(partition)
                continue
            epoch = found.leader_epoch
            offsets[partition.partition] = (found.offset, -1 if epoch is None else epoch)
        return offsets, moved

    def _refresh_leaders(self) -> None:
        try:
            self.admin.list_topics(timeout=REQUEST_TIMEOUT_S)  # all topics: asked for by name, a missing one is created
        except KafkaException as error:
            raise cluster_error("ask for the partitions' leaders", error) from error

    def perform(self, effect: Effect) -> None:
        """Carry out an effect, after checking that the topic is still the one it was decided for.

        The brokers' requests name topics, not ids: between this check and the request a window remains in which a topic
        deleted and recreated under its name would be hit.

        Raises:
            ClusterError: it was refused or not answered; it may be asked for again.
        """
        if isinstance(effect, DeleteRecords):
            self._check_id(effect, set(topic_ids(self.brokers, effect.topic).values()))  # every broker's word
            self._delete_records(effect)
            return
        shape = self.describe([effect.topic])[effect.topic]
        self._check_id(effect, {shape.topic_id if shape is not None else None})
        if isinstance(effect, CreatePartitions):
            self.create_partitions(effect)
        else:
            self._commit_offsets(effect)

    @staticmethod
    def _check_id(effect: Effect, found: set[str | None]) -> None:
        if found != {effect.topic_id}:
            raise ClusterError(
                f"topic {effect.topic!r} is not the topic {effect.topic_id} any more: nothing was done",
                code=ErrorCode.UNKNOWN_TOPIC_ID,
                topic=effect.topic,
            )

    def _delete_records(self, effect: DeleteRecords) -> None:
        offsets = [TopicPartition(effect.topic, p, offset) for p, offset in sorted(effect.offsets.items())]
        futures = self.admin.delete_records(offsets, request_timeout=REQUEST_TIMEOUT_S)
        for partition, future in futures.items():
            name = f"{effect.topic}-{partition.partition}"
            result = wait(future, f"delete the records of {name}")
            if result.low_watermark < effect.offsets[partition.partition]:
                raise ClusterError(
                    f"{name}: records below {effect.offsets[partition.partition]} were to go, but the log starts at "
                    f"{result.low_watermark}",
                    topic=effect.topic,
                    partition=partition.partition,
                )

    def create_partitions(self, effect: CreatePartitions, validate_only: bool = False) -> None:
        """Grow the topic on the brokers, or only have them check it."""
        if effect.assignments:
            new = NewPartitions(effect.topic, effect.total_count, [list(replicas) for replicas in effect.assignments])
        else:
            new = NewPartitions(effect.topic, effect.total_count)
        try:
            futures = self.admin.create_partitions(
                [new],
                validate_only=validate_only,
                operation_timeout=REQUEST_TIMEOUT_S,
                request_timeout=REQUEST_TIMEOUT_S,
            )
        except ValueError as error:  # librdkafka checks the form of assignments before it asks a broker
            raise ClusterError(
                f"topic {effect.topic!r}: {error}", code=ErrorCode.INVALID_REPLICA_ASSIGNMENT, topic=effect.topic
            ) from error
        wait(futures[effect.topic], f"create partitions of topic {effect.topic!r}")

    def _commit_offsets(self, effect: CommitOffsets) -> None:
        partitions = [TopicPartition(effect.topic, p, offset) for p, offset in sorted(effect.offsets.items())]
        request = [ConsumerGroupTopicPartitions(effect.group, partitions)]
        futures = self.admin.alter_consumer_group_offsets(request, request_timeout=REQUEST_TIMEOUT_S)
        committed = wait(futures[effect.group], f"commit offsets of group {effect.group!r}")
        for each in committed.topic_partitions or []:  # the call succeeds, whatever becomes of its partitions
            if each.error is not None:
                name = f"{effect.topic}-{each.partition}"
                raise cluster_error(
                    f"commit the offset of group {effect.group!r} on {name}", KafkaException(each.error)
                )


def wait(future: Future[_T], what: str) -> _T:
    """The future's result; its failure as a ClusterError that says ``what`` failed."""
    try:
        return future.result(REQUEST_TIMEOUT_S + 5)
    except KafkaException as error:
        raise cluster_error(what, error) from error
    except FutureTimeoutError as error:
        raise _no_answer(what) from error


def _no_answer(what: str) -> ClusterError:
    return ClusterError(f"cannot {what}: no answer in time", code=ErrorCode.REQUEST_TIMED_OUT)


def cluster_error(what: str, error: KafkaException) -> ClusterError:
    """Our error for one of librdkafka's, with the broker's error code where we have a name for it."""
    kafka_error = error.args[0]
    number = kafka_error.code()
    if number in (KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError._TRANSPORT):  # all: no answer
        number = ErrorCode.REQUEST_TIMED_OUT
    known = number in ErrorCode.__members__.values()
    return ClusterError(
        f"cannot {what}: {kafka_error.str()} ({kafka_error.name()})", code=ErrorCode(number) if known else None
    )


def _topic_id(uuid: object) -> str:
    """Kafka writes topic ids in URL-safe base64 without padding."""
    return str(uuid).rstrip("=").replace("+", "-").replace("/", "_")
