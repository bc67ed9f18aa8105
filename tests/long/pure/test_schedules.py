"""Thousands of schedules: those after the ones of the short tier, and all among which guards are searched for."""

from __future__ import annotations

import pytest

from tests.simulation.guards import FIRST_SEED, MOST_SEEDS
from tests.simulation.report import run_many
from tests.simulation.schedule import EVACUATE_FROM
from tests.simulation.test_schedules import SCHEDULES, WITH_EVACUATIONS

MORE = 4_500
MORE_WITH_EVACUATIONS = 2_000


@pytest.mark.parametrize(
    ("first", "count"),
    [(FIRST_SEED + SCHEDULES, MORE), (EVACUATE_FROM + WITH_EVACUATIONS, MORE_WITH_EVACUATIONS)],
    ids=["all", "with evacuations"],
)
def test_no_schedule_breaks_an_invariant(first: int, count: int) -> None:
    assert MOST_SEEDS <= SCHEDULES + MORE, "the unchanged code has to pass where guards are searched for"
    report = run_many(first, count, processes=2)
    assert report.failures == {}, report.text()
