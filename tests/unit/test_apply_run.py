"""``modeaware apply``: what is looked at again before the first step, and how a run ends; the cluster is made up."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from modeaware.apply.current import CurrentTopic
from modeaware.apply.desired import DesiredTopic
from modeaware.cli import apply
from modeaware.cli.apply_look import Found, Validation
from modeaware.cli.apply_steps import Carrier
from modeaware.cli.options import Connection
from modeaware.config import ClientConfig, ControllerConfig
from modeaware.errors import ControllerUnavailable, ErrorCode
from modeaware.librdkafka import KafkaError, KafkaException
from modeaware.modelog.records import ClaimRecord
from modeaware.modelog.replay import Replay
from tests.support.applying import ModelTopic

WANTED = [DesiredTopic("a", 4, where="f, line 3"), DesiredTopic("b", 2, where="f, line 5")]
IDLE = CurrentTopic(2)
ELSEWHERE = ControllerUnavailable("on another host", code=ErrorCode.INVALID_CONFIG)


class Cluster:
    """Topics as each look finds them, the last one for ever; ``taken``: the plans that were carried out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks: list[dict[str, CurrentTopic]] = []
        self.running: bool | Exception = True
        self.taken: list[str] = []
        monkeypatch.setattr(apply, "look_at", lambda *_: self._look())
        monkeypatch.setattr(apply, "is_running", lambda *_: self._is_running())
        monkeypatch.setattr(apply, "read_mode_log", lambda *_: Replay())
        monkeypatch.setattr(Validation, "of", lambda _, plan: plan)
        monkeypatch.setattr(Carrier, "take", lambda _, plan: self.taken.append(plan.topic))
        monkeypatch.setattr(apply, "confirmed", lambda yes: True)

    def _look(self) -> Found:
        topics = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return Found(topics, {}, Replay())

    def _is_running(self) -> bool:
        if isinstance(self.running, Exception):
            raise self.running
        return self.running

    def run(self, **options: object) -> int:
        flags = dict.fromkeys(("yes", "wait", "json", "dry_run", "check"), False)
        chosen = {**flags, "timeout": 0.3, **options}
        nobody: Any = None
        target = Connection({"bootstrap.servers": "b:1"}, ClientConfig())
        run = apply._Application(argparse.Namespace(**chosen), target, nobody, nobody, ControllerConfig())
        return run.run(WANTED)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def shrinking() -> CurrentTopic:
    topic = ModelTopic(6)
    topic.take(topic.plan(replace(WANTED[0], name="orders")))
    return cast(CurrentTopic, topic.current())


def test_after_the_question_it_has_to_be_what_was_shown(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.looks = [{"a": CurrentTopic(6), "b": IDLE}, {"a": CurrentTopic(12), "b": IDLE}]
    assert cluster.run() == 1
    assert cluster.taken == []
    assert "error: no longer what was shown: a. Nothing was changed: run it again." in capsys.readouterr().err
    cluster.looks = [{"a": CurrentTopic(6), "b": IDLE}]
    assert cluster.run() == 0
    assert cluster.taken == ["a"]


def test_a_topic_that_others_have_brought_there_meanwhile_is_told_as_well(cluster: Cluster) -> None:
    cluster.looks = [{"b": IDLE}, {"a": CurrentTopic(4), "b": IDLE}]
    assert (cluster.run(), cluster.taken) == (1, [])


def test_what_nobody_was_shown_is_looked_at_once(cluster: Cluster) -> None:
    cluster.looks = [{"a": CurrentTopic(6), "b": IDLE}, {"a": CurrentTopic(12), "b": IDLE}]
    assert (cluster.run(yes=True), cluster.taken) == (0, ["a"])
    assert len(cluster.looks) == 1


def test_a_change_in_progress_that_nobody_carries_on_is_told(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.looks = [{"a": shrinking(), "b": IDLE}]
    for running, told in ((True, False), (False, True), (ELSEWHERE, False)):
        cluster.running = running
        assert cluster.run(check=True) == 0
        out = capsys.readouterr().out
        assert "in progress: seal of partitions 4-5" in out
        assert ("no controller is running, and nothing moves: start one" in out) is told


def test_what_needs_a_controller_is_refused_where_none_is_seen(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.looks = [{"a": CurrentTopic(6), "b": CurrentTopic(1)}]
    cluster.running = False
    assert (cluster.run(yes=True), cluster.taken) == (1, [])
    assert "refused: no controller is running, which keeps the modes: start one" in capsys.readouterr().out
    cluster.running = ELSEWHERE
    with pytest.raises(ControllerUnavailable):
        cluster.run(yes=True)


def test_controller_that_is_taking_over_is_waited_for(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim that was found is a killed controller's; the next controller's follows."""
    claims = [None, None, ClaimRecord(2, "127.0.0.1:2", "next")]
    monkeypatch.setattr(
        apply, "read_mode_log", lambda *_: SimpleNamespace(claim=claims.pop(0) if len(claims) > 1 else claims[0])
    )
    monkeypatch.setattr(apply, "is_running", lambda _, claim: claim is not None)
    cluster.looks = [{"a": CurrentTopic(6), "b": IDLE}]
    assert (cluster.run(yes=True, timeout=30.0), cluster.taken) == (0, ["a"])


def test_an_error_while_waiting_does_not_say_that_nothing_was_changed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(apply, "wait_for_topic", fails)
    monkeypatch.setattr(apply, "embedded_controller", lambda *_: nullcontext())
    cluster.looks = [{"a": CurrentTopic(6), "b": IDLE}]
    assert cluster.run(yes=True, wait=True) == apply.SOME_FAILED
    assert cluster.taken == ["a"]
    assert "error: a: " in capsys.readouterr().err
