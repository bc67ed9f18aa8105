"""When servers are asked whether they have the feature; the answers are the test's."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import pytest

from modeaware.clock import Clock
from modeaware.errors import ModeSourceError
from modeaware.views import scout
from modeaware.views.scout import FIRST_BACKOFF_S, LAST_BACKOFF_S, Found, Scout
from modeaware.wire.api_versions import Offer
from tests.support.simulated import SimClock


class FakeRound:
    """Answers at once with what the class is told."""

    offers: ClassVar[dict[str, Offer]] = {}
    failures: ClassVar[dict[str, str]] = {}
    made = 0

    def __init__(self, _conf: Any, _clock: Clock) -> None:
        FakeRound.made += 1
        self.done = False

    def step(self, _wait_s: float) -> None:
        self.done = True

    def failure(self) -> ModeSourceError | None:
        return ModeSourceError("nobody") if self.failures and not self.offers else None

    def close(self) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimClock:
    monkeypatch.setattr(scout, "Round", FakeRound)
    FakeRound.offers, FakeRound.failures, FakeRound.made = {}, {}, 0
    return SimClock(0)


def rounds_until(made: Scout, clock: SimClock, until_s: float) -> list[float]:
    """When rounds were begun, as the clock goes on in small steps."""
    begun = []
    while clock.monotonic_s() < until_s:
        before = FakeRound.made
        made.step(0.0)
        if FakeRound.made > before:
            begun.append(round(clock.monotonic_s(), 1))
        clock.advance(100)
    return begun


def test_no_is_asked_again_at_each_interval(clock: SimClock) -> None:
    FakeRound.offers = {"a:1": Offer(modes=False)}
    made = Scout({}, 10.0, clock)
    assert rounds_until(made, clock, 25.0) == pytest.approx([0, 10, 20], abs=0.2)
    assert (made.absent, made.found, made.error) == (True, None, None)
    FakeRound.offers = {"a:1": Offer(modes=False), "b:1": Offer(modes=True, ours=True)}
    rounds_until(made, clock, 31.0)
    assert (made.absent, made.found) == (False, Found("b:1", ours=True))


def test_failures_are_asked_again_with_growing_pauses_and_never_mean_no(clock: SimClock) -> None:
    FakeRound.failures = {"a:1": "refused"}
    made = Scout({}, 300.0, clock)
    begun = rounds_until(made, clock, 60.0)
    pauses = [after - before for before, after in pairwise(begun)]
    assert pauses[0] == pytest.approx(FIRST_BACKOFF_S, abs=0.2)
    assert pauses[-1] == pytest.approx(LAST_BACKOFF_S, abs=0.2)
    assert (made.absent, made.found, str(made.error)) == (False, None, "nobody")
    FakeRound.offers = {"a:1": Offer(modes=True)}
    rounds_until(made, clock, 75.0)
    assert (made.found, made.error) == (Found("a:1", ours=False), None)


def test_while_rounds_fail_only_good_news_are_a_reason_to_hurry(clock: SimClock) -> None:
    FakeRound.failures = {"a:1": "refused"}
    made = Scout({}, 300.0, clock)
    rounds_until(made, clock, 30.0)
    before = FakeRound.made
    made.hurry()
    made.step(0.0)
    assert FakeRound.made == before
    clock.advance(round(FIRST_BACKOFF_S * 1000))
    made.hurry(even_if_failing=True)
    made.step(0.0)
    assert FakeRound.made == before + 1
