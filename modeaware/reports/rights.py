"""The rights of a controller, an operator and a client on a cluster, compared with their needs: ``modeaware check``.

Metadata and DescribeCluster return the operations that a user is granted on topics and on the cluster (KIP-430). For
groups and transactional ids, the check sends requests without effect: an OffsetFetch, or a heartbeat or a transaction's
step of a client that does not exist. Brokers check the right first. So every answer except the error of a missing right
proves the right, even from a broker that is not the coordinator. The check looks up no coordinator, because a look-up
would create ``__consumer_offsets``. The check changes nothing.
"""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from modeaware.admin.acls import ADMIN_CONFIG
from modeaware.cluster.metadata import BROKER_RESOURCE, TOPIC_RESOURCE, authorized_operations, configs_request
from modeaware.confluent.router import RoutedProduce
from modeaware.endpoint.changes import AclOperation
from modeaware.errors import ClusterError, ControllerUnavailable, ModeSourceError
from modeaware.librdkafka import KafkaError
from modeaware.lifecycle.facts import is_compacted
from modeaware.lifecycle.objections import why_evacuate
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.topic import log_configs, unfit, weakness
from modeaware.reports.needs import (
    CLUSTER,
    EVERY,
    GROUP,
    TOPIC,
    Need,
    Role,
    Scope,
    needs,
)
from modeaware.wire.brokers import Brokers, Route, ask_controller
from modeaware.wire.client import is_running
from modeaware.wire.probe import Round
from modeaware.wire.requests import (
    AddOffsetsToTxnRequest,
    CreateTopicsRequest,
    DescribeClusterRequest,
    HeartbeatRequest,
    MetadataRequest,
    OffsetFetchRequest,
)
from modeaware.wire.transport import Ask

PLACEHOLDER = "User:NAME"
"""The principal if no user is named."""


class State(Enum):
    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Verdict:
    """The result for one right or setting; ``detail`` may be empty."""

    state: State
    detail: str = ""


def check(brokers: Brokers, scope: Scope, conf: Mapping[str, Any], site: Site) -> CheckReport:
    """Check the rights and the settings that a role needs; ``conf`` is the user's librdkafka configuration."""
    scope, wire = over_the_wire(scope, conf)
    asked = ask(brokers, needs(scope), scope.mode_log)
    readable = any(
        need.name == scope.mode_log and need.operation is AclOperation.READ and verdict.state is State.PASS
        for need, verdict in asked.verdicts.items()
    )
    settings = {"the modes over the wire": wire} if wire is not None else {}
    settings.update(Settings(brokers, scope, asked, conf, readable).found())
    if scope.role is Role.CLIENT:
        cost = "not installed here: the package was built without a C compiler; produce() costs more CPU while a "
        missing = Verdict(State.UNKNOWN, f"{cost}topic of the cluster is shrunk")
        settings["the extension in C"] = missing if RoutedProduce is None else Verdict(State.PASS, "installed here")
    return check_report(scope, asked, settings, site)


def over_the_wire(scope: Scope, conf: Mapping[str, Any]) -> tuple[Scope, Verdict | None]:
    """Return ``scope`` with the source from which a client gets the modes and, if that is ``wire``, the verdict on it.

    A client whose bootstrap servers return the modes needs no right on the mode log.
    """
    if scope.role is not Role.CLIENT or scope.mode_source == "log":
        return scope, None
    verdict = _probe(conf)
    if scope.mode_source == "auto" and verdict.state is not State.PASS:
        return scope, None
    return replace(scope, mode_source="wire"), verdict


def _probe(conf: Mapping[str, Any]) -> Verdict:
    probe = Round(conf)
    try:
        while not probe.done and not any(offer.modes for offer in probe.offers.values()):
            probe.step(0.2)
    finally:
        probe.close()
    if servers := [server for server, offer in probe.offers.items() if offer.modes]:
        return Verdict(State.PASS, f"returned by {servers[0]}")
    if (failure := probe.failure()) is not None:
        return Verdict(State.UNKNOWN, str(failure))
    return Verdict(
        State.FAIL,
        "no bootstrap server returns them: add the address of the controller's endpoint to bootstrap.servers, or omit "
        "modeaware.mode.source=wire",
    )


# Requests to the brokers


_NOT_DESCRIBED = frozenset(
    {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE}
)
"""Each of these includes DESCRIBE: a user who may not describe a topic has none of them."""
_TOPIC_REFUSED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
_NO_VERDICT = frozenset({KafkaError.NOT_CONTROLLER, KafkaError.REQUEST_TIMED_OUT})
"""Errors of a validated creation that show nothing about the right."""


@dataclass(frozen=True)
class SeenTopic:
    """A topic in a Metadata response.

    Attributes:
        partitions: the number of partitions; None if the topic does not exist or is not shown.
        shown: whether the user may describe the topic.
        operations: the operations that the user is granted on the topic; None if the broker does not report them.
        replicas: the smallest number of replicas of a partition.
    """

    partitions: int | None
    shown: bool
    operations: frozenset[int] | None
    replicas: int | None = None


@dataclass(frozen=True)
class Asked:
    """The brokers' answers.

    Attributes:
        topics: the mode log and the scope's topics, by name.
        node, brokers: the id of the broker that answered, and the number of brokers.
        not_creatable: why the user could not create the mode log although the right exists; None if no reason is known.
    """

    verdicts: Mapping[Need, Verdict]
    topics: Mapping[str, SeenTopic]
    node: int
    brokers: int
    not_creatable: str | None


def ask(brokers: Brokers, wanted: Sequence[Need], mode_log: str) -> Asked:
    """Make the brokers check every need that has a name. A need whose request gets no answer is unknown."""
    stranger = f"modeaware-check-{uuid.uuid4().hex}"  # a random name: only rights on all names cover it
    names = {_asked_name(need, stranger) for need in wanted if need.kind == TOPIC and need.named}
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(names | {mode_log})]
    node, metadata = brokers.ask_any(
        MetadataRequest(
            topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=True, min_version=8
        )
    )
    route = Route(node, int(metadata.controller_id))
    count = len(metadata.brokers)
    seen = {topic.name: _seen(topic) for topic in metadata.topics}
    questions = _Questions(brokers, route, seen, count, stranger, mode_log)
    verdicts = {need: questions.verdict(need) for need in wanted}
    return Asked(verdicts, questions.topics, node, count, questions.not_creatable)


@dataclass
class _Questions:
    """Requests to one broker. With ZooKeeper, requests for the cluster's controller go to the controller's broker."""

    brokers: Brokers
    route: Route
    topics: Mapping[str, SeenTopic]
    count: int
    stranger: str
    mode_log: str
    not_creatable: str | None = None

    def verdict(self, need: Need) -> Verdict:
        if not need.named:
            return Verdict(State.UNKNOWN, f"name one with --{need.kind}")
        name = _asked_name(need, self.stranger)
        if need.kind == TOPIC:
            return self._topic(need, name)
        if need.kind == CLUSTER:
            return self._cluster(need)
        if need.kind == GROUP and need.operation is AclOperation.READ:
            heartbeat = HeartbeatRequest(
                group_id=name, generation_id=0, member_id=f"modeaware-check-{uuid.uuid4().hex}"
            )
            return self._judged(heartbeat, lambda a: a.error_code, KafkaError.GROUP_AUTHORIZATION_FAILED)
        if need.kind == GROUP:
            group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=[])
            fetch = OffsetFetchRequest(groups=[group], min_version=8, max_version=9)
            return self._judged(fetch, lambda a: a.groups[0].error_code, KafkaError.GROUP_AUTHORIZATION_FAILED)
        step = AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=2**62, producer_epoch=0, group_id="modeaware-check"
        )
        return self._judged(step, lambda a: a.error_code, KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    def _topic(self, need: Need, name: str) -> Verdict:
        seen = self.topics[name]
        if need.operation is AclOperation.CREATE:
            return self._creation(name, seen)
        if seen.operations is not None:
            return _granted(need.operation in seen.operations)
        if not seen.shown and need.operation in _NOT_DESCRIBED:
            return Verdict(State.FAIL)
        if need.operation is AclOperation.DESCRIBE:
            return Verdict(State.PASS)
        if need.operation is AclOperation.DESCRIBE_CONFIGS:
            request = configs_request(TOPIC_RESOURCE, [name], "cleanup.policy")
            return self._judged(request, lambda a: a.results[0].error_code, KafkaError.TOPIC_AUTHORIZATION_FAILED)
        return Verdict(State.UNKNOWN, "the brokers do not return what this user may do with it")

    def _creation(self, name: str, seen: SeenTopic) -> Verdict:
        """Let brokers validate a creation: of the mode log as controllers create it, of another topic with defaults."""
        there = Verdict(State.PASS, "not needed: it exists")
        if seen.partitions is not None:
            return there
        entry = CreateTopicsRequest.CreatableTopic
        is_log = name == self.mode_log
        wanted = log_configs(self.count) if is_log else {}
        configs = [entry.CreatableTopicConfig(name=k, value=value) for k, value in wanted.items()]
        factor = min(3, self.count) if is_log else -1
        new = entry(name=name, num_partitions=1, replication_factor=factor, assignments=[], configs=configs)
        answer = ask_controller(
            self.brokers,
            self.route,
            lambda: CreateTopicsRequest(topics=[new], timeout_ms=3_000, validate_only=True),
            lambda answer: [answer.topics[0].error_code],
            once=False,
        )
        if isinstance(answer, ClusterError):
            return Verdict(State.UNKNOWN, str(answer))
        (result,) = answer.topics
        if result.error_code in _TOPIC_REFUSED:
            return Verdict(State.FAIL)
        if result.error_code == KafkaError.TOPIC_ALREADY_EXISTS:
            return there
        if result.error_code:
            reason = f"{KafkaError(result.error_code).name()}: {result.error_message}"
            if result.error_code in _NO_VERDICT:
                return Verdict(State.UNKNOWN, reason)
            if not is_log:  # for example, the real creation may satisfy a policy that these defaults break
                return Verdict(State.PASS, reason)
            self.not_creatable = reason
        return Verdict(State.PASS)

    def _cluster(self, need: Need) -> Verdict:
        answer = self._answer(DescribeClusterRequest(include_cluster_authorized_operations=True))
        if isinstance(answer, ClusterError):
            return Verdict(State.UNKNOWN, str(answer))
        operations = authorized_operations(answer.authorized_operations)
        if answer.error_code or operations is None:
            return Verdict(State.UNKNOWN, "the brokers do not return what this user may do with the cluster")
        return _granted(need.operation in operations)

    def _judged(self, request: Any, code: Callable[[Any], int], refused: int) -> Verdict:
        """Return the verdict on a right: it is missing if the broker answers with the error code ``refused``."""
        answer = self._answer(request)
        if isinstance(answer, ClusterError):
            return Verdict(State.UNKNOWN, str(answer))
        return _granted(code(answer) != refused)

    def _answer(self, request: Any) -> Any:
        return self.brokers.ask_each([Ask(self.route.node, request)])[0]


def _granted(there: bool) -> Verdict:
    return Verdict(State.PASS if there else State.FAIL)


def _asked_name(need: Need, stranger: str) -> str:
    return stranger if need.name == EVERY else need.name


def _seen(topic: Any) -> SeenTopic:
    refused = topic.error_code in _TOPIC_REFUSED
    # A user who is shown a topic may describe it. So an empty set means that the broker returned no operations.
    operations = None if refused else authorized_operations(topic.authorized_operations) or None
    replicas = min((len(partition.replica_nodes) for partition in topic.partitions), default=None)
    return SeenTopic(len(topic.partitions) or None, not refused, operations, replicas)


@dataclass(frozen=True)
class Settings:
    """Requirements that are not rights: a fit mode log, existing topics, session timeouts, a controller.

    Args:
        readable: whether the user may read the mode log.
    """

    brokers: Brokers
    scope: Scope
    asked: Asked
    conf: Mapping[str, Any]
    readable: bool

    def found(self) -> Iterator[tuple[str, Verdict]]:
        """Yield each setting with its verdict."""
        scope = self.scope
        if scope.reads_log:
            yield f"the mode log {scope.mode_log}", self._log()
        for name in dict.fromkeys(scope.topics):
            if self.asked.topics[name].shown:
                yield f"the topic {name}", self._topic(name)
        if scope.role is Role.CONTROLLER:
            yield f"modeaware.controller.session.timeout.ms={scope.session_timeout_ms}", self._session()
            if str(self.conf.get("security.protocol", "")).upper() == "SSL":
                detail = "none with security.protocol=SSL: it could not identify its clients to the brokers"
                yield "the controller's endpoint", Verdict(State.UNKNOWN, detail)
        if scope.role is Role.OPERATOR and self.readable and self.asked.topics[scope.mode_log].partitions:
            yield "the controller", self._controller()

    def _log(self) -> Verdict:
        name, seen = self.scope.mode_log, self.asked.topics[self.scope.mode_log]
        if not seen.shown:
            return Verdict(State.UNKNOWN, "this user has no right to see it")
        if seen.partitions is None:
            if self.asked.not_creatable is not None:
                return Verdict(State.FAIL, f"it cannot be created: {self.asked.not_creatable}")
            return Verdict(
                State.UNKNOWN, "missing: the first controller creates it; until then every partition is ReadWrite"
            )
        configs = self._config(TOPIC_RESOURCE, name, "cleanup.policy", "min.insync.replicas")
        policy = configs.get("cleanup.policy")
        reason = unfit(name, seen.partitions, {"cleanup.policy": "compact" if policy is None else policy})
        if reason is not None:
            return Verdict(State.FAIL, reason)
        detail = "1 partition" if policy is None else "1 partition, compacted"
        if self.scope.role is Role.CONTROLLER and seen.replicas is not None:
            weak = weakness(seen.replicas, configs.get("min.insync.replicas"), self.asked.brokers)
            detail += f", but {weak}" if weak is not None else ""
        return Verdict(State.PASS, detail)

    def _topic(self, name: str) -> Verdict:
        partitions = self.asked.topics[name].partitions
        if partitions is None:
            return Verdict(State.FAIL, "it does not exist")
        detail = f"{partitions} partitions"
        if self.scope.role is not Role.CLIENT:
            policy = self._config(TOPIC_RESOURCE, name, "cleanup.policy").get("cleanup.policy")
            detail += f"; {why_evacuate(policy)}" if policy is not None and is_compacted(policy) else ""
        return Verdict(State.PASS, detail)

    def _session(self) -> Verdict:
        """Return whether the brokers accept the session timeout for the members of the election's group."""
        least, most = "group.min.session.timeout.ms", "group.max.session.timeout.ms"
        limits = self._config(BROKER_RESOURCE, str(self.asked.node), least, most)
        if least not in limits or most not in limits:
            detail = f"must lie between the brokers' {least} and {most}, which this user has no right to see"
            return Verdict(State.UNKNOWN, detail)
        fits = int(limits[least]) <= self.scope.session_timeout_ms <= int(limits[most])
        return Verdict(State.PASS if fits else State.FAIL, f"the brokers accept {limits[least]} to {limits[most]}")

    def _controller(self) -> Verdict:
        try:
            claim = read_mode_log(self.conf, self.scope.mode_log, 10.0).claim
            running = is_running(self.conf, claim)
        except (ModeSourceError, ControllerUnavailable) as error:
            return Verdict(State.UNKNOWN, str(error))
        if running and claim is not None:
            return Verdict(State.PASS, f"answers at {claim.address}")
        return Verdict(State.UNKNOWN, "none answers: commands then do the controller's work, and need its rights")

    def _config(self, kind: int, name: str, *keys: str) -> dict[str, str]:
        """Return configs by name; empty if the user has no right to see them."""
        try:
            node = self.asked.node if kind == BROKER_RESOURCE else None
            (result,) = self.brokers.ask(configs_request(kind, [name], *keys), node).results
        except ClusterError:  # the check then reports less
            return {}
        if result.error_code != KafkaError.NO_ERROR:
            return {}
        return {config.name: str(config.value) for config in result.configs}


# A check in words and as JSON, with the commands of Kafka's own tools that grant missing rights


_HIDDEN = """\
Without DESCRIBE on the cluster, on every group and on every topic (many managed clusters grant none on the cluster)
no drain ever completes (groups-hidden, groups-unknown): shrinks are admitted and do not end, and new partitions open
only after modeaware.open.timeout.ms. Workaround where only the right on the cluster is missing: register each group
that uses the topic (modeaware groups require GROUP --topic TOPIC), close the list (modeaware groups closed --topic
TOPIC --reason WHY), and check again with --closed-groups and each --group."""
_HIDDEN_OPERATOR = """\
Without DESCRIBE on the cluster, on every group and on every topic the commands show fewer groups than the controller
does. If the lists of groups are closed (modeaware groups closed), check again with --closed-groups."""
_NO_CREATE = """\
Without CREATE the controller cannot create the mode log. An administrator creates it once, by the command above; then
the right is not needed. For another name set modeaware.mode.log.topic, in all clients and controllers."""


@dataclass(frozen=True)
class Site:
    """What the printed commands name: the cluster, the user (``User:...``), and how an administrator connects."""

    servers: str
    principal: str = PLACEHOLDER
    secured: bool = False

    def grant(self, need: Need) -> str:
        """Return the ``kafka-acls.sh`` command that grants the right."""
        resource = ["--cluster"] if need.kind == CLUSTER else [f"--{need.kind.replace(' ', '-')}", need.name]
        operation = "".join(word.capitalize() for word in need.operation.name.split("_"))
        what = ["--add", "--allow-principal", self.principal, "--operation", operation, *resource]
        return shlex.join(["kafka-acls.sh", *self._to(), *what])

    def create(self, mode_log: str, brokers: int) -> str:
        """Return the ``kafka-topics.sh`` command that creates the mode log as the controller would."""
        shape = ["--partitions", "1", "--replication-factor", str(min(3, brokers))]
        configs = [part for key, value in log_configs(brokers).items() for part in ("--config", f"{key}={value}")]
        return shlex.join(["kafka-topics.sh", *self._to(), "--create", "--topic", mode_log, *shape, *configs])

    def _to(self) -> list[str]:
        return ["--bootstrap-server", self.servers, *(["--command-config", ADMIN_CONFIG] if self.secured else [])]


@dataclass(frozen=True)
class RightReport:
    """A right that the role needs.

    Attributes:
        state: pass, fail or unknown.
        resource: topic, group, cluster or transactional id.
        command: the kafka-acls.sh command that grants the right, if the right is missing.
    """

    state: State
    resource: str
    name: str
    operation: str
    purpose: str = field(metadata={"json": "for"})
    detail: str
    command: str | None


@dataclass(frozen=True)
class SettingReport:
    """A requirement that is not a right."""

    state: State
    name: str
    detail: str


@dataclass(frozen=True)
class CheckReport:
    """The output of ``modeaware check``.

    Attributes:
        passed: whether no right and no setting has the state "fail". Some may be unknown.
        commands: the commands for an administrator, one for each missing right. If the right to create the mode log is
            missing, another command creates it.
        notes: the consequences of missing rights, and the workaround.
    """

    role: str
    principal: str | None
    bootstrap_servers: str
    mode_log_topic: str
    mode_log_missing: bool | None
    passed: bool
    rights: tuple[RightReport, ...]
    settings: tuple[SettingReport, ...]
    commands: tuple[str, ...]
    notes: tuple[str, ...]


def check_report(scope: Scope, asked: Asked, settings: Mapping[str, Verdict], site: Site) -> CheckReport:
    """Return a check with the commands that grant missing rights. An unknown right does not count as missing."""
    missing = [need for need, verdict in asked.verdicts.items() if verdict.state is State.FAIL]
    log = asked.topics[scope.mode_log]
    creates = any(need.operation is AclOperation.CREATE and need.name == scope.mode_log for need in missing)
    hidden = any(need.kind == CLUSTER or need.name == EVERY for need in missing)
    hidden_note = _HIDDEN if scope.role is Role.CONTROLLER else _HIDDEN_OPERATOR
    return CheckReport(
        role=scope.role.value,
        principal=None if site.principal == PLACEHOLDER else site.principal,
        bootstrap_servers=site.servers,
        mode_log_topic=scope.mode_log,
        mode_log_missing=log.partitions is None if log.shown else None,
        passed=not missing and all(verdict.state is not State.FAIL for verdict in settings.values()),
        rights=tuple(
            RightReport(
                verdict.state,
                need.kind,
                need.name,
                need.operation.name,
                need.purpose,
                verdict.detail,
                site.grant(need) if verdict.state is State.FAIL else None,
            )
            for need, verdict in asked.verdicts.items()
        ),
        settings=tuple(SettingReport(verdict.state, name, verdict.detail) for name, verdict in settings.items()),
        commands=(*map(site.grant, missing), *([site.create(scope.mode_log, asked.brokers)] if creates else [])),
        notes=(*([hidden_note] if hidden else []), *([_NO_CREATE] if creates else [])),
    )


def check_text(report: CheckReport, site: Site) -> Iterator[str]:
    """Yield the lines to print."""
    yield f"{report.role} as {site.principal} at {site.servers}, mode log {report.mode_log_topic}"
    for right in report.rights:
        what = f"{right.resource} {right.name} {right.operation}"
        yield f"{right.state.value:<8} {what}: {right.detail or right.purpose}"
    for setting in report.settings:
        yield f"{setting.state.value:<8} {setting.name}: {setting.detail}"
    if report.commands:
        yield from ("", f"For an administrator to run{f', with settings in {ADMIN_CONFIG}' if site.secured else ''}:")
        yield from report.commands
    for note in report.notes:
        yield from ("", note)
