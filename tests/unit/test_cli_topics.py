"""``modeaware topics``, ``shrink`` and ``grow``: options, commands, what is said before, what is asked of brokers."""

from __future__ import annotations

import argparse
from base64 import urlsafe_b64encode
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from modeaware import cli
from modeaware.cli import change, progress
from modeaware.cli.change import (
    CHANGING_WARNING,
    FEATURE_WARNING,
    GROWTH_WARNING,
    Change,
    CommandOf,
    Situation,
    preview,
    undo_note,
)
from modeaware.cli.topics import deletion_lines
from modeaware.cluster.cluster import delete_topics
from modeaware.config import ClientConfig, ControllerConfig
from modeaware.errors import ClusterError, ErrorCode
from modeaware.lifecycle.commands import Command, CreatePartitionsCommand, DeletePartitionsCommand
from modeaware.lifecycle.facts import GroupFacts, PartitionFacts, TopicFacts
from modeaware.modelog.records import DeleteTopicPartitions, RetiredPartition, TopicRecord
from modeaware.modes import PartitionMode, ReplicaState
from modeaware.reports.session import Session
from modeaware.reports.topics import ListedTopic, TopicState, named, named_for_change, topic_states
from modeaware.wire.brokers import Brokers
from modeaware.wire.requests import (
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeTopicPartitionsRequest,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
)
from modeaware.wire.transport import Ask

SERVER = ("--bootstrap-server", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--topic", "t"], "one of the arguments --create --list --describe --alter --delete --undo is required"),
        (["--undo"], "--topic is needed"),
        (["--alter", "--topic", "t"], "--alter needs --partitions N"),
        (["--alter", "--topic", "t", "--partitions", "3", "--delete-partitions-delay", "-5"], "below 0"),
        (["--alter", "--topic", "t", "--partitions", "3", "--json"], "--json belongs to --describe"),
        (["--alter", "--topic", "t", "--partitions", "3", "--config", "a=b"], "altered with kafka-configs"),
        (
            ["--alter", "--topic", "t", "--partitions", "3", "--replica-assignment", "1,2"],
            "for 2 partitions, not for 3",
        ),
        (["--create", "--topic", "t", "--replica-assignment", "1:2,1"], "different replication factor"),
        (["--create", "--topic", "t", "--replica-assignment", "1", "--partitions", "1"], "leave the numbers out"),
        (
            ["--create", "--topic", "t", "--replication-factor", "2", "--min-required-replication-factor", "3"],
            "3 is more than --replication-factor 2",
        ),
        (["--create", "--topic", "t", "--config", "retention.ms"], "is not KEY=VALUE"),
        (["--create", "--topic", "t", "--if-exists"], "--if-exists belongs to --describe, --alter, --delete"),
        (["--delete", "--topic", "t", "--partitions", "3"], "--delete takes no --partitions"),
        (["--describe", "--partitions", "3"], "without a number"),
        (["--describe", "--json", "--at-min-isr-partitions"], "takes no filter"),
        (["--undo", "--topic", "t", "--immediate-delete"], "belongs to --alter"),
    ],
)
def test_options_that_do_not_go_together_are_bad_usage(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["topics", *SERVER, *arguments])
    assert caught.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["shrink", "t", "--to", "4"], DeletePartitionsCommand("t", 4, -1)),
        (["shrink", "t", "--to", "4", "--evacuate"], DeletePartitionsCommand("t", 4, evacuate=True)),
        (["shrink", "t", "--to", "4", "--delete-partitions-delay", "0"], DeletePartitionsCommand("t", 4, 0)),
        (["shrink", "t", "--to", "4", "--immediate-delete"], DeletePartitionsCommand("t", 4, -1, True)),
        (
            ["shrink", "t", "--to", "4", "--accept-state-loss", "b", "--accept-state-loss", "a"],
            DeletePartitionsCommand("t", 4, accept_state_loss=("b", "a")),
        ),
        (["grow", "t", "--to", "13"], CreatePartitionsCommand("t", 13)),
        (["topics", "--alter", "--topic", "t", "--partitions", "4"], DeletePartitionsCommand("t", 4, -1)),
        (["topics", "--alter", "--topic", "t", "--partitions", "13"], CreatePartitionsCommand("t", 13)),
        (
            ["topics", "--alter", "--topic", "t", "--partitions", "13", "--replica-assignment", ",".join(["1:2"] * 13)],
            CreatePartitionsCommand("t", 13, ((1, 2),)),
        ),
        (["topics", "--undo", "--topic", "t"], None),
    ],
)
def test_options_make_the_command(
    arguments: list[str], expected: Command | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def run_change(args: argparse.Namespace, topic: str, command_of: CommandOf, *_: object) -> int:
        made.append((topic, command_of(FRESH)))
        return 0

    for module in ("topics", "change"):
        monkeypatch.setattr(f"modeaware.cli.{module}.run_change", run_change)
    assert cli.main([*arguments, *SERVER]) == 0
    assert made == [("t", expected)]


def test_proposed_commands_connect_as_this_one_did(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "my conf").mkdir()
    (tmp_path / "my conf" / "c").touch()
    monkeypatch.chdir(tmp_path)
    session = Session({}, ClientConfig(), ControllerConfig(), cast(Any, None))
    monkeypatch.setattr(change, "open_session", lambda *_: nullcontext(session))
    monkeypatch.setattr(Change, "look", lambda *_: SHRINKING)
    monkeypatch.setattr(change, "wait_for_topic", interrupted)
    monkeypatch.setattr(change, "embedded_controller", lambda *_: nullcontext(SimpleNamespace(failure=None)))
    file = ("--command-config", "my conf/c")
    assert cli.main(["shrink", "t", "--to", "4", "--delete-partitions-delay", "0", "--wait", *SERVER, *file]) == 130
    where = "--bootstrap-server 127.0.0.1:1 --command-config 'my conf/c'"
    assert capsys.readouterr().err.splitlines()[-3:] == [
        f"Left. The change rests until a controller runs: modeaware controller {where}",
        f"Watch it:     modeaware topics {where} --describe --topic t",
        f"Take it back: modeaware topics {where} --undo --topic t",
    ]


LISTED = [ListedTopic(name, name, name.startswith("__"), 1) for name in ("__offsets", "a-b", "a.b", "aXb", "c")]


def test_what_can_be_a_name_is_no_pattern_of_what_to_change() -> None:
    gone = [topic for topic in LISTED if topic.name != "a.b"]
    assert [topic.name for topic in named_for_change(LISTED, "a.b", "log")] == ["a.b"]
    assert named_for_change(gone, "a.b", "log") == []
    assert [topic.name for topic in named(gone, "a.b")] == ["a-b", "aXb"], "what is shown is as kafka-topics has it"
    assert [topic.name for topic in named_for_change(gone, "a.*", "log")] == ["a-b", "aXb"]
    assert [topic.name for topic in named_for_change(LISTED, r"a\.b|c", "log")] == ["a.b", "c"]


def test_a_pattern_never_changes_internal_topics_or_the_mode_log() -> None:
    assert [topic.name for topic in named_for_change(LISTED, ".*", "c")] == ["a-b", "a.b", "aXb"]
    assert named_for_change(LISTED, "__offsets|c", "c") == []
    assert [topic.name for topic in named_for_change(LISTED, "c", "c")] == ["c"]
    internal = named_for_change(LISTED, "__offsets", "c")
    assert [topic.name for topic in internal] == ["__offsets"]
    assert [line.split()[:2] for line in deletion_lines(internal, "c")] == [
        ["WARNING:", "__offsets"],
        ["__offsets:", "is"],
    ]
    assert "WARNING" not in deletion_lines(named_for_change(LISTED, "a.*", "c"), "c")[0]


# What is said before a change: KIP-694's warnings, the plan, the note on keys, the question


RW, RO = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY
LOGS = {p: PartitionFacts(0, 10, 10, 0, 0) for p in range(12)}
FRESH = Situation("t", None, TopicFacts("t", "id", 12, partitions=LOGS))
DELETION = DeleteTopicPartitions(4, 0, False, 0, 12)
RECORD = TopicRecord("t", "id", 1, 1, (RW,) * 4 + (RO,) * 8, DELETION, {p: RetiredPartition() for p in range(4, 12)})
SHRINKING = replace(FRESH, record=RECORD)
GONE = RetiredPartition(replica_state=ReplicaState.DELETION_SUCCESSFUL)
SHRUNK = replace(
    FRESH,
    record=replace(RECORD, modes=(RW,) * 4 + (PartitionMode.NONE,) * 8, retired=dict.fromkeys(range(4, 12), GONE)),
)
SHRINK, GROW = DeletePartitionsCommand("t", 4, 0), CreatePartitionsCommand("t", 14)


@pytest.mark.parametrize(
    ("command", "situation", "expected"),
    [
        (SHRINK, FRESH, [FEATURE_WARNING]),
        (GROW, FRESH, [GROWTH_WARNING]),
        (GROW, SHRUNK, [GROWTH_WARNING]),
        (GROW, SHRINKING, [GROWTH_WARNING, CHANGING_WARNING]),
    ],
)
def test_each_warning_is_given_where_it_applies(
    command: DeletePartitionsCommand | CreatePartitionsCommand, situation: Situation, expected: list[str]
) -> None:
    assert [line for line in preview(command, situation) if line.startswith("WARNING")] == expected


STREAMS = GroupFacts({0: 10}, has_members=True, kind="classic", stateful=True)
STATEFUL = replace(FRESH, facts=replace(FRESH.facts, groups={"app": STREAMS, "plain": GroupFacts({0: 10})}))


@pytest.mark.parametrize(
    ("target", "what"), [(4, "the keys of partitions 4-11"), (5, "most keys, since 5 does not divide 12,")]
)
def test_accepted_loss_of_state_names_what_does_not_move(target: int, what: str) -> None:
    command = DeletePartitionsCommand("t", target, accept_state_loss=("app", "plain", "absent"))
    warning, plain, absent = preview(command, STATEFUL)[2:5]
    assert warning.startswith("WARNING: group 'app' keeps state per partition")
    assert f"(windows, joins, aggregates, tables) for {what} stays in the changelogs" in warning
    assert "plain: the group keeps no state that is known of" in plain
    assert "absent: the group does not use the topic" in absent


def test_an_undo_says_what_stays_deleted() -> None:
    logs = {**LOGS, 4: PartitionFacts(10, 10, 10, 0, 0), 6: PartitionFacts(7, 10, 10, 0, 0)}
    kept, gone = undo_note(replace(SHRUNK, facts=replace(SHRUNK.facts, partitions=logs)))
    assert kept == "Given back: partitions 4-11 with the 63 offsets they still hold."
    assert gone.startswith("Records deleted before stay deleted: 17 offsets below the log starts of partitions 4,6 (")


@pytest.mark.parametrize(
    ("answer", "proceeds"), [("y", True), (" YES ", True), ("n", False), ("", False), ("yo", False)]
)
def test_question_is_answered_on_a_terminal(answer: str, proceeds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", lambda prompt: answer)
    assert progress.confirmed(yes=False) is proceeds


# What is asked of brokers about topics: paging, older brokers, deletion by id


IDS = {"a": UUID(int=1), "b": UUID(int=2)}
LIVE = frozenset({1, 2})


class FakeBrokers:
    """Two topics of three partitions; ``old``: without DescribeTopicPartitions."""

    def __init__(self, *, old: bool = False) -> None:
        self.asked: list[str] = []
        self._old = old

    def ask_any(self, _: Any) -> tuple[int, Any]:
        return 1, SimpleNamespace(controller_id=-1)

    def ask_each(self, asks: list[Ask], timeout_s: float | None = None) -> list[Any]:
        (ask,) = asks
        return [self.ask(ask.request)]

    def ask(self, request: Any) -> Any:
        self.asked.append(type(request).__name__.removesuffix("Request"))
        handlers = {
            DescribeTopicPartitionsRequest: self._describe,
            MetadataRequest: self._metadata,
            ListPartitionReassignmentsRequest: self._reassignments,
            DescribeConfigsRequest: self._configs,
        }
        if self._old and isinstance(request, DescribeTopicPartitionsRequest):
            raise ClusterError(self.asked[-1], code=ErrorCode.UNSUPPORTED_VERSION)
        return handlers[type(request)](request)

    def _topic(self, name: str, partitions: range, **more: Any) -> Any:
        told = [
            SimpleNamespace(partition_index=p, leader_id=p + 1, replica_nodes=[1, 2], isr_nodes=[1], **more)
            for p in partitions
        ]
        return SimpleNamespace(name=name, topic_id=IDS[name], error_code=0, partitions=told)

    def _describe(self, request: Any) -> Any:
        """As brokers do it: so many partitions, beginning at the cursor."""
        elr: dict[str, Any] = {"eligible_leader_replicas": [], "last_known_elr": None}
        start = (request.cursor.topic_name, request.cursor.partition_index) if request.cursor else ("", 0)
        todo = [(t.name, p) for t in request.topics for p in range(3) if (t.name, p) >= start]
        now, later = todo[: request.response_partition_limit], todo[request.response_partition_limit :]
        topics = [self._topic(name, range(p, p + 1), **elr) for name, p in now]
        cursor = SimpleNamespace(topic_name=later[0][0], partition_index=later[0][1]) if later else None
        return SimpleNamespace(topics=topics, next_cursor=cursor)

    def _metadata(self, request: Any) -> Any:
        return SimpleNamespace(topics=[self._topic(topic.name, range(2, -1, -1)) for topic in request.topics])

    def _reassignments(self, _: Any) -> Any:
        moved = SimpleNamespace(partition_index=1, adding_replicas=[2], removing_replicas=[])
        topics = [SimpleNamespace(name="a", partitions=[moved])]
        return SimpleNamespace(error_code=0, error_message=None, topics=topics)

    def _configs(self, request: Any) -> Any:
        told = [
            SimpleNamespace(name="min.insync.replicas", value="2", config_source=5),
            SimpleNamespace(name="retention.ms", value="7", config_source=1),
        ]
        names = [resource.resource_name for resource in request.resources]
        return SimpleNamespace(results=[SimpleNamespace(resource_name=n, error_code=0, configs=told) for n in names])


def states(brokers: FakeBrokers, limit: int = 2000) -> list[TopicState]:
    return topic_states(cast(Brokers, brokers), ["a", "b"], LIVE, limit)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 2000])
def test_topics_that_span_answers_are_put_together(limit: int) -> None:
    brokers = FakeBrokers()
    first, second = states(brokers, limit)
    assert [(p.partition, p.leader, p.elr, p.last_known_elr) for p in first.partitions] == [
        (0, 1, (), ()),
        (1, 2, (), ()),
        (2, None, (), ()),  # broker 3 is not alive
    ]
    assert [p.adding for p in first.partitions] == [None, (2,), None]
    assert [p.adding for p in second.partitions] == [None] * 3
    assert (first.configs, first.min_isr) == ({"retention.ms": "7"}, 2)
    assert brokers.asked.count("DescribeTopicPartitions") == -(-6 // limit)


def test_a_broker_without_describe_topic_partitions_is_asked_for_metadata() -> None:
    brokers = FakeBrokers(old=True)
    first, _ = states(brokers)
    assert [(p.partition, p.elr, p.last_known_elr) for p in first.partitions] == [(p, None, None) for p in range(3)]
    assert "Metadata" in brokers.asked


class Deleting:
    """A broker that deletes; what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[tuple[str | None, UUID]], bool]] = []

    def ask_any(self, _: Any) -> tuple[int, Any]:
        return 1, SimpleNamespace(controller_id=1)

    def ask_each(self, asks: list[Ask], timeout_s: float | None = None) -> list[Any]:
        (ask,) = asks
        assert isinstance(ask.request, DeleteTopicsRequest)
        self.asked.append(([(topic.name, topic.topic_id) for topic in ask.request.topics], ask.once))
        told = [SimpleNamespace(topic_id=topic.topic_id, error_code=0) for topic in ask.request.topics]
        return [SimpleNamespace(responses=told)]


def test_topics_are_deleted_by_id_and_asked_for_once() -> None:
    brokers = Deleting()
    ids = {name: urlsafe_b64encode(topic_id.bytes).decode().rstrip("=") for name, topic_id in IDS.items()}
    assert delete_topics(cast(Brokers, brokers), ids) == {"a": None, "b": None}
    assert brokers.asked == [([(None, topic_id) for topic_id in IDS.values()], True)]
