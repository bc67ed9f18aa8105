"""With any one guard removed the simulator finds that its invariant is broken."""

from __future__ import annotations

import pytest

from tests.simulation.guard_texts import GUARDS, Guard
from tests.simulation.guards import Found, try_all


@pytest.fixture(scope="module")
def found() -> dict[str, Found]:
    return {one.guard.name: one for one in try_all(processes=2)}


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_that_is_gone_is_missed(guard: Guard, found: dict[str, Found]) -> None:
    assert found[guard.name].seed is not None, found[guard.name].what
    assert found[guard.name].what.startswith(f"{guard.invariant}: ")
