"""``modeaware reassign-partitions`` on three real brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from modeaware.cli.reassign import format_assignment, parse_assignment
from modeaware.local import LocalKafka
from tests.support.command_line import Site
from tests.support.reassigning import Moving


def test_execute_wait_and_the_way_back(
    kafka3: LocalKafka, moving: Moving, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site, file = Site(kafka3, tmp_path, capsys), tmp_path / "plan.json"

    def execute(plan: str, *options: str) -> list[str]:
        file.write_text(plan)
        told = site.run("reassign-partitions", "--execute", "--reassignment-json-file", str(file), "--wait", *options)
        assert told.status == 0, told.err + told.out
        return told.out.splitlines()

    one, two, three = moving.nodes
    topic = moving.topic([one, two], [two, one], [one, two])
    before = moving.replicas(topic)
    lines = execute(format_assignment({(topic, p): (two, three) for p in range(3)}))
    parts = [f"{topic}-{p}" for p in range(3)]
    assert parse_assignment(lines[2]) == before
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

    execute(lines[2], "--disallow-replication-factor-change")
    moving.wait_until(topic, {p: before[topic, p] for p in range(3)})
