"""``modeaware reassign-partitions`` on three real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from modeaware.admin.reassignments import PartitionKey, Replicas
from modeaware.cli.reassign import format_plan, parse_plan
from modeaware.local import LocalKafka
from tests.support.command_line import Site, Told
from tests.support.reassigning import Moving


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


def test_execute_wait_and_the_way_back(moving: Moving, reassign: Reassign) -> None:
    one, two, three = moving.nodes
    topic = moving.topic([one, two], [two, one], [one, two])
    before = moving.replicas(topic)
    plan = reassign.file({(topic, p): (two, three) for p in range(3)})

    lines = reassign.done("--execute", "--reassignment-json-file", plan, "--wait")
    parts = [f"{topic}-{p}" for p in range(3)]
    assert parse_plan(lines[2]) == before
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
    moving.wait_until(topic, dict.fromkeys(range(3), (two, three)))

    back = reassign.folder / "back.json"
    back.write_text(lines[2])
    reassign.done("--execute", "--reassignment-json-file", str(back), "--wait", "--disallow-replication-factor-change")
    moving.wait_until(topic, {p: before[topic, p] for p in range(3)})


def test_list_verify_and_cancel(moving: Moving, reassign: Reassign) -> None:
    one, two, three = moving.nodes
    topic, other = moving.topic([one]), moving.topic([one])
    moving.fill(topic, 0)
    plan = reassign.file({(topic, 0): (two, three)})
    with moving.throttled(topic):
        lines = reassign.done("--execute", "--reassignment-json-file", plan)
        assert lines[-1] == f"Successfully started partition reassignment for {topic}-0"
        assert reassign.done("--list") == [
            "Current partition reassignments:",
            f"{topic}-0: replicas: {two},{three},{one}. adding: {two},{three}. removing: {one}.",
        ]
        assert reassign.done("--verify", "--reassignment-json-file", plan) == [
            "Status of partition reassignment:",
            f"Reassignment of partition {topic}-0 is still in progress.",
        ]

        second = reassign.file({(other, 0): (two,)}, "second.json")
        told = reassign.run("--execute", "--reassignment-json-file", second)
        assert told.status == 1
        assert "Cannot execute because there is an existing partition assignment." in told.err
        lines = reassign.done("--execute", "--reassignment-json-file", second, "--additional")
        assert lines[-1] == f"Successfully started partition reassignment for {other}-0"

        lines = reassign.done("--cancel", "--reassignment-json-file", plan)
        assert lines == [f"Successfully cancelled partition reassignment for: {topic}-0"]
    moving.wait_until(topic, {0: (one,)})
    moving.wait_until(other, {0: (two,)})
    assert reassign.done("--list") == ["No partition reassignments found."]
    assert reassign.done("--verify", "--reassignment-json-file", plan)[:2] == [
        "Status of partition reassignment:",
        f"There is no active reassignment of partition {topic}-0, but replica set is {one} rather than {two},{three}.",
    ]
    assert reassign.done("--cancel", "--reassignment-json-file", plan) == [
        "None of the specified partition reassignments are active."
    ]
