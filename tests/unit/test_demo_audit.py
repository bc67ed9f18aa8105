"""The demo's counting: each figure is provoked once, by hand-made journals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from modeaware.demo.audit import Counts, ProducerRun, Stored, count
from modeaware.demo.journal import Ack, Delivery
from modeaware.demo.report import PartitionEnd, Report
from modeaware.modes import PartitionMode

SURVIVORS = 2
LOG_STARTS = {0: 0, 1: 0, 2: 0, 3: 0}


def ack(record_id: str, partition: int, offset: int, epochs: tuple[int, int] = (-1, -1), at_ms: int = 100) -> Ack:
    return Ack(record_id, partition, offset, *epochs, 10, at_ms)


def run_of(*acks: Ack, began_ms: int = 0, ended_ms: int = 200) -> ProducerRun:
    """A producer that saw the shrink from 4 to 2 partitions as epoch 0, at 50 ms, and the growth to 3 as epoch 5."""
    return ProducerRun(acks, {0: [0, 1], 5: [0, 1, 2]}, {0: 50, 5: 150}, began_ms, ended_ms)


def judge(
    *acks: Ack,
    given: Sequence[Delivery] | None = None,
    stored: dict[tuple[int, int], Stored] | None = None,
    log_starts: dict[int, int] | None = None,
) -> Counts:
    """Count one producer's records; by default each is delivered once and lies where it was acknowledged."""
    return count(
        [run_of(*acks)],
        [Delivery(a.id, a.partition, a.offset) for a in acks] if given is None else given,
        {(a.partition, a.offset): Stored(a.id, None) for a in acks} if stored is None else stored,
        LOG_STARTS if log_starts is None else log_starts,
        lambda key, n: key[0] % n,
        SURVIVORS,
    )


def faults_of(counts: Counts) -> list[str]:
    return Report(counts, {}, {}, {}).faults()


def test_a_clean_run_has_no_faults() -> None:
    counts = judge(ack("0-0", 3, 0), ack("0-1", 1, 0, (0, 0)))
    assert (counts.acknowledged, counts.delivered, counts.lost, counts.duplicates) == (2, 2, 0, 0)
    assert (counts.in_retired_after_switch, counts.misplaced, counts.contradictions) == (0, 0, 0)
    assert faults_of(counts) == []


def test_a_record_that_was_never_delivered_is_lost() -> None:
    counts = judge(ack("0-0", 0, 0), ack("0-1", 1, 0), given=[Delivery("0-1", 1, 0)])
    assert (counts.lost, counts.lost_ids) == (1, ("0-0",))
    assert "never delivered" in faults_of(counts)[0]


@pytest.mark.parametrize(
    ("partition", "epochs", "expected"),
    [
        (3, (-1, -1), 0),  # before the shrink every partition is writable
        (3, (0, 0), 1),  # after it 3 is not
        (3, (-1, 0), 0),  # in between: it may have been chosen before
        (2, (0, 0), 1),
        (2, (0, 5), 0),  # the growth may have come in time
        (2, (5, 5), 0),
        (3, (0, 5), 1),  # in neither view
        (3, (-1, 5), 0),
    ],
)
def test_records_in_retired_partitions_are_judged_by_the_view_of_the_call(
    partition: int, epochs: tuple[int, int], expected: int
) -> None:
    counts = judge(ack("0-0", partition, 0, epochs))
    assert counts.in_retired_after_switch == expected
    assert len(faults_of(counts)) == expected


def test_what_kafka_holds_must_agree_with_the_acknowledgements() -> None:
    missing = judge(ack("0-0", 0, 7), stored={})
    other = judge(ack("0-0", 0, 7), stored={(0, 7): Stored("0-9", None)})
    deleted = judge(ack("0-0", 0, 7), stored={}, log_starts={**LOG_STARTS, 0: 8})
    assert (missing.contradictions, other.contradictions, deleted.contradictions) == (1, 1, 0)
    assert (deleted.records_reclaimed, deleted.bytes_reclaimed) == (1, 10)


def test_the_report_has_the_promised_keys_and_survives_json(tmp_path: Path) -> None:
    counts = judge(ack("0-0", 0, 0))
    ends = {0: PartitionEnd(PartitionMode.READ_WRITE, 0, 1), 3: PartitionEnd(PartitionMode.NONE, 5, 5)}
    report = Report(counts, {"seal": 2.0}, ends, {"topic": "t"})
    report.write(tmp_path / "report.json")
    found = json.loads((tmp_path / "report.json").read_text())
    assert found == report.to_dict()
    assert found["phases_s"] == {"seal": 2.0}
    assert found["partitions"]["3"] == {"mode": "None", "log_start": 5, "log_end": 5}
    assert {key: found[key] for key in ("acknowledged", "delivered", "lost", "duplicates")} == {
        "acknowledged": 1,
        "delivered": 1,
        "lost": 0,
        "duplicates": 0,
    }
    assert found["in_retired_after_switch"] == 0
    assert report.lines()[-1].startswith("OK")
