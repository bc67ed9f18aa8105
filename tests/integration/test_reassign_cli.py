"""``modeaware reassign-partitions`` on three real brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from modeaware.admin.reassignment_json import format_plan, parse_plan
from modeaware.admin.reassignments import PartitionKey, Replicas
from modeaware.admin.throttle import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from modeaware.cli.reassign_text import VERIFY_PERIODICALLY
from modeaware.local import LocalKafka
from tests.support.command_line import Site, Told
from tests.support.reassigning import Moving

RATES = {LEADER_RATE, FOLLOWER_RATE}


class Reassign:
    """The command, and its files."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site, self.folder = site, folder

    def file(self, plan: dict[PartitionKey, Replicas], name: str = "plan.json") -> str:
        path = self.folder / name
        path.write_text(format_plan(plan))
        return str(path)

    def run(self, *arguments: str) -> Told:
        return self.site.run("reassign-partitions", *arguments)

    def done(self, *arguments: str) -> list[str]:
        told = self.run(*arguments)
        assert told.status == 0, told.err + told.out
        return told.out.splitlines()


@pytest.fixture
def moving(kafka3: LocalKafka) -> Iterator[Moving]:
    made = Moving(kafka3)
    yield made
    made.close()


@pytest.fixture
def reassign(kafka3: LocalKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Reassign:
    return Reassign(Site(kafka3, tmp_path, capsys), tmp_path)


def test_generate_execute_wait_and_the_way_back(moving: Moving, reassign: Reassign, kafka3: LocalKafka) -> None:
    one, two, three = moving.nodes
    topic = moving.topic([one, two], [two, one], [one, two])
    before = moving.replicas(topic)
    (reassign.folder / "topics.json").write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    asked = ("--topics-to-move-json-file", str(reassign.folder / "topics.json"), "--broker-list", f"{two},{three}")
    lines = reassign.done("--generate", *asked)
    assert [*lines[:1], *lines[2:4]] == [
        "Current partition replica assignment",
        "",
        "Proposed partition reassignment configuration",
    ]
    assert parse_plan(lines[1]).partitions == before
    proposal = reassign.folder / "proposal.json"
    proposal.write_text(lines[4])
    assert moving.replicas(topic) == before

    lines = reassign.done("--execute", "--reassignment-json-file", str(proposal), "--wait")
    parts = [f"{topic}-{p}" for p in range(3)]
    assert parse_plan(lines[2]).partitions == before
    assert set(parse_plan(lines[2]).log_dirs.values()) == {str(broker.data) for broker in kafka3.brokers[:2]}
    assert [*lines[:2], *lines[3:6]] == [
        "Current partition replica assignment",
        "",
        "",
        "Save this to use as the --reassignment-json-file option during rollback",
        f"Successfully started partition reassignments for {','.join(parts)}",
    ]
    assert lines[6:10] == [
        "Status of partition reassignment:",
        *(f"Reassignment of partition {part} is completed." for part in parts),
    ]
    assert {broker for ids in moving.replicas(topic).values() for broker in ids} == {two, three}

    back = reassign.folder / "back.json"
    back.write_text(lines[2])
    reassign.done("--execute", "--reassignment-json-file", str(back), "--wait", "--disallow-replication-factor-change")
    moving.wait_until(topic, {p: before[topic, p] for p in range(3)})


def test_throttle_list_verify_and_cancel(moving: Moving, reassign: Reassign) -> None:
    one, two, three = moving.nodes
    topic, other = moving.topic([one]), moving.topic([one])
    moving.fill(topic, 0)
    plan = reassign.file({(topic, 0): (two, three)})
    lines = reassign.done("--execute", "--reassignment-json-file", plan, "--throttle", "1")
    assert lines[-3:] == [
        VERIFY_PERIODICALLY,
        "The inter-broker throttle limit was set to 1 B/s",
        f"Successfully started partition reassignment for {topic}-0",
    ]
    assert moving.configs("topic", topic) == {LEADER_REPLICAS: f"0:{one}", FOLLOWER_REPLICAS: f"0:{two},0:{three}"}
    assert all(moving.configs("broker", str(node)).keys() == RATES for node in moving.nodes)
    assert reassign.done("--list") == [
        "Current partition reassignments:",
        f"{topic}-0: replicas: {two},{three},{one}. adding: {two},{three}. removing: {one}.",
    ]
    assert reassign.done("--verify", "--reassignment-json-file", plan) == [
        "Status of partition reassignment:",
        f"Reassignment of partition {topic}-0 is still in progress.",
        "",
    ]

    second = reassign.file({(other, 0): (two,)}, "second.json")
    told = reassign.run("--execute", "--reassignment-json-file", second)
    assert told.status == 1
    assert "Cannot execute because there is an existing partition assignment." in told.err
    lines = reassign.done("--execute", "--reassignment-json-file", second, "--additional")
    assert lines[-1] == f"Successfully started partition reassignment for {other}-0"

    lines = reassign.done("--cancel", "--reassignment-json-file", plan)
    assert lines[:2] == [
        f"Successfully cancelled partition reassignment for: {topic}-0",
        "None of the specified partition moves are active.",
    ]
    moving.wait_until(topic, {0: (one,)})
    moving.wait_until(other, {0: (two,)})
    assert moving.configs("topic", topic) == {}
    assert all(moving.configs("broker", str(node)) == {} for node in moving.nodes)
    assert reassign.done("--list") == ["No partition reassignments found."]
    assert reassign.done("--verify", "--reassignment-json-file", plan)[:2] == [
        "Status of partition reassignment:",
        f"There is no active reassignment of partition {topic}-0, but replica set is {one} rather than {two},{three}.",
    ]
    assert reassign.done("--cancel", "--reassignment-json-file", plan, "--preserve-throttles")[0] == (
        "None of the specified partition reassignments are active."
    )
