"""ACLs on a topic's name, as commands that give the same ones to another name."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from modeaware.cluster.metadata import TOPIC_RESOURCE, refusal
from modeaware.endpoint.changes import AclOperation
from modeaware.errors import ClusterError
from modeaware.wire.brokers import Brokers
from modeaware.wire.requests import DescribeAclsRequest

ANY_OPERATION, ALL_OPERATIONS, LITERAL, DENY = 1, 2, 3, 2
"""Kafka's numbers in DescribeAcls: operations, kinds of names, permissions."""
SECURITY_DISABLED = 54


@dataclass(frozen=True)
class TopicAcls:
    """The ACLs on a topic's literal name, which a topic of another name does not have.

    Attributes:
        commands: of kafka-acls.sh, which give them to the successor; those that deny come first.
        unknown: why they are not known; null: they are.
    """

    commands: tuple[str, ...] = ()
    unknown: str | None = None


def read_acls(brokers: Brokers, topic: str, successor: str, servers: str) -> TopicAcls | None:
    """Read the ACLs on a topic's literal name; None: the cluster has no authorizer."""
    request = DescribeAclsRequest(
        resource_type_filter=TOPIC_RESOURCE,
        resource_name_filter=topic,
        pattern_type_filter=LITERAL,
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
    acls = [acl for resource in answer.resources for acl in resource.acls]
    return TopicAcls(
        tuple(
            _acl_command(acl, successor, servers)
            for acl in sorted(acls, key=lambda acl: (acl.permission_type != DENY, acl.principal, acl.operation))
        )
    )


def _acl_command(acl: Any, successor: str, servers: str) -> str:
    kind = "deny" if acl.permission_type == DENY else "allow"
    name = "All" if acl.operation == ALL_OPERATIONS else AclOperation(acl.operation).name
    operation = "".join(word.capitalize() for word in name.split("_"))
    host = [] if acl.host == "*" else [f"--{kind}-host", acl.host]
    to = ["--bootstrap-server", servers, "--add", f"--{kind}-principal", acl.principal, *host]
    return shlex.join(["kafka-acls.sh", *to, "--operation", operation, "--topic", successor])
