"""What a chaos run has to reach, and what its report counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.chronicle import Chronicle, Event, read_events
from tests.chaos.faults import Faults
from tests.chaos.fleet import Child
from tests.chaos.goals import figures, judged
from tests.chaos.report import Report
from tests.chaos.verdict import Verdict


def test_a_run_of_ten_minutes_has_to_reach_what_was_asked_for() -> None:
    enough = {
        "acknowledged records": 1_000_000,
        "faults": 40,
        "shrinks that Kafka confirms": 10,
        "switches slept through": 3,
    }
    assert all(goal.met for goal in figures(10, enough, kinds=6))
    assert [goal.what for goal in figures(10, enough, kinds=5) if not goal.met] == ["kinds of faults"]
    for what in enough:
        short = {**enough, what: enough[what] - 1}
        assert [goal.what for goal in figures(10, short, kinds=6) if not goal.met] == [what]
    assert list(figures(1.9, dict.fromkeys(enough, 0), kinds=0)) == []


def test_routing_that_nobody_could_judge_is_not_well() -> None:
    assert not judged({"aware": 5, "homes": 5, "writable": 0}).met
    assert not judged({"aware": 5, "homes": 0, "writable": 0}).met
    assert judged({"aware": 5, "homes": 2, "writable": 1}).met
    assert judged({"aware": 0, "homes": 0, "writable": 0}).met


def test_what_the_report_counts() -> None:
    def ends(number: int, **more: object) -> Event:
        return {"at_ms": 9_000, "event": "fault-ends", "id": number, "reached": True, "restarted": [], **more}

    def begins(number: int, at_ms: int, target: str) -> Event:
        return {"at_ms": at_ms, "event": "fault-begins", "id": number, "kind": "writer-pause", "target": target}

    def record(**why: dict[str, int]) -> Event:
        return {"at_ms": 0, "event": "mode-record", "stragglers": {}, "truncations": {}, **why}

    switched = {"at_ms": 5_000, "event": "switched", "to": 4, "delay_ms": 4_000, "asked_ms": 3_000}
    aware, unaware = begins(1, 3_000, "aware-idempotent"), begins(1, 3_000, "unaware-idempotent")
    for events, count in (
        ([aware, switched, ends(1)], 1),
        ([aware, {**switched, "delay_ms": 4_001}, ends(1)], 0),  # it woke before the delay was over
        ([begins(1, 3_001, "aware-idempotent"), switched, ends(1)], 0),  # it fell asleep after the switch
        ([unaware, switched, ends(1)], 0),
        ([aware, switched, ends(1, reached=False)], 0),
        ([aware, switched], 0),
    ):
        assert Report(1, events, Verdict(), 0.0).slept_through == count
    records = [record(stragglers={"1": 1}), record(stragglers={"1": 3}, truncations={"2": 1}), record()]
    report = Report(1, [*records, record(stragglers={"1": 1})], Verdict(), 0.0)
    assert (report.unseals("stragglers"), report.unseals("truncations")) == (4, 1)


@pytest.mark.parametrize("reached", [True, False])
def test_a_fault_that_was_cut_short_does_not_count(tmp_path: Path, reached: bool) -> None:
    chronicle = Chronicle(tmp_path / "events", lambda: 0, lambda event: None)
    faults = Faults(chronicle)
    with faults.fault("writer-kill", "w", None, least_s=0.0 if reached else 60.0) as doing:
        doing.stands(77)
    with faults.fault("writer-kill", "w", None):
        pass  # nobody saw it dead
    with faults.fault("rolling-restart", "brokers", "*", restarts=2) as doing:
        doing.restarted += [1, 2] if reached else [1]
    chronicle.close()
    over = [event for event in read_events(tmp_path / "events") if event["event"] == "fault-ends"]
    assert [event["reached"] for event in over] == [reached, False, reached]
    assert over[0]["pid"] == 77


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("Traceback\ncimpl.KafkaException: KafkaError{FATAL,code=X}\n\nTraceback\nSystemError: wrapped\n", "FATAL"),
        ("cimpl.KafkaException: KafkaError{FATAL,code=X}\n" + "later\n" * 99 + "SystemError: wrapped\n", "SystemError"),
        ("KafkaError{FATAL}\nValueError: a bug\n", "ValueError"),
    ],
)
def test_last_words_tell_a_fatal_error_that_was_wrapped_in_others(tmp_path: Path, log: str, words: str) -> None:
    child = Child("w", "writer", None, lambda run: [], tmp_path / "w.log")
    (tmp_path / "w.log").write_text(log)
    assert words in child.last_words()
