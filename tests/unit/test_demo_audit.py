"""The demo's counting: each figure is provoked once, by hand-made journals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from modeaware.demo.audit import Counts, ProducerRun, Stored, count
from modeaware.demo.flights import Flight, load_flights, read_share, share_of, write_share
from modeaware.demo.journal import Ack, Delivery, read_acks, read_deliveries
from modeaware.demo.pace import Pace, Stage
from modeaware.demo.report import PartitionEnd, Report
from modeaware.demo.timeline import (
    Timeline,
    durations_s,
    none_from,
    reclaimed_from,
    sealed_from,
    writable_are,
)
from modeaware.modes import PartitionMode
from modeaware.topic_view import TopicView

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


def test_a_second_delivery_is_a_duplicate_and_hides_no_loss() -> None:
    given = [Delivery("0-1", 1, 0), Delivery("0-1", 1, 0)]
    counts = judge(ack("0-0", 0, 0), ack("0-1", 1, 0), given=given)
    assert (counts.delivered, counts.duplicates, counts.lost) == (1, 1, 1)


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


def test_a_record_queued_before_the_switch_may_arrive_after_it() -> None:
    counts = judge(ack("0-0", 3, 0, at_ms=49), ack("0-1", 3, 1, at_ms=51), ack("0-2", 1, 0, at_ms=52))
    assert counts.late_in_retired == 1
    assert faults_of(counts) == []


@pytest.mark.parametrize(
    ("key", "partition", "epochs", "expected"),
    [
        (b"\x03", 3, (-1, -1), 0),
        (b"\x03", 1, (0, 0), 0),  # 3 % 2
        (b"\x03", 0, (0, 0), 1),
        (b"\x03", 1, (-1, 0), 0),
        (b"\x03", 0, (5, 5), 0),  # 3 % 3
        (None, 0, (0, 0), 0),
        (b"", 0, (0, 0), 0),
    ],
)
def test_keyed_records_must_lie_where_their_hash_says(
    key: bytes | None, partition: int, epochs: tuple[int, int], expected: int
) -> None:
    counts = judge(ack("0-0", partition, 0, epochs), stored={(partition, 0): Stored("0-0", key)})
    assert counts.misplaced == expected


def test_what_kafka_holds_must_agree_with_the_acknowledgements() -> None:
    missing = judge(ack("0-0", 0, 7), stored={})
    other = judge(ack("0-0", 0, 7), stored={(0, 7): Stored("0-9", None)})
    deleted = judge(ack("0-0", 0, 7), stored={}, log_starts={**LOG_STARTS, 0: 8})
    assert (missing.contradictions, other.contradictions, deleted.contradictions) == (1, 1, 0)
    assert (deleted.records_reclaimed, deleted.bytes_reclaimed) == (1, 10)


def test_the_longest_gap_counts_from_the_start_and_to_the_end() -> None:
    assert run_of(ack("0-0", 0, 0, at_ms=90), ended_ms=100).longest_gap_ms == 90
    assert run_of(ack("0-0", 0, 0, at_ms=10), ended_ms=6_000).longest_gap_ms == 5_990
    assert run_of(ended_ms=7_000).longest_gap_ms == 7_000


def test_five_seconds_without_an_acknowledgement_are_a_fault() -> None:
    counts = count([run_of(ack("0-0", 0, 0), ended_ms=5_100)], [Delivery("0-0", 0, 0)], {}, {0: 1}, max, SURVIVORS)
    assert "5.0 s without an acknowledgement" in faults_of(counts)[0]


def test_a_run_without_records_is_a_fault() -> None:
    assert faults_of(judge()) == ["nothing was acknowledged"]


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


def test_journals_come_back_as_they_were_written(tmp_path: Path) -> None:
    acks = [ack("0-0", 0, 0), ack("1-17", 3, 2**40, (0, 5))]
    deliveries = [Delivery("0-0", 0, 0), Delivery("1-17", 3, 2**40)]
    (tmp_path / "acks").write_text("".join(a.line() for a in acks))
    (tmp_path / "deliveries").write_text("".join(d.line() for d in deliveries))
    assert list(read_acks(tmp_path / "acks")) == acks
    assert list(read_deliveries(tmp_path / "deliveries")) == deliveries


def test_the_flights_are_all_there_in_order_of_their_scheduled_departure() -> None:
    flights = load_flights()
    scheduled = [json.loads(flight.value)["scheduled"] for flight in flights]
    assert len(flights) == 336_776
    assert scheduled == sorted(scheduled)
    assert sum(flight.key is None for flight in flights) == 2_512
    assert load_flights(3) == flights[:3]


def test_every_flight_has_one_sender_and_a_key_always_the_same(tmp_path: Path) -> None:
    flights = [Flight(key, b"%d" % n) for n, key in enumerate([b"a", b"b", None, b"a", b"c", None, b"b", b"a"])]
    shares = [share_of(flights, producer, 2) for producer in range(2)]
    assert sorted(flight.value for share in shares for flight in share) == [flight.value for flight in flights]
    assert [{f.key for f in share if f.key} for share in shares] == [{b"a", b"c"}, {b"b"}]
    write_share(tmp_path / "share", shares[0])
    assert read_share(tmp_path / "share") == shares[0]


def test_a_stage_sends_its_share_in_the_time_expected_and_never_runs_dry() -> None:
    pace = Pace(10_000, [Stage(0.5, 10.0), Stage(1.0, 10.0)], floor_per_s=1.0, tail_s=2.0)
    assert pace.due(0, 100.0) == 0
    due = [pace.due(0, 100.0 + tick / 10) for tick in range(1, 101)]
    assert due == sorted(due)
    assert due[49] == pytest.approx(2_500, rel=0.02)
    assert 4_000 < due[-1] < 5_000
    after = [pace.due(0, 110.0 + second) for second in range(1, 121)]
    assert after == sorted(set(after)), "something is due in every second"
    assert after[-1] < 5_200
    assert pace.due(1, 230.1) > after[-1]
    assert pace.due(2, 230.2) == 10_000


def test_conditions_hold_from_the_time_they_last_began_to() -> None:
    now_s = [0.0]
    timeline = Timeline("t", lambda: now_s[0])
    write, read, none = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE
    assert timeline.since(none_from(1)) is None

    def at(seconds: float, last: PartitionMode, seals: dict[int, int], reclaimed: frozenset[int] = frozenset()) -> None:
        now_s[0] = seconds
        timeline.changed({"t": TopicView("t", "id", (1, int(seconds)), (write, last), seals, reclaimed)})

    at(1, read, {})
    at(2, read, {1: 7})
    at(3, none, {1: 7})
    assert timeline.since(none_from(1)) == 3
    at(4, read, {})  # a straggler
    assert timeline.since(none_from(1)) is None
    at(5, none, {1: 8})
    at(6, none, {1: 8}, frozenset({1}))
    timeline.changed({"other": TopicView.unlisted("other")})
    assert timeline.since(writable_are(1)) == 1
    assert timeline.since(sealed_from(1)) == 5
    assert timeline.since(none_from(1)) == 5
    assert timeline.since(reclaimed_from(1)) == 6


def test_phases_are_the_times_between() -> None:
    assert durations_s(["a", "b"], [1.0, 2.5, 2.4999]) == {"a": 1.5, "b": 0.0}
