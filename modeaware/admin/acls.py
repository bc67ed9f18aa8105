"""ACLs that match only the old or only the new topic's name: they change access at the switch.

An ACL of one name may be *covered* by an ACL of the other name. The covering ACL has the same permission, the same
principal or ``User:*``, and the same host or ``*``. Its operation is the same, or All. If both ACLs allow, the
operation may also be one that implies the covered ACL's operation.

- An ACL of the old topic that is not covered: if it allows, users lose access at the switch; if it denies, they gain
  access.
- An ACL of the new topic that denies and is not covered: users lose access.
- An ACL of the new topic that allows and is not covered is only shown: it may be intended.

In the first two cases the replacement is refused, unless the user accepts the difference.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from modeaware.cluster.metadata import TOPIC_RESOURCE, refusal
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.wire.brokers import Brokers
from modeaware.wire.requests import DescribeAclsRequest

ADMIN_CONFIG = "admin.properties"
"""In commands of Kafka's tools, the placeholder for the file with an administrator's settings."""
ANY, ALL_OPERATIONS, DENY, PREFIXED = 1, 2, 2, 4
"""Kafka's numbers in DescribeAcls: any value (a filter), the operation All, the permission Deny, a prefixed name."""
OPERATIONS = (
    *("Unknown", "Any", "All", "Read", "Write", "Create", "Delete", "Alter", "Describe", "ClusterAction"),
    *("DescribeConfigs", "AlterConfigs", "IdempotentWrite", "CreateTokens", "DescribeTokens", "TwoPhaseCommit"),
)
"""The operations as kafka-acls.sh names them, by Kafka's numbers."""
_IMPLIED_BY = {"Describe": ("Read", "Write", "Delete", "Alter"), "DescribeConfigs": ("AlterConfigs",)}
"""Operation -> the operations that imply it in an ACL that allows, by the brokers' rules."""
SECURITY_DISABLED, CLUSTER_AUTHORIZATION_FAILED = 54, 31


class Acl(NamedTuple):
    """An ACL on topics; ``name`` is a topic's name, ``*``, or a prefix."""

    permission: int
    principal: str
    host: str
    operation: int
    name: str
    is_prefix: bool

    def matches(self, topic: str) -> bool:
        """Return whether the ACL applies to ``topic``."""
        return topic.startswith(self.name) if self.is_prefix else self.name in (topic, "*")

    def covers(self, other: Acl) -> bool:
        """Return whether ``other`` adds nothing to this ACL, on one topic."""
        implied = () if self.permission == DENY else _IMPLIED_BY.get(OPERATIONS[other.operation], ())
        return (
            self.permission == other.permission
            and self.principal in (other.principal, "User:*")
            and self.host in (other.host, "*")
            and (self.operation in (other.operation, ALL_OPERATIONS) or OPERATIONS[self.operation] in implied)
        )

    def __str__(self) -> str:
        pattern = f"prefix {self.name!r}" if self.is_prefix else f"name {self.name!r}"
        kind = "denies" if self.permission == DENY else "allows"
        host = "" if self.host == "*" else f" from host {self.host}"
        return f"{pattern} {kind} {self.principal} {OPERATIONS[self.operation]}{host}"


@dataclass(frozen=True)
class ClusterAcls:
    """The ACLs on the topics of a cluster; or, in ``unknown``, the reason why these are unknown."""

    bindings: Sequence[Acl] = ()
    unknown: str | None = None


@dataclass(frozen=True)
class TopicAcls:
    """The ACLs that an old and a new topic do not share.

    Attributes:
        commands: commands of kafka-acls.sh that add the missing ACLs to the new topic; ACLs that deny come first.
        denied: ACLs that deny, and match only the new topic's name.
        allowed: ACLs that allow, and match only the new topic's name.
        unknown: the reason why the ACLs are unknown; null if they are known.
    """

    commands: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    unknown: str | None = None


def read_acls(brokers: Brokers) -> ClusterAcls | None:
    """Return the ACLs on topics, or None if the cluster has no authorizer. The user needs DESCRIBE on the cluster.

    Raises:
        ClusterError: no broker answered, or there was an error other than a missing right to list ACLs.
    """
    request = DescribeAclsRequest(
        resource_type_filter=TOPIC_RESOURCE,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
        min_version=1,
    )
    answer = brokers.ask(request)
    if answer.error_code == SECURITY_DISABLED:
        return None
    if answer.error_code:
        error = refusal("list the ACLs", answer.error_code, answer.error_message)
        if answer.error_code != CLUSTER_AUTHORIZATION_FAILED:
            raise error
        return ClusterAcls(unknown=str(error))
    return ClusterAcls(
        [
            Acl(a.permission_type, a.principal, a.host, a.operation, of.resource_name, of.pattern_type == PREFIXED)
            for of in answer.resources
            for a in of.acls
        ]
    )


def compare_acls(acls: ClusterAcls | None, topic: str, new_topic: str, servers: str) -> TopicAcls | None:
    """Return the ACLs that the two topics do not share; None without an authorizer. ``servers``: for the commands."""
    if acls is None or acls.unknown is not None:
        return None if acls is None else TopicAcls(unknown=acls.unknown)
    old, new = ([acl for acl in acls.bindings if acl.matches(name)] for name in (topic, new_topic))
    added = _uncovered(new, old)
    return TopicAcls(
        tuple(dict.fromkeys(_command(acl, new_topic, servers) for acl in _uncovered(old, new))),
        tuple(str(acl) for acl in added if acl.permission == DENY),
        tuple(str(acl) for acl in added if acl.permission != DENY),
    )


def _uncovered(acls: Iterable[Acl], others: Sequence[Acl]) -> list[Acl]:
    lost = (acl for acl in acls if not any(other.covers(acl) for other in others))
    return sorted(lost, key=lambda acl: (acl.permission != DENY, acl))


def check_access(command: ReplaceTopicCommand, acls: TopicAcls | None) -> None:
    """Refuse a replacement if ACLs that the names do not share would change access.

    Raises:
        RequestRefused: with the code POLICY_VIOLATION.
    """
    if acls is not None and (acls.commands or acls.denied):
        raise RequestRefused(
            f"topic {command.topic!r}: users would gain or lose access at the switch: {len(acls.commands)} ACLs of "
            f"{command.topic!r} do not cover {command.new_topic!r}, and {len(acls.denied)} ACLs deny access to "
            f"{command.new_topic!r} but not to {command.topic!r}. "
            "Align the ACLs as `modeaware replace --dry-run` shows, or accept the difference (--accept-access-loss)",
            code=ErrorCode.POLICY_VIOLATION,
            topic=command.topic,
        )


def _command(acl: Acl, new_topic: str, servers: str) -> str:
    kind = "deny" if acl.permission == DENY else "allow"
    to = ["--bootstrap-server", servers, "--command-config", ADMIN_CONFIG]
    who = [f"--{kind}-principal", acl.principal, *([] if acl.host == "*" else [f"--{kind}-host", acl.host])]
    what = ["--operation", OPERATIONS[acl.operation], "--topic", new_topic]
    return shlex.join(["kafka-acls.sh", *to, "--add", *who, *what])
