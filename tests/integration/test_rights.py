"""What the users of a cluster with ACLs need: the rights that docs/permissions.md names, and no others."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as StockConsumer
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, ResourceType

from modeaware import Producer, cli
from modeaware.config import ControllerConfig
from modeaware.controller.daemon import Controller
from tests.support.group import Group, Member, settings_of
from tests.support.rights import Acls, documented
from tests.support.secured import SecuredKafka
from tests.support.waiting import eventually

CONFIG = ControllerConfig(seal_quiet_ms=200, check_interval_ms=500, open_timeout_ms=600_000)


class Site:
    """The secured cluster; the command, run by ``operator``; topics and groups of one test, and what it may do to them.

    Attributes:
        controller: the rights of controllers by the documents.
    """

    def __init__(self, secured: SecuredKafka, acls: Acls, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.secured, self.servers, self.acls = secured, secured.bootstrap_servers, acls
        run = uuid.uuid4().hex[:8]
        self.topic, self.other, self.new = f"orders-{run}", f"payments-{run}", f"refunds-{run}"
        self.group, self.idle, self.transaction = f"billing-{run}", f"audit-{run}", f"transactions-{run}"
        names = {"TOPIC": [self.topic], "GROUP": [self.group, self.idle]}
        self.controller = documented("controllers", names)
        own = {
            (ResourceType.TOPIC, self.topic, AclOperation.READ),
            (ResourceType.TOPIC, self.topic, AclOperation.WRITE),
            (ResourceType.GROUP, self.group, AclOperation.READ),
            (ResourceType.TRANSACTIONAL_ID, self.transaction, AclOperation.WRITE),
        }
        self._capsys = capsys
        self._config = folder / "operator.properties"
        self._config.write_text("".join(f"{key}={value}\n" for key, value in self.conf("operator").items()))
        self._controllers: list[Controller] = []
        self._admin = AdminClient(self.conf("admin"))
        for future in self._admin.create_topics([NewTopic(self.topic, 6), NewTopic(self.other, 2)]).values():
            future.result(30)
        self.acls.grant("operator", documented("Operators", names))
        self.acls.grant("client", documented("producer and consumer", names) | own)

    def conf(self, name: str) -> dict[str, Any]:
        return self.secured.conf(name, "PLAIN")

    def start_controller(self) -> None:
        self._controllers.append(Controller(self.conf("controller"), CONFIG))
        self._controllers[-1].start()

    def stop(self) -> None:
        for controller in self._controllers:
            controller.stop()

    def run(self, *arguments: str, status: int = 0) -> str:
        self._capsys.readouterr()
        ended = cli.main([*arguments, "--bootstrap-server", self.servers, "--command-config", str(self._config)])
        told = self._capsys.readouterr()
        assert ended == status, told
        return told.out

    def describe(self) -> dict[str, Any]:
        told = self.run("topics", "--describe", "--json", "--topic", self.topic)
        described: dict[str, Any] = json.loads(told)["topics"][0]
        return described

    def wait_done(self) -> None:
        eventually(lambda: self.describe()["phase"] == "done", 40)

    def member(self) -> Member:
        conf = {**self.conf("client"), "group.id": self.group, "auto.offset.reset": "earliest", **settings_of(None)}
        return Member([self.topic], conf)


def consume(group: Group, count: int) -> None:
    eventually(lambda: len(group.delivered()) >= count, 30)


def send(site: Site, producer: Producer, count: int) -> None:
    """Keyed records; all of them are acknowledged."""
    errors: list[Any] = []
    for n in range(count):
        producer.produce(site.topic, b"v", b"key-%d" % n, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors == [None] * count


def send_in_transaction(site: Site, partition: int) -> None:
    """One record, and behind it a control record that no consumer is given."""
    producer = Producer({**site.conf("client"), "transactional.id": site.transaction})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(site.topic, b"v", partition=partition)
    producer.commit_transaction(30)
    producer.close()


def commit_before_the_last(site: Site, group: str) -> None:
    """As a client does that commits behind the last record it was given, which a control record follows."""
    consumer = StockConsumer({**site.conf("admin"), "group.id": group})
    ends = {p: consumer.get_watermark_offsets(TopicPartition(site.topic, p), timeout=30)[1] for p in range(6)}
    offsets = [TopicPartition(site.topic, p, end - (p == 5)) for p, end in ends.items()]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


@pytest.fixture
def site(secured: SecuredKafka, acls: Acls, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Site]:
    made = Site(secured, acls, tmp_path, capsys)
    yield made
    made.stop()


@pytest.fixture
def stranger(site: Site) -> Iterator[Member]:
    """Runs a group with ``group.protocol=consumer`` on another topic."""
    conf = {**site.conf("admin"), "group.id": f"strangers-{site.group}", **settings_of("consumer")}
    member = Member([site.other], conf)
    member.start()
    eventually(lambda: len(member.assigned.get(site.other, ())) == 2)
    yield member
    member.stop()


def test_the_documented_rights_are_enough_for_a_shrink_and_for_growth(site: Site, stranger: Member) -> None:
    site.acls.grant("controller", site.controller)
    site.start_controller()
    producer = Producer(site.conf("client"))
    with Group([site.member()]) as group:
        send(site, producer, 100)
        send_in_transaction(site, 5)
        consume(group, 101)
        commit_before_the_last(site, site.idle)
        site.run("shrink", site.topic, "--partitions", "4", "--delay", "0s", "--yes")
        site.wait_done()
        assert [p["mode"] for p in site.describe()["partitions"]] == ["ReadWrite"] * 4 + ["None"] * 2
        assert all(p["log_start"] > 0 for p in site.describe()["partitions"][4:])
        certificate = json.loads(site.run("certificate", site.topic))
        assert [p["verdict"] for p in certificate["partitions"]] == ["reclaimed"] * 2
        send(site, producer, 100)
        consume(group, 201)
    assert site.group in site.run("groups", "list", site.topic)
    site.run(
        "grow", site.topic, "--partitions", "8", "--yes"
    )  # two are revived; on the two new ones the controller commits
    site.wait_done()
    assert [p["mode"] for p in site.describe()["partitions"]] == ["ReadWrite"] * 8


def test_a_file_is_applied_with_the_documented_rights_and_nothing_without_one(site: Site, tmp_path: Path) -> None:
    site.acls.grant("controller", site.controller)
    site.start_controller()
    file = tmp_path / "topics.yaml"
    shrink = {"policy": "drained", "delay": "0s"}
    kept = {"configs": {"retention.ms": 3_600_000}}
    shrunk, made = {"partitions": 4, "shrink": shrink, **kept}, {"partitions": 2, "replication_factor": 1, **kept}
    file.write_text(json.dumps({"version": 1, "topics": {site.topic: shrunk, site.new: made}}))
    beside = {
        (ResourceType.TOPIC, site.new, AclOperation.CREATE),
        (ResourceType.TOPIC, site.new, AclOperation.DESCRIBE_CONFIGS),
    }
    site.acls.grant("operator", beside)
    assert "AUTHORIZATION_FAILED" in site.run("apply", str(file), "--yes", status=1).upper()
    assert [p["mode"] for p in site.describe()["partitions"]] == ["ReadWrite"] * 6
    assert site.new not in site.run("topics", "--list").split()

    site.acls.grant("operator", {(ResourceType.TOPIC, site.topic, AclOperation.ALTER_CONFIGS)})
    site.run("apply", str(file), "--yes")
    site.wait_done()
    assert [p["mode"] for p in site.describe()["partitions"]] == ["ReadWrite"] * 4 + ["None"] * 2
    eventually(lambda: site.new in site.run("topics", "--list").split(), 30)
    site.run("apply", str(file), "--check")


def test_without_the_right_to_see_all_groups_only_a_closed_list_lets_a_drain_end(site: Site) -> None:
    hidden = {right for right in site.controller if right[1] in ("*", "kafka-cluster")}
    readers = ("modeaware-control-records", "modeaware-stragglers")
    instead = {(ResourceType.GROUP, name, AclOperation.DESCRIBE) for name in readers}
    site.acls.grant("controller", site.controller - hidden | instead)
    site.start_controller()
    with Group([site.member()]) as group:
        send(site, Producer(site.conf("client")), 100)
        send_in_transaction(site, 5)
        consume(group, 101)
        for name in (site.idle, f"hidden-{site.group}"):
            commit_before_the_last(site, name)
        site.run("groups", "require", site.group, "--topic", site.topic)
        site.run("shrink", site.topic, "--partitions", "4", "--delay", "0s", "--yes")
        eventually(lambda: {p["reason"] for p in site.describe()["partitions"][4:]} == {"groups-hidden"})
        site.run("groups", "closed", "--topic", site.topic, "--reason", "no other group may read it", "--yes")
        site.wait_done()
        certificate = json.loads(site.run("certificate", site.topic))
        assert set(certificate["drained_groups"]) == {site.group, site.idle}
        assert [p["proof"]["groups"] for p in certificate["partitions"]] == [2] * len(certificate["partitions"])
