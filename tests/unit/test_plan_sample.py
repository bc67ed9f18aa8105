"""Where a plan's sample is taken, and how sure shares of it are."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeaware.plan.recognise import log10_odds_of_chance
from modeaware.plan.sample import Sample, SampledRecord, Stretch, choose_stretches, recent_from

LOGS = st.dictionaries(
    st.integers(0, 50), st.tuples(st.integers(0, 1000), st.integers(0, 100_000)).map(lambda t: Stretch(t[0], sum(t)))
)


@given(logs=LOGS, asked=st.integers(1, 50_000))
def test_stretches_lie_in_their_logs_do_not_overlap_and_are_no_more_than_asked_for(
    logs: dict[int, Stretch], asked: int
) -> None:
    chosen = choose_stretches(logs, asked)
    total = sum(place.length for places in chosen.values() for place in places)
    assert total == min(asked, sum(log.length for log in logs.values())), "all that was asked for, if there is so much"
    for partition, places in chosen.items():
        offsets = [offset for place in places for offset in place]
        assert offsets == sorted(offsets)
        assert all(place.length > 0 for place in places)
        assert places[0].start >= logs[partition].start
        assert places[-1].end == logs[partition].end
        assert places[0].start <= recent_from(places) < logs[partition].end


def test_a_record_stands_for_others_of_its_partition() -> None:
    records = [SampledRecord(0, 5, b"k", 10, 1000), SampledRecord(0, 6, b"k", 30, 3000), SampledRecord(1, 0, None, 8)]
    sample = Sample("t", 3, 3, {0: Stretch(0, 100), 1: Stretch(0, 1), 2: Stretch(0, 0)}, tuple(records), {0: 6}, True)
    assert sample.weights == {0: 50.0, 1: 1.0}
    assert sample.total_records == 101
    assert sample.total_bytes == 50 * 40 + 8
    assert sample.span_ms == 2000
    assert [sample.is_recent(record) for record in records] == [False, True, True], "not all have a timestamp"
    assert Sample("t", 1, 1, {}, (), {}, True).span_ms is None
    assert replace(sample, from_start=False).span_ms is None, "what lies before it may be of any age"


@pytest.mark.parametrize(("matched", "of", "chance"), [(3, 10, 0.25), (9, 10, 0.25), (10, 10, 0.5), (40, 200, 0.1)])
def test_the_odds_of_chance_are_never_too_small(matched: int, of: int, chance: float) -> None:
    exact = sum(math.comb(of, k) * chance**k * (1 - chance) ** (of - k) for k in range(matched, of + 1))
    assert 10 ** log10_odds_of_chance(matched, of, chance) >= exact * (1 - 1e-9)
    if matched == of:
        assert 10 ** log10_odds_of_chance(matched, of, chance) == pytest.approx(exact)
