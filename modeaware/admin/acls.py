"""ACLs that match a topic's name and not that of its successor: who gains or loses access when its name leads there."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from modeaware.cluster.metadata import TOPIC_RESOURCE, refusal
from modeaware.errors import ClusterError, ErrorCode, RequestRefused
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.wire.brokers import Brokers
from modeaware.wire.requests import DescribeAclsRequest

ANY_OPERATION, ALL_OPERATIONS, MATCH, DENY = 1, 2, 2, 2
"""Kafka's numbers in DescribeAcls: operations, kinds of names, permissions."""
OPERATIONS = (
    *("Unknown", "Any", "All", "Read", "Write", "Create", "Delete", "Alter", "Describe", "ClusterAction"),
    *("DescribeConfigs", "AlterConfigs"),
)
"""Those of topics as kafka-acls.sh names them, by their numbers."""
SECURITY_DISABLED = 54


@dataclass(frozen=True)
class TopicAcls:
    """The ACLs on a topic that its successor lacks.

    Attributes:
        commands: of kafka-acls.sh, which give them to the successor; those that deny come first.
        unknown: why they are not known; null: they are.
    """

    commands: tuple[str, ...] = ()
    unknown: str | None = None


def read_acls(brokers: Brokers, topic: str, successor: str, servers: str) -> TopicAcls | None:
    """Read the ACLs whose names or prefixes match ``topic`` alone; None: the cluster has no authorizer."""
    found: list[set[tuple[int, str, str, int]]] = []
    for name in (topic, successor):
        request = DescribeAclsRequest(
            resource_type_filter=TOPIC_RESOURCE,
            resource_name_filter=name,
            pattern_type_filter=MATCH,
            principal_filter=None,
            host_filter=None,
            operation=ANY_OPERATION,
            permission_type=ANY_OPERATION,
            min_version=1,
        )
        try:
            answer = brokers.ask(request)
        except ClusterError as error:
            return TopicAcls(unknown=str(error))
        if answer.error_code == SECURITY_DISABLED:
            return None
        if answer.error_code:
            return TopicAcls(unknown=str(refusal("list the ACLs", answer.error_code, answer.error_message)))
        found.append({_key(acl) for resource in answer.resources for acl in resource.acls})
    old, new = found
    lost = [key for key in old if key not in new and (*key[:3], ALL_OPERATIONS) not in new]
    in_order = sorted(lost, key=lambda key: (key[0] != DENY, *key[1:]))
    return TopicAcls(tuple(_command(key, successor, servers) for key in in_order))


def access_refusal(command: ReplaceTopicCommand, acls: TopicAcls | None) -> RequestRefused | None:
    """Return why a command that leads to the switch is refused: ACLs of the topic are missing on its successor."""
    if acls is None or not acls.commands or _stops_before_switch(command):
        return None
    return RequestRefused(
        f"topic {command.topic!r}: {len(acls.commands)} of its ACLs do not cover {command.successor!r}, so users would "
        "gain or lose access at the switch. Add them with the commands that `modeaware replace --dry-run` shows, or "
        "accept that (--accept-access-loss)",
        code=ErrorCode.POLICY_VIOLATION,
        topic=command.topic,
    )


def check_access(brokers: Brokers, command: ReplaceTopicCommand, servers: str) -> None:
    """Raise :func:`access_refusal` of what the brokers return, where there is one."""
    if _stops_before_switch(command):
        return
    refused = access_refusal(command, read_acls(brokers, command.topic, command.successor, servers))
    if refused is not None:
        raise refused


def _stops_before_switch(command: ReplaceTopicCommand) -> bool:
    return command.undo or command.pause_before_switch


def _key(acl: Any) -> tuple[int, str, str, int]:
    return acl.permission_type, acl.principal, acl.host, acl.operation


def _command(key: tuple[int, str, str, int], successor: str, servers: str) -> str:
    permission, principal, host, operation = key
    kind = "deny" if permission == DENY else "allow"
    to = ["--bootstrap-server", servers, "--add", f"--{kind}-principal", principal]
    to += [] if host == "*" else [f"--{kind}-host", host]
    return shlex.join(["kafka-acls.sh", *to, "--operation", OPERATIONS[operation], "--topic", successor])
