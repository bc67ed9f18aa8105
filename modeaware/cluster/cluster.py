"""What the controller asks of the brokers, and what it has done there, as the rest of it sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any, TypeVar

from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.cluster.answers import refusal
from modeaware.cluster.effect_requests import Check, commit_offsets, create_partitions, delete_records, no_check
from modeaware.cluster.leader_requests import LeaderRequests
from modeaware.cluster.topic_identity import topic_ids
from modeaware.errors import ClusterError, ErrorCode
from modeaware.librdkafka import KafkaError, KafkaException
from modeaware.librdkafka_admin import AdminClient
from modeaware.lifecycle.effects import CreatePartitions, DeleteRecords, Effect
from modeaware.topic_view import base64_id
from modeaware.wire.brokers.client import REQUEST_TIMEOUT_S as BROKER_TIMEOUT_S
from modeaware.wire.brokers.client import Brokers
from modeaware.wire.brokers.messages import DescribeConfigsRequest, ListOffsetsRequest, MetadataRequest

REQUEST_TIMEOUT_S = 15.0
"""Of what is still asked through ``Cluster.admin``."""
TOPIC_NAMES_AGE_S = 10.0
_TOPIC_RESOURCE = 2
_LATEST, _EARLIEST = -1, -2
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
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
    """The controller's connections to the brokers. Used by one thread at a time.

    What it asks goes through :attr:`brokers` and not through librdkafka's admin client, which aborts the process when a
    group's coordinator is away for longer than a request's timeout, goes on asking former leaders, and waits 15 s for a
    broker that has just died.

    Args:
        conf: librdkafka configuration (``bootstrap.servers``, security settings).
        timeout_s: how long a request through :attr:`brokers` waits for a broker, connecting to it included.

    Attributes:
        admin: librdkafka's admin client, for making the mode log and for describing the cluster; never for groups.

    Raises:
        KafkaException: a setting that librdkafka does not take.
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
        """Any request to any broker.

        Raises:
            ConfigError: the configuration has a setting that cannot be translated for it.
            MissingExtra: kafka-python is not installed.
        """
        if self._brokers is None:
            self._brokers = Brokers(self._conf, timeout_s=self._timeout_s)
        return self._brokers

    def close(self) -> None:
        """Let go of all connections. Idempotent."""
        if self._brokers is not None:
            self._brokers.close()

    def reconnect(self) -> None:
        """Begin again with new connections, as is right after a request that timed out."""
        if self._brokers is not None:
            self._brokers.disconnect()

    def renew_admin(self) -> None:
        """A new :attr:`admin`, as is right after a request of it that timed out.

        librdkafka goes on asking the broker it is connected to, frozen or not, until ``socket.timeout.ms`` has passed.
        """
        self.admin = AdminClient(self._conf)

    def topic_names(self) -> list[str]:
        """The names of all topics the user may see, at most :data:`TOPIC_NAMES_AGE_S` old.

        The answer holds every partition of the cluster, and takes some 10 ms per 1 000 of them to decode.

        Raises:
            ClusterError: the cluster did not answer.
        """
        now_s = self._clock.monotonic_s()
        if self._topic_names is None or now_s - self._topic_names[0] >= TOPIC_NAMES_AGE_S:
            answer = self.brokers.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False))
            self._topic_names = now_s, [topic.name for topic in answer.topics if topic.name is not None]
        return self._topic_names[1]

    def describe(self, topics: Iterable[str]) -> dict[str, TopicShape | None]:
        """Each topic's shape; None for a topic the cluster does not know.

        Raises:
            ClusterError: the cluster did not answer, or refused.
        """
        names = sorted(set(topics))
        if not names:
            return {}
        if "" in names:  # brokers take it for a mistake in the request; the others are their business
            raise ClusterError("a topic's name cannot be empty", code=ErrorCode.INVALID_TOPIC_EXCEPTION)
        wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        answer = self.brokers.ask(  # topic ids came with version 10
            MetadataRequest(topics=wanted, allow_auto_topic_creation=False, min_version=10)
        )
        found = {topic.name: topic for topic in answer.topics}
        return {name: _shape(name, found[name]) for name in names}

    def cleanup_policy(self, topic: str) -> str:
        """The topic's ``cleanup.policy``.

        Raises:
            ClusterError: the cluster did not answer, or refused.
        """
        resource = DescribeConfigsRequest.DescribeConfigsResource
        wanted = resource(resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=["cleanup.policy"])
        (result,) = self.brokers.ask(DescribeConfigsRequest(resources=[wanted])).results
        if result.error_code:
            what = f"describe the configs of topic {topic!r}"
            raise refusal(what, result.error_code, result.error_message, topic=topic)
        return str({config.name: config.value for config in result.configs}["cleanup.policy"])

    def offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, LogOffsets]:
        """The log offsets of ``partitions``; one whose leader does not answer is missing.

        Raises:
            ClusterError: no broker says who leads.
        """
        leaders, wanted = LeaderRequests(self.brokers, topic), list(partitions)
        # The last stable offset is read first: read after the end, it could hide a transaction that began in between.
        stable = _list_offsets(leaders, topic, wanted, _LATEST, _READ_COMMITTED)
        start = _list_offsets(leaders, topic, stable, _EARLIEST, _READ_UNCOMMITTED)
        end = _list_offsets(leaders, topic, start, _LATEST, _READ_UNCOMMITTED)
        return {
            p: LogOffsets(start[p].offset, end[p].offset, stable[p].offset, end[p].leader_epoch) for p in sorted(end)
        }

    def perform(self, effect: Effect, check: Check = no_check) -> None:
        """Carry out an effect, if by every broker's word the topic is still the one it was decided for.

        The requests name topics, not ids, so the ids are compared right before each request is sent, and sent again:
        between that and the request's arrival a window remains in which a topic deleted and recreated under its name
        would be hit.

        Args:
            check: called after that, right before the request is sent; what it raises keeps it from being sent
                (invariant I5).

        Raises:
            ClusterError: it was refused or not answered; it may be asked for again.
        """

        def last_checks() -> None:
            self._check_id(effect, set(topic_ids(self.brokers, effect.topic).values()))
            check()

        if isinstance(effect, DeleteRecords):
            delete_records(self.brokers, effect, last_checks)
        elif isinstance(effect, CreatePartitions):
            create_partitions(self.brokers, effect, False, last_checks)
        else:
            commit_offsets(self.brokers, effect, last_checks)

    @staticmethod
    def _check_id(effect: Effect, found: set[str | None]) -> None:
        # Records of a topic that was recreated under the name are nobody's to delete (invariant I1).
        if found != {effect.topic_id}:
            raise ClusterError(
                f"topic {effect.topic!r} is not the topic {effect.topic_id} any more: nothing was done",
                code=ErrorCode.UNKNOWN_TOPIC_ID,
                topic=effect.topic,
            )

    def create_partitions(self, effect: CreatePartitions, validate_only: bool = False) -> None:
        """Grow the topic on the brokers, or only have them check it.

        Raises:
            ClusterError: refused; or (REQUEST_TIMED_OUT) not known to be done.
        """
        create_partitions(self.brokers, effect, validate_only)


def _shape(name: str, topic: Any) -> TopicShape | None:
    if topic.error_code == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return None
    if topic.error_code not in (0, KafkaError.LEADER_NOT_AVAILABLE):
        raise refusal(f"describe topic {name!r}", topic.error_code, topic=name)
    return TopicShape(base64_id(topic.topic_id), bool(topic.is_internal), len(topic.partitions))


def _list_offsets(
    leaders: LeaderRequests, topic: str, partitions: Iterable[int], timestamp: int, isolation_level: int
) -> dict[int, Any]:
    """A partition that is missing is "unavailable" to every decision: nothing is concluded from it."""

    def request(led: Mapping[int, int]) -> Any:
        entry = ListOffsetsRequest.ListOffsetsTopic
        wanted = [
            entry.ListOffsetsPartition(partition_index=p, current_leader_epoch=epoch, timestamp=timestamp)
            for p, epoch in led.items()
        ]
        topics = [entry(name=topic, partitions=wanted)]
        return ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics, min_version=4)

    answers = leaders.ask(partitions, "list the offsets of", request)
    return {p: answer for p, answer in answers.items() if not isinstance(answer, ClusterError)}


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
