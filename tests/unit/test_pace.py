"""Which topics of ``modeaware apply --at-once`` begin next; the cluster of the command's own runs is made up."""

from __future__ import annotations

import io
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from modeaware import cli
from modeaware.cli import change
from modeaware.cli.apply import SOME_FAILED
from modeaware.cli.change import Change
from modeaware.cli.progress import Progress, progress_on, wait_until_done
from modeaware.errors import ModeAwareError
from modeaware.lifecycle import reasons
from modeaware.modelog.records import DeleteTopicPartitions, RetiredPartition, TopicRecord
from modeaware.modes import PartitionMode
from modeaware.plan.diff import CurrentTopic
from modeaware.plan.pace import Pace, State, pace_text
from modeaware.reports.describe import TopicDescription
from tests.unit.test_apply_command import Cluster
from tests.unit.test_cli_display import draining, shrinking

LETTERS: Mapping[str, State] = {
    "b": "to begin",
    "u": "under way",
    "r": "awaiting retention",
    "d": "done",
    "t": "in trouble",
}


def states(letters: str) -> dict[str, State]:
    """Topics 0, 1, 2... in the states of these letters."""
    return {str(number): LETTERS[letter] for number, letter in enumerate(letters)}


@pytest.mark.parametrize(
    ("letters", "due"),
    [
        ("bbbb", "01"),
        ("ubbb", "1"),
        ("duub", ""),
        ("ddub", "3"),
        ("rrub", "3"),
        ("uuub", ""),  # more are under way than may be: they have begun before
        ("dddd", ""),
        ("tbbb", ""),
        ("bbdt", ""),
        ("", ""),
    ],
)
def test_the_next_in_order_begin_where_others_have_ended_until_one_is_in_trouble(letters: str, due: str) -> None:
    assert Pace(2).due(states(letters)) == list(due)
    assert Pace(2).is_stopped(states(letters)) is ("t" in letters)


def test_those_in_trouble_are_passed_and_keep_no_place() -> None:
    pace = Pace(2, passes_trouble=True)
    assert pace.due(states("ttubb")) == ["3"]
    assert not pace.is_stopped(states("tt"))


def test_how_far_all_topics_are() -> None:
    assert pace_text(states("ddubbbt")) == "2 of 7 done, 1 under way, 3 to begin, 1 in trouble"
    assert pace_text(states("d")) == "1 of 1 done"
    assert pace_text(states("dr")) == "1 of 2 done, 1 awaiting retention"


@pytest.mark.parametrize("code", sorted(reasons.ALARMS))
def test_what_waiting_does_not_cure_is_an_alarm(code: str) -> None:
    topic = shrinking(draining(4, reason="group-lag:billing"), draining(5, reason=f"{code}:g"))
    assert topic.alarm == reasons.text(f"{code}:g")
    assert shrinking(draining(4, reason="group-lag:billing"), draining(5, reason=None)).alarm is None


class Fleet(Cluster):
    """Topics of six partitions that a file wants to have four, whose shrinks take two checks each.

    Attributes:
        begun: the topics in the order in which they began.
        most: how many were under way at most.
        alarms: topic -> the reason that holds it up for good.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, file: Any, names: str = "abcdef") -> None:
        super().__init__(monkeypatch, file)
        self.monkeypatch = monkeypatch
        lines = "".join(f"  {name}: {{partitions: 4}}\n" for name in names)
        file.write_text(f"version: 1\ntopics:\n{lines}")
        self.now = {name: CurrentTopic(6) for name in names}
        self.left: dict[str, int] = {}
        self.alarms: dict[str, str] = {}
        self.begun: list[str] = []
        self.most = 0
        self.interrupted_after = 99
        monkeypatch.setattr(Change, "embed", lambda *_: None)
        monkeypatch.setattr(change, "wait_for_topics", self._wait)

    def _current_topics(self) -> dict[str, CurrentTopic]:
        return dict(self.now)

    def _send(self, steps: Sequence[Any]) -> dict[str, ModeAwareError | None]:
        answers: dict[str, ModeAwareError | None] = super()._send(steps)
        self.begun += answers
        self.left |= dict.fromkeys(answers, 2)
        self.most = max(self.most, len(self.left))
        return answers

    def _wait(self, _: object, topics: Sequence[str], failure: Any, ended: Any, lost: Any, begin: Any) -> None:
        changed = threading.Event()

        def describe(pending: Sequence[str]) -> list[TopicDescription]:
            changed.set()
            self.interrupted_after -= 1
            if self.interrupted_after < 0:
                raise KeyboardInterrupt
            return [self._described(topic) for topic in pending]

        wait_until_done(topics, describe, changed, Progress(io.StringIO()), failure, 9, ended, lost, begin)

    def _described(self, topic: str) -> TopicDescription:
        if topic in self.alarms:
            return replace(shrinking(draining(4, reason=self.alarms[topic])), topic=topic, writable=4)
        self.left[topic] -= 1
        if self.left[topic]:
            return replace(shrinking(draining(4), draining(5)), topic=topic, writable=4)
        del self.left[topic]
        self.now[topic] = CurrentTopic(4)
        return replace(shrinking(draining(4, phase="done", reason=None)), topic=topic, phase="done", writable=4)


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Fleet:
    return Fleet(monkeypatch, tmp_path / "topics.yaml")


def test_few_are_under_way_and_all_are_done_in_order(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    assert fleet.run("--yes", "--at-once", "2") == 0
    assert (fleet.begun, fleet.most) == ([*"abcdef"], 2)
    assert capsys.readouterr().out.splitlines()[-1] == "Topics: 6 of 6 done."
    assert fleet.run("--yes", "--at-once", "2") == 0
    assert fleet.begun == [*"abcdef"]
    assert capsys.readouterr().out.splitlines()[-1] == "Topics: 6 as declared.", "nothing was done this time"


def test_the_first_alarm_stops_it_and_a_repetition_passes_it(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    fleet.alarms["c"] = "straggler"
    assert fleet.run("--yes", "--at-once", "2") == SOME_FAILED
    assert fleet.begun == [*"abcd"], "d began with c"
    out, err = capsys.readouterr()
    assert "Topics: 2 of 6 done, 1 under way, 2 to begin, 1 in trouble." in out
    assert f"error: topic 'c': {reasons.text('straggler')}" in err
    assert "no further topic begins" in err
    fleet.left.clear()
    del fleet.now["c"], fleet.now["d"]  # a snapshot of these would show the shrinks in progress
    fleet.now |= {"c": CurrentTopic(4), "d": CurrentTopic(4)}
    fleet.alarms["e"] = "group-gone:billing"
    assert fleet.run("--yes", "--at-once", "1", "--continue") == SOME_FAILED
    assert fleet.begun == [*"abcdef"]
    assert "Topics: 5 of 6 done, 1 in trouble." in capsys.readouterr().out


def test_an_alarm_of_an_earlier_run_is_seen_before_another_topic_begins(fleet: Fleet) -> None:
    shrinking = DeleteTopicPartitions(4, None, False, 0, 6)
    modes = (PartitionMode.READ_WRITE,) * 4 + (PartitionMode.READ_ONLY,) * 2
    record = TopicRecord("a", "id", 1, 1, modes, shrinking, {4: RetiredPartition(), 5: RetiredPartition()})
    fleet.now["a"], fleet.alarms["a"] = CurrentTopic(6, record=record), "straggler"
    assert fleet.run("--yes", "--at-once", "2") == SOME_FAILED
    assert fleet.begun == []


def test_left_and_repeated_it_goes_on(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    fleet.interrupted_after = 2
    assert fleet.run("--yes", "--at-once", "2") == cli.INTERRUPTED
    assert "Run the command again to change the remaining topics." in capsys.readouterr().err
    done = [name for name, topic in fleet.now.items() if topic.count == 4]
    assert (fleet.begun, done) == ([*"abcd"], [*"ab"])
    fleet.interrupted_after, fleet.left = 99, {}
    assert fleet.run("--yes", "--at-once", "2") == 0
    assert fleet.begun == [*"abcd", *"cdef"]


def test_a_topic_is_looked_at_again_when_its_turn_comes(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    begin = fleet._send

    def send(steps: Sequence[Any]) -> dict[str, ModeAwareError | None]:
        answers: dict[str, ModeAwareError | None] = begin(steps)
        fleet.now |= {"b": CurrentTopic(4), "c": CurrentTopic(7)} if "a" in answers else {}
        return answers

    fleet.monkeypatch.setattr(Change, "send", lambda _, steps: send(steps))
    assert fleet.run("--yes", "--at-once", "1") == SOME_FAILED
    assert fleet.begun == ["a"]
    assert "error: topic 'c' has changed since its steps were shown; run the command again" in capsys.readouterr().err
    assert fleet.run("--yes", "--at-once", "1") == 0
    assert fleet.begun == [*"acdef"]


def test_no_topic_begins_beside_one_that_was_changed(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    begin = fleet._send

    def send(steps: Sequence[Any]) -> dict[str, ModeAwareError | None]:
        fleet.now["c"] = CurrentTopic(7)
        return begin(steps)

    fleet.monkeypatch.setattr(Change, "send", lambda _, steps: send(steps))
    assert fleet.run("--yes", "--at-once", "2") == SOME_FAILED
    assert fleet.begun == [*"ab"]
    out, err = capsys.readouterr()
    assert "Topics: 2 of 6 done, 3 to begin, 1 in trouble." in out
    assert [line for line in err.splitlines() if line.startswith("error")] == [
        "error: topic 'c' has changed since its steps were shown; run the command again"
    ]


def test_a_refusal_changes_nothing_unless_it_is_passed(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    fleet.now["b"] = CurrentTopic(6, internal=True)
    assert fleet.run("--yes", "--at-once", "2") == 1
    assert fleet.begun == []
    assert "Nothing was changed." in capsys.readouterr().err
    assert fleet.run("--yes", "--at-once", "2", "--continue") == 1
    assert fleet.begun == [*"acdef"]


def test_continue_belongs_to_at_once(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        fleet.run("--yes", "--continue")
    assert "--continue works only with --at-once" in capsys.readouterr().err


def test_on_a_terminal_several_topics_are_one_table() -> None:
    screen = io.StringIO()
    screen.isatty = lambda: True  # type: ignore[method-assign]  # a terminal
    with progress_on(screen) as shown:
        shown.total = "2 of 4 done, 2 under way"
        topics = [shrinking(draining(4, lag=7_000)), replace(shrinking(draining(4, reason=None)), topic="audit")]
        shown.show(*topics)
    told = screen.getvalue()
    for words in (shown.total, "Topic", "orders", "7 000", reasons.brief("group-lag:billing"), "audit"):
        assert words in told
    assert told.count("Waits for") == told.count("Topic")
    plain = io.StringIO()
    lines = Progress(plain)
    lines.total = shown.total
    lines.show(*topics)
    assert plain.getvalue().splitlines()[-1].endswith(f" {shown.total}")
