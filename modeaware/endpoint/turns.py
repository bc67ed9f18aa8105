"""The order of frames: connections share the endpoint's one thread by the CPU time that their frames take.

This is weighted fair queueing (WFQ) with equal weights. Each connection, or each address, has a *share*: an account in
*virtual time*. Virtual time advances by the used CPU time divided by the number of waiting shares, which is the fair
part of each. When a frame is queued, its share is charged with the expected time of a frame of that length. Of all
waiting frames, the one whose share is charged up to the earliest virtual time is handled first. Then the measured time
replaces the expected one.

So a small frame of a share with little use waits only for the frame in work, and goes before the large frames of any
number of busy shares. A new connection begins at the present virtual time: it has no credit, and its large frames cost
as much as those of others. When no frame waits, all debts are dropped.

Frames with an expected time of :data:`LARGE_S` or more get at most a quarter of the time, all together. The reasons: a
turn cannot be interrupted, and the controller's own thread shares the interpreter with this one.
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
"""After this CPU time of turns in a row, the loop handles the events that have arrived meanwhile."""
LARGE_S = 0.005
LARGE_PAUSE = 3
"""After a large frame, the next one waits for this many times the first frame's duration."""
_MOST_ADDRESSES = 10_000


class Loop(Protocol):
    """The part of an event loop that is used here."""

    def time(self) -> float: ...

    def call_soon(self, callback: Callable[[], None]) -> object: ...

    def call_at(self, when: float, callback: Callable[[], None]) -> object: ...


class TakesTurns(Protocol):
    def take_turn(self) -> None:
        """Handle one frame, in a ``with`` block of :meth:`Turns.charged`."""


@dataclass(slots=True)
class Share:
    """An account: the virtual time up to which it is charged, and the number of its waiting turns."""

    charged_s: float = 0.0
    waiting: int = 0


_Turn = tuple[float, int, TakesTurns, Share, float]  # the first: the virtual time up to which the share is charged


class Turns:
    """The order of all connections' frames. For one thread.

    Args:
        by_address: whether all connections of one address have one share.
        cpu_s: returns the thread's CPU time.
    """

    def __init__(self, loop: Loop, *, by_address: bool = False, cpu_s: Callable[[], float] = time.thread_time) -> None:
        self._loop = loop
        self._by_address = by_address
        self._cpu_s = cpu_s
        self._now_s = 0.0  # virtual time
        self._furthest_s = 0.0  # the latest virtual time up to which a share is charged
        self._shares_waiting = 0
        self._small: list[_Turn] = []
        self._large: list[_Turn] = []
        self._large_from_s = 0.0  # on the loop's clock
        self._numbers = count()
        self._scheduled = False
        self._pausing = False  # whether a timer for the next large frame is set
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
        """Queue a turn of ``taker``, with an expected CPU time of ``expected_s``, in the order of the shares."""
        self._shares_waiting += not share.waiting
        share.waiting += 1
        share.charged_s = max(share.charged_s, self._now_s) + expected_s
        turns = self._large if expected_s >= LARGE_S else self._small
        heappush(turns, (share.charged_s, next(self._numbers), taker, share, expected_s))
        self._schedule()

    @contextmanager
    def charged(self, share: Share) -> Iterator[None]:
        """Charge the CPU time of the ``with`` block to ``share``."""
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
        """Return the queue whose first turn is next, or None if no turn may be taken now."""
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
