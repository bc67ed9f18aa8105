"""``modeaware apply``: what is looked at again before the first step, and how a run ends; the cluster is made up."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from modeaware import cli
from modeaware.apply.current import CurrentTopic
from modeaware.cli import apply
from modeaware.cli.apply_look import Found, Validation
from modeaware.cli.apply_steps import Carrier
from modeaware.errors import ControllerUnavailable
from modeaware.librdkafka import KafkaError, KafkaException
from modeaware.modelog.replay import Replay

IDLE = CurrentTopic(2)


class Cluster:
    """Topics as each look finds them, the last one for ever; ``taken``: the plans that were carried out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
        self.file = file
        file.write_text("version: 1\ntopics:\n  a: {partitions: 4}\n  b: {partitions: 2}\n")
        self.looks: list[dict[str, CurrentTopic]] = []
        self.running: bool | Exception = True
        self.taken: list[str] = []
        monkeypatch.setattr(apply, "connect", lambda _: SimpleNamespace(close=lambda: None))
        monkeypatch.setattr(apply, "look_at", lambda *_: self._look())
        monkeypatch.setattr(apply, "is_running", lambda *_: self._is_running())
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

    def run(self, *options: str) -> int:
        return cli.main(["apply", str(self.file), "--bootstrap-server", "127.0.0.1:1", *options])


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
    return Cluster(monkeypatch, tmp_path / "topics.yaml")


def test_after_the_question_it_has_to_be_what_was_shown(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.looks = [{"a": CurrentTopic(6), "b": IDLE}, {"a": CurrentTopic(12), "b": IDLE}]
    assert cluster.run() == 1
    assert cluster.taken == []
    assert "error: no longer what was shown: a. Nothing was changed: run it again." in capsys.readouterr().err
    cluster.looks = [{"a": CurrentTopic(6), "b": IDLE}]
    assert cluster.run() == 0
    assert cluster.taken == ["a"]


def test_what_needs_a_controller_is_refused_where_none_is_seen(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.looks = [{"a": CurrentTopic(6), "b": CurrentTopic(1)}]
    cluster.running = False
    assert (cluster.run("--yes"), cluster.taken) == (1, [])
    assert "refused: no controller is running, which keeps the modes: start one" in capsys.readouterr().out
    cluster.running = ControllerUnavailable("on another host")
    capsys.readouterr()
    assert (cluster.run("--yes"), cluster.taken) == (1, [])
    assert "on another host" in capsys.readouterr().err


def test_an_error_while_waiting_does_not_say_that_nothing_was_changed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(apply, "wait_for_topic", fails)
    monkeypatch.setattr(apply, "embedded_controller", lambda *_: nullcontext())
    cluster.looks = [{"a": CurrentTopic(6), "b": IDLE}]
    assert cluster.run("--yes", "--wait") == apply.SOME_FAILED
    assert cluster.taken == ["a"]
    assert "error: a: " in capsys.readouterr().err
