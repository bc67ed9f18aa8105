"""The rights that each role needs: the tables of docs/permissions.md (a test compares them). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from modeaware.config import DEFAULT_MODE_LOG_TOPIC
from modeaware.endpoint.authorise import AclOperation

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = "topic", "group", "cluster", "transactional id"
CLUSTER_NAME = "kafka-cluster"
EVERY = "*"
ANY_TOPIC, ANY_GROUP = "TOPIC", "GROUP"
"""In the place of names that were not given."""
SHORT_LIVED = ("modeaware-control-records", "modeaware-stragglers")
"""The groups of consumers that look at single records and commit nothing."""


class Role(Enum):
    """Who connects to the cluster."""

    CLIENT = "client"
    CONTROLLER = "controller"
    OPERATOR = "operator"


@dataclass(frozen=True)
class Scope:
    """What is asked about.

    Attributes:
        topics: those to be shrunk, or used by a client; none: they stay unknown.
        groups: those that use the topics; of a client: its own, which makes it a consumer.
        transactional_ids: a client's own.
        closed: the lists of groups are closed (``modeaware groups closed``), so not all groups need be seen.
        mode_source: a client's ``modeaware.mode.source``; controllers and operators read the log.
        session_timeout_ms: ``modeaware.controller.session.timeout.ms``.
    """

    role: Role
    mode_log: str = DEFAULT_MODE_LOG_TOPIC
    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    closed: bool = False
    mode_source: str = "auto"
    session_timeout_ms: int = 8_000

    @property
    def reads_log(self) -> bool:
        """Whether the modes come from the mode log."""
        return self.role is not Role.CLIENT or self.mode_source != "wire"


@dataclass(frozen=True)
class Need:
    """One right; what it is for, in a few words. ``named`` is False where a placeholder stands for a name."""

    kind: str
    name: str
    operation: AclOperation
    purpose: str
    named: bool = True

    def __str__(self) -> str:
        return f"{self.kind} {self.name} {self.operation.name}"


def controllers_name(mode_log: str) -> str:
    """The group and the transactional id of the controllers of a mode log."""
    return f"modeaware-controller.{mode_log}"


def needs(scope: Scope) -> tuple[Need, ...]:
    """What the role needs, in the order of the tables; each right once."""
    listed = {Role.CLIENT: _client, Role.CONTROLLER: _controller, Role.OPERATOR: _operator}[scope.role](scope)
    by_right: dict[tuple[str, str, AclOperation], Need] = {}
    for need in listed:
        by_right.setdefault((need.kind, need.name, need.operation), need)
    return tuple(by_right.values())


def _controller(scope: Scope) -> Iterator[Need]:
    log, own = scope.mode_log, controllers_name(scope.mode_log)
    yield Need(TOPIC, log, AclOperation.CREATE, "making the mode log where it is not there yet")
    yield Need(TOPIC, log, AclOperation.READ, "reading the mode log")
    yield Need(TOPIC, log, AclOperation.WRITE, "keeping the mode log")
    yield Need(TOPIC, log, AclOperation.DESCRIBE_CONFIGS, "seeing that the mode log is compacted")
    yield Need(TRANSACTIONAL_ID, own, AclOperation.WRITE, "appending to the mode log")
    yield Need(GROUP, own, AclOperation.READ, "the election of the active controller")
    yield from _seeing(scope)
    for topic, named in _or_placeholder(scope.topics, ANY_TOPIC):
        yield Need(TOPIC, topic, AclOperation.READ, "looking for control records and stragglers", named)
        yield Need(TOPIC, topic, AclOperation.DESCRIBE_CONFIGS, "knowing cleanup.policy before a shrink", named)
        yield Need(TOPIC, topic, AclOperation.DELETE, "deleting the records of drained partitions", named)
        yield Need(TOPIC, topic, AclOperation.ALTER, "growing beyond the partitions there are", named)
    for group, named in _or_placeholder(scope.groups, ANY_GROUP):
        yield Need(GROUP, group, AclOperation.READ, "committing on new partitions for groups without members", named)


def _operator(scope: Scope) -> Iterator[Need]:
    yield Need(TOPIC, scope.mode_log, AclOperation.READ, "the modes, and where the controller is")
    yield from _seeing(scope)
    for topic, named in _or_placeholder(scope.topics, ANY_TOPIC):
        yield Need(TOPIC, topic, AclOperation.READ, "certificates of transactional topics", named)
        yield Need(TOPIC, topic, AclOperation.DESCRIBE_CONFIGS, "seeing cleanup.policy", named)
        yield Need(TOPIC, topic, AclOperation.ALTER, "growing, shrinking, rules about the topic's groups", named)
        yield Need(TOPIC, topic, AclOperation.DELETE, "shrinking", named)


def _client(scope: Scope) -> Iterator[Need]:
    if scope.reads_log:
        yield Need(TOPIC, scope.mode_log, AclOperation.READ, "the modes")
    own = AclOperation.READ if scope.groups else AclOperation.WRITE
    for topic in scope.topics:
        yield Need(TOPIC, topic, own, "its own records")
    for group in scope.groups:
        yield Need(GROUP, group, AclOperation.READ, "its own group")
    for name in scope.transactional_ids:
        yield Need(TRANSACTIONAL_ID, name, AclOperation.WRITE, "its own transactions")


def _seeing(scope: Scope) -> Iterator[Need]:
    """All groups, or those that the closed lists name."""
    describe = AclOperation.DESCRIBE
    if not scope.closed:
        yield Need(CLUSTER, CLUSTER_NAME, describe, "seeing all groups: brokers hide some, and no drain is believed")
        yield Need(GROUP, EVERY, describe, "seeing how far every group has come")
        yield Need(TOPIC, EVERY, describe, "whether the listing of groups is complete, and which keep state")
        return
    for group, named in _or_placeholder(scope.groups, ANY_GROUP):
        yield Need(GROUP, group, describe, "seeing how far the group has come", named)
    for name in SHORT_LIVED:
        yield Need(GROUP, name, describe, "looking at single records")


def _or_placeholder(names: Sequence[str], placeholder: str) -> list[tuple[str, bool]]:
    return [(name, True) for name in names] or [(placeholder, False)]
