"""Effects are carried out soon after the election has confirmed the leader, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import pytest

from modeaware.controller.election import LeasedEffects, request_timeout_s
from modeaware.errors import ClusterError, ErrorCode
from modeaware.lifecycle.commands import CreatePartitions, DeleteRecords, Effect
from modeaware.wire.brokers import REQUEST_TIMEOUT_S
from tests.support.simulated import SimClock

DELETE = DeleteRecords("orders", "id", {1: 5})
CREATE = CreatePartitions("orders", "id", 4, None)


class World:
    """An election whose confirmation, and brokers before whose request, so many milliseconds pass."""

    def __init__(self, session_ms: int = 8_000) -> None:
        self.clock = SimClock()
        self.confirms: bool | None = True
        self.confirm_ms = self.lookup_ms = 0
        self.looked = 0
        self.done: list[object] = []
        election: Any = self
        self.effects = LeasedEffects(self, election, session_ms, self.clock)

    def confirm(self, timeout_s: float) -> bool | None:
        self.clock.advance(self.confirm_ms)
        return self.confirms

    def perform(self, effects: Sequence[Effect], check: Callable[[], None]) -> list[ClusterError | None]:
        self.looked += 1
        self.clock.advance(self.lookup_ms)
        try:
            check()
        except ClusterError as error:
            return [error] * len(effects)
        self.done += effects
        return [None] * len(effects)

    def validate(self, effects: Sequence[Effect]) -> list[ClusterError | None]:
        self.done += [(effect, "checked") for effect in effects]
        return [None] * len(effects)

    def put_off(self) -> None:
        for failure in self.effects.perform([DELETE, CREATE]):
            assert failure is not None
            assert "put off" in str(failure)
            assert failure.code is ErrorCode.REQUEST_TIMED_OUT, "which keeps the record that announces it"
        assert self.done == []


@pytest.mark.parametrize("answer", [False, None])
def test_without_a_confirmation_nothing_is_even_looked_up(answer: bool | None) -> None:
    world = World()
    assert world.effects.perform([DELETE, CREATE]) == [None, None]
    assert world.done == [DELETE, CREATE]
    world.done, world.looked = [], 0
    world.confirms = answer
    world.put_off()
    assert world.looked == 0
    world.effects.validate([CREATE])
    assert world.done == [(CREATE, "checked")], "a look changes nothing"


@pytest.mark.parametrize(("confirm_ms", "lookup_ms"), [(4_001, 0), (2_000, 2_001), (0, 4_001)])
def test_half_a_session_after_it_asked_it_is_put_off(confirm_ms: int, lookup_ms: int) -> None:
    """However slow what comes between the question and the request."""
    world = World()
    world.confirm_ms, world.lookup_ms = confirm_ms, lookup_ms
    world.put_off()


@pytest.mark.parametrize("session_ms", [1_000, 2_000, 5_000, 6_000, 8_000, 10_000])
def test_a_request_that_is_sent_at_the_last_moment_is_sent_within_the_session(session_ms: int) -> None:
    """One that waits for a connection, or is sent again where one broke, goes out after the last look at the lease."""
    world = World(session_ms)
    looked_at_ms = []

    def perform(effects: Sequence[Effect], check: Callable[[], None]) -> NoReturn:
        for _ in range(session_ms + 1):  # every millisecond
            check()
            looked_at_ms.append(world.clock.now_ms() - began_ms)
            world.clock.advance(1)

    began_ms = world.clock.now_ms()
    world.perform = perform  # type: ignore[method-assign]  # one that looks as long as it may
    with pytest.raises(ClusterError, match="put off"):
        world.effects.perform([DELETE])
    assert looked_at_ms[-1] + request_timeout_s(session_ms) * 1_000 <= session_ms
    assert request_timeout_s(session_ms) <= REQUEST_TIMEOUT_S
