"""Asks the brokers what this user may do. Nothing is changed, and no internal topic comes into being by it.

Metadata and DescribeCluster tell the operations on topics and on the cluster (KIP-430). For groups and transactional
ids the brokers are sent what they must refuse: a heartbeat and a transaction's step, of a member and a producer that do
not exist. Who may not ask is told so first; any other answer means that the right is there, also that of a broker that
is not the coordinator, so none is looked for (that would make ``__consumer_offsets``).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from modeaware.endpoint.authorise import AclOperation
from modeaware.errors import ClusterError
from modeaware.librdkafka import KafkaError
from modeaware.modelog.topic import log_configs
from modeaware.reports.rights.findings import State, Verdict
from modeaware.reports.rights.needs import CLUSTER, EVERY, GROUP, TOPIC, Need
from modeaware.wire.brokers.client import Ask, Brokers
from modeaware.wire.brokers.controller import Route, ask_controller
from modeaware.wire.brokers.messages import (
    AddOffsetsToTxnRequest,
    CreateTopicsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    HeartbeatRequest,
    MetadataRequest,
    OffsetFetchRequest,
)

_NOT_SAID = 31
"""The one bit of the field of a broker that does not tell operations."""
_NO_PRODUCER = 2**62
_TOPIC_RESOURCE = 2
_VALIDATE_MS = 3_000
_NOT_DESCRIBED = frozenset(
    {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE}
)
"""Each of these includes DESCRIBE: who may not describe a topic may do none of them."""
_TOPIC_REFUSED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
"""What says that a right on a topic is missing; of groups and transactional ids it is one code each."""

_NO_VERDICT = frozenset({KafkaError.NOT_CONTROLLER, KafkaError.REQUEST_TIMED_OUT})
"""Of a creation: nobody has judged it."""


@dataclass(frozen=True)
class SeenTopic:
    """A topic as Metadata tells it: partitions, None where it is not there or not shown; ``shown``: may be described.

    ``operations``: what the user may do with it, None where the broker does not say. ``replicas``: the fewest that a
    partition has.
    """

    partitions: int | None
    shown: bool
    operations: frozenset[int] | None
    replicas: int | None = None


@dataclass(frozen=True)
class Asked:
    """All that was learnt.

    Attributes:
        verdicts: in the order of the needs.
        topics: by name; the mode log and the scope's.
        node, brokers: the broker that was asked, and how many there are.
        not_creatable: why the mode log could not be made although the user may; None: it could, or was not tried.
    """

    verdicts: tuple[Verdict, ...]
    topics: Mapping[str, SeenTopic]
    node: int
    brokers: int
    not_creatable: str | None


def ask(brokers: Brokers, wanted: Sequence[Need], mode_log: str) -> Asked:
    """Have the brokers judge every need that has a name.

    Raises:
        ClusterError: no broker answers. One request that is not answered, or not known, makes its needs unknown.
    """
    stranger = f"modeaware-check-{uuid.uuid4().hex}"  # no right names it, but those on all names do
    names = {_asked_name(need, stranger) for need in wanted if need.kind == TOPIC and need.named}
    node, metadata = brokers.ask_any(_metadata(sorted(names | {mode_log})))
    topics = {topic.name: _seen(topic) for topic in metadata.topics}
    route = Route(node, int(metadata.controller_id))
    session = _Session(brokers, route, topics, mode_log, len(metadata.brokers), stranger)
    verdicts = tuple(session.verdict(need) for need in wanted)
    return Asked(verdicts, topics, node, len(metadata.brokers), session.not_creatable)


class _Session:
    """Questions to one broker, and where it is not the controller of a cluster with ZooKeeper, to that."""

    def __init__(
        self,
        brokers: Brokers,
        route: Route,
        topics: Mapping[str, SeenTopic],
        mode_log: str,
        count: int,
        stranger: str,
    ) -> None:
        self._brokers = brokers
        self._route = route
        self._topics = topics
        self._mode_log = mode_log
        self._count = count
        self._stranger = stranger
        self.not_creatable: str | None = None

    def verdict(self, need: Need) -> Verdict:
        if not need.named:
            return Verdict(State.UNKNOWN, f"name one with --{need.kind}")
        name = _asked_name(need, self._stranger)
        if need.kind == TOPIC:
            return self._topic(need, name)
        if need.kind == CLUSTER:
            return self._cluster(need)
        if need.kind == GROUP:
            reads = need.operation is AclOperation.READ
            request, code = (_heartbeat(name), _code) if reads else (_offset_fetch(name), _group_code)
            return self._judged(request, code, KafkaError.GROUP_AUTHORIZATION_FAILED)
        return self._judged(_transaction_step(name), _code, KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    def _topic(self, need: Need, name: str) -> Verdict:
        seen = self._topics[name]
        if need.operation is AclOperation.CREATE:
            return self._creation(name, seen)
        if seen.operations is not None:
            return _granted(need.operation in seen.operations)
        if not seen.shown and need.operation in _NOT_DESCRIBED:
            return Verdict(State.FAIL)
        if need.operation is AclOperation.DESCRIBE:
            return Verdict(State.PASS)
        if need.operation is AclOperation.DESCRIBE_CONFIGS:
            return self._judged(_topic_configs(name), _result_code, KafkaError.TOPIC_AUTHORIZATION_FAILED)
        return Verdict(State.UNKNOWN, "the brokers do not say what this user may do with it")

    def _creation(self, name: str, seen: SeenTopic) -> Verdict:
        if seen.partitions is not None:
            return Verdict(State.PASS, "not needed: it is there")
        answer = ask_controller(
            self._brokers,
            self._route,
            lambda: _creation(name, self._count),
            lambda told: [told.topics[0].error_code],
            once=False,
        )
        if isinstance(answer, ClusterError):
            return Verdict(State.UNKNOWN, str(answer))
        (result,) = answer.topics
        if result.error_code in _TOPIC_REFUSED:
            return Verdict(State.FAIL)
        if result.error_code == KafkaError.TOPIC_ALREADY_EXISTS:
            return Verdict(State.PASS, "not needed: it is there")
        if result.error_code:
            reason = f"{KafkaError(result.error_code).name()}: {result.error_message}"
            if result.error_code in _NO_VERDICT:
                return Verdict(State.UNKNOWN, reason)
            self.not_creatable = reason
        return Verdict(State.PASS)

    def _cluster(self, need: Need) -> Verdict:
        answer = self._answer(DescribeClusterRequest(include_cluster_authorized_operations=True))
        if isinstance(answer, ClusterError):
            return Verdict(State.UNKNOWN, str(answer))
        operations = _operations(answer.authorized_operations)
        if answer.error_code or operations is None:
            return Verdict(State.UNKNOWN, "the brokers do not say what this user may do with the cluster")
        return _granted(need.operation in operations)

    def _judged(self, request: Any, code: Callable[[Any], int], refused: int) -> Verdict:
        """By whether the request is refused for want of the right."""
        answer = self._answer(request)
        if isinstance(answer, ClusterError):
            return Verdict(State.UNKNOWN, str(answer))
        return _granted(code(answer) != refused)

    def _answer(self, request: Any) -> Any:
        return self._brokers.ask_each([Ask(self._route.node, request)])[0]


def _granted(there: bool) -> Verdict:
    return Verdict(State.PASS if there else State.FAIL)


def _asked_name(need: Need, stranger: str) -> str:
    return stranger if need.name == EVERY else need.name


def _seen(topic: Any) -> SeenTopic:
    refused = topic.error_code in _TOPIC_REFUSED
    # Who is shown a topic may describe it: with no operation at all, none was told.
    operations = None if refused else _operations(topic.authorized_operations) or None
    replicas = min((len(partition.replica_nodes) for partition in topic.partitions), default=None)
    return SeenTopic(len(topic.partitions) or None, not refused, operations, replicas)


def _operations(bits: Iterable[int] | None) -> frozenset[int] | None:
    """None: the broker does not say."""
    found = frozenset((_NOT_SAID,) if bits is None else bits)
    return None if _NOT_SAID in found else found


def _code(answer: Any) -> int:
    return int(answer.error_code)


def _result_code(answer: Any) -> int:
    return int(answer.results[0].error_code)


def _group_code(answer: Any) -> int:
    return int(answer.groups[0].error_code)


def _metadata(names: Iterable[str]) -> Any:
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(
        topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=True, min_version=8
    )


def _topic_configs(name: str) -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    wanted = resource(resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=["cleanup.policy"])
    return DescribeConfigsRequest(resources=[wanted])


def _creation(name: str, brokers: int) -> Any:
    """As the controller would make the mode log, but only checked."""
    entry = CreateTopicsRequest.CreatableTopic
    configs = [entry.CreatableTopicConfig(name=key, value=value) for key, value in log_configs(brokers).items()]
    new = entry(name=name, num_partitions=1, replication_factor=min(3, brokers), assignments=[], configs=configs)
    return CreateTopicsRequest(topics=[new], timeout_ms=_VALIDATE_MS, validate_only=True)


def _heartbeat(group: str) -> Any:
    return HeartbeatRequest(group_id=group, generation_id=0, member_id=f"nobody-{uuid.uuid4().hex}")


def _offset_fetch(group: str) -> Any:
    entry = OffsetFetchRequest.OffsetFetchRequestGroup
    return OffsetFetchRequest(groups=[entry(group_id=group, topics=[])], min_version=8, max_version=9)


def _transaction_step(name: str) -> Any:
    return AddOffsetsToTxnRequest(transactional_id=name, producer_id=_NO_PRODUCER, producer_epoch=0, group_id="nobody")
