"""The controller's requests to the brokers, for facts about topics and for the effects of decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from typing import Any, TypeVar

from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.cluster.effects import (
    BATCHED,
    VALIDATED,
    Check,
    commit_offsets,
    delete_topics,
    no_check,
    replaced_topics,
)
from modeaware.cluster.fence import check_sealed, log_ends
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
    configs_request,
    list_offsets_request,
    metadata_request,
    no_topic_id,
    read_configs,
    refusal,
    topic_names,
)
from modeaware.errors import ClusterError, ErrorCode
from modeaware.librdkafka import NO_ANSWER, AdminClient, KafkaError, KafkaException
from modeaware.lifecycle.commands import CommitOffsets, DeleteOldTopic, DeleteTopic, Effect
from modeaware.topic_view import known_id
from modeaware.wire.brokers import BULK_TIMEOUT_S, Ask, Brokers
from modeaware.wire.brokers import REQUEST_TIMEOUT_S as BROKER_TIMEOUT_S
from modeaware.wire.requests import MetadataRequest

REQUEST_TIMEOUT_S = 15.0
"""The timeout of requests through :attr:`Cluster.admin`."""
TOPIC_NAMES_AGE_S = 10.0
_T = TypeVar("_T")


@dataclass(frozen=True)
class TopicShape:
    topic_id: str
    internal: bool
    partition_count: int
    leaders: Mapping[int, Leader] = field(default_factory=dict, compare=False)
    replication_factor: int | None = field(default=None, compare=False)
    """None if the partitions differ in their numbers of replicas."""
    replicas: Mapping[int, int] = field(default_factory=dict, compare=False)
    """Broker -> the number of the topic's replicas on it."""


@dataclass(frozen=True)
class LogOffsets:
    log_start: int
    end_offset: int
    last_stable_offset: int
    leader_epoch: int


class Cluster:
    """The controller's connections to the brokers. Used by one thread at a time.

    Requests raise :class:`ClusterError` if brokers reject them, or do not answer. If the error's code is
    REQUEST_TIMED_OUT, the outcome is unknown.

    Most requests go through :attr:`brokers` and not through librdkafka's admin client. The admin client aborts the
    process when a group's coordinator is down for longer than a request's timeout. It keeps sending to former leaders,
    and waits 15 s for a broker that has just died.

    Attributes:
        admin: librdkafka's admin client, for requests about the mode log and the cluster; never for groups.
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
        """Close the connections. This is required after a request has timed out."""
        if self._brokers is not None:
            self._brokers.disconnect()

    def renew_admin(self) -> None:
        """Replace :attr:`admin` by a new client. This is required after one of its requests has timed out.

        librdkafka keeps sending to its present broker, even a frozen one, until ``socket.timeout.ms`` has passed.
        """
        self.admin = AdminClient(self._conf)

    def topic_names(self) -> list[str]:
        """Return the names of all topics that the user may see; the list is at most :data:`TOPIC_NAMES_AGE_S` old."""
        now_s = self._clock.monotonic_s()
        if self._topic_names is None or now_s - self._topic_names[0] >= TOPIC_NAMES_AGE_S:
            self._topic_names = now_s, topic_names(self.brokers)
        return self._topic_names[1]

    def describe(self, topics: Iterable[str]) -> dict[str, TopicShape | ClusterError | None]:
        """Return the shape of each topic, from the metadata of one broker; None if no topic has the name."""
        names = sorted(set(topics))
        if not names:
            return {}
        if "" in names:  # brokers would reject the whole request
            raise ClusterError("a topic's name cannot be empty", code=ErrorCode.INVALID_TOPIC_EXCEPTION)
        described = {topic.name: topic for topic in self.brokers.ask(metadata_request(names, 10)).topics}
        return {name: _shape(name, described[name]) for name in names}

    def shape(self, topic: str) -> TopicShape | None:
        """Return the shape of a topic, from the metadata of one broker; None if no topic has the name."""
        shape = self.describe([topic])[topic]
        if isinstance(shape, ClusterError):
            raise shape
        return shape

    def cleanup_policies(self, topics: Iterable[str]) -> dict[str, str | ClusterError]:
        return {
            name: configs
            if isinstance(configs, ClusterError)
            else str({c.name: c.value for c in configs}["cleanup.policy"])
            for name, configs in self._configs(topics, "cleanup.policy").items()
        }

    def own_configs(self, topics: Iterable[str]) -> dict[str, dict[str, str] | ClusterError]:
        """Return the configs that are set on each topic itself."""
        return {
            name: configs
            if isinstance(configs, ClusterError)
            else {c.name: str(c.value) for c in configs if c.config_source == SET_ON_TOPIC}
            for name, configs in self._configs(topics).items()
        }

    def _configs(self, topics: Iterable[str], *keys: str) -> dict[str, Any]:
        names = sorted(set(topics))
        request = configs_request(TOPIC_RESOURCE, names, *keys, min_version=1)
        return read_configs(self.brokers.ask(request)) if names else {}

    def offsets(
        self, partitions: Iterable[Partition], leaders_seen: Mapping[Partition, Leader] | None = None
    ) -> dict[Partition, LogOffsets]:
        """Return the log offsets of ``partitions``; a partition whose leader does not answer is missing.

        Args:
            leaders_seen: leaders that were found a moment ago. The leaders of all other topics are looked up.
        """
        leaders = LeaderRequests(self.brokers, leaders_seen)

        def listed(some: Iterable[Partition], timestamp: int, isolation_level: int) -> dict[Partition, Any]:
            def request(led: Led) -> Any:
                return list_offsets_request(led, timestamp, isolation_level)

            return leaders.entries(some, "list the offsets of", request)

        # The last stable offset is read first: read after the end, it could hide a transaction that began in between.
        stable = listed(partitions, LATEST, READ_COMMITTED)
        start = listed(stable, EARLIEST, READ_UNCOMMITTED)
        end = listed(start, LATEST, READ_UNCOMMITTED)
        # If the last stable offset is below the end, read it again: markers may have come in between. A transaction
        # that is open below the end holds the new value back, too.
        again = listed([key for key in end if stable[key].offset < end[key].offset], LATEST, READ_COMMITTED)
        return {
            key: LogOffsets(
                start[key].offset,
                end[key].offset,
                min(again.get(key, stable[key]).offset, end[key].offset),
                end[key].leader_epoch,
            )
            for key in sorted(end)
        }

    def perform(self, effects: Sequence[Effect], check: Check = no_check) -> list[ClusterError | None]:
        """Perform effects; return the failure of each.

        Right before a request is sent, every broker's topic ids are compared with those of the decisions; a topic with
        another id is left out. If a request names topics and not ids, a window remains between the comparison and the
        request's arrival. If a topic is recreated under the name in this window, the recreated topic is changed.
        Effects of one kind in :data:`~modeaware.cluster.effects.BATCHED` share requests.

        Args:
            check: called after the comparison, right before a request is sent. If the check raises an exception, the
                request is not sent (invariant I5).
        """

        batched = {
            kind: iter(ask(self.brokers, [effect for effect in effects if isinstance(effect, kind)], check))
            for kind, ask in BATCHED.items()
        }
        return [next(batched[type(e)]) if type(e) in batched else self._perform(e, check) for e in effects]

    def _perform(self, effect: Effect, check: Check) -> ClusterError | None:
        def last_checks() -> None:
            for replaced in replaced_topics(self.brokers, {effect.topic: effect.topic_id}).values():
                raise replaced
            check()

        try:
            check()  # if the lease has ended, no request is sent at all
            if isinstance(effect, CommitOffsets):
                commit_offsets(self.brokers, effect, last_checks)
            elif isinstance(effect, DeleteTopic):
                self._check_untouched(effect)
                return delete_topics(self.brokers, {effect.new_topic: effect.new_topic_id}, last_checks)[
                    effect.new_topic
                ]
            elif isinstance(effect, DeleteOldTopic):

                def still_sealed() -> None:
                    shape = self.shape(effect.topic)
                    check_sealed(self.brokers, effect, {} if shape is None else shape.leaders)
                    last_checks()

                return delete_topics(self.brokers, {effect.topic: effect.topic_id}, still_sealed)[effect.topic]
        except ClusterError as error:
            return error
        return None

    def _check_untouched(self, effect: DeleteTopic) -> None:
        """Raise unless the new topic's leaders report that the topic never had a record (invariant I1)."""
        shape = self.shape(effect.new_topic)
        if shape is None or shape.topic_id != effect.new_topic_id:
            text = f"topic {effect.new_topic!r} is not deleted: a broker has no topic with the id {effect.new_topic_id}"
            raise ClusterError(text, code=ErrorCode.UNKNOWN_TOPIC_ID, topic=effect.topic)  # perhaps it lags behind
        wanted = [(effect.new_topic, p) for p in range(shape.partition_count)]
        ends = log_ends(self.brokers, wanted, {(effect.new_topic, p): leader for p, leader in shape.leaders.items()})
        if len(ends) < len(wanted) or any(end.offset for end in ends.values()):
            text = f"topic {effect.new_topic!r} is not deleted: it has records, or not every leader answers"
            raise ClusterError(text, topic=effect.topic)

    def validate(self, effects: Sequence[Effect]) -> list[ClusterError | None]:
        """Make brokers validate effects that create, alter or delete topics; return the failure of each effect.

        A validation changes nothing. A fence is validated as a whole: see :func:`modeaware.cluster.fence.check_fences`.
        """
        batched = {
            kind: iter(ask(self.brokers, [effect for effect in effects if isinstance(effect, kind)]))
            for kind, ask in VALIDATED.items()
        }
        return [next(batched[type(effect)]) if type(effect) in batched else None for effect in effects]


def _shape(name: str, topic: Any) -> TopicShape | ClusterError | None:
    if topic.error_code == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return None
    if topic.error_code not in (0, KafkaError.LEADER_NOT_AVAILABLE):
        return refusal(f"describe topic {name!r}", topic.error_code, topic=name)
    leaders = {p.partition_index: (int(p.leader_id), int(p.leader_epoch)) for p in topic.partitions}
    factors = {len(p.replica_nodes) for p in topic.partitions}
    factor = factors.pop() if len(factors) == 1 else None
    replicas = Counter(int(node) for p in topic.partitions for node in p.replica_nodes)
    if (topic_id := known_id(topic.topic_id)) is None:
        return no_topic_id(name)
    return TopicShape(topic_id, bool(topic.is_internal), len(topic.partitions), leaders, factor, replicas)


def describe_all(brokers: Brokers) -> dict[str, TopicShape]:
    """Return the shapes of all topics that the user may see and that one broker can describe.

    Raises:
        ClusterError: the broker does not answer, or returns no topic ids.
    """
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False, min_version=10)
    (answer,) = brokers.ask_each([Ask(brokers.node_ids()[0], request)], BULK_TIMEOUT_S)
    if isinstance(answer, ClusterError):
        raise answer
    shapes = [(topic.name, _shape(topic.name, topic)) for topic in answer.topics if topic.name is not None]
    for _, shape in shapes:
        if isinstance(shape, ClusterError) and shape.code is ErrorCode.UNSUPPORTED_VERSION:
            raise shape  # without these topics, the result would look like that of an empty cluster
    return {name: shape for name, shape in shapes if isinstance(shape, TopicShape)}


# Futures and errors of librdkafka's admin client


def wait(future: Future[_T], what: str) -> _T:
    """Return the future's result; raise its failure as a ClusterError that names ``what``."""
    try:
        return future.result(REQUEST_TIMEOUT_S + 5)
    except KafkaException as error:
        raise cluster_error(what, error) from error
    except FutureTimeoutError as error:
        raise ClusterError(f"cannot {what}: no answer in time", code=ErrorCode.REQUEST_TIMED_OUT) from error


def cluster_error(what: str, error: KafkaException) -> ClusterError:
    """Return the ClusterError for an error of librdkafka, with the broker's error code if the error has one."""
    kafka_error = error.args[0]
    number = kafka_error.code()
    if number in NO_ANSWER:
        number = ErrorCode.REQUEST_TIMED_OUT
    code = ErrorCode(number) if number in ErrorCode.__members__.values() else None
    return ClusterError(f"cannot {what}: {kafka_error.str()} ({kafka_error.name()})", code=code)
