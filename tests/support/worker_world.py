"""Everything a controller's thread works with, made up: an election and an engine that do as the test says."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

from modeaware.cluster.cluster import Cluster
from modeaware.config import ControllerConfig
from modeaware.controller import worker as worker_module
from modeaware.controller.election import Seat
from modeaware.controller.inbox import Inbox
from modeaware.controller.log import NOWHERE
from modeaware.controller.schedule import Schedule, elapsed_ms
from modeaware.controller.status import Status
from modeaware.controller.worker import Worker, run_worker
from modeaware.errors import ClusterError, ModeAwareError
from modeaware.lifecycle.commands import Command, CommandResult, DeletePartitionsCommand
from modeaware.modelog.records import ClaimRecord
from tests.support.simulated import SimClock

COMMAND = DeletePartitionsCommand("orders", 1)
OTHER = ClaimRecord(7, "127.0.0.1:7", "the-other", claimed_ms=70)


class World:
    """Everything a worker works with. ``story`` has one step for each poll of the election; the last one stops it."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.seat, self.term, self.lost, self.since_ms = Seat.WAITING, 0, False, 70
        self.generation: int | None = None
        self.refusal: ClusterError | None = None
        self.trouble: str | None = None
        self.confirmations: deque[bool | None] = deque()
        self.story: deque[Callable[[], object]] = deque()
        self.did: list[str] = []
        self.claim: Any = OTHER
        self.absent = False
        self.read_errors: deque[ModeAwareError] = deque()
        self.ensure_errors: deque[ModeAwareError] = deque()
        self.claim_errors: deque[ModeAwareError] = deque()
        self.failures: deque[ModeAwareError] = deque()
        self.log_stays_open = False
        self.appends_nothing = False
        self.highest_epoch = 0
        self.due: deque[str] = deque()
        self.at_rest = False
        self.stood_by = 0
        self.log = Log(self)
        self.status, self.inbox = Status(), Inbox(self.clock)

    # An Election

    @property
    def leader(self) -> bool:
        return self.seat is Seat.LEADER

    def join(self, after_ms: int) -> None:
        self.did.append(f"join after {after_ms}")
        self.lost, self.seat = False, Seat.WAITING

    def poll(self, timeout_s: float = 0.0) -> None:
        if self.story:
            self.story.popleft()()
        else:
            self.status.stopping.set()

    def confirm(self, timeout_s: float) -> bool | None:
        self.did.append("confirm")
        return self.confirmations.popleft() if self.confirmations else True

    def close(self) -> None:
        self.did.append("leave")

    # A ClaimWatch

    def read(self, timeout_s: float) -> Any:
        if self.read_errors:
            raise self.read_errors.popleft()
        return self.claim


class Engine:
    """An Engine that notes what it is told."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.schedule = Schedule(1_000)
        for topic_id in world.due:
            self.schedule.now(topic_id, elapsed_ms(world.clock))
        self.records: tuple[Any, ...] = ()

    def stand_by(self) -> None:
        self._world.stood_by += 1

    def claim(self, *_: object, **__: object) -> int:
        if self._world.claim_errors:
            raise self._world.claim_errors.popleft()
        self._world.did.append("claim")
        self._world.log.is_open = True
        return 8

    def renew(self, generation: int) -> None:
        pass

    def release(self) -> None:
        self._world.log.append()
        self._world.did.append("release")

    def execute(self, commands: Sequence[Command]) -> list[CommandResult]:
        if not self._world.appends_nothing:
            self._world.log.append()
        self._world.did.append("execute")
        return [CommandResult(command.topic) for command in commands]

    def awake(self, due: Sequence[str]) -> Sequence[str]:
        return [] if self._world.at_rest else due

    def check(self, topic_ids: Sequence[str]) -> bool:
        self._world.did.append("check")
        self._world.log.append()
        for topic_id in topic_ids:
            self.schedule.forget(topic_id)
        return True


class Log:
    """A ControllerLog: open after a claim, closed by an append that fails."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.timeout_s: float | None = None
        self.is_open = False
        self.appends = 0
        self.weaknesses: list[str | ClusterError | None] = []

    def weakness(self) -> str | None:
        found = self.weaknesses.pop(0) if self.weaknesses else None
        if isinstance(found, ClusterError):
            raise found
        return found

    def ensure(self) -> None:
        self._world.did.append("ensure")
        if self._world.ensure_errors:
            raise self._world.ensure_errors.popleft()

    def append(self) -> None:
        if not self.is_open:
            raise AssertionError("appended to a closed log")
        if self._world.failures:
            self.is_open = self._world.log_stays_open
            raise self._world.failures.popleft()
        self.appends += 1

    def close(self) -> None:
        self.is_open = False


def run(world: World, *story: Callable[[], object], clusters: tuple[Cluster, ...] = ()) -> list[str]:
    """What it did, but for the mode log that it made sure of at the start."""
    world.story.extend(story)
    anything: Any = world
    log: Any = world.log
    engine: Any = Engine(world)
    inbox, status, config, clock = world.inbox, world.status, ControllerConfig(), world.clock
    worker = Worker(engine, log, anything, anything, inbox, status, config, NOWHERE, "me", clock, clusters=clusters)
    with patch.object(worker_module, "SERVE_POLL_S", 0.01), patch.object(worker_module, "POLL_S", 0.01):
        run_worker(worker, status, inbox)
    assert world.did[0] == "ensure" or status.failure is not None
    return world.did[1:]


def passes(world: World, seconds: float) -> Callable[[], None]:
    return lambda: world.clock.advance(round(seconds * 1000))


def sits(world: World, seat: Seat, term: int = 1) -> Callable[[], None]:
    def event() -> None:
        world.seat, world.term = seat, term

    return event


def nothing() -> None:
    """Nothing happens at this poll."""


def loses(world: World) -> Callable[[], None]:
    def event() -> None:
        world.seat, world.lost = Seat.WAITING, True

    return event
