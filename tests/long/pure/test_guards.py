"""With any one guard removed the simulator finds that its invariant is broken."""

from __future__ import annotations

import pytest

from tests.simulation.guard_form import Guard
from tests.simulation.guard_texts import GUARDS
from tests.simulation.guards import Found, changed, source_of, try_all

LEAST_GUARDS = 30


@pytest.fixture(scope="module")
def found() -> dict[str, Found]:
    return {one.guard.name: one for one in try_all(processes=2)}


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_that_is_gone_is_missed(guard: Guard, found: dict[str, Found]) -> None:
    one = found[guard.name]
    assert one.caught, one.what
    assert one.what.startswith(f"{guard.invariant}: ")


def test_there_are_enough_of_them() -> None:
    assert len({guard.name for guard in GUARDS}) == len(GUARDS) >= LEAST_GUARDS


def test_a_change_must_find_its_text_exactly_once() -> None:
    change = GUARDS[0].changes[0]
    text = source_of(change)
    assert change.new in changed(text, [change])
    with pytest.raises(ValueError, match="occurs 2 times"):
        changed(text + text, [change])
