"""A check in words, and the commands of Kafka's own tools that grant what is missing. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from modeaware.endpoint.authorise import AclOperation
from modeaware.modelog.topic import log_configs
from modeaware.reports.rights.findings import Report, State
from modeaware.reports.rights.needs import CLUSTER, EVERY, GROUP, TOPIC, TRANSACTIONAL_ID, Need, Role

PLACEHOLDER = "User:NAME"
"""The principal where nobody says who it is."""
ADMIN_CONFIG = "admin.properties"
_FLAGS = {TOPIC: "--topic", GROUP: "--group", TRANSACTIONAL_ID: "--transactional-id"}
_HIDDEN = """\
Without DESCRIBE on the cluster, on every group and on every topic (many a managed Kafka grants none on the cluster)
a drain is never believed to be complete (groups-hidden): shrinks are admitted and do not end, and new partitions open
only after modeaware.open.timeout.ms. The way around: register each group that uses the topic (modeaware groups require
GROUP --topic TOPIC), close the list (modeaware groups closed --topic TOPIC --reason WHY), and check again with
--closed-groups and each --group."""
_HIDDEN_OPERATOR = """\
Without DESCRIBE on the cluster, on every group and on every topic the commands show fewer groups than the controller
sees. Where the lists of groups are closed (modeaware groups closed), check again with --closed-groups."""
_NO_CREATE = """\
Without CREATE the controller cannot make the mode log. Have it made once by somebody who may, by the command above;
then the right is not needed. Its name may be another: modeaware.mode.log.topic, the same for all who connect."""


@dataclass(frozen=True)
class Site:
    """What the commands are about: the cluster, whose rights (``User:...``), and how an administrator connects."""

    servers: str
    principal: str = PLACEHOLDER
    secured: bool = False

    @property
    def _to(self) -> list[str]:
        config = ["--command-config", ADMIN_CONFIG] if self.secured else []
        return ["--bootstrap-server", self.servers, *config]

    def grant(self, need: Need) -> str:
        """The ``kafka-acls.sh`` command that grants it."""
        resource = ["--cluster"] if need.kind == CLUSTER else [_FLAGS[need.kind], need.name]
        what = ["--add", "--allow-principal", self.principal, "--operation", _pascal(need.operation), *resource]
        return shlex.join(["kafka-acls.sh", *self._to, *what])

    def create(self, mode_log: str, brokers: int) -> str:
        """The ``kafka-topics.sh`` command that makes the mode log as the controller would."""
        shape = ["--partitions", "1", "--replication-factor", str(min(3, brokers))]
        settings = [f"{key}={value}" for key, value in log_configs(brokers).items()]
        configs = [argument for setting in settings for argument in ("--config", setting)]
        return shlex.join(["kafka-topics.sh", *self._to, "--create", "--topic", mode_log, *shape, *configs])


def _pascal(operation: AclOperation) -> str:
    return "".join(word.capitalize() for word in operation.name.split("_"))


def commands(report: Report, site: Site) -> list[str]:
    """What an administrator pastes: one command for each right that failed, and the creation of the mode log."""
    found = [site.grant(need) for need in report.missing]
    return [*found, site.create(report.scope.mode_log, report.brokers)] if _no_create(report) else found


def notes(report: Report) -> list[str]:
    """What is lost by the rights that failed, and the way around."""
    found = []
    if any(need.kind == CLUSTER or need.name == EVERY for need in report.missing):
        found.append(_HIDDEN if report.scope.role is Role.CONTROLLER else _HIDDEN_OPERATOR)
    if _no_create(report):
        found.append(_NO_CREATE)
    return found


def _no_create(report: Report) -> bool:
    return any(need.operation is AclOperation.CREATE for need in report.missing)


def as_text(report: Report, site: Site) -> Iterator[str]:
    """The lines to print."""
    yield f"{report.scope.role.value} as {site.principal} at {site.servers}, mode log {report.scope.mode_log}"
    for right in report.rights:
        yield _line(right.verdict.state, str(right.need), right.verdict.detail or right.need.purpose)
    for setting in report.settings:
        yield _line(setting.verdict.state, setting.name, setting.verdict.detail)
    if pasted := commands(report, site):
        yield ""
        yield f"To be pasted by an administrator{f', with settings in {ADMIN_CONFIG}' if site.secured else ''}:"
        yield from pasted
    for note in notes(report):
        yield ""
        yield note


def _line(state: State, what: str, detail: str) -> str:
    return f"{state.value:<8} {what}: {detail}"


def as_json(report: Report, site: Site) -> Mapping[str, Any]:
    """The object to print."""
    return {
        "role": report.scope.role.value,
        "principal": None if site.principal == PLACEHOLDER else site.principal,
        "bootstrap_servers": site.servers,
        "mode_log_topic": report.scope.mode_log,
        "mode_log_missing": report.log_missing,
        "passed": report.passed,
        "rights": [
            {
                "state": right.verdict.state.value,
                "resource": right.need.kind,
                "name": right.need.name,
                "operation": right.need.operation.name,
                "for": right.need.purpose,
                "detail": right.verdict.detail,
                "command": site.grant(right.need) if right.verdict.state is State.FAIL else None,
            }
            for right in report.rights
        ],
        "settings": [
            {"state": setting.verdict.state.value, "name": setting.name, "detail": setting.verdict.detail}
            for setting in report.settings
        ],
        "commands": commands(report, site),
        "notes": notes(report),
    }
