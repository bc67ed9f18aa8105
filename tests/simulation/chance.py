"""Time, dice and the story of a world, and what may happen to a controller at each of its requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.simulation.broker import Coordinator
from tests.simulation.controller import Controller, Crash
from tests.simulation.faults import Fault

MOST_NESTED = 2
"""How deep pauses nest: a controller paused while another one is, and a third time for good measure."""


class Chance:
    """What every world has; also the clock of the controllers (modeaware.clock.Clock).

    Attributes:
        act: the next event of the schedule.
        steps: actions of clients and people, and requests of controllers, so far.
        odds: by fault, how likely it is to strike where it can.
    """

    random: Callable[[], float]
    coordinator: Coordinator
    controllers: Sequence[Controller]

    def __init__(self, story: list[str] | None) -> None:
        self.story = story
        self.act: Callable[[], None] = lambda: None
        self.steps = 0
        self.calm = False
        self.time_ms = 1_000_000
        self.odds = [0.0] * len(Fault)
        self.pause_odds = 0.0
        self._nested = 0

    def hit(self, what: Fault | str, phase: int | None = None) -> None:
        """Count a fault that strikes now."""
        raise NotImplementedError

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_s(self) -> float:
        return self.time_ms / 1000

    def tell(self, text: str, *args: Any) -> None:
        """One line of the story; an argument that is callable is called for its text."""
        if self.story is not None:
            shown = tuple(arg() if callable(arg) else arg for arg in args)
            self.story.append(f"{self.steps:5d} {self.time_ms / 1000:9.1f} s {'  ' * self._nested}{text % shown}")

    def strikes(self, fault: Fault, phase: int | None = None) -> bool:
        if self.happens(fault):
            self.hit(fault, phase)
            return True
        return False

    def happens(self, fault: Fault) -> bool:
        """Throw the dice for a fault that is counted later, when it takes effect."""
        odds = self.odds[fault]
        return odds > 0 and not self.calm and self.random() < odds

    def below(self, limit: int) -> int:
        return int(self.random() * limit)

    def io(self, controller: Controller, what: str, *, own: bool = True) -> None:
        """A controller is about to ask something of the cluster: here it may die, or others may move first."""
        self.steps += 1
        if own:
            controller.own_steps += 1
        self.tell("controller %d %s", controller.index, what)
        if self.calm:
            return
        if self.pause_odds and self._nested < MOST_NESTED and self.random() < self.pause_odds:
            self._pause(controller)
        if self.strikes(Fault.CRASH):
            self.tell("controller %d dies", controller.index)
            raise Crash

    def _pause(self, controller: Controller) -> None:
        self.hit(Fault.PAUSE)
        controller.member.frozen = stopped = self.random() < 0.5
        if stopped:
            controller.member.polled_ms = self.time_ms
        self.tell("controller %d is %s here", controller.index, "stopped" if stopped else "held up")
        self._nested += 1
        for _ in range(1 + self.below(12)):
            self.act()
        if stopped and self.random() < 0.5:
            self.time_ms += 11_000
            self.coordinator.expire(self.time_ms)
            for _ in range(3 + self.below(12)):
                self.controllers[1 - controller.index].step()
                self.act()
        self._nested -= 1
        if stopped:
            self.coordinator.expire(self.time_ms)
            if controller.member.gone:
                self.hit(Fault.SESSION_LOST)
            controller.member.frozen = False
        self.tell("controller %d goes on", controller.index)
