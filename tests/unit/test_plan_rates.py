"""What is written to a topic, by made-up offsets: one row of a table for each sign that misleads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modeaware.plan.rates import DAY_MS, HOUR_MS, LogConfigs, PeakBatches, TopicLogs, Window, peak_batches, rates
from modeaware.wire.fence_probe import BATCH_HEADER

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
    batches = {0: PeakBatches(records=49, offsets=50, size_bytes=2_000, compressed=True, transactional=True)}
    found = rates(replace(EVEN, peak_offsets={0: 3_600}, batches=batches), replace(CONFIGS, compression="zstd"), WEEK)
    assert found.peak_bytes_per_s == pytest.approx(24 * 40)
    assert found.bytes_per_s == pytest.approx(100), "the mean is exact"
    assert {note.code for note in found.notes} == {"corrected", "markers", "peak-bound"}


def sampled(sizes: list[int], hour: list[int], batches: dict[int, int]) -> TopicLogs:
    """Partitions with 604 800 records of these sizes, ``hour`` of them in the busiest hour; batches of these sizes were
    read, with as many offsets as fit into a mebibyte."""
    count, length = len(sizes), 7 * 86_400
    return TopicLogs(
        [0] * count,
        [length] * count,
        [0] * count,
        [NOW_MS - 7 * DAY_MS] * count,
        [length * size for size in sizes],
        [count * 86_400 * day for day in range(8)],
        peak_offsets=dict(enumerate(hour)),
        batches={p: PeakBatches((1 << 20) // size, (1 << 20) // size, 1 << 20) for p, size in batches.items()},
    )


def test_the_records_of_sampled_partitions_are_no_measure_of_others() -> None:
    sizes = [100] + [10_000] * 7
    estimate = rates(sampled(sizes, [3_600] * 8, {}), CONFIGS, WEEK)
    assert estimate.peak_bytes_per_s == pytest.approx(1_682_400)
    for batches, factor in (({0: 100, 1: 10_000}, 1), ({0: 200, 1: 20_000}, 2), ({0: 100}, 1), ({7: 5_000}, 0.5)):
        found = rates(sampled(sizes, [3_600] * 8, batches), CONFIGS, WEEK)
        assert found.peak_bytes_per_s == pytest.approx(factor * 1_682_400, rel=0.01)
        assert {note.code for note in found.notes} == {"corrected", "uneven", "peak-bound"}


def test_partitions_count_by_their_bytes_in_the_busiest_hour() -> None:
    """Partition 0 has half of the topic's bytes and all bytes of the hour, or none."""
    small, large = (sampled([300, 100, 100, 100], hour, {0: 600, 1: 100}) for hour in ([0, 9, 9, 9], [9, 0, 0, 0]))
    found = [rates(made, CONFIGS, WEEK) for made in (small, large)]
    assert [rate.peak_bytes_per_s for rate in found] == pytest.approx([96 * 100, 96 * 600], rel=0.001)
    assert ["uneven" in {note.code for note in rate.notes} for rate in found] == [True, False], "all were sampled"


def test_a_sample_corrects_no_size_that_is_unknown() -> None:
    """Of partition 1 the size is unknown: its offsets have the mean size of the others."""
    made = sampled([100] * 4, [900] * 4, {0: 200})
    made.sizes[1] = -1
    assert rates(made, CONFIGS, WEEK).peak_bytes_per_s == pytest.approx(96 * 200, rel=0.001)
    unknown = rates(replace(made, sizes=[-1] * 4, batches={}), CONFIGS, WEEK)
    assert unknown.peak_bytes_per_s is None


def test_a_tiered_log_stays_an_estimate_until_all_partitions_are_sampled() -> None:
    made = replace(sampled([100, 100], [9, 9], {0: 100}), local={0: 5, 1: 5})
    assert codes(made) >= {"tiered", "corrected"}
    assert "tiered" not in codes(replace(made, peak_offsets={0: 9, 1: 0}))


def encoded(*batches: tuple[int, int, int, int]) -> bytes:
    """Batches, each with: base offset, offsets, bytes, attributes."""
    return b"".join(
        BATCH_HEADER.pack(base, size - 12, 0, 2, 0, attributes, n - 1, 0, 0, 7, 0, -1, n).ljust(size, b"\0")
        for base, n, size, attributes in batches
    )


MARKER = (1, 78, 0x30)
"""Offsets, bytes and attributes of the marker of a transaction."""


def test_markers_count_as_offsets_and_bytes() -> None:
    """As in the size of the log: a record of 122 B and a marker of 78 B make 100 B per offset."""
    read = encoded((10, 1, 122, 0x10), (11, *MARKER), (12, 1, 122, 0x10), (13, *MARKER))
    found = peak_batches(read, 14)
    assert found == PeakBatches(records=2, offsets=4, size_bytes=400, transactional=True)
    made = replace(EVEN, peak_offsets={0: 4}, batches={0: found})
    assert rates(made, CONFIGS, WEEK).peak_bytes_per_s == pytest.approx(24 * 100)


def test_batches_after_the_busiest_hour_do_not_count() -> None:
    read = encoded((10, 5, 500, 1), (15, 5, 600, 0), (20, 5, 90_000, 0x10))
    assert peak_batches(read, 20) == PeakBatches(10, 10, 1_100, compressed=True)
    assert peak_batches(read, 17) == PeakBatches(10, 10, 1_100, compressed=True), "a batch is counted whole"
    assert peak_batches(read, 10) is None
    assert peak_batches(encoded((10, *MARKER)), 20) is None


def test_sizes_that_are_not_known_leave_bytes_unknown() -> None:
    found = rates(replace(EVEN, sizes=[-1]), CONFIGS, WEEK)
    assert (found.bytes_per_s, found.peak_bytes_per_s) == (None, None)
    assert "size-unknown" in {note.code for note in found.notes}


def test_partitions_without_an_answer_are_left_out() -> None:
    made = TopicLogs([0, 0], [86_400, -1], [0, 0], [NOW_MS - DAY_MS, -1], [100, -1], [0] * 7 + [86_400])
    assert made.unread == (1,)
    assert rates(made, CONFIGS, WEEK).records_per_s == pytest.approx(1)
