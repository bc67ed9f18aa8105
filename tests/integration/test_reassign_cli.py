"""``modeaware reassign-partitions`` on three real brokers."""

from __future__ import annotations

import json
import signal
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
from tests.support.waiting import eventually

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


def test_verify_removes_the_throttle_at_the_end(moving: Moving, reassign: Reassign) -> None:
    one, two, _ = moving.nodes
    topic = moving.topic([one])
    plan = reassign.file({(topic, 0): (two,)})
    reassign.done("--execute", "--reassignment-json-file", plan, "--throttle", "1000000")
    moving.wait_until(topic, {0: (two,)})
    reassign.done("--verify", "--reassignment-json-file", plan, "--preserve-throttles")
    assert moving.configs("broker", str(one)).keys() == RATES
    assert reassign.done("--verify", "--reassignment-json-file", plan) == [
        "Status of partition reassignment:",
        f"Reassignment of partition {topic}-0 is completed.",
        "",
        f"Clearing broker-level throttles on brokers {','.join(map(str, moving.nodes))}",
        f"Clearing topic-level throttles on topic {topic}",
    ]
    assert moving.configs("broker", str(one)) == {}
    assert moving.configs("topic", topic) == {}


def test_a_mixed_plan_says_which_partitions_were_refused(moving: Moving, reassign: Reassign) -> None:
    one, two, three = moving.nodes
    topic = moving.topic([one, two], [one, two])
    plan = reassign.file({(topic, 0): (one, two, three), (topic, 1): (two, three)})
    told = reassign.run(
        "--execute", "--reassignment-json-file", plan, "--disallow-replication-factor-change", "--additional"
    )
    assert told.status == 1
    assert told.err.startswith(f"error: Error reassigning partition(s):\n{topic}-0: ")
    assert "INVALID_REPLICATION_FACTOR" in told.err
    assert told.out.endswith(f"Successfully started partition reassignment for {topic}-1\n")
    moving.wait_until(topic, {0: (one, two), 1: (two, three)})

    expected = reassign.file({(topic, 0): (two, one), (topic, 1): (two, three)}, "expected.json")
    told = reassign.run("--execute", "--reassignment-json-file", plan, "--expected-json-file", expected)
    assert told.status == 1
    assert f"{topic}-0: {topic}-0 was not reassigned: its replicas are not the expected [{two}, {one}]" in told.err
    assert f"{topic}-1:" not in told.err


def test_of_a_redirected_partition_the_way_back_is_doubted(moving: Moving, reassign: Reassign) -> None:
    one, two, three = moving.nodes
    topic = moving.topic([one])
    moving.fill(topic, 0)
    plans = [reassign.file({(topic, 0): (node,)}, f"to-{node}.json") for node in (two, three)]
    first = reassign.run("--execute", "--reassignment-json-file", plans[0], "--throttle", "1")
    second, third = (
        reassign.run("--execute", "--additional", "--reassignment-json-file", plans[1], "--throttle", rate)
        for rate in ("1", "1000000000")
    )
    try:
        doubt = f"{topic}-0: was redirected, or its replication factor changes: use the file that the first --execute"
        assert [told.status for told in (first, second, third)] == [0, 0, 0]
        assert [doubt in told.err for told in (first, second, third)] == [False, False, True]
        assert parse_plan(second.out.splitlines()[2]).partitions == {(topic, 0): (one,)}
        moving.wait_until(topic, {0: (three,)})
    finally:
        reassign.done("--cancel", "--reassignment-json-file", plans[1])


def test_waiting_can_be_left_and_taken_up_again(moving: Moving, reassign: Reassign) -> None:
    one, two, three = moving.nodes
    topic = moving.topic([one])
    moving.fill(topic, 0)
    plan = reassign.file({(topic, 0): (two, three)})
    waits = ("reassign-partitions", "--reassignment-json-file", plan, "--wait")
    process = reassign.site.spawn(*waits, "--execute", "--throttle", "1")
    try:
        assert process.stderr is not None
        assert "0 of 1 moves done" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130, err
        assert "--verify --wait" in err
    finally:
        process.kill()
        process.communicate()
    assert moving.in_progress(topic) == {0}
    again = reassign.site.spawn(*waits, "--verify")
    try:
        assert again.stderr is not None
        assert "0 of 1 moves done" in again.stderr.readline()
        reassign.done("--execute", "--additional", "--reassignment-json-file", plan, "--throttle", "1000000000")
        out, err = again.communicate(timeout=90)
        assert again.returncode == 0, err
        assert f"Reassignment of partition {topic}-0 is completed." in out
        assert "1 of 1 moves done (100%)" in err
    finally:
        again.kill()
        again.communicate()
    eventually(lambda: moving.configs("topic", topic) == {})
    assert moving.replicas(topic) == {(topic, 0): (two, three)}
