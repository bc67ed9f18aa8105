"""``modeaware apply``: what is shown, as a diff and as JSON, and how a run ends; the cluster is made up."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from modeaware import cli
from modeaware.cli import apply, change, declared, progress
from modeaware.cli.change import Change, Seen, goes_to_controller
from modeaware.clock import SYSTEM_CLOCK
from modeaware.config import ControllerConfig
from modeaware.errors import ModeAwareError
from modeaware.librdkafka import KafkaError, KafkaException
from modeaware.lifecycle.commands import CreatePartitionsCommand, DeletePartitionsCommand, ReplaceTopicCommand
from modeaware.lifecycle.report import ReplacementReport
from modeaware.modelog.records import ClaimRecord, DeleteTopicPartitions, Replacement, RetiredPartition, TopicRecord
from modeaware.modelog.replay import Replay
from modeaware.modes import PartitionMode
from modeaware.plan.diff import ApplyReport, CurrentTopic, TopicDiff
from modeaware.plan.file import DesiredTopic, ShrinkRules
from modeaware.plan.steps import AcceptStateLoss, AlterConfigs, BrokerStep, Create, Grow, Replace, Shrink, Step
from modeaware.reports.describe import TopicDescription
from modeaware.reports.serialise import json_help, to_json
from modeaware.reports.session import ModeLog
from modeaware.reports.topics import TopicState
from tests.support.lifecycle import facts
from tests.support.modelog import fold

DRAINED = "policy drained: their records are deleted once every group has consumed them"
SHRINK = Shrink(12, ShrinkRules(60_000, ("g",)).command("a", 4))
DIFFS = (
    TopicDiff("a", "f, line 3", (SHRINK,), warnings=("keys move",), notes=("so it is",)),
    TopicDiff("b", "f, line 9", (Create(3, 2, {"x": "1"}),)),
    TopicDiff("c", "f, line 12", (AlterConfigs({"x": "1", "y": "2"}, ("z",), {"x": "0", "z": "9"}),)),
    TopicDiff(
        "d",
        "f, line 15",
        (Grow(4, CreatePartitionsCommand("d", 14), range(4, 12), range(12, 14), by_controller=True),),
        progress="drain of partitions 4-11",
    ),
    TopicDiff("e", "f, line 18", refusal="no"),
    TopicDiff("f", "f, line 21", progress="seal of partitions 2"),
    TopicDiff("g", "f, line 24"),
    TopicDiff("h", "f, line 27", (AcceptStateLoss(DeletePartitionsCommand("h", 2), ("s", "t")),)),
    TopicDiff("i", "f, line 30", (Replace(12, ReplaceTopicCommand("i", "i-v2", 4, 3, {"y": "2", "x": "1"}, 60_000)),)),
)


def test_what_is_shown() -> None:
    assert list(ApplyReport(DIFFS).lines()) == [
        "a (f, line 3)",
        "  ~ partitions: 12 -> 4",
        f"      ReadOnly: 4-11; {DRAINED}, 1m from now at the earliest",
        "  ! WARNING: keys move",
        "    (so it is)",
        "b (f, line 9)",
        "  + create with 3 partitions, replication factor 2",
        "      + x: 1",
        "c (f, line 12)",
        "  ~ x: 0 -> 1",
        "  + y: the cluster's default -> 2",
        "  - z: 9 -> the cluster's default",
        "d (f, line 15)",
        "  ~ partitions: 4 -> 14",
        "      ReadWrite again: 4-11",
        "      new: 12-13, closed to writes until every group has a commit on them",
        "  = in progress: drain of partitions 4-11",
        "e (f, line 18)",
        "  ! refused: no",
        "f (f, line 21)",
        "  = in progress: seal of partitions 2",
        "h (f, line 27)",
        "  ~ the shrink in progress continues although s, t keep state",
        "i (f, line 30)",
        "  ~ partitions: 12 -> 4, by the new topic i-v2",
        "      policy drained: i is DELETED once every group has moved, 1m from now at the earliest",
        "      + x: 1",
        "      + y: 2",
        "Topics: 6 to change, 1 in progress, 1 as declared, 1 refused.",
    ]
    assert list(ApplyReport(()).lines()) == ["Topics: none."]


def test_the_same_as_json() -> None:
    ends = {"b": {"applied": True}, "c": {"failure": "broken"}}
    told = to_json(ApplyReport(tuple(replace(diff, **ends.get(diff.topic, {})) for diff in DIFFS)))
    assert json.loads(json.dumps(told)) == told
    topics = {topic["topic"]: topic for topic in told["topics"]}
    statuses = "pending applied failed pending refused in_progress unchanged pending pending"
    assert [topic["status"] for topic in told["topics"]] == statuses.split()
    assert told["changed"] == 1
    (shrink,) = topics["a"]["steps"]
    assert (shrink["step"], shrink["from"], shrink["to"], shrink["delay_ms"]) == ("shrink", 12, 4, 60_000)
    assert (shrink["policy"], shrink["accept_state_loss"]) == ("drained", ["g"])
    assert (topics["c"]["error"], topics["e"]["error"], topics["b"]["error"]) == ("broken", "no", None)
    assert topics["d"]["steps"][0]["created"] == [12, 13]
    (replaced,) = topics["i"]["steps"]
    assert (replaced["step"], replaced["from"], replaced["to"], replaced["new_topic"]) == ("replace", 12, 4, "i-v2")
    assert (replaced["policy"], replaced["delay_ms"], replaced["configs"]) == ("drained", 60_000, {"x": "1", "y": "2"})
    assert replaced["evacuate"] is False


def test_help_documents_the_fields_of_each_step() -> None:
    told = json_help(ApplyReport)
    for step in (to_json(step) for diff in DIFFS for step in diff.steps):
        documented = told.split(f"step: {step['step']}\n")[1].split("step: ")[0]
        for name in step.keys() - {"step"}:
            assert re.search(rf"^ {{6}}{name}\b", documented, re.MULTILINE), (step["step"], name)
    assert "  version: 1\n" in told


IDLE = CurrentTopic(2)
READ_WRITE, READ_ONLY = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY
DELETION = DeleteTopicPartitions(2, 0, False, 0, 3)


class Cluster:
    """Topics as each snapshot has them, the last one for ever; ``taken``: the plans that were carried out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
        self.file = file
        file.write_text("version: 1\ntopics:\n  a: {partitions: 4}\n  b: {partitions: 2}\n")
        self.snapshots: list[dict[str, CurrentTopic]] = []
        self.taken: list[str] = []
        session = SimpleNamespace(conf={}, read_log=lambda: ModeLog("log", Replay()))
        monkeypatch.setattr(change, "open_session", lambda *_: nullcontext(session))
        monkeypatch.setattr(apply, "current_topics", lambda *_: self._current_topics())
        monkeypatch.setattr(apply, "is_running", lambda *_: True)
        monkeypatch.setattr(apply, "Consequences", lambda *_: None)
        monkeypatch.setattr(Change, "take_snapshot", lambda _, topics, log: Seen(session, log, {}))
        monkeypatch.setattr(
            apply._Application, "judge", lambda self, topic, _: self._with_controller(self.drafts[topic])
        )
        monkeypatch.setattr(Change, "send", self._send)
        monkeypatch.setattr(Change, "carry_out", lambda _, topic, step: self.taken.append(topic))
        monkeypatch.setattr(progress, "confirmed", lambda yes: True)

    def _send(self, steps: Sequence[Step]) -> dict[str, ModeAwareError | None]:
        sent = [step.command.topic for step in steps if not isinstance(step, BrokerStep) and goes_to_controller(step)]
        self.taken += sent
        return dict.fromkeys(sent)

    def _current_topics(self) -> dict[str, CurrentTopic]:
        return self.snapshots.pop(0) if len(self.snapshots) > 1 else self.snapshots[0]

    def run(self, *options: str) -> int:
        return cli.main(["apply", str(self.file), "--bootstrap-server", "127.0.0.1:1", "--timeout", "300ms", *options])


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
    return Cluster(monkeypatch, tmp_path / "topics.yaml")


def test_after_the_question_it_has_to_be_what_was_shown(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.snapshots = [{"a": CurrentTopic(6), "b": IDLE}, {"a": CurrentTopic(12), "b": IDLE}]
    assert cluster.run() == 1
    assert cluster.taken == []
    assert (
        "error: the steps for a differ from those shown. No step was taken; run the command again."
        in capsys.readouterr().err
    )
    cluster.snapshots = [{"a": CurrentTopic(6), "b": IDLE}]
    assert cluster.run() == 0
    assert cluster.taken == ["a"]


def test_controller_that_is_taking_over_is_waited_for(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim that was found is a killed controller's; the next controller's follows."""
    claims = [None, None, ClaimRecord(2, "127.0.0.1:2", "next")]
    monkeypatch.setattr(ModeLog, "claim", property(lambda _: claims.pop(0) if len(claims) > 1 else claims[0]))
    monkeypatch.setattr(apply, "is_running", lambda _, claim: claim is not None)
    cluster.snapshots = [{"a": CurrentTopic(6), "b": IDLE}]
    assert (cluster.run("--yes", "--timeout", "30s"), cluster.taken) == (0, ["a"])


def test_run_that_changes_nothing_or_is_left_says_so(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    cluster.snapshots = [{"a": CurrentTopic(6), "b": IDLE}]
    monkeypatch.setattr(progress, "confirmed", lambda yes: yes)
    assert (cluster.run(), capsys.readouterr().out.splitlines()[-1]) == (1, "Nothing was changed.")
    monkeypatch.setattr(Change, "send", interrupted)
    assert cluster.run("--yes") == cli.INTERRUPTED
    assert "Interrupted. Changes that have begun continue" in capsys.readouterr().err
    monkeypatch.setattr(apply, "is_running", lambda *_: False)
    assert cluster.run("--yes") == 1
    assert "refused: no controller is running: start one" in capsys.readouterr().out
    shrinking = TopicRecord("b", "id", 1, 1, (READ_WRITE, READ_WRITE, READ_ONLY), DELETION, {2: RetiredPartition()})
    cluster.snapshots = [{"a": CurrentTopic(4), "b": CurrentTopic(3, record=shrinking)}]
    assert cluster.run("--yes") == 0
    assert "no controller is running, so this change pauses" in capsys.readouterr().out


BEGUN = ReplacementReport.of(Replacement("a-v2", 4, 0, new_topic_id="v2"))


@pytest.mark.parametrize(
    ("phase", "now", "status", "said"),
    [
        ("done", replace(BEGUN, switched_ms=1), 0, "a: replaced by a-v2; every required group has moved."),
        ("announce", replace(BEGUN, reason="paused", pause_before_switch=True), 0, "a: paused before the switch"),
        ("done", None, 4, "error: topic 'a': its replacement by 'a-v2' was given up or undone"),
    ],
)
def test_a_replacement_is_waited_for(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    phase: str,
    now: ReplacementReport | None,
    status: int,
    said: str,
) -> None:
    def wait(change: object, topic: str, ended: Callable[[Any], bool], **_: object) -> None:
        before = BEGUN if now is None else replace(BEGUN, switched_ms=1)  # after the switch it cannot be given up
        running = TopicDescription("a", "id", 1, "seal", None, (), (), replacement=before)
        assert not ended(running)
        assert ended(replace(running, phase=phase, replacement=now))

    monkeypatch.setattr(Change, "wait", wait)
    monkeypatch.setattr(Change, "embed", lambda *_: None)
    cluster.file.write_text("version: 1\ntopics:\n  a: {partitions: 4, replace: a-v2}\n")
    cluster.snapshots = [{"a": CurrentTopic(6, frozenset({1}))}]
    assert cluster.run("--yes", "--wait") == status
    out, err = capsys.readouterr()
    assert said in out + err
    assert "by the new topic a-v2" in out


def test_an_error_while_waiting_does_not_say_that_nothing_was_changed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(Change, "wait", fails)
    monkeypatch.setattr(Change, "embed", lambda *_: None)
    cluster.snapshots = [{"a": CurrentTopic(6), "b": IDLE}]
    assert cluster.run("--yes", "--wait") == apply.SOME_FAILED
    assert cluster.taken == ["a"]
    assert "error: cannot wait for the change: " in capsys.readouterr().err


@pytest.mark.parametrize(("topic_id", "leads_on"), [("id-3", False), ("other", True)])
def test_topic_that_has_come_back_to_its_name_is_not_taken_for_the_one_that_was_replaced(
    monkeypatch: pytest.MonkeyPatch, topic_id: str, leads_on: bool
) -> None:
    gone = Replacement("b", 2, 0, new_topic_id="id-2", announced_ms=1, switched_ms=2, released_ms=3, gone_ms=4)
    back = Replacement("a", 2, 0, new_topic_id="id-3", announced_ms=5, switched_ms=6)
    records = [
        TopicRecord(topic, of, epoch, 1, (READ_ONLY,), replacement=to)
        for topic, of, epoch, to in (("a", "id-1", 1, gone), ("b", "id-2", 2, back))
    ]
    log = ModeLog("log", fold([(record.topic_id, record.to_json()) for record in records]))
    listed = SimpleNamespace(topics=[SimpleNamespace(name=name, internal=False) for name in "ab"], live_brokers=())
    partitions: Any = (SimpleNamespace(replication_factor=1),)
    states = [TopicState("a", topic_id, partitions, {}), TopicState("b", "id-2", partitions, {})]
    monkeypatch.setattr(declared, "list_topics", lambda _: listed)
    monkeypatch.setattr(declared, "topic_states", lambda *_: states)
    session: Any = SimpleNamespace(cluster=SimpleNamespace(brokers=None))
    found = declared.current_topics(session, log, ["a", "b"])
    refusals = {name: declared.diff_of(DesiredTopic(name, 1), found, log).refusal or "" for name in "ab"}
    assert ("its name points to 'b'" in refusals["a"]) is leads_on
    assert "its name points to 'a'" in refusals["b"]


def test_growth_of_a_new_topic_whose_old_topic_is_not_released_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    replacement = Replacement("b", 2, 0, new_topic_id="id", announced_ms=1, switched_ms=2)
    old = TopicRecord("old", "old-id", 1, 1, (READ_ONLY,), replacement=replacement)
    log = ModeLog("log", fold([("old-id", old.to_json())]))
    session: Any = SimpleNamespace(clock=SYSTEM_CLOCK, controller=ControllerConfig(), conf={})
    monkeypatch.setattr(Change, "grow", lambda *_, **__: None)
    application = apply._Application(argparse.Namespace(wait=False), [])
    application.change = Change(session)
    for topic, refusal in (("b", "topic 'b': it replaces 'old': wait until its groups have moved"), ("c", None)):
        application.drafts[topic] = TopicDiff(topic, "f", (Grow(2, CreatePartitionsCommand(topic, 4)),))
        application.topics = [topic]
        seen = Seen(session, log, {topic: facts(2, topic=topic)})
        monkeypatch.setattr(application, "take_snapshot", lambda _, seen=seen: seen)
        assert application.find()[topic].refusal == refusal
