"""What a controller's thread answers to commands, and what it makes sure of before it does."""

from __future__ import annotations

import pytest

from modeaware.controller import parts as parts_module
from modeaware.controller import worker as worker_module
from modeaware.controller.election import Seat
from modeaware.errors import ClusterError, ControllerUnavailable, ErrorCode
from tests.support.worker_world import COMMAND, World, loses, nothing, run, sits


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(worker_module, "RETRY_DELAY_S", 0)
    monkeypatch.setattr(parts_module, "POLL_S", 0.001)
    return World()


def test_an_answer_from_memory_is_confirmed_first(world: World) -> None:
    world.appends_nothing = True
    future = world.inbox.put([COMMAND])
    did = run(world, sits(world, Seat.LEADER), *[nothing] * 3)
    assert did == ["join after 70", "confirm", "claim", "execute", "confirm", "release", "leave"]
    assert future.result(0)


def test_a_stale_answer_is_not_given(world: World) -> None:
    world.appends_nothing = True
    world.confirmations.extend([True])
    future = world.inbox.put([COMMAND])
    run(world, sits(world, Seat.LEADER), nothing, loses(world), nothing, sits(world, Seat.STANDBY))
    error = future.exception(0)
    assert isinstance(error, ControllerUnavailable)
    assert error.code is ErrorCode.NOT_CONTROLLER


def test_a_record_that_is_too_large_is_answered_and_not_claimed_for(world: World) -> None:
    failure = ClusterError("too large", code=ErrorCode.MESSAGE_TOO_LARGE)
    world.failures.extend([failure] * 2)
    world.log_stays_open = True
    world.due.append("an-id")
    first, second = world.inbox.put([COMMAND]), world.inbox.put([COMMAND])
    did = run(world, sits(world, Seat.LEADER), *[nothing] * 6)
    assert first.exception(0) is failure
    assert second.exception(0) is failure or second.result(0)
    assert did.count("claim") == 1
    assert "check" in did


def test_a_rebalance_delays_the_answer(world: World) -> None:
    world.appends_nothing = True
    world.confirmations.extend([True, None, True])
    future = world.inbox.put([COMMAND])
    run(world, sits(world, Seat.LEADER), *[nothing] * 5)
    assert future.result(0)
