"""Which connection's frame is next, on a clock that moves by what turns take."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from heapq import heappop, heappush
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from modeaware.endpoint.connection import Connection
from modeaware.endpoint.limits import ConnectionSlots, EndpointLimits
from modeaware.endpoint.turns import LARGE_PAUSE, LARGE_S, Turns

SMALL_S, HUGE_S = LARGE_S / 10, 20 * LARGE_S


class FakeLoop:
    """Calls what is due, on a clock that stands still in between. Its time is also the thread's CPU time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.call_at(self.now_s, callback)

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        heappush(self._calls, (when, next(self._numbers), callback))

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Until nothing is left, or so."""
        while self._calls and not until():
            when_s, _, callback = heappop(self._calls)
            self.now_s = max(self.now_s, when_s)
            callback()


class Taker:
    """A connection with ``frames`` left, each of which takes ``takes_s`` and is expected to take ``expected_s``."""

    def __init__(
        self, loop: FakeLoop, turns: Turns, takes_s: float, frames: int, address: str = "", expected_s: float = 0.0
    ) -> None:
        self._loop = loop
        self._turns = turns
        self._takes_s = takes_s
        self._expected_s = expected_s or takes_s
        self._share = turns.share_of(address)
        self.left = frames
        self.ended_s = 0.0
        self._queue()

    def _queue(self) -> None:
        if self.left:
            self._turns.queue(self, self._share, self._expected_s)

    def take_turn(self) -> None:
        with self._turns.charged(self._share):
            self._loop.now_s += self._takes_s
        self.left -= 1
        self.ended_s = self._loop.now_s
        self._queue()


@pytest.fixture
def loop() -> FakeLoop:
    return FakeLoop()


@pytest.fixture
def turns(loop: FakeLoop) -> Turns:
    return Turns(loop, cpu_s=loop.time)


@pytest.mark.parametrize("hostile", [10, 60, 300])
@pytest.mark.parametrize("rounds_before", [0, 1, 3])
def test_a_small_frame_waits_for_one_large_one_however_many_connections_send_them(
    loop: FakeLoop, turns: Turns, hostile: int, rounds_before: int
) -> None:
    attackers = [Taker(loop, turns, HUGE_S, 1_000) for _ in range(hostile)]
    loop.run(lambda: sum(1_000 - each.left for each in attackers) >= rounds_before * hostile + hostile // 2)
    begun_s = loop.now_s
    operator = Taker(loop, turns, SMALL_S, 1)
    loop.run(lambda: not operator.left)
    assert operator.ended_s - begun_s <= HUGE_S + SMALL_S


def test_connections_that_are_made_anew_gain_nothing(loop: FakeLoop, turns: Turns) -> None:
    attackers = [Taker(loop, turns, HUGE_S, 1) for _ in range(50)]
    for _ in range(20):
        attackers += [Taker(loop, turns, HUGE_S, 1) for _ in range(5)]
        begun_s, operator = loop.now_s, Taker(loop, turns, SMALL_S, 1)
        loop.run(lambda operator=operator: not operator.left)
        assert operator.ended_s - begun_s <= HUGE_S + SMALL_S


def test_large_frames_leave_most_of_the_time_to_others(loop: FakeLoop, turns: Turns) -> None:
    taker = Taker(loop, turns, HUGE_S, 10)
    loop.run()
    assert taker.left == 0
    assert loop.now_s == pytest.approx(10 * HUGE_S + 9 * LARGE_PAUSE * HUGE_S)


def test_what_frames_really_took_counts_and_not_the_estimate(loop: FakeLoop, turns: Turns) -> None:
    deceptive = Taker(loop, turns, SMALL_S, 400, expected_s=SMALL_S / 10)
    honest = Taker(loop, turns, SMALL_S, 200)
    loop.run(lambda: not honest.left)
    assert 150 <= 400 - deceptive.left <= 250


def test_every_connection_has_its_share_or_every_address(loop: FakeLoop) -> None:
    for by_address, expected in ((False, 30), (True, 10)):
        turns = Turns(loop, by_address=by_address, cpu_s=loop.time)
        many = [Taker(loop, turns, SMALL_S, 1_000, "10.0.0.1") for _ in range(3)]
        one = Taker(loop, turns, SMALL_S, 10, "10.0.0.2")
        loop.run(lambda one=one: not one.left)
        assert sum(1_000 - each.left for each in many) == pytest.approx(expected, abs=3)


def test_a_turn_that_fails_does_not_stop_the_others(loop: FakeLoop, turns: Turns) -> None:
    class Failing:
        def take_turn(self) -> None:
            raise ValueError("oops")

    turns.queue(Failing(), turns.share_of(""), SMALL_S)
    taker = Taker(loop, turns, SMALL_S, 3)
    with pytest.raises(ValueError, match="oops"):
        loop.run()
    loop.run()
    assert taker.left == 0


def test_slots_are_kept_by_established_connections_alone() -> None:
    slots: ConnectionSlots[str] = ConnectionSlots(3, 2)
    assert [slots.take(name, host) for name, host in (("a1", "a"), ("a2", "a"), ("b1", "b"))] == [None] * 3
    slots.keep("a1")
    assert slots.take("a3", "a") == "a2", "the oldest of that address that is not established"
    slots.keep("b1")
    assert slots.take("b2", "b") == "a3", "the oldest of all"
    slots.keep("b2")
    assert slots.take("c1", "c") == "3 connections are open, the limit"
    assert slots.take("b3", "b") == "2 connections from b are open, the limit of one address"
    for name in ("a2", "a1"):  # the one has lost its slot before
        slots.release(name)
    assert slots.take("c1", "c") is None


def test_a_large_response_that_comes_while_a_small_request_waits_is_queued_for_as_large() -> None:
    """Else it would be worked on without the pause that large frames leave to the controller's own thread."""
    queued: list[float] = []
    done: list[bytes] = []
    turns = SimpleNamespace(queue=lambda _taker, _share, expected_s: queued.append(expected_s), charged=nullcontext)
    anything: Any = MagicMock(turns=turns, tls=None, limits=EndpointLimits())
    connection = Connection(anything)
    session: Any = SimpleNamespace(
        authenticated=False,
        judging=True,
        wants_more=True,
        held_bytes=0,
        from_client=lambda frame: done.append(frame) or [],
        from_upstream=lambda frame: done.append(frame) or [],
    )
    connection._session = session
    request, response = b"r" * 10, b"a" * 1_000_000
    connection.link_frames(connection.client, [request])
    connection._answers.append(response)
    connection.take_turn()
    assert done == []
    connection.take_turn()
    connection.take_turn()
    assert done == [response, request]
    assert [each >= LARGE_S for each in queued] == [False, True, False]
