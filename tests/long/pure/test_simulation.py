"""Thousands of schedules break no invariant; with any one guard removed, the simulator finds one that does."""

from __future__ import annotations

import pytest

from tests.simulation.guard_texts import GUARDS, Guard
from tests.simulation.guards import FIRST_SEED, MOST_SEEDS, try_one
from tests.simulation.report import CHAIN_FROM, DELETE_FROM, REPLACE_FROM, run_many
from tests.simulation.test_schedules import (
    SCHEDULES,
    WITH_CHAINS,
    WITH_DELETIONS,
    WITH_REPLACEMENTS,
)

MORE = 4_500
MORE_WITH_REPLACEMENTS = 4_500
MORE_WITH_DELETIONS = 3_000
MORE_WITH_CHAINS = 1_500
AT_A_TIME = 1_500


@pytest.mark.timeout(900)  # a seed that shows it no more is searched for anew: 3 000 schedules
@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_that_is_gone_is_missed(guard: Guard) -> None:
    found = try_one(guard)
    assert found.seed is not None, found.what
    assert found.what.startswith(f"{guard.invariant}: ")


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first + at, id=f"{name} {at}")
        for name, first, count in (
            ("all", FIRST_SEED + SCHEDULES, MORE),
            ("with replacements", REPLACE_FROM + WITH_REPLACEMENTS, MORE_WITH_REPLACEMENTS),
            ("with deletions", DELETE_FROM + WITH_DELETIONS, MORE_WITH_DELETIONS),
            ("with chains", CHAIN_FROM + WITH_CHAINS, MORE_WITH_CHAINS),
        )
        for at in range(0, count, AT_A_TIME)
    ],
)
@pytest.mark.timeout(900)  # 150 s on two idle cores
def test_no_schedule_breaks_an_invariant(first: int) -> None:
    assert MOST_SEEDS <= SCHEDULES + MORE, "the unchanged code has to pass where guards are searched for"
    report = run_many(first, AT_A_TIME, processes=2)
    assert report.failures == {}, report.text()
