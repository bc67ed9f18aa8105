"""The controller's thread, with an election and an engine that do as the test says."""

from __future__ import annotations

from typing import Any

import pytest

from modeaware.controller import leader as leader_module
from modeaware.controller import parts as parts_module
from modeaware.controller import worker as worker_module
from modeaware.controller.election import Seat
from modeaware.controller.status import Role
from modeaware.controller.worker import run_worker
from modeaware.errors import (
    ClusterError,
    ControllerFenced,
    ControllerUnavailable,
    ErrorCode,
    ModeAwareError,
    ModeSourceError,
    NewerRecord,
)
from tests.support.worker_world import COMMAND, Engine, World, loses, make, nothing, passes, run, sits


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(worker_module, "RETRY_DELAY_S", 0)
    monkeypatch.setattr(parts_module, "POLL_S", 0.001)
    return World()


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
    world.failures.append(failure)
    future = world.inbox.put([COMMAND])
    did = run(world, sits(world, Seat.LEADER), nothing, nothing, nothing)
    assert did == ["join after 70", "confirm", "claim", "confirm", "claim", "release", "leave"]
    error = future.exception(0)
    assert isinstance(error, ClusterError)
    assert error.code is ErrorCode.REQUEST_TIMED_OUT
    assert error.message.startswith(f"{failure}; it may have been carried out")


def test_a_log_that_could_be_safer_is_warned_of_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.log.weaknesses = ["one replica", "one replica", None, "one replica"]
    terms = [sits(world, Seat.LEADER, term) for term in range(1, 5)]
    did = run(world, *(event for term in terms for event in (term, nothing, nothing)))
    assert did.count("claim") == 4
    assert world.log.weaknesses == []
    warnings = [record for record in caplog.records if "not as safe as it could be: one replica" in record.message]
    assert [record.levelname for record in warnings] == ["WARNING"] * 2, "again where it was mended in between"


def test_a_lost_place_is_left_and_joined_anew_behind_the_active_one(world: World) -> None:
    did = run(world, sits(world, Seat.LEADER), loses(world), nothing, sits(world, Seat.STANDBY))
    assert did == ["join after 70", "confirm", "claim", "leave", "join after 70", "leave"]


def test_commands_wait_for_an_election(world: World) -> None:
    future = world.inbox.put([COMMAND])
    run(world, nothing, nothing, sits(world, Seat.LEADER), nothing)
    assert future.result(0)


def test_what_does_not_get_better_ends_it(world: World) -> None:
    world.claim_errors.append(NewerRecord("upgrade"))
    future = world.inbox.put([COMMAND])
    run(world, sits(world, Seat.LEADER))
    assert isinstance(world.status.failure, NewerRecord)
    with pytest.raises(NewerRecord):
        world.status.wait(Role.ACTIVE)
    assert isinstance(future.exception(0), ControllerUnavailable)


# Stopping


@pytest.mark.parametrize("failure", [ControllerFenced("fenced"), ClusterError("timed out")], ids=["fenced", "in doubt"])
def test_a_stop_while_the_log_is_closed_leaves_the_claim(
    world: World, failure: ModeAwareError, caplog: pytest.LogCaptureFixture
) -> None:
    world.failures.append(failure)
    world.inbox.put([COMMAND])
    did = run(world, sits(world, Seat.LEADER), world.status.stopping.set)
    assert did == ["join after 70", "confirm", "claim", "leave"]
    assert (world.status.role, world.status.failure) == (Role.STOPPED, None)
    assert "the claim stays on the log" in caplog.text


class Connections:
    """A Cluster that can be closed."""

    def __init__(self, did: list[str]) -> None:
        self._did = did

    def close(self) -> None:
        self._did.append("close")


@pytest.mark.parametrize("refusal", [None, ClusterError("not allowed")], ids=["stopped", "failed"])
def test_who_leaves_closes_its_connections(
    world: World, caplog: pytest.LogCaptureFixture, refusal: ModeAwareError | None
) -> None:
    """Clients that are left open go on, and log errors while the interpreter ends."""
    world.claim_errors.extend([] if refusal is None else [refusal])
    clusters: Any = (Connections(world.did), Connections(world.did))
    did = run(world, sits(world, Seat.LEADER), nothing, clusters=clusters)
    assert did[-3:] == ["leave", "close", "close"]
    assert world.status.failure is refusal
    assert [record for record in caplog.records if record.levelname == "ERROR"] == [] or refusal is not None


# Passing trouble


NO_ANSWER = ErrorCode.REQUEST_TIMED_OUT


def test_a_start_is_tried_again_where_nobody_answers(world: World) -> None:
    world.look_errors.extend([ModeSourceError("not reached", code=NO_ANSWER)] * 3)
    world.ensure_errors.extend([ClusterError("no answer", code=NO_ANSWER)] * 2)
    world.claim_errors.extend([ClusterError("cannot be opened", code=NO_ANSWER)])
    world.confirmations.append(None)
    did = run(world, sits(world, Seat.LEADER), *[nothing] * 6)
    assert did[:2] == ["ensure"] * 2
    assert did[2:] == ["join after 70", "confirm", "confirm", "confirm", "claim", "release", "leave"]
    assert world.status.failure is None
    assert world.status.trouble == "cannot be opened"


def test_a_stop_ends_a_start_that_is_tried_again(world: World) -> None:
    def fails(timeout_s: float) -> None:
        world.status.stopping.set()
        raise ModeSourceError("not reached", code=NO_ANSWER)

    world.look = fails  # type: ignore[method-assign]  # one that is told to stop meanwhile
    run_worker(make(world), world.status, world.inbox)
    assert (world.did, world.status.role, world.status.failure) == (["leave"], Role.STOPPED, None)


# Settings that worked before: a file that one names is out of reach for a moment


# A place that leads to nothing


def test_a_leader_that_cannot_claim_goes_to_the_end_of_the_queue(world: World) -> None:
    world.status.become(Role.STANDBY)
    world.claim_errors.extend([ClusterError("not allowed to write")] * 2)
    late = passes(world, leader_module.STUCK_S + 1)
    did = run(world, sits(world, Seat.LEADER), nothing, late, sits(world, Seat.STANDBY))
    assert did == ["join after 70", "confirm", "confirm", "leave", "join after 70", "leave"]


# The log


def test_the_mode_log_is_made_only_where_there_is_none(world: World) -> None:
    late = passes(world, 11)
    run(world, sits(world, Seat.STANDBY), *[late] * 4)
    assert world.did.count("ensure") == 1
    missing = World()
    missing.absent = True
    run(missing, sits(missing, Seat.STANDBY), *[passes(missing, 11)] * 4)
    assert missing.did.count("ensure") > 1


# Once


def test_a_single_run_asks_before_it_claims(world: World) -> None:
    world.confirmations.append(False)
    world.story.extend([sits(world, Seat.LEADER), nothing])
    with pytest.raises(ControllerFenced):
        make(world).run_once(10)
    assert world.did == ["ensure", "join after 70", "confirm", "leave"]


def test_a_stop_during_a_rebalance_says_that_the_claim_stays(world: World, caplog: pytest.LogCaptureFixture) -> None:
    did = run(world, sits(world, Seat.LEADER), sits(world, Seat.WAITING))
    assert did == ["join after 70", "confirm", "claim", "leave"]
    assert "the claim stays on the log, the next controller replaces it: an election is under way" in caplog.text


def test_a_rebalance_that_never_ends_is_left(world: World) -> None:
    late = passes(world, leader_module.STUCK_S + 1)
    did = run(world, sits(world, Seat.LEADER), sits(world, Seat.WAITING), late, nothing, sits(world, Seat.STANDBY))
    assert did == ["join after 70", "confirm", "claim", "leave", "join after 70", "leave"]


@pytest.mark.parametrize("failure", [ControllerFenced("fenced"), ClusterError("timed out")])
def test_a_claim_that_cannot_be_released_stays(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failure: ModeAwareError
) -> None:
    def release(engine: Engine) -> None:
        raise failure

    monkeypatch.setattr(Engine, "release", release)
    did = run(world, sits(world, Seat.LEADER), nothing)
    assert did == ["join after 70", "confirm", "claim", "leave"]
    assert (world.status.role, world.status.failure) == (Role.STOPPED, None)
    assert f"the claim stays on the log, the next controller replaces it: {failure}" in caplog.text
