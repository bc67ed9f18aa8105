"""Aware writers that sleep through a switch: paused before it, awake again after the shrink's delay. What they had on
the way then lands in partitions that are retired by that time."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.faults import Faults
from tests.chaos.fleet import Child, Fleet
from tests.chaos.setting import WRITERS

EVERY = 3
QUIET_S = 3.0
"""Beyond the delay: longer than a partition has to be quiet until it is sealed."""


class Sleep:
    """One writer's sleep; the operator tells it how far the shrink is. Without a writer it does nothing."""

    def __init__(self, child: Child | None) -> None:
        self._child = child

    def through(self, delay_ms: int) -> None:
        """The switch was seen just now: sleep on for the delay and longer."""
        if self._child is not None:
            time.sleep(delay_ms / 1000 + QUIET_S)  # the writer's sleep, which is what this is about


class Sleepers:
    """Sends one of them to sleep for every third shrink. One thread owns it."""

    def __init__(self, fleet: Fleet, faults: Faults, seed: int) -> None:
        aware = {writer.name for writer in WRITERS if writer.aware}
        self._children = [child for child in fleet.of("writer") if child.name in aware]
        self._faults = faults
        self._chance = random.Random(f"{seed}-sleepers")
        self._shrinks = 0

    @contextmanager
    def asleep(self) -> Iterator[Sleep]:
        """Around a shrink, from before it is asked for: a writer stands still where it is its turn to."""
        turn, self._shrinks = self._shrinks % EVERY == 0, self._shrinks + 1
        if not turn:
            yield Sleep(None)
            return
        child = self._chance.choice(self._children)
        with child.turn:  # neither the nemesis nor the fleet's watch touches it meanwhile
            pid = child.pid
            if pid is None:
                yield Sleep(None)
                return
            with self._faults.fault("writer-pause", child.name, None, least_s=QUIET_S) as doing:
                try:
                    child.pause()
                    doing.stands(pid)
                    yield Sleep(child)
                finally:
                    doing.is_over()
                    child.resume()
