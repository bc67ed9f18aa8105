"""``modeaware topics``, ``shrink`` and ``grow``: options, commands, what is said before, what is asked of brokers."""

from __future__ import annotations

import argparse
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from modeaware import cli
from modeaware.admin.new_topics import NewTopic
from modeaware.cli import change, progress
from modeaware.cli.change import Change, Seen, Situation
from modeaware.cli.resize import (
    CHANGING_WARNING,
    GROWTH_WARNING,
    SHRINK_WARNING,
    CommandOf,
    undo_note,
    warnings,
)
from modeaware.cli.topics import COLLISION_WARNING, deletion_lines
from modeaware.cluster.effects import delete_topics
from modeaware.config import ClientConfig, ControllerConfig
from modeaware.errors import ClusterError, ErrorCode, RecordError, RequestRefused
from modeaware.lifecycle.commands import Command, CreatePartitionsCommand, DeletePartitionsCommand
from modeaware.lifecycle.facts import PartitionFacts, TopicFacts
from modeaware.modelog.records import DeleteTopicPartitions, Replacement, RetiredPartition, TopicRecord
from modeaware.modes import PartitionMode, ReplicaState
from modeaware.plan.diff import resize
from modeaware.reports.session import ModeLog, Session
from modeaware.reports.topics import ListedTopic, TopicState, named, named_for_change, topic_states
from modeaware.wire.brokers import Brokers
from modeaware.wire.requests import (
    DescribeConfigsRequest,
    DescribeTopicPartitionsRequest,
    ListPartitionReassignmentsRequest,
)
from modeaware.wire.transport import Ask
from tests.support.fake_brokers import FakeBrokers
from tests.support.modelog import fold

SERVER = ("--bootstrap-server", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("shrink t --partitions 4", DeletePartitionsCommand("t", 4)),
        ("shrink t --partitions 4 --delay 0s", DeletePartitionsCommand("t", 4, 0)),
        ("shrink t --partitions 4 --immediate-delete", DeletePartitionsCommand("t", 4, None, True)),
        (
            "shrink t --partitions 4 --accept-state-loss b --accept-state-loss a",
            DeletePartitionsCommand("t", 4, accept_state_loss=("b", "a")),
        ),
        ("grow t --partitions 13", CreatePartitionsCommand("t", 13)),
        ("topics --alter --topic t --partitions 4", DeletePartitionsCommand("t", 4)),
        ("topics --alter --topic t --partitions 4 --delete-partitions-delay 9", DeletePartitionsCommand("t", 4, 9)),
        ("shrink t --partitions 4 --delay 12h", DeletePartitionsCommand("t", 4, 43_200_000)),
        ("topics --alter --topic t --partitions 13", CreatePartitionsCommand("t", 13)),
        (
            "topics --alter --topic t --partitions 13 --replica-assignment " + ",".join(["1:2"] * 13),
            CreatePartitionsCommand("t", 13, ((1, 2),)),
        ),
        ("topics --undo --topic t", None),
        (
            "topics --alter --topic t --partitions 4 --min-required-replication-factor 1",
            RequestRefused("replica options apply to new partitions only"),
        ),
    ],
)
def test_options_make_the_command(
    arguments: str,
    expected: Command | RequestRefused | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = []

    def resize(args: argparse.Namespace, topic: str, command_of: CommandOf, *_: object) -> SimpleNamespace:
        made.append((topic, command_of(FRESH)))
        return SimpleNamespace(run=lambda: 0)

    for module in ("topics", "resize"):
        monkeypatch.setattr(f"modeaware.cli.{module}.Resize", resize)
    refused = isinstance(expected, RequestRefused)
    assert cli.main([*arguments.split(), *SERVER]) == (1 if refused else 0)
    assert made == ([] if refused else [("t", expected)])
    assert not refused or str(expected) in capsys.readouterr().err


def test_proposed_commands_connect_as_this_one_did(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "my conf").mkdir()
    (tmp_path / "my conf" / "c").touch()
    monkeypatch.chdir(tmp_path)
    session = Session({}, ClientConfig(), ControllerConfig(), cast(Any, None))
    shrinking_log = ModeLog("log", fold([("id", RECORD.to_json())]))
    monkeypatch.setattr(change, "open_session", lambda *_: nullcontext(session))
    monkeypatch.setattr(Change, "take_snapshot", lambda *_: Seen(session, shrinking_log, {"t": SHRINKING.facts}))
    monkeypatch.setattr(change, "wait_for_topics", interrupted)
    monkeypatch.setattr(change, "embedded_controller", lambda *_: nullcontext(SimpleNamespace(failure=None)))
    file = ("--command-config", "my conf/c")
    assert cli.main(["shrink", "t", "--partitions", "4", "--delay", "0s", "--wait", *SERVER, *file]) == 130
    where = "--bootstrap-server 127.0.0.1:1 --command-config 'my conf/c'"
    assert capsys.readouterr().err.splitlines()[-3:] == [
        f"Interrupted. Changes that have begun pause until a controller runs: modeaware controller {where}",
        f"Watch it:     modeaware topics --describe --topic t {where}",
        f"Undo it:      modeaware topics --undo --topic t {where}",
    ]
    monkeypatch.setattr(Change, "send", lambda *_: {"t": None})
    assert cli.main(["grow", "t", "--partitions", "8", "--wait", "--yes", *SERVER, *file]) == 130
    watch = f"Watch it:     modeaware topics --describe --topic t {where}"
    assert capsys.readouterr().err.splitlines()[-1] == watch, "an undo would not take a growth back"


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
        ["__offsets:", "will"],
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
        (SHRINK, FRESH, [SHRINK_WARNING]),
        (GROW, FRESH, [GROWTH_WARNING]),
        (GROW, SHRUNK, [GROWTH_WARNING]),
        (GROW, SHRINKING, [GROWTH_WARNING, CHANGING_WARNING]),
    ],
)
def test_each_warning_is_given_where_it_applies(
    command: DeletePartitionsCommand | CreatePartitionsCommand, situation: Situation, expected: list[str]
) -> None:
    told = [line for line in warnings(command, situation) if line.startswith("WARNING")]
    assert [line[: len(start)] for line, start in zip(told, expected, strict=True)] == expected


@pytest.mark.parametrize(
    "options", ["shrink t --partitions 4", "grow t --partitions 14", "grow t --partitions 14 --yes"]
)
def test_new_topic_without_a_record_is_not_changed_before_its_old_topic_is_released(
    options: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replacement = Replacement("t", 12, 0, new_topic_id="id", announced_ms=1, switched_ms=2)
    old = TopicRecord("old", "old-id", 1, 1, (RO,), replacement=replacement)
    log = ModeLog("log", fold([("old-id", old.to_json())]))
    session = Session({}, ClientConfig(), ControllerConfig(), cast(Any, None))
    monkeypatch.setattr(session, "read_log", lambda: log)
    monkeypatch.setattr(session, "observer", lambda: SimpleNamespace(observe_all=lambda *_: [FRESH.facts]))
    monkeypatch.setattr(change, "open_session", lambda *_: nullcontext(session))
    monkeypatch.setattr(Change, "grow", lambda *_, **__: pytest.fail("brokers are not asked"))
    dry = [] if "--yes" in options else ["--dry-run"]
    assert cli.main([*options.split(), *dry, *SERVER]) == 1
    assert "topic 't': it replaces 'old': wait until its groups have moved" in capsys.readouterr().err


def test_partitions_that_another_tool_added_take_writes_and_are_shown_to_retire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grown = replace(
        FRESH, record=TopicRecord("t", "id", 3, 1, (RW,) * 4), facts=replace(FRESH.facts, partition_count=6)
    )
    assert grown.writable_count == 6
    assert any(line.startswith("      ReadOnly: 4-5; policy drained") for line in resize(SHRINK, grown.current).lines())
    made: list[object] = []

    def altered(_: object, topic: str, command_of: CommandOf) -> SimpleNamespace:
        made.append(command_of(grown))
        return SimpleNamespace(run=lambda: 0)

    monkeypatch.setattr("modeaware.cli.topics.Resize", altered)
    cli.main(["topics", "--alter", "--topic", "t", "--partitions", "5", *SERVER])
    assert made == [DeletePartitionsCommand("t", 5)]
    some_retired = replace(SHRUNK, facts=replace(SHRUNK.facts, partition_count=14))
    assert some_retired.writable_count == 4, "added partitions take no writes while others are retired"


def test_accepted_loss_of_state_names_each_group() -> None:
    warned = resize(DeletePartitionsCommand("t", 4, accept_state_loss=("app", "web")), FRESH.current).warnings[1:]
    assert warned == tuple(
        f"group {group!r} loses the state of the keys that move, if it keeps any" for group in ("app", "web")
    )


def test_an_undo_says_what_stays_deleted() -> None:
    logs = {**LOGS, 4: PartitionFacts(10, 10, 10, 0, 0), 6: PartitionFacts(7, 10, 10, 0, 0)}
    kept, gone = undo_note(replace(SHRUNK, facts=replace(SHRUNK.facts, partitions=logs)))
    assert kept == "Given back: partitions 4-11 with the 63 offsets they still hold."
    assert undo_note(FRESH) == []
    assert gone.startswith(
        "Records that were already deleted stay deleted: 17 offsets below the log starts of partitions 4,6 ("
    )


@pytest.mark.parametrize(
    ("answer", "proceeds"), [("y", True), (" YES ", True), ("n", False), ("", False), ("yo", False), (None, False)]
)
def test_question_is_answered_on_a_terminal(
    answer: str | None, proceeds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(_: str) -> str:
        if answer is None:
            raise EOFError
        return answer

    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", read)
    assert progress.confirmed(yes=False) is proceeds


# What is asked of brokers about topics: paging, older brokers, deletion by id


IDS: dict[str, UUID | None] = {"a": UUID(int=1), "b": UUID(int=2)}
LIVE = frozenset({1, 2})
DESCRIBE, MOVES, CONFIGS = DescribeTopicPartitionsRequest, ListPartitionReassignmentsRequest, DescribeConfigsRequest


class TopicBrokers(FakeBrokers):
    """Two topics of three partitions; ``codes``: errors, by request; ``once``: what was not to be asked for again."""

    def __init__(self) -> None:
        super().__init__()
        self.codes: dict[type, int] = {}
        self.once: list[Any] = []

    def ask_each(self, asks: Iterable[Ask], timeout_s: float | None = None) -> list[Any]:
        (ask,) = asks
        self.once += [ask.request] if ask.once else []
        if self.codes.get(type(ask.request)) == ErrorCode.UNSUPPORTED_VERSION:
            return [ClusterError("an old broker", code=ErrorCode.UNSUPPORTED_VERSION)]
        return super().ask_each([ask], timeout_s)

    def _topic(self, name: str, partitions: range, code: int = 0, **more: Any) -> dict[str, Any]:
        told = [
            {"partition_index": p, "leader_id": p + 1, "replica_nodes": [1, 2], "isr_nodes": [1], **more}
            for p in partitions
        ]
        return {"name": name, "topic_id": IDS[name], "error_code": code, "partitions": told, "is_internal": False}

    def on_describe_topic_partitions(self, node: int, request: Any) -> Any:
        """As brokers do it: so many partitions, beginning at the cursor."""
        elr: dict[str, Any] = {"eligible_leader_replicas": [], "last_known_elr": None}
        start = (request.cursor.topic_name, request.cursor.partition_index) if request.cursor else ("", 0)
        todo = [(t.name, p) for t in request.topics for p in range(3) if (t.name, p) >= start]
        now, later = todo[: request.response_partition_limit], todo[request.response_partition_limit :]
        topics = [self._topic(name, range(p, p + 1), self.codes.get(DESCRIBE, 0), **elr) for name, p in now]
        cursor = {"topic_name": later[0][0], "partition_index": later[0][1]} if later else None
        return {"topics": topics, "next_cursor": cursor}

    def on_metadata(self, node: int, request: Any) -> Any:
        names = IDS if request.topics is None else [topic.name for topic in request.topics]
        topics = [self._topic(name, range(2, -1, -1)) for name in names]
        return {"topics": topics, "brokers": [{"node_id": node} for node in LIVE], "controller_id": -1}

    def on_list_partition_reassignments(self, node: int, request: Any) -> Any:
        moved = {"partition_index": 1, "replicas": [1, 2], "adding_replicas": [2], "removing_replicas": []}
        topics = [{"name": "a", "partitions": [moved]}]
        return {"error_code": self.codes.get(MOVES, 0), "error_message": None, "topics": topics}

    def on_describe_configs(self, node: int, request: Any) -> Any:
        told = [
            {"name": "min.insync.replicas", "value": "2", "config_source": 5},
            {"name": "retention.ms", "value": "7", "config_source": 1},
        ]
        names = [resource.resource_name for resource in request.resources]
        more = {"error_code": self.codes.get(CONFIGS, 0), "error_message": None, "configs": told}
        return {"results": [{"resource_name": name, **more} for name in names]}

    def on_delete_topics(self, node: int, request: Any) -> Any:
        return {"responses": [{"topic_id": topic.topic_id, "error_code": 0} for topic in request.topics]}


def states(brokers: TopicBrokers, limit: int = 2000) -> list[TopicState]:
    return topic_states(cast(Brokers, brokers), ["a", "b"], LIVE, limit)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 2000])
def test_topics_that_span_answers_are_put_together(limit: int) -> None:
    brokers = TopicBrokers()
    first, second = states(brokers, limit)
    assert [(p.partition, p.leader, p.elr, p.last_known_elr) for p in first.partitions] == [
        (0, 1, (), ()),
        (1, 2, (), ()),
        (2, None, (), ()),  # broker 3 is not alive
    ]
    assert [p.adding for p in first.partitions] == [None, (2,), None]
    assert [p.adding for p in second.partitions] == [None] * 3
    assert (first.configs, first.min_isr) == ({"retention.ms": "7"}, 2)
    assert [name for _, name in brokers.asked].count("DescribeTopicPartitions") == -(-6 // limit)


def test_a_broker_without_describe_topic_partitions_is_asked_for_metadata() -> None:
    brokers = TopicBrokers()
    brokers.codes = {DESCRIBE: ErrorCode.UNSUPPORTED_VERSION}
    first, _ = states(brokers)
    assert [(p.partition, p.elr, p.last_known_elr) for p in first.partitions] == [(p, None, None) for p in range(3)]


@pytest.fixture
def on_site(monkeypatch: pytest.MonkeyPatch) -> TopicBrokers:
    """The brokers of the session that commands open; the mode log's record of topic a cannot be used."""
    brokers = TopicBrokers()
    error = RecordError("malformed", topic="a")
    log = SimpleNamespace(
        unusable=lambda name, _: error if name == "a" else None,
        record=lambda *_: None,
        gone_ids=lambda *_: (),
        points_to=lambda *_: None,
        deleted=lambda *_: None,
        replaced=(),
    )
    cluster = SimpleNamespace(brokers=brokers)
    session = SimpleNamespace(cluster=cluster, config=ClientConfig(), conf={}, read_log=lambda: log)
    monkeypatch.setattr("modeaware.cli.topics.open_session", lambda *_: nullcontext(session))
    return brokers


@pytest.mark.parametrize(
    ("request_type", "code", "options", "status", "text"),
    [
        (None, 0, "--topic a", 0, "\tAdding Replicas: 2\tRemoving Replicas: "),
        (None, 0, "--topic [a]", 0, "Mode: unknown"),
        (None, 0, "--topic [b]", 0, "Mode: ReadWrite"),
        (None, 0, "--topic a[", 1, "is an invalid regex"),
        (None, 0, "--topic none", 1, "topic 'none'"),
        (None, 0, "--topic none --if-exists", 0, ""),
        (None, 0, "--topic-id none", 1, "no topic has the id 'none'"),
        (DESCRIBE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "--topic a", 0, ""),
        (DESCRIBE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "--topic a", 1, "describe topic 'a'"),
        (MOVES, ErrorCode.UNSUPPORTED_VERSION, "--topic a", 0, "Partition: 1"),
        (MOVES, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "--topic a", 0, "Partition: 1"),
        (MOVES, ErrorCode.INVALID_REQUEST, "--topic a", 1, "list partition reassignments"),
        (CONFIGS, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "--topic a", 0, "Partition: 1"),
        (
            CONFIGS,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "--topics-with-overrides",
            1,
            "its configs are hidden from this",
        ),
        (CONFIGS, ErrorCode.INVALID_REQUEST, "--topic a", 1, "describe the configs of topic 'a'"),
    ],
)
def test_describe_shows_what_brokers_return(
    request_type: type | None,
    code: int,
    options: str,
    status: int,
    text: str,
    on_site: TopicBrokers,
    capsys: pytest.CaptureFixture[str],
) -> None:
    on_site.codes = {} if request_type is None else {request_type: code}
    assert cli.main(["topics", "--describe", *options.split(), *SERVER]) == status
    shown = capsys.readouterr()
    assert text in (shown.err if status else shown.out)
    assert bool(shown.err) is bool(status)


def test_topics_without_an_id_are_listed_and_not_deleted(
    on_site: TopicBrokers, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on brokers whose inter.broker.protocol.version is below 2.8."""
    monkeypatch.setitem(IDS, "b", None)  # as kafka-python decodes the zero UUID
    assert cli.main(["topics", "--describe", "--topic", "[b]", *SERVER]) == 0
    assert "Topic: b\tPartitionCount: 3" in capsys.readouterr().out
    assert cli.main(["topics", "--delete", "--topic", "a|b", "--yes", *SERVER]) != 0
    assert "topic 'b' has no topic id" in capsys.readouterr().err
    assert [name for _, name in on_site.asked].count("DeleteTopics") == 1, "of the other topic"


@pytest.mark.parametrize(
    ("topic", "statuses", "changed"), [("a|b", (0, 0), ["a", "b"]), ("a|b", (3,), ["a"]), ("none", (0,), [])]
)
@pytest.mark.usefixtures("on_site")
def test_each_topic_of_a_pattern_is_altered_until_one_fails(
    topic: str, statuses: tuple[int, ...], changed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def altered(_: object, name: str, *__: object) -> SimpleNamespace:
        done.append(name)
        return SimpleNamespace(run=lambda: statuses[len(done) - 1])

    monkeypatch.setattr("modeaware.cli.topics.Resize", altered)
    arguments = ["topics", "--alter", "--topic", topic, "--partitions", "2", "--if-exists", *SERVER]
    assert cli.main(arguments) == statuses[-1]
    assert done == changed


def test_each_topic_that_is_not_deleted_has_its_error(
    on_site: TopicBrokers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failures = {name: ClusterError(f"cannot delete {name}", topic=name) for name in ("a", "b")}
    monkeypatch.setattr("modeaware.cli.topics.delete_topics", lambda *_: failures)
    delete = ["topics", "--delete", "--topic", "a|b", *SERVER]
    assert cli.main([*delete, "--dry-run"]) == 0
    assert capsys.readouterr().out == "Dry run: nothing was changed.\n"
    assert cli.main([*delete, "--yes"]) == 1
    assert capsys.readouterr().err.splitlines()[-2:] == ["error: cannot delete b", "error: cannot delete a"]
    assert cli.main(["topics", "--delete", "--topic", "none", *SERVER]) == 1
    assert "topic 'none'" in capsys.readouterr().err


@pytest.mark.usefixtures("on_site")
def test_creation_says_which_replicas_are_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[NewTopic] = []

    def create_topics(new: list[NewTopic], **_: object) -> dict[str, Future[object]]:
        made.extend(new)
        future: Future[object] = Future()
        future.set_result(SimpleNamespace(under_replicated=[0], describe=lambda: "partition 0 has 1 of 2 replicas"))
        return {new[0].topic: future}

    admin = SimpleNamespace(create_topics=create_topics)
    monkeypatch.setattr("modeaware.cli.topics.admin_client", lambda _: nullcontext(admin))
    numbers = ("--partitions", "3", "--replication-factor", "2", "--min-required-replication-factor", "1")
    assert cli.main(["topics", "--create", "--topic", "a.b", *numbers, *SERVER]) == 0
    lines = [COLLISION_WARNING, "Created topic a.b.", "partition 0 has 1 of 2 replicas"]
    assert capsys.readouterr().out.splitlines() == lines
    assert [(new.num_partitions, new.replication_factor) for new in made] == [(3, 2)]


def test_topics_are_deleted_by_id_and_asked_for_once() -> None:
    brokers = TopicBrokers()
    ids = {name: urlsafe_b64encode(topic_id.bytes).decode().rstrip("=") for name, topic_id in IDS.items()}
    assert delete_topics(cast(Brokers, brokers), ids) == {"a": None, "b": None}
    (asked,) = brokers.once
    assert [(topic.name, topic.topic_id) for topic in asked.topics] == [(None, topic_id) for topic_id in IDS.values()]
