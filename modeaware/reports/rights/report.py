"""All of a check: the rights, and what else has to be as it should."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modeaware.endpoint.authorise import AclOperation
from modeaware.reports.rights.asking import ask
from modeaware.reports.rights.endpoints import over_the_wire
from modeaware.reports.rights.findings import Report, Right, State
from modeaware.reports.rights.needs import Scope, needs
from modeaware.reports.rights.settings import Settings
from modeaware.wire.brokers.client import Brokers


def check(brokers: Brokers, scope: Scope, conf: Mapping[str, Any]) -> Report:
    """Ask the brokers; changes nothing.

    Args:
        conf: the librdkafka configuration of the user.

    Raises:
        ClusterError: no broker answers.
    """
    scope, wire = over_the_wire(scope, conf)
    wanted = needs(scope)
    asked = ask(brokers, wanted, scope.mode_log)
    rights = tuple(Right(need, verdict) for need, verdict in zip(wanted, asked.verdicts, strict=True))
    readable = any(
        right.need.name == scope.mode_log
        and right.need.operation is AclOperation.READ
        and right.verdict.state is State.PASS
        for right in rights
    )
    settings = [*([wire] if wire else []), *Settings(brokers, scope, asked, conf, readable).found()]
    log = asked.topics[scope.mode_log]
    return Report(scope, rights, tuple(settings), log.partitions is None if log.shown else None, asked.brokers)
