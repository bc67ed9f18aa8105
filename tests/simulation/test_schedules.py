"""Some hundred schedules, the same ones every time; ``make test-all`` runs thousands, ``make simulate`` a million."""

from __future__ import annotations

import pytest

from tests.simulation.faults import PHASES, REPLACING, Fault
from tests.simulation.guards import FIRST_SEED
from tests.simulation.report import (
    CHAIN_FROM,
    DELETE_FROM,
    LEAST_SHRUNK,
    NAMES_FROM,
    REPLACE_FROM,
    Report,
    run_many,
    tell_story,
)

SCHEDULES = 200
WITH_REPLACEMENTS = 200
WITH_DELETIONS = 100
WITH_CHAINS = 60
WITH_NAMES = 60


@pytest.fixture(scope="module")
def report() -> Report:
    return run_many(FIRST_SEED, SCHEDULES, processes=1)


def test_no_schedule_breaks_an_invariant(report: Report) -> None:
    assert report.failures == {}, report.text()
    assert report.schedules == SCHEDULES


def test_no_schedule_with_replacements_breaks_an_invariant() -> None:
    report = run_many(REPLACE_FROM, WITH_REPLACEMENTS, processes=1)
    assert report.failures == {}, report.text()
    assert report.problems(at_least=1) == []
    assert {fault.label for fault in REPLACING} <= report.met.keys()


@pytest.mark.parametrize(
    ("first", "count"), [(DELETE_FROM, WITH_DELETIONS), (CHAIN_FROM, WITH_CHAINS), (NAMES_FROM, WITH_NAMES)]
)
def test_no_schedule_with_deletions_chains_or_kept_names_breaks_an_invariant(first: int, count: int) -> None:
    report = run_many(first, count, processes=1)
    assert report.failures == {}, report.text()
    assert report.shrunk >= count * LEAST_SHRUNK


def test_schedules_are_long_complete_shrinks_and_meet_every_fault_where_it_can_strike(report: Report) -> None:
    assert report.problems(at_least=0) == []
    for fault in Fault:
        assert any(report.coverage[fault, phase] for phase in range(len(PHASES))), fault.label


def test_a_seed_gives_the_same_schedule_again() -> None:
    first, error = tell_story(17)
    again, _ = tell_story(17)
    assert first == again
    assert error is None
    assert any("appends" in line for line in first)
