"""What is written to a topic, by made-up offsets: one row of a table for each sign that misleads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modeaware.plan.rates import DAY_MS, HOUR_MS, LogConfigs, PeakBatches, TopicLogs, Window, rates

NOW_MS = 1_800_000_000_000
WEEK = Window(NOW_MS, 7)
CONFIGS = LogConfigs()


def logs(days: list[int], size: int = 100, **changes: object) -> TopicLogs:
    """One partition that holds ``days`` of records and 1 000 from before, of ``size`` bytes each."""
    reached = [1_000]
    for n in days:
        reached.append(reached[-1] + n)
    made = TopicLogs([0], [reached[-1]], [1_000], [NOW_MS - 7 * DAY_MS], [size * reached[-1]], reached, NOW_MS - 5)
    return replace(made, **changes)  # type: ignore[arg-type]  # of its fields


def codes(made: TopicLogs, configs: LogConfigs = CONFIGS) -> set[str]:
    return {note.code for note in rates(made, configs, WEEK).notes}


EVEN = logs([86_400] * 7)


def test_the_mean_is_exact_and_the_busiest_day_is_a_bound_until_hours_are_known() -> None:
    found = rates(EVEN, CONFIGS, WEEK)
    assert found.records_per_s == pytest.approx(1)
    assert found.bytes_per_s == pytest.approx(100)
    assert found.is_bound
    assert found.peak_records_per_s == pytest.approx(24), "a day in one hour"
    assert found.busiest_days == (0, 1)
    assert {note.code for note in found.notes} == {"peak-bound"}


def test_hours_of_the_two_busiest_days_give_the_peak() -> None:
    made = logs([0, 0, 2_400, 0, 9_600, 0, 0])
    start = made.reached[4]
    burst = [start + (0 if hour < 9 else 6_000) + (3_600 * hour // 23) for hour in range(1, 24)]
    small = [made.reached[2] + 100 * hour for hour in range(1, 24)]
    found = rates(replace(made, hours={4: burst, 2: small}), CONFIGS, WEEK)
    assert found.busiest_days == (4, 2)
    assert not found.is_bound
    assert found.peak_records_per_s == pytest.approx((6_000 + 157) / 3_600, rel=0.001)
    assert found.peak_bytes_per_s == pytest.approx(found.peak_records_per_s * 100)
    assert rates(replace(made, hours={4: burst}), CONFIGS, WEEK).is_bound, "one of them alone is no answer"


def test_what_is_written_during_the_scan_is_of_the_last_hour() -> None:
    made = logs([100] * 7)
    later = replace(made, ends=[made.ends[0] + 40])
    within = {day: [made.reached[day]] * 23 for day in (6, 0)}
    assert rates(later, CONFIGS, WEEK).busiest_days == (6, 0)
    assert rates(replace(later, hours=within), CONFIGS, WEEK).peak_records_per_s == pytest.approx(140 / 3_600)


def test_a_timestamp_in_the_future_makes_the_peak_a_bound() -> None:
    """One record hides all that follow it: 500 of the log have no time."""
    made = replace(EVEN, ends=[EVEN.ends[0] + 500], newest_ms=NOW_MS + 2 * HOUR_MS)
    quiet = {day: [EVEN.reached[day] + 3_600 * hour for hour in range(1, 24)] for day in (0, 1)}
    found = rates(replace(made, hours=quiet), CONFIGS, WEEK)
    assert found.is_bound
    assert found.peak_records_per_s == pytest.approx((3_600 + 500) / 3_600)
    assert {note.code for note in found.notes} == {"future-timestamps"}
    nearly = replace(made, newest_ms=NOW_MS + HOUR_MS)
    assert "future-timestamps" not in codes(nearly), "clocks differ"


def test_times_set_by_brokers_are_noted() -> None:
    assert "append-time" in codes(EVEN, replace(CONFIGS, timestamp_type="LogAppendTime"))


def test_a_cut_window_counts_from_its_first_record() -> None:
    made = TopicLogs(
        [500], [500 + 86_400], [500], [NOW_MS - 2 * DAY_MS], [86_400], [500] * 6 + [43_700, 86_900], NOW_MS
    )
    found = rates(made, CONFIGS, WEEK)
    assert found.seen_ms == 2 * DAY_MS
    assert found.records_per_s == pytest.approx(0.5)
    (note,) = (note for note in found.notes if note.code == "window-cut")
    assert note.text.startswith("the log covers 48 of 168 hours")


@pytest.mark.parametrize(
    ("start", "end", "retention_ms", "seen_ms"),
    [
        (0, 0, HOUR_MS, WEEK.length_ms),
        (9, 9, 7 * DAY_MS, WEEK.length_ms),
        (9, 9, DAY_MS, 0),
        (9, 9, -1, 0),
        (9, 9, None, 0),
    ],
    ids=["never written", "emptied by a long retention", "by a short one", "by DeleteRecords", "not known"],
)
def test_an_empty_log_shows_as_much_as_its_retention(
    start: int, end: int, retention_ms: int | None, seen_ms: int
) -> None:
    made = TopicLogs([start], [end], [start], [-1], [0], [end] * 8)
    found = rates(made, replace(CONFIGS, retention_ms=retention_ms), WEEK)
    assert found.seen_ms == seen_ms
    assert (found.written, found.peak_records_per_s, found.last_write_ms) == (0, 0, None)
    assert not found.is_bound
    assert ("window-cut" in {note.code for note in found.notes}) is (seen_ms == 0)


@pytest.mark.parametrize(("compression", "marked"), [("producer", False), ("uncompressed", False), ("zstd", True)])
def test_a_codec_in_the_configs_marks_the_peak(compression: str, marked: bool) -> None:
    assert ("compressed" in codes(EVEN, replace(CONFIGS, compression=compression))) is marked


def test_partitions_whose_records_differ_mark_the_peak() -> None:
    made = TopicLogs([0, 0], [5_000, 5_000], [0, 0], [-1, -1], [500_000, 700_000], [0] * 7 + [10_000])
    assert "uneven" not in codes(made)
    assert "uneven" in codes(replace(made, sizes=[500_000, 800_000]))


def test_batches_of_the_busiest_hour_correct_its_bytes() -> None:
    made = replace(EVEN, batches=PeakBatches(records=50, size_bytes=2_000, compressed=True, transactional=True))
    found = rates(made, replace(CONFIGS, compression="zstd"), WEEK)
    assert found.peak_bytes_per_s == pytest.approx(24 * 40)
    assert found.bytes_per_s == pytest.approx(100), "the mean is exact"
    assert {note.code for note in found.notes} == {"corrected", "markers", "peak-bound"}


def test_sizes_that_are_not_known_leave_bytes_unknown() -> None:
    found = rates(replace(EVEN, sizes=[-1]), CONFIGS, WEEK)
    assert (found.bytes_per_s, found.peak_bytes_per_s) == (None, None)
    assert "size-unknown" in {note.code for note in found.notes}


def test_partitions_without_an_answer_are_left_out() -> None:
    made = TopicLogs([0, 0], [86_400, -1], [0, 0], [NOW_MS - DAY_MS, -1], [100, -1], [0] * 7 + [86_400])
    assert made.unread == (1,)
    assert rates(made, CONFIGS, WEEK).records_per_s == pytest.approx(1)
