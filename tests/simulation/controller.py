"""A controller process: the real engine, and a thin daemon around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from modeaware.config import ControllerConfig
from modeaware.controller.engine import Engine
from modeaware.controller.failures import Failures
from modeaware.controller.replaced import TopicWatch
from modeaware.errors import ClusterError, ControllerFenced, ErrorCode, ModeSourceError, NewerRecord
from modeaware.lifecycle.commands import Command, CommandResult
from tests.simulation.effects import SimEffects
from tests.simulation.modelog import LogSession
from tests.simulation.observer import Looked, SimObserver, ids_of_each_broker, ids_of_one_broker

if TYPE_CHECKING:
    from tests.simulation.world import World


class Crash(Exception):
    """The controller's process dies here."""


class Nothing(Failures):
    """Everything that may happen here is foreseen: what is not, a violation say, ends the schedule."""

    @contextmanager
    def isolated(self, what: str, code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR) -> Iterator[None]:
        yield


class Controller:
    """One controller; its methods are steps of its thread.

    Attributes:
        busy: it is within a step (paused there, when anybody else moves).
        claimed: its engine holds the claim, as far as it knows.
        own_steps: its requests since its last successful append.
        looked: what it saw when it last looked at the topic.
        not_for_it: the keys of the mode log whose record was for newer readers when it read the log.
        without_rules: the rules about groups could not be read then, and have not been written since.
    """

    def __init__(self, world: World, index: int, config: ControllerConfig) -> None:
        self.world = world
        self.index = index
        self._config = config
        self.alive = False
        self.busy = False
        self.start()

    def start(self) -> None:
        """A new process."""
        world = self.world
        self.alive, self.claimed = True, False
        self.own_steps = 0
        self.looked = Looked()
        self.not_for_it: frozenset[str] = frozenset()
        self.without_rules = False
        self.member = world.coordinator.join(world.time_ms)
        log = LogSession(world, world.log, self)
        self.engine = Engine(log, SimObserver(world, self), SimEffects(world, self), self._config, world)
        self.engine.failures = Nothing()
        one, each = partial(ids_of_one_broker, world), partial(ids_of_each_broker, world)
        self.watch = TopicWatch(self.engine, one, each, world)
        self.epoch = -1

    def step(self) -> None:
        """One turn of the daemon's loop: the election, the claim, one topic that is due."""
        if self.busy:
            return
        if not self.alive:
            self.world.tell("controller %d starts", self.index)
            self.start()
            return
        if not self._elected():
            return
        if not self.claimed:
            self._run(self._claim)
            return
        if self.world.ids_are_watched:
            self._run(self.watch.step)
            if not self.claimed:
                return
        due = self.engine.schedule.due(self.world.time_ms)
        if due:
            self._run(lambda: self.engine.check(due[0]))

    def execute(self, command: Command) -> CommandResult | None:
        """A command from an admin; None: no answer, or not the active controller."""
        if self.busy or not self.alive or not self.claimed or not self._elected():
            return None
        results: list[CommandResult] = []
        self._run(lambda: results.append(self.engine.execute(command)))
        return results[0] if results else None

    def _elected(self) -> bool:
        world = self.world
        if self.member.gone:
            self.member = world.coordinator.join(world.time_ms)
            self.claimed = False
        if not world.coordinator.poll(self.member, world.time_ms):
            if not world.coordinator.preparing:
                self.claimed = False
            return False
        return True

    def _claim(self) -> None:
        self.epoch = self.engine.claim(f"controller-{self.index}")
        self.claimed = True
        self.world.tell("controller %d has claimed the mode log: epoch %d", self.index, self.epoch)

    def _run(self, job: Callable[[], object]) -> None:
        self.busy = True
        try:
            job()
        except Crash:
            self.alive, self.claimed = False, False
            self.member.frozen = True
        except ControllerFenced:
            self.claimed = False
            self.world.coordinator.leave(self.member)
        except (ClusterError, ModeSourceError, NewerRecord):
            self.claimed = False
        finally:
            self.busy = False
        self.world.judge.memory(self)
