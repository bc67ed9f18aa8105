"""``modeaware plan`` on a cluster with ACLs: with the rights that docs/plan.md names, with fewer, and with none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, ResourceType

from modeaware import cli
from tests.conftest import MakeKafka
from tests.support.command_line import Told
from tests.support.plain import produce_keyed
from tests.support.rights import Acls, secured, user

TOPIC = "orders"
READ = {(ResourceType.TOPIC, TOPIC, AclOperation.READ)}
DESCRIBE = {(ResourceType.TOPIC, TOPIC, AclOperation.DESCRIBE)}
ALL = {
    *READ,
    (ResourceType.TOPIC, TOPIC, AclOperation.DESCRIBE_CONFIGS),
    (ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE),
    (ResourceType.GROUP, "*", AclOperation.DESCRIBE),
    (ResourceType.TOPIC, "__consumer_offsets", AclOperation.DESCRIBE),
}
USERS = {"analyst": ALL, "reader": READ, "watcher": DESCRIBE, "stranger": set()}


@pytest.fixture
def plan_as(
    make_kafka: MakeKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[[str, dict[str, str]], Told]:
    """Runs the command as a user, with settings that replace some of theirs."""
    servers = make_kafka(1, configs=secured(*USERS), client_config=user("admin")).bootstrap_servers
    acls = Acls(servers)
    for name, rights in USERS.items():
        if rights:
            acls.grant(name, rights)
    admin = AdminClient({"bootstrap.servers": servers, **user("admin")})
    admin.create_topics([NewTopic(TOPIC, 6)])[TOPIC].result(30)
    produce_keyed(servers, TOPIC, ((b"key-%d" % number, b"value") for number in range(600)), **user("admin"))

    def run(name: str, settings: dict[str, str]) -> Told:
        config = tmp_path / f"{name}.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in {**user(name), **settings}.items()))
        capsys.readouterr()
        options = ("--topic", TOPIC, "--partitions", "3", "--json", "--command-config", str(config))
        status = cli.main(["plan", "--bootstrap-server", servers, *options])
        return Told(status, *capsys.readouterr())

    return run


def test_each_right_that_is_missing_is_told(plan_as: Callable[[str, dict[str, str]], Told]) -> None:
    analyst, reader = plan_as("analyst", {}), plan_as("reader", {})
    for told in (analyst, reader):
        assert told.status == 0, told.err
        assert json.loads(told.out)["hash"]["name"] == "crc32"
    blockers = {blocker["code"]: blocker["text"] for blocker in json.loads(analyst.out)["blockers"]}
    assert blockers.keys() == {"producers"}, blockers
    blockers = {blocker["code"]: blocker["text"] for blocker in json.loads(reader.out)["blockers"]}
    assert blockers.keys() == {"not-seen", "groups-doubt", "producers"}, blockers
    assert blockers["not-seen"].startswith("Whether the topic is compacted: cannot describe the configs of topic")
    for name, error in {"watcher": f"cannot read topic '{TOPIC}'", "stranger": f"describe topic '{TOPIC}'"}.items():
        told = plan_as(name, {})
        assert (told.status, told.out) == (1, "")
        assert told.err.startswith("error: "), told.err
        assert told.err.count("\n") == 1, told.err
        assert error in told.err
        assert "TOPIC_AUTHORIZATION_FAILED" in told.err, told.err
    told = plan_as("reader", {"sasl.password": "wrong"})
    assert (told.status, told.out) == (1, "")
    assert "uthentication" in told.err, told.err
    assert told.err.count("\n") == 1, told.err
