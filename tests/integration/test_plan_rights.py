"""``modeaware plan`` on a cluster with ACLs: with the rights that docs/plan.md names, with fewer, and with none."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, ResourceType

from modeaware import cli
from tests.support.command_line import Told
from tests.support.plain import produce_keyed
from tests.support.rights import Acls
from tests.support.secured import ADMIN, SecuredKafka, login

TOPIC = f"orders-{uuid.uuid4().hex[:8]}"
READ = {(ResourceType.TOPIC, TOPIC, AclOperation.READ)}
DESCRIBE = {(ResourceType.TOPIC, TOPIC, AclOperation.DESCRIBE)}
ALL = {
    *READ,
    (ResourceType.TOPIC, TOPIC, AclOperation.DESCRIBE_CONFIGS),
    (ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE),
    (ResourceType.GROUP, "*", AclOperation.DESCRIBE),
    (ResourceType.TOPIC, "__consumer_offsets", AclOperation.DESCRIBE),
    (ResourceType.TOPIC, "__partition_modes", AclOperation.READ),
}
USERS = {"alice": ALL, "bob": READ, "client": DESCRIBE, "mallory": set()}


@pytest.fixture
def plan_as(
    secured: SecuredKafka, acls: Acls, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[[str, dict[str, str]], Told]:
    """Runs the command as a user, with settings that replace some of theirs."""
    for name, rights in USERS.items():
        if rights:
            acls.grant(name, rights)
    admin = AdminClient(secured.conf())
    admin.create_topics([NewTopic(TOPIC, 6)])[TOPIC].result(30)
    records: list[tuple[bytes | None, bytes | None]] = [(b"key-%d" % number, b"value") for number in range(600)]
    produce_keyed(secured.bootstrap_servers, TOPIC, records, **login(secured.certificate, ADMIN, "PLAIN"))

    def run(name: str, settings: dict[str, str]) -> Told:
        config = tmp_path / f"{name}.properties"
        login_as = {**login(secured.certificate, name, "PLAIN"), **settings}
        config.write_text("".join(f"{key}={value}\n" for key, value in login_as.items()))
        capsys.readouterr()
        options = (TOPIC, "--partitions", "3", "--json", "--command-config", str(config))
        status = cli.main(["plan", "--bootstrap-server", secured.bootstrap_servers, *options])
        return Told(status, *capsys.readouterr())

    return run


def test_each_right_that_is_missing_is_told(plan_as: Callable[[str, dict[str, str]], Told]) -> None:
    analyst, reader = plan_as("alice", {}), plan_as("bob", {})
    for told in (analyst, reader):
        assert told.status == 0, told.err
        assert json.loads(told.out)["hash"]["name"] == "crc32"
    blockers = {blocker["code"]: blocker["text"] for blocker in json.loads(analyst.out)["blockers"]}
    assert blockers.keys() == {"producers"}, blockers
    found = json.loads(reader.out)["blockers"]
    assert {blocker["code"] for blocker in found} == {"not-seen", "groups-doubt", "producers"}, found
    compacted, changed = [blocker["text"] for blocker in found if blocker["code"] == "not-seen"]
    assert compacted.startswith("It is unknown whether the topic is compacted: cannot describe the configs of topic")
    assert changed.startswith("It is unknown whether the topic is being changed: mode log: not authorized to read"), (
        changed
    )
    for name, error in {"client": f"cannot read topic '{TOPIC}'", "mallory": f"describe topic '{TOPIC}'"}.items():
        told = plan_as(name, {})
        assert (told.status, told.out) == (1, "")
        assert told.err.startswith("error: "), told.err
        assert told.err.count("\n") == 1, told.err
        assert error in told.err
        assert "TOPIC_AUTHORIZATION_FAILED" in told.err, told.err
    told = plan_as("bob", {"sasl.password": "wrong"})
    assert (told.status, told.out) == (1, "")
    assert "uthentication" in told.err, told.err
    assert told.err.count("\n") == 1, told.err
