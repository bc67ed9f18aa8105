"""Whose frame is next: connections share the endpoint's one thread by the time that their frames take.

This is weighted fair queueing (WFQ) with equal weights. Each share, of a connection or of an address, has an account in
*virtual time*, which advances by the CPU time used divided by the number of shares that wait: the time that each of
them would have had by now. A frame is charged before it is read, with what one of its length is expected to take, and
goes in the order of what its share has then been charged; what it really took takes the place of the estimate
afterwards.

So the small frame of a connection that has had little goes before the large ones of all connections that have had much,
however many they are, and waits for no more than the frame in work. A connection that is opened anew begins at the
present, with no claim on the past, and its large frames are as expensive as any. Where nothing waits, there is nothing
to share, and debts are forgotten.

Frames that are expected to take :data:`LARGE_S` have a quarter of the time at most, all together, because a turn cannot
be interrupted, and the controller's own thread shares the interpreter with this one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

SLICE_S = 0.005
"""CPU time for which turns are taken before the loop looks for what has arrived meanwhile."""
LARGE_S = 0.005
LARGE_PAUSE = 3
"""For how many times as long as the turn of a large frame took no other large one is begun."""
_MOST_ADDRESSES = 10_000


class Loop(Protocol):
    """What is used of an event loop."""

    def time(self) -> float: ...

    def call_soon(self, callback: Callable[[], None]) -> object: ...

    def call_at(self, when: float, callback: Callable[[], None]) -> object: ...


class TakesTurns(Protocol):
    def take_turn(self) -> None:
        """Work on one frame, within :meth:`Turns.charged`."""


@dataclass(slots=True)
class Share:
    """An account: up to which virtual time it has been charged, and how many turns of it wait."""

    charged_s: float = 0.0
    waiting: int = 0


_Turn = tuple[float, int, TakesTurns, Share, float]  # in order of the virtual time up to which its share is charged


class Turns:
    """The order of all connections' frames. For one thread.

    Args:
        by_address: connections of one address have one share.
        cpu_s: the thread's CPU time.
    """

    def __init__(self, loop: Loop, *, by_address: bool = False, cpu_s: Callable[[], float] = time.thread_time) -> None:
        self._loop = loop
        self._by_address = by_address
        self._cpu_s = cpu_s
        self._now_s = 0.0  # virtual time
        self._furthest_s = 0.0  # that any share has been charged for
        self._shares_waiting = 0
        self._small: list[_Turn] = []
        self._large: list[_Turn] = []
        self._large_from_s = 0.0  # of the loop's time
        self._numbers = count()
        self._scheduled = False
        self._pausing = False  # until large frames may be worked on again
        self._of_addresses: dict[str, Share] = {}

    def share_of(self, address: str) -> Share:
        """Return the share of a new connection from ``address``."""
        if not self._by_address:
            return Share()
        if len(self._of_addresses) >= _MOST_ADDRESSES:
            kept = {a: s for a, s in self._of_addresses.items() if s.waiting or s.charged_s > self._now_s}
            self._of_addresses = kept
        return self._of_addresses.setdefault(address, Share())

    def queue(self, taker: TakesTurns, share: Share, expected_s: float) -> None:
        """Have ``taker`` take a turn, which is expected to use ``expected_s`` of CPU time, when it is its share's."""
        self._shares_waiting += not share.waiting
        share.waiting += 1
        share.charged_s = max(share.charged_s, self._now_s) + expected_s
        turns = self._large if expected_s >= LARGE_S else self._small
        heappush(turns, (share.charged_s, next(self._numbers), taker, share, expected_s))
        self._schedule()

    @contextmanager
    def charged(self, share: Share) -> Iterator[None]:
        """Charge the CPU time of what is done here to ``share``."""
        before_s = self._cpu_s()
        try:
            yield
        finally:
            used_s = self._cpu_s() - before_s
            share.charged_s += used_s
            self._furthest_s = max(self._furthest_s, share.charged_s)
            self._now_s += used_s / max(self._shares_waiting, 1)

    def _schedule(self) -> None:
        if self._next() is not None:
            if not self._scheduled:
                self._scheduled = True
                self._loop.call_soon(self._run)
        elif self._large and not self._pausing:
            self._pausing = True
            self._loop.call_at(self._large_from_s, self._resume)

    def _resume(self) -> None:
        self._pausing = False
        self._schedule()

    def _next(self) -> list[_Turn] | None:
        """The queue whose first turn is next; None: none may be taken now."""
        if not self._large or self._loop.time() < self._large_from_s:
            return self._small or None
        return min((turns for turns in (self._small, self._large) if turns), key=lambda turns: turns[0][:2])

    def _run(self) -> None:
        self._scheduled = False
        end_s = self._cpu_s() + SLICE_S
        try:
            while self._cpu_s() < end_s and (turns := self._next()) is not None:
                self._take(turns)
        finally:
            if self._shares_waiting:
                self._schedule()
            else:
                self._now_s = max(self._now_s, self._furthest_s)

    def _take(self, turns: list[_Turn]) -> None:
        _, _, taker, share, expected_s = heappop(turns)
        begun_s = self._loop.time()
        share.charged_s -= expected_s
        try:
            taker.take_turn()
        finally:
            share.waiting -= 1
            self._shares_waiting -= not share.waiting
            if turns is self._large:
                now_s = self._loop.time()
                self._large_from_s = now_s + LARGE_PAUSE * (now_s - begun_s)
