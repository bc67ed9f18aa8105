"""The folder of a chaos run becomes a history, also where the run was killed in the middle."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.__main__ import main
from tests.chaos.chronicle import Chronicle, Event, read_events
from tests.chaos.history import OPEN_END, Bounds, Fault, Gone, Outcome, Retired, Shrink, Transaction
from tests.chaos.journal import Journal, Kind, pack_bounds
from tests.chaos.judge import judge
from tests.chaos.loading import load_history
from tests.chaos.pace import BURST_PAUSE_S, BURST_RECORDS, Manners, Pace
from tests.chaos.record import Identity
from tests.chaos.setting import GROUPS, LOWEST_TARGET, PARTITIONS, Setting

RUN = 3
EVENTS = [
    {"event": "phase", "phase": "harm"},
    {"event": "fault-begins", "id": 1, "kind": "reader-pause", "target": "range-0", "group": "range"},
    {"event": "view", "version": 5, "writable": [0], "none": {"1": 2}, "reclaimed": [], "text": "t epoch 5"},
    {"event": "log-start", "partition": 1, "below": 2},
    {
        "event": "shrunk",
        "to": 4,
        "delay_ms": 0,
        "took_s": 5.0,
        "seals": {"1": 2},
        "reclaims": {"1": 2},
        "log_starts": {"1": 2},
        "left": {},
    },
    {"event": "fault-ends", "id": 1, "reached": True, "pid": 70, "stood_s": 8.5, "restarted": []},
    {"event": "fault-begins", "id": 2, "kind": "broker-kill", "target": "broker-1", "group": "*"},
    {"event": "started", "process": "controller-0", "role": "controller", "run": 1, "pid": 77},
    {"event": "claim", "controller_epoch": 1, "controller": "host-77-x"},
    {"event": "fault-begins", "id": 3, "kind": "controller-kill", "target": "controller-0", "group": None},
    {"event": "claim", "controller_epoch": 2, "controller": "host-78-x"},
    {"event": "command", "what": "shrink", "to": 4, "answer": "done"},
    {"event": "undone", "target": 4},
    {"event": "fault-ends", "id": 3, "reached": True, "pid": 77, "stood_s": 1.0, "restarted": []},
    {"event": "drained", "group": "range", "left": {}},
    {"event": "ended-by-itself", "process": "aware-transactional", "group": None, "last_words": "KafkaError{FATAL,"},
    {"event": "settled", "killed": []},
]


def numbered(sequence: int) -> int:
    return Identity(RUN, 1, sequence).number


@pytest.fixture
def run(tmp_path: Path) -> Setting:
    """A run of three acknowledged records that was over, but for what is at its end."""
    setting = Setting("localhost:9092", "t", tmp_path, 0, seed=1, rate_per_s=100)
    setting.save()
    times = iter(range(1_000, 100_000, 1_000))
    chronicle = Chronicle(setting.events_path, lambda: next(times), lambda event: None)
    for event in EVENTS:
        chronicle.note(**event)
    chronicle.close()
    writer = Journal(setting.writer_path("aware-transactional", RUN))
    writer.add(Kind.BEGUN, offset=0)
    writer.add(Kind.VIEW, number=pack_bounds(-1, 5), offset=0)
    writer.add(Kind.VIEW, number=pack_bounds(5, 5), offset=1)
    for sequence in range(3):
        writer.add(Kind.ACKED, number=numbered(sequence), offset=sequence, at_ms=sequence)
    writer.add(Kind.COMMITTED, offset=3)
    writer.add(Kind.BEGUN, offset=3)
    writer.add(Kind.ABORTED, offset=6)
    writer.add(Kind.BEGUN, offset=6)
    writer.close()
    for group in GROUPS:
        reader = Journal(setting.reader_path(group.name, f"{group.name}-0", 1))
        reader.add(Kind.TAKEN, partition=0)
        for sequence in range(3):
            reader.add(Kind.READ, number=numbered(sequence), offset=sequence, at_ms=500)
        reader.add(Kind.ENDED)
        reader.close()
    return setting


def note(setting: Setting, event: Event) -> None:
    """One more event, after those that are there."""
    at_ms = 1_000 * (len(list(read_events(setting.events_path))) + 1)
    chronicle = Chronicle(setting.events_path, lambda: at_ms, lambda event: None)
    chronicle.note(**event)
    chronicle.close()


def end(setting: Setting) -> None:
    contents = Journal(setting.contents_path)
    for sequence in range(3):
        contents.add(Kind.STORED, number=numbered(sequence), offset=sequence)
    contents.close()
    setting.log_starts_path.write_text(json.dumps({"0": 0, "1": 2}))


def test_a_folder_becomes_a_history(run: Setting) -> None:
    end(run)
    history = load_history(run.folder)
    [writer] = history.writers
    assert (writer.run, writer.name, writer.aware) == (RUN, "aware-transactional", True)
    assert not writer.ended
    assert writer.bounds == [Bounds(0, -1, 5), Bounds(1, 5, 5)]
    assert writer.transactions == [
        Transaction(0, 3, Outcome.COMMITTED),
        Transaction(3, 6, Outcome.ABORTED),
        Transaction(6, OPEN_END, Outcome.UNKNOWN),
    ]
    assert [reader.group for reader in history.readers] == sorted(group.name for group in GROUPS)
    assert history.writable == {5: [0]}
    assert sorted(history.gone) == [Gone(3_000, 1, 2, "None"), Gone(4_000, 1, 2, "deleted")]
    assert history.faults == [
        Fault(2_000, 6_000, "reader-pause", "range-0", "range"),
        Fault(7_000, OPEN_END, "broker-kill", "broker-1", "*"),
        Fault(10_000, 14_000, "controller-kill", "controller-0", None),
        Fault(15_000, 16_000, "ended-by-itself", "aware-transactional", None),
    ]
    assert history.plain == {"plain"}
    assert history.shrinks == [Shrink(5_000, 4, {1: 2}, {1: 2}, {1: 2}, {})]
    assert history.contents is not None
    assert history.contents.log_starts == {0: 0, 1: 2}
    verdict = judge(history)
    assert verdict.ok
    assert verdict.acknowledged == 3


def test_the_judge_as_a_program(run: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    end(run)
    assert main(["--judge", str(run.folder), "--json", str(run.folder / "report.json")]) == 0
    assert "all is well" in capsys.readouterr().out
    report = json.loads((run.folder / "report.json").read_text())
    assert (report["ok"], report["acknowledged"], report["lost"], report["unread"]) == (True, 3, 0, 0)
    assert report["faults"] == {"controller-kill": 1, "reader-pause": 1}
    assert (report["faults_total"], report["faults_begun"]) == (2, 3)
    assert (report["shrinks"]["completed"], report["undos"], report["takeovers"]) == (1, 1, 1)
    assert report["takeovers_s"] == [["controller-kill", 1.0]]
    assert report["ended_by_themselves"] == [
        {"at_ms": 16_000, "process": "aware-transactional", "last_words": "KafkaError{FATAL,"}
    ]


MORE: list[Event] = [
    {"event": "ended-by-itself", "process": "range-1", "group": "range", "last_words": "FATAL"},
    {"event": "ended-by-itself", "process": "controller-1", "group": None, "last_words": ""},
    {"event": "ended-by-itself", "process": "aware-transactional", "group": None, "last_words": "Traceback"},
    {"event": "settled", "killed": ["range-0"]},
]


@pytest.mark.parametrize("event", MORE, ids=lambda event: event.get("process", "killed"))
def test_who_ends_by_himself_or_does_not_end_is_not_well(
    run: Setting, event: Event, capsys: pytest.CaptureFixture[str]
) -> None:
    end(run)
    note(run, event)
    assert main(["--judge", str(run.folder)]) == 1
    assert "MISSED" in capsys.readouterr().out


def test_a_run_in_which_too_little_happened_is_not_well(run: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    end(run)
    replace(run, minutes=2.0).save()
    assert main(["--judge", str(run.folder)]) == 1
    output = capsys.readouterr().out
    for line in (
        "MISSED acknowledged records: 3 (at least 200,000)",
        "MISSED faults: 2 (at least 8)",
        "MISSED kinds of faults: 2 (at least 3)",
        "MISSED shrinks that Kafka confirms: 1 (at least 2)",
        "MISSED switches slept through: 0 (at least 1)",
        "met    records whose routing was judged: 2 of 3 (at least 1)",
    ):
        assert line in output
    assert "VIOLATION" not in output


def test_a_shrink_that_kafka_does_not_confirm_is_not_counted(run: Setting) -> None:
    end(run)
    note(run, {"event": "shrunk", "to": 5, "delay_ms": 0, "took_s": 1.0})
    assert judge(load_history(run.folder)).shrinks == {"confirmed": 1, "unconfirmed": 1}


def test_what_is_known_of_times_in_which_partitions_were_retired(run: Setting) -> None:
    early, later, last = {"9": 5}, {"8": 7, "9": 6}, {"8": 7, "9": 9}
    for before_growth, ends in ((False, early), (False, later), (True, last), (True, last)):
        note(run, {"event": "ends-of-retired", "before_growth": before_growth, "ends": ends})
    view = {"event": "view", "writable": [0], "reclaimed": [], "text": ""}
    note(run, {**view, "version": 6, "none": {"1": 2, "2": 3}})
    note(run, {**view, "version": 7, "none": {"2": 4}})
    note(run, {"event": "mode-record", "version": 8, "writable": [0, 1], "seals": {}, "stragglers": {}})
    history = load_history(run.folder)
    assert history.retired == [Retired(9, 5, 9)]
    assert [gone for gone in sorted(history.gone) if gone.how == "None"] == [
        Gone(3_000, 1, 2, "None", 23_000),
        Gone(22_000, 2, 3, "None", 23_000),
        Gone(23_000, 2, 4, "None"),
    ]
    assert history.writable[8] == [0, 1]


def test_a_run_that_was_cut_short_is_not_well(run: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--judge", str(run.folder)]) == 1
    assert "VIOLATION unjudged" in capsys.readouterr().out


def test_a_record_that_nobody_read_is_not_well(run: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    end(run)
    run.reader_path("range", "range-0", 1).unlink()
    assert main(["--judge", str(run.folder)]) == 1
    assert "unread                  3" in capsys.readouterr().out


def test_a_torn_event_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"event": "a"}\n{"event": "b"}\n{"eve')
    events: list[Event] = list(read_events(path))
    assert [event["event"] for event in events] == ["a", "b"]


def test_a_writer_makes_up_for_a_short_stop_only() -> None:
    pace = Pace(100, 0.0)
    assert [pace.due(at_s) for at_s in (0.0, 0.015, 0.02, 1.0, 60.0)] == [0, 1, 1, 98, 300]


def test_manners_of_those_who_know_no_modes() -> None:
    manners = Manners(random.Random(1), 0.0)
    assert [manners.everywhere(at_s) for at_s in (0, 4, 7, 39, 41, 79)] == [True, True, False, False, True, False]
    assert {manners.partition(key) for key in range(500)} == set(range(LOWEST_TARGET))
    assert list(manners.burst(BURST_PAUSE_S[0] - 1)) == []
    burst = list(manners.burst(BURST_PAUSE_S[1]))
    assert len(burst) == BURST_RECORDS
    assert set(burst) <= set(range(LOWEST_TARGET, PARTITIONS))
    assert list(manners.burst(BURST_PAUSE_S[1])) == []
