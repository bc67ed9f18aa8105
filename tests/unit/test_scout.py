"""When servers are asked whether they have the feature; the answers are the test's."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import pytest

from modeaware.clock import Clock
from modeaware.errors import ModeSourceError
from modeaware.views import choice
from modeaware.views.choice import FIRST_BACKOFF_S, LAST_BACKOFF_S, FeatureProbe, Found
from modeaware.wire.api_versions import Offer


class ManualClock:
    now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return 0


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
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    monkeypatch.setattr(choice, "Round", FakeRound)
    FakeRound.offers, FakeRound.failures, FakeRound.made = {}, {}, 0
    return ManualClock()


def rounds_until(made: FeatureProbe, clock: ManualClock, until_s: float) -> list[float]:
    """When rounds were begun, as the clock goes on in small steps."""
    begun = []
    while clock.now_s < until_s:
        before = FakeRound.made
        made.step(0.0)
        if FakeRound.made > before:
            begun.append(round(clock.now_s, 1))
        clock.now_s += 0.1
    return begun


def test_no_is_asked_again_at_each_interval(clock: ManualClock) -> None:
    FakeRound.offers = {"a:1": Offer(modes=False)}
    made = FeatureProbe({}, 10.0, clock)
    assert rounds_until(made, clock, 25.0) == pytest.approx([0, 10, 20], abs=0.2)
    assert (made.absent, made.found, made.error) == (True, None, None)
    FakeRound.offers = {"a:1": Offer(modes=False), "b:1": Offer(modes=True, ours=True)}
    rounds_until(made, clock, 31.0)
    assert (made.absent, made.found) == (False, Found("b:1", ours=True))


def test_failures_are_asked_again_with_growing_pauses_and_never_mean_no(clock: ManualClock) -> None:
    FakeRound.failures = {"a:1": "refused"}
    made = FeatureProbe({}, 300.0, clock)
    begun = rounds_until(made, clock, 60.0)
    pauses = [after - before for before, after in pairwise(begun)]
    assert pauses[0] == pytest.approx(FIRST_BACKOFF_S, abs=0.2)
    assert pauses[-1] == pytest.approx(LAST_BACKOFF_S, abs=0.2)
    assert (made.absent, made.found, str(made.error)) == (False, None, "nobody")
    FakeRound.offers = {"a:1": Offer(modes=True)}
    rounds_until(made, clock, 75.0)
    assert (made.found, made.error) == (Found("a:1", ours=False), None)


def test_while_rounds_fail_only_good_news_are_a_reason_to_hurry(clock: ManualClock) -> None:
    FakeRound.failures = {"a:1": "refused"}
    made = FeatureProbe({}, 300.0, clock)
    rounds_until(made, clock, 30.0)
    before = FakeRound.made
    made.hurry()
    made.step(0.0)
    assert FakeRound.made == before
    clock.now_s += FIRST_BACKOFF_S
    made.hurry(even_if_failing=True)
    made.step(0.0)
    assert FakeRound.made == before + 1
