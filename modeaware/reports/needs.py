"""The rights that each role needs on a cluster: the table of docs/permissions.md (a test compares them)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from modeaware.cluster.group_listing import election_group
from modeaware.config import DEFAULT_MODE_LOG_TOPIC
from modeaware.endpoint.changes import AclOperation

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = "topic", "group", "cluster", "transactional id"
EVERY = "*"
SHORT_LIVED = ("modeaware-control-records", "modeaware-stragglers")
"""The groups of consumers that read single records and commit nothing."""


class Role(Enum):
    """The role of a user on the cluster."""

    CLIENT = "client"
    CONTROLLER = "controller"
    OPERATOR = "operator"


@dataclass(frozen=True)
class Scope:
    """The subject of a check.

    Attributes:
        topics: the topics to shrink, or a client's topics; empty if unknown.
        groups: the groups that use the topics; for a client, its own group. A client with a group is a consumer.
        transactional_ids: the transactional ids of the client.
        new_topics: the names of the new topics that are to replace ``topics``.
        closed: whether the lists of groups are closed (``modeaware groups closed``), so that groups may stay hidden.
        mode_source: a client's ``modeaware.mode.source``. (Controllers and operators always read the log.)
        session_timeout_ms: ``modeaware.controller.session.timeout.ms``.
    """

    role: Role
    mode_log: str = DEFAULT_MODE_LOG_TOPIC
    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    new_topics: Sequence[str] = ()
    closed: bool = False
    mode_source: str = "auto"
    session_timeout_ms: int = 8_000

    @property
    def reads_log(self) -> bool:
        """Whether the modes come from the mode log."""
        return self.role is not Role.CLIENT or self.mode_source != "wire"


@dataclass(frozen=True)
class Need:
    """One right, and its purpose. ``named`` is False if the name is a placeholder."""

    kind: str
    name: str
    operation: AclOperation
    purpose: str
    named: bool = True

    def __str__(self) -> str:
        return f"{self.kind} {self.name} {self.operation.name}"


def needs(scope: Scope) -> tuple[Need, ...]:
    """Return the rights that the role needs, in the order of the page's tables; each right once."""
    listed = {Role.CLIENT: _client, Role.CONTROLLER: _controller, Role.OPERATOR: _operator}[scope.role](scope)
    by_right: dict[tuple[str, str, AclOperation], Need] = {}
    for need in listed:
        by_right.setdefault((need.kind, need.name, need.operation), need)
    return tuple(by_right.values())


def _controller(scope: Scope) -> Iterator[Need]:
    log, own = scope.mode_log, election_group(scope.mode_log)
    yield Need(TOPIC, log, AclOperation.CREATE, "creating a missing mode log")
    yield Need(TOPIC, log, AclOperation.READ, "reading the mode log")
    yield Need(TOPIC, log, AclOperation.WRITE, "writing the mode log")
    yield Need(TOPIC, log, AclOperation.DESCRIBE_CONFIGS, "checking that the mode log is compacted")
    yield Need(TRANSACTIONAL_ID, own, AclOperation.WRITE, "appending to the mode log")
    yield Need(GROUP, own, AclOperation.READ, "the election of the active controller")
    yield from _visibility(scope)
    for topic, named in _or_placeholder(scope.topics, "TOPIC"):
        yield Need(TOPIC, topic, AclOperation.READ, "finding control records and stragglers", named)
        yield Need(TOPIC, topic, AclOperation.DESCRIBE_CONFIGS, "checking cleanup.policy before a shrink", named)
        yield Need(
            TOPIC,
            topic,
            AclOperation.DELETE,
            "deleting the records of drained partitions, and old topics",
            named,
        )
        yield Need(TOPIC, topic, AclOperation.ALTER, "creating partitions", named)
        if scope.new_topics:
            yield Need(TOPIC, topic, AclOperation.WRITE, "probing the fence, by a batch that no broker appends", named)
            yield Need(TOPIC, topic, AclOperation.ALTER_CONFIGS, "setting the fence of an old topic", named)
    for name in scope.new_topics:
        yield Need(TOPIC, name, AclOperation.CREATE, "creating it as a new topic")
        yield Need(TOPIC, name, AclOperation.DESCRIBE_CONFIGS, "checking that it was created as requested")
        yield Need(TOPIC, name, AclOperation.DELETE, "undoing the replacement")
    for group, named in _or_placeholder(scope.groups, "GROUP"):
        yield Need(GROUP, group, AclOperation.READ, "committing on new partitions for groups without members", named)


def _operator(scope: Scope) -> Iterator[Need]:
    yield Need(TOPIC, scope.mode_log, AclOperation.READ, "the modes, and the controller's address")
    yield from _visibility(scope)
    for topic, named in _or_placeholder(scope.topics, "TOPIC"):
        yield Need(TOPIC, topic, AclOperation.READ, "reports on transactional topics", named)
        yield Need(TOPIC, topic, AclOperation.DESCRIBE_CONFIGS, "seeing cleanup.policy", named)
        yield Need(TOPIC, topic, AclOperation.ALTER, "growing, shrinking under 'retention', requiring groups", named)
        yield Need(TOPIC, topic, AclOperation.DELETE, "shrinking with a delay or at once, waiving groups", named)
        if scope.new_topics:
            yield Need(TOPIC, topic, AclOperation.ALTER_CONFIGS, "replacing it", named)
    for name in scope.new_topics:
        yield Need(TOPIC, name, AclOperation.CREATE, "replacing a topic by it")


def _client(scope: Scope) -> Iterator[Need]:
    if scope.reads_log:
        yield Need(TOPIC, scope.mode_log, AclOperation.READ, "the modes")
    own = AclOperation.READ if scope.groups else AclOperation.WRITE
    yield from (Need(TOPIC, topic, own, "its own records") for topic in scope.topics)
    yield from (Need(GROUP, group, AclOperation.READ, "its own group") for group in scope.groups)
    for name in scope.transactional_ids:
        yield Need(TRANSACTIONAL_ID, name, AclOperation.WRITE, "its own transactions")


def _visibility(scope: Scope) -> Iterator[Need]:
    """Yield the rights to see all groups or, if the lists of groups are closed, the groups of the scope."""
    describe = AclOperation.DESCRIBE
    if not scope.closed:
        yield Need(CLUSTER, "kafka-cluster", describe, "listing all groups; while groups stay hidden, no drain ends")
        yield Need(GROUP, EVERY, describe, "reading the progress of every group")
        yield Need(TOPIC, EVERY, describe, "checking that the list of groups is complete, and which groups keep state")
        return
    for group, named in _or_placeholder(scope.groups, "GROUP"):
        yield Need(GROUP, group, describe, "reading the progress of the group", named)
    yield from (Need(GROUP, name, describe, "reading single records") for name in SHORT_LIVED)


def _or_placeholder(names: Sequence[str], placeholder: str) -> list[tuple[str, bool]]:
    return [(name, True) for name in names] or [(placeholder, False)]
