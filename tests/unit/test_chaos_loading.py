"""The folder of a chaos run becomes a history, also where the run was killed in the middle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chaos.__main__ import main
from tests.chaos.chronicle import Chronicle
from tests.chaos.history import OPEN_END, Bounds, Fault, Gone, Outcome, Shrink, Transaction
from tests.chaos.journal import Journal, Kind, pack_bounds
from tests.chaos.judge import judge
from tests.chaos.loading import load_history
from tests.chaos.record import Identity
from tests.chaos.setting import GROUPS, Setting

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


def test_a_run_that_was_cut_short_is_not_well(run: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--judge", str(run.folder)]) == 1
    assert "VIOLATION unjudged" in capsys.readouterr().out


def test_a_record_that_nobody_read_is_not_well(run: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    end(run)
    run.reader_path("range", "range-0", 1).unlink()
    assert main(["--judge", str(run.folder)]) == 1
    assert "unread                  3" in capsys.readouterr().out
