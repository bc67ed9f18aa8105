"""``modeaware check`` on a cluster with TLS, users and ACLs: it names what is missing, and nothing else."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, ResourceType

from modeaware import cli
from modeaware.local import Kafka
from tests.support.rights import KINDS, Acls, Right, documented
from tests.support.secured import SecuredKafka, login

RUN = uuid.uuid4().hex[:8]
TOPIC, GROUP, TRANSACTION, LOG, NEW_TOPIC = (
    f"{name}-{RUN}" for name in ("orders", "billing", "payments", "absent", "orders-v2")
)
DEFAULT_LOG = "__partition_modes"
NAMES = {
    "TOPIC": [TOPIC],
    "GROUP": [GROUP],
    "NEW_TOPIC": [NEW_TOPIC],
    DEFAULT_LOG: [LOG],
    f"modeaware-controller.{DEFAULT_LOG}": [f"modeaware-controller.{LOG}"],
}
CLIENT = documented("producer and consumer", NAMES)
CONTROLLER, OPERATOR = documented("controllers", NAMES), documented("Operators", NAMES)
NEEDED: dict[str, set[Right]] = {
    "controller": CONTROLLER,
    "operator": OPERATOR,
    "replacer": CONTROLLER | documented("replace topics", NAMES),
    "requester": OPERATOR | documented("have topics replaced", NAMES),
    "client": CLIENT,
    "alice": CLIENT
    | {
        (ResourceType.TOPIC, TOPIC, AclOperation.WRITE),
        (ResourceType.TRANSACTIONAL_ID, TRANSACTION, AclOperation.WRITE),
    },
    "bob": CLIENT | {(ResourceType.TOPIC, TOPIC, AclOperation.READ), (ResourceType.GROUP, GROUP, AclOperation.READ)},
}
"""What the documents name, and a client's own rights: alice produces, bob consumes."""
BASE = {"replacer": CONTROLLER, "requester": OPERATOR}
ASKED = {
    "controller": ("--role", "controller", TOPIC, "--group", GROUP),
    "operator": ("--role", "operator", TOPIC),
    "replacer": ("--role", "controller", TOPIC, "--group", GROUP, "--new-topic", NEW_TOPIC),
    "requester": ("--role", "operator", TOPIC, "--new-topic", NEW_TOPIC),
    "client": ("--role", "client"),
    "alice": ("--role", "client", TOPIC, "--transactional-id", TRANSACTION),
    "bob": ("--role", "client", TOPIC, "--group", GROUP),
}
EACH = [(who, right) for who, rights in NEEDED.items() for right in sorted(rights - BASE.get(who, set()), key=str)]
LACKING = {each: f"lacking-{number}" for number, each in enumerate(EACH)}
"""A user for each right: it has all of the others."""
CREATE: Right = (ResourceType.TOPIC, LOG, AclOperation.CREATE)
USERS = NEEDED | {LACKING[who, right]: NEEDED[who] - {right} for who, right in EACH}


def told_as(right: Right) -> tuple[str, str, str]:
    resource, name, operation = right
    (kind,) = (kind for kind, each in KINDS.items() if each is resource)
    return kind, name, operation.name


class Site:
    """The cluster, and the command run as a user."""

    def __init__(self, secured: SecuredKafka, folder: Path) -> None:
        self.servers = secured.bootstrap_servers
        self.certificate = secured.certificate
        self.conf: dict[str, Any] = {**secured.conf()}
        self.folder = folder
        self.admin = AdminClient(self.conf)
        for future in self.admin.create_topics([NewTopic(TOPIC, 4)]).values():
            future.result(30)
        self.acls = Acls(self.servers, self.conf)
        for user, rights in USERS.items():
            if rights:
                self.acls.grant(user, rights)

    def report(self, capsys: pytest.CaptureFixture[str], user: str, *arguments: str) -> dict[str, Any]:
        config = self.folder / f"{user}.properties"
        settings = login(self.certificate, user, "PLAIN")
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        capsys.readouterr()
        options = ("--bootstrap-server", self.servers, "--command-config", str(config))
        log = ("--config", f"modeaware.mode.log.topic={LOG}")
        status = cli.main(["check", "--json", *options, *log, *arguments])
        told = capsys.readouterr()
        assert status in (0, 3), told
        report: dict[str, Any] = json.loads(told.out)
        assert status == (0 if report["passed"] else 3)
        return report

    def topics(self) -> set[str]:
        return set(self.admin.list_topics(timeout=30).topics)


@pytest.fixture(scope="module")
def site(secured: SecuredKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(secured, tmp_path_factory.mktemp("check"))
    yield made
    made.acls.clear()


def failed(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(r["resource"], r["name"], r["operation"]) for r in report["rights"] if r["state"] == "fail"]


@pytest.mark.parametrize("who", NEEDED)
def test_exactly_the_documented_rights_pass(site: Site, capsys: pytest.CaptureFixture[str], who: str) -> None:
    before = site.topics()
    report = site.report(capsys, who, *ASKED[who])
    assert {(r["resource"], r["name"], r["operation"]) for r in report["rights"]} == set(map(told_as, NEEDED[who]))
    assert {r["state"] for r in report["rights"]} == {"pass"}
    assert "fail" not in {setting["state"] for setting in report["settings"]}
    assert report["passed"]
    assert (report["commands"], report["notes"]) == ([], [])
    assert site.topics() == before, "asking made no internal topic"


@pytest.mark.parametrize(("who", "right"), EACH, ids=[f"{who} {'-'.join(told_as(r))}" for who, r in EACH])
def test_the_one_that_is_missing_is_named(
    site: Site, capsys: pytest.CaptureFixture[str], who: str, right: Right
) -> None:
    user = LACKING[who, right]
    report = site.report(capsys, user, *ASKED[who])
    assert failed(report) == [told_as(right)]
    assert {r["state"] for r in report["rights"]} == {"pass", "fail"} or len(report["rights"]) == 1
    assert "fail" not in {setting["state"] for setting in report["settings"]}
    grants = [command for command in report["commands"] if command.startswith("kafka-acls.sh ")]
    assert len(grants) == 1
    assert f" --allow-principal User:{user} " in grants[0]
    assert len(report["commands"]) == (2 if right == CREATE else 1), "how to make the log"


def test_a_cluster_without_users_lets_everybody_pass(kafka: Kafka, capsys: pytest.CaptureFixture[str]) -> None:
    for role in ("client", "controller", "operator"):
        options = ("--bootstrap-server", kafka.bootstrap_servers, "--role", role, "--group", "any")
        assert cli.main(["check", *options, "--config", "modeaware.mode.log.topic=never-made"]) == 0
        first, *lines = capsys.readouterr().out.splitlines()
        assert f"{role} as User:NAME " in first
        assert not [line for line in lines if not line.startswith(("pass ", "unknown "))]
