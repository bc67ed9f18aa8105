"""The controller's thread, with an election and an engine that do as the test says."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from modeaware.config import ControllerConfig
from modeaware.controller import worker as worker_module
from modeaware.controller.election import Seat
from modeaware.controller.inbox import Inbox
from modeaware.controller.schedule import Schedule
from modeaware.controller.status import Role, Status
from modeaware.controller.worker import Parts, Worker, run_worker
from modeaware.errors import ClusterError, ControllerFenced, ControllerUnavailable, ModeAwareError, NewerRecord
from modeaware.lifecycle.commands import Command, CommandResult, DeletePartitionsCommand
from modeaware.modelog.records import ClaimRecord
from tests.support.simulated import SimClock

COMMAND = DeletePartitionsCommand("orders", 1)
OTHER = ClaimRecord(7, "127.0.0.1:7", "the-other", claimed_ms=70)


class World:
    """Everything a worker works with. ``story`` has one step for each poll of the election; the last one stops it."""

    def __init__(self) -> None:
        self.seat, self.term, self.lost = Seat.WAITING, 0, False
        self.refusal: ClusterError | None = None
        self.confirmations: deque[bool | None] = deque()
        self.story: deque[Callable[[], object]] = deque()
        self.did: list[str] = []
        self.claim: Any = OTHER
        self.claim_error: ModeAwareError | None = None
        self.failure: ModeAwareError | None = None
        self.timeout_s: float | None = None
        self.schedule = Schedule(1_000)
        self.records: tuple[object, ...] = ()
        self.status, self.inbox = Status(), Inbox()

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

    # A ControllerLog and a ClaimWatch

    def ensure(self) -> None: ...

    def look(self, timeout_s: float) -> Any:
        return self.claim


class Engine:
    """An Engine that notes what it is told."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.schedule = world.schedule
        self.records: tuple[Any, ...] = ()

    def claim(self, address: str | None, controller_id: str, host: str = "") -> int:
        error, self._world.claim_error = self._world.claim_error, None
        if error is not None:
            raise error
        self._world.did.append("claim")
        return 8

    def release(self) -> None:
        self._world.did.append("release")

    def execute(self, command: Command) -> CommandResult:
        failure, self._world.failure = self._world.failure, None
        if failure is not None:
            raise failure
        self._world.did.append("execute")
        return CommandResult(command.topic)


class Log:
    """A ControllerLog."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.timeout_s: float | None = None

    def ensure(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(worker_module, "RECLAIM_DELAY_S", 0)
    monkeypatch.setattr(worker_module, "POLL_S", 0.001)
    return World()


def run(world: World, *story: Callable[[], object]) -> list[str]:
    world.story.extend(story)
    anything: Any = world
    log: Any = Log(world)
    engine: Any = Engine(world)
    parts = Parts(engine, log, anything, anything, world.inbox, world.status)
    run_worker(Worker(parts, ControllerConfig(), None, "me", SimClock()), world.status, world.inbox)
    return world.did


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


def test_elected_it_claims_serves_and_hands_over(world: World) -> None:
    future = world.inbox.put([COMMAND])
    did = run(world, sits(world, Seat.LEADER), nothing)
    assert did == ["join after 70", "confirm", "claim", "execute", "release", "leave"]
    assert future.result(0)[0].topic == "orders"
    assert (world.status.role, world.status.failure) == (Role.STOPPED, None)


def test_what_the_brokers_do_not_confirm_is_never_claimed(world: World) -> None:
    """Claiming would fence the rightful one."""
    world.confirmations.extend([False, None])
    world.status.become(Role.STANDBY)
    did = run(world, sits(world, Seat.LEADER), nothing)
    assert did == ["join after 70", "confirm", "confirm", "leave"]


@pytest.mark.parametrize("failure", [ControllerFenced("fenced"), ClusterError("timed out")], ids=["fenced", "in doubt"])
def test_after_a_failed_append_it_asks_before_it_claims_again(world: World, failure: ModeAwareError) -> None:
    world.failure = failure
    future = world.inbox.put([COMMAND])
    did = run(world, sits(world, Seat.LEADER), nothing, nothing, nothing)
    assert did == ["join after 70", "confirm", "claim", "confirm", "claim", "release", "leave"]
    assert future.exception(0) is failure


def test_a_rebalance_in_between_interrupts_nothing(world: World) -> None:
    did = run(world, sits(world, Seat.LEADER), sits(world, Seat.WAITING), nothing, sits(world, Seat.LEADER), nothing)
    assert did.count("claim") == 1


def test_a_new_term_is_a_new_claim(world: World) -> None:
    did = run(world, sits(world, Seat.LEADER), sits(world, Seat.WAITING), sits(world, Seat.LEADER, 2), nothing, nothing)
    assert did.count("claim") == 2


def test_a_lost_place_is_left_and_joined_anew_behind_the_active_one(world: World) -> None:
    did = run(world, sits(world, Seat.LEADER), loses(world), nothing, sits(world, Seat.STANDBY))
    assert did == ["join after 70", "confirm", "claim", "leave", "join after 70", "leave"]


def test_a_standby_names_the_active_one_and_does_nothing(world: World) -> None:
    future = world.inbox.put([COMMAND])
    did = run(world, sits(world, Seat.STANDBY), nothing)
    error = future.exception(0)
    assert isinstance(error, ControllerUnavailable)
    assert "the-other is active (epoch 7) and takes commands at 127.0.0.1:7" in str(error)
    assert did == ["join after 70", "leave"]


def test_commands_wait_for_an_election(world: World) -> None:
    future = world.inbox.put([COMMAND])
    run(world, nothing, nothing, sits(world, Seat.LEADER), nothing)
    assert future.result(0)


def test_what_does_not_get_better_ends_it(world: World) -> None:
    world.claim_error = NewerRecord("upgrade")
    future = world.inbox.put([COMMAND])
    run(world, sits(world, Seat.LEADER))
    assert isinstance(world.status.failure, NewerRecord)
    with pytest.raises(NewerRecord):
        world.status.wait(Role.ACTIVE)
    assert isinstance(future.exception(0), ControllerUnavailable)


def test_a_start_that_the_brokers_refuse_is_told(world: World) -> None:
    world.refusal = ClusterError("no right to use the group")
    run(world, nothing)
    assert world.status.failure is world.refusal
