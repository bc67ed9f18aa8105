"""``modeaware reassign-partitions`` beside Kafka's own tool, on one cluster: the same files, the same words."""

from __future__ import annotations

import itertools
import json
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from modeaware import cli
from modeaware.admin.reassignments import list_reassignments, replicas_by_broker
from modeaware.local import Kafka, LocalKafka
from modeaware.wire.brokers import Brokers
from tests.support.kafka_tools import finish_tool
from tests.support.plain import TIMEOUT_S, produce_keyed
from tests.support.reassigning import Moving
from tests.support.source_tree import ROOT
from tests.support.waiting import eventually

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
    return {flag.strip(" `"): ours.strip() for flag, ours in cells}


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


def kafkas(kafka: Kafka) -> Tool:
    def run(*arguments: str) -> Shown:
        command = ["kafka-reassign-partitions.sh", "--bootstrap-server", kafka.bootstrap_servers, *arguments]
        done = finish_tool(" ".join(command))
        return Shown(done.status, done.out)

    return run


@pytest.fixture
def ours(capsys: pytest.CaptureFixture[str]) -> Callable[[Kafka], Tool]:
    def on(kafka: Kafka) -> Tool:
        def run(*arguments: str) -> Shown:
            capsys.readouterr()
            status = cli.main(["reassign-partitions", "--bootstrap-server", kafka.bootstrap_servers, *arguments])
            return Shown(status, "".join(capsys.readouterr()))

        return run

    return on


@pytest.fixture
def both(kafka3: LocalKafka, ours: Callable[[Kafka], Tool]) -> tuple[Tool, Tool]:
    """Kafka's tool and ours."""
    return kafkas(kafka3), ours(kafka3)


@pytest.fixture
def make_placed(kafka3: LocalKafka) -> Iterator[Callable[[], str]]:
    """Makes topics of two partitions on the brokers of BEFORE, which go with the test and with what is in progress of
    them. There are 20 MB in each: a throttled broker fetches 1 MB whenever it may fetch at all, every 11 s or so."""
    made: list[str] = []
    admin = AdminClient({"bootstrap.servers": kafka3.bootstrap_servers})

    def make() -> str:
        name = f"moved-{uuid.uuid4().hex[:12]}"
        made.append(name)
        admin.create_topics([NewTopic(name, num_partitions=2, replica_assignment=BEFORE)])[name].result(TIMEOUT_S)
        for partition in range(2):
            produce_keyed(
                kafka3.bootstrap_servers, name, [(None, b"x" * 10_000)] * 1000, partition=partition, acks="all"
            )
        return name

    yield make
    for deletion in admin.delete_topics(made).values():
        deletion.result(TIMEOUT_S)


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., str]:
    """Writes a file of reassignments, by default of one topic to the brokers of AFTER; its path."""

    def write(topic: str, replicas: list[list[int]] = AFTER, **more: object) -> str:
        listed = [{"topic": topic, "partition": p, "replicas": ids, **more} for p, ids in enumerate(replicas)]
        path = tmp_path / f"{topic}-{uuid.uuid4().hex[:6]}.json"
        path.write_text(json.dumps({"version": 1, "partitions": listed}))
        return str(path)

    return write


def replicas(assignment: dict[str, object]) -> dict[tuple[str, int], list[int]]:
    """Without the folders, which only Kafka's tool prints."""
    listed: list[dict[str, object]] = assignment["partitions"]
    return {(str(one["topic"]), int(str(one["partition"]))): list(one["replicas"]) for one in listed}


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


@pytest.fixture
def arrive(kafka3: LocalKafka) -> Callable[[str, list[list[int]]], None]:
    """Waits until every broker's metadata has the partitions of a topic on these brokers, and no others."""

    def wait(topic: str, wanted: list[list[int]]) -> None:
        there = {(topic, partition): tuple(ids) for partition, ids in enumerate(wanted)}
        with closing(Brokers({"bootstrap.servers": kafka3.bootstrap_servers})) as brokers:
            eventually(lambda: all(seen == there for seen in replicas_by_broker(brokers, [topic]).values()))
            eventually(lambda: not list_reassignments(brokers, there))

    return wait


def test_a_move_from_its_start_to_its_end(
    both: tuple[Tool, Tool],
    make_placed: Callable[[], str],
    plan: Callable[..., str],
    arrive: Callable[[str, list[list[int]]], None],
    kafka3: LocalKafka,
) -> None:
    moving = Moving(kafka3)

    def play(tool: Tool) -> list[Shown]:
        topic = make_placed()
        file = ("--reassignment-json-file", plan(topic))
        shown = [tool("--verify", *file)]
        with moving.throttled(topic):
            shown.append(tool("--execute", *file))
            for look in (("--list",), ("--verify", *file), ("--execute", *file)):  # on the same move, both
                shows_the_same(*(each(*look) for each in both))
                shown.append(tool(*look))
            again = tool("--execute", *file, "--additional")
            # The way back from a move in progress: Kafka's tool prints all replicas, ours those from before.
            back = replicas(again.json_after(CURRENT))[topic, 0]
            assert sorted(back) == ([1, 2, 3] if tool is both[0] else [1, 2])
            shown.append(Shown(again.status, "\n".join(line for line in again.lines if not line.startswith("{"))))
            shown.append(tool("--cancel", *file))
        shown.append(tool("--cancel", *file))
        shown.append(tool("--execute", *file))
        arrive(topic, AFTER)
        shows_the_same(*(each("--verify", *file) for each in both))
        shown.append(tool("--verify", *file))
        return [Shown(status, text.replace(topic, "the-topic")) for status, text in shown]

    with closing(moving):
        played = [play(tool) for tool in both]
    for theirs, mine in zip(*played, strict=True):
        shows_the_same(theirs, mine)


def test_what_one_prints_the_other_executes(
    both: tuple[Tool, Tool],
    make_placed: Callable[[], str],
    plan: Callable[..., str],
    arrive: Callable[[str, list[list[int]]], None],
    tmp_path: Path,
) -> None:
    topic = make_placed()
    file, start = plan(topic), {(topic, 0): BEFORE[0], (topic, 1): BEFORE[1]}
    for first, second in (both, both[::-1]):
        there = first("--execute", "--reassignment-json-file", file)
        assert there.status == 0, there.text
        arrive(topic, AFTER)
        rollback = there.json_after(CURRENT)
        assert replicas(rollback) == start
        back = second("--execute", "--reassignment-json-file", file_of(tmp_path, rollback))
        assert back.status == 0, back.text
        arrive(topic, BEFORE)
        verified = second("--verify", "--reassignment-json-file", file_of(tmp_path, rollback))
        assert f"Reassignment of partition {topic}-0 is completed." in verified.lines
