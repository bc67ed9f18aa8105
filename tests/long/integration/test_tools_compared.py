"""``modeaware reassign-partitions`` beside Kafka's own tool, on one cluster: the same files, the same words."""

from __future__ import annotations

import itertools
import json
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from modeaware import cli
from modeaware.local import LocalKafka
from tests.support.kafka_tools import finish_tool
from tests.support.reassigning import Moving
from tests.support.source_tree import ROOT

Tool = Callable[..., "Shown"]
BEFORE, AFTER = [[1, 2], [2, 3]], [[3, 2], [2, 1]]
CURRENT = "Current partition replica assignment"


class Shown(NamedTuple):
    """What a tool has shown, without the lines of its log."""

    status: int
    text: str

    @property
    def lines(self) -> list[str]:
        # After "moves are active." Kafka's tool forgets to end the line.
        return [line for line in re.split(r"\n|(?<=moves are active\.)", self.text) if line.strip()]

    def json_after(self, heading: str) -> dict[str, object]:
        line = self.lines[self.lines.index(heading) + 1]
        found: dict[str, object] = json.loads(line)
        return found


def documented(heading: str) -> dict[str, str]:
    """A table of docs/admin.md: Kafka's flag -> what it says of ours."""
    rows = (ROOT / "docs/admin.md").read_text(encoding="utf-8").partition(f"| {heading} |")[2].splitlines()[2:]
    cells = [row.strip("|").split("|", 1) for row in itertools.takewhile(lambda row: row.startswith("|"), rows)]
    return {flag.strip(" `"): ours.strip() for flags, ours in cells for flag in flags.split(",")}


@pytest.mark.parametrize(
    ("script", "command", "heading"),
    [
        ("kafka-topics.sh", "topics", "Kafka's flag"),
        ("kafka-reassign-partitions.sh", "reassign-partitions", "Kafka's flag of reassignments"),
    ],
)
def test_every_flag_of_kafkas_tool_is_in_the_table_and_ours_has_those_that_are_the_same(
    script: str, command: str, heading: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = finish_tool(f"{script} --help")
    table = documented(heading)
    assert set(re.findall(r"(?m)^--[a-z][a-z-]+", done.out + done.err)) == table.keys()
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    flags = set(re.findall(r"(?m)^ +(?:-h, )?(--[a-z][a-z-]+)", capsys.readouterr().out))
    assert {flag for flag, ours in table.items() if ours.startswith("the same")} == table.keys() & flags


@pytest.fixture
def both(kafka3: LocalKafka, capsys: pytest.CaptureFixture[str]) -> tuple[Tool, Tool]:
    """Kafka's tool and ours."""
    words = ("--bootstrap-server", kafka3.bootstrap_servers)

    def kafkas(*arguments: str) -> Shown:
        done = finish_tool(" ".join(["kafka-reassign-partitions.sh", *words, *arguments]))
        return Shown(done.status, done.out)

    def ours(*arguments: str) -> Shown:
        capsys.readouterr()
        status = cli.main(["reassign-partitions", *words, *arguments])
        return Shown(status, "".join(capsys.readouterr()))

    return kafkas, ours


@pytest.fixture
def make_placed(moving: Moving) -> Callable[[], str]:
    """Makes topics of two partitions on the brokers of BEFORE, each with more than a throttled broker fetches soon."""

    def make() -> str:
        topic = moving.topic(*BEFORE)
        for partition in range(2):
            moving.fill(topic, partition)
        return topic

    return make


def replicas(assignment: dict[str, object]) -> dict[tuple[str, int], list[int]]:
    """Without the folders, which only Kafka's tool prints."""
    listed: list[dict[str, object]] = assignment["partitions"]
    return {(str(one["topic"]), int(str(one["partition"]))): list(one["replicas"]) for one in listed}


def to_after(topic: str) -> dict[str, object]:
    listed = [{"topic": topic, "partition": p, "replicas": ids} for p, ids in enumerate(AFTER)]
    return {"version": 1, "partitions": listed}


def file_of(tmp_path: Path, assignment: dict[str, object]) -> str:
    path = tmp_path / f"{uuid.uuid4().hex}.json"
    path.write_text(json.dumps(assignment))
    return str(path)


def shows_the_same(kafkas: Shown, ours: Shown) -> None:
    """The same status, and all lines of Kafka's tool in their order but for throttles and log directories; JSON by its
    replicas. Ours may say more."""
    assert ours.status == kafkas.status, ours.text
    rest = iter(ours.lines)
    for line in kafkas.lines:
        if "throttles on" in line or "partition moves" in line:
            continue
        assert any(same_line(line, other) for other in rest), f"{line!r} is not in its place in:\n{ours.text}"


def same_line(kafkas: str, ours: str) -> bool:
    if kafkas.startswith("{") and ours.startswith("{"):
        return replicas(json.loads(kafkas)) == replicas(json.loads(ours))
    ours = ours.rstrip().removeprefix("error: ")
    return kafkas.rstrip() == ours or (ours != "" and kafkas.startswith(f"{ours} The --additional flag can also"))


def arrive(moving: Moving, topic: str, wanted: list[list[int]]) -> None:
    moving.wait_until(topic, {partition: tuple(ids) for partition, ids in enumerate(wanted)})


def test_a_move_from_its_start_to_its_end(
    both: tuple[Tool, Tool], make_placed: Callable[[], str], moving: Moving, tmp_path: Path
) -> None:
    def play(tool: Tool) -> list[Shown]:
        topic = make_placed()
        file = ("--reassignment-json-file", file_of(tmp_path, to_after(topic)))
        shown = [tool("--verify", *file)]
        with moving.throttled(topic):
            shown.append(tool("--execute", *file))
            for look in (("--list",), ("--verify", *file), ("--execute", *file)):  # on the same move, both
                shows_the_same(*(each(*look) for each in both))
                shown.append(tool(*look))
            again = tool("--execute", *file, "--additional")
            # The assignment before a move in progress: Kafka's tool prints all replicas, ours those from before.
            back = replicas(again.json_after(CURRENT))[topic, 0]
            assert sorted(back) == ([1, 2, 3] if tool is both[0] else [1, 2])
            shown.append(Shown(again.status, "\n".join(line for line in again.lines if not line.startswith("{"))))
            shown.append(tool("--cancel", *file))
        shown.append(tool("--cancel", *file))
        shown.append(tool("--execute", *file))
        arrive(moving, topic, AFTER)
        shows_the_same(*(each("--verify", *file) for each in both))
        shown.append(tool("--verify", *file))
        return [Shown(status, text.replace(topic, "the-topic")) for status, text in shown]

    played = [play(tool) for tool in both]
    for theirs, mine in zip(*played, strict=True):
        shows_the_same(theirs, mine)


def test_what_one_prints_the_other_executes(
    both: tuple[Tool, Tool], make_placed: Callable[[], str], moving: Moving, tmp_path: Path
) -> None:
    topic = make_placed()
    file, start = file_of(tmp_path, to_after(topic)), {(topic, 0): BEFORE[0], (topic, 1): BEFORE[1]}
    for first, second in (both, both[::-1]):
        there = first("--execute", "--reassignment-json-file", file)
        assert there.status == 0, there.text
        arrive(moving, topic, AFTER)
        rollback = there.json_after(CURRENT)
        assert replicas(rollback) == start
        back = second("--execute", "--reassignment-json-file", file_of(tmp_path, rollback))
        assert back.status == 0, back.text
        arrive(moving, topic, BEFORE)
        verified = second("--verify", "--reassignment-json-file", file_of(tmp_path, rollback))
        assert f"Reassignment of partition {topic}-0 is completed." in verified.lines
