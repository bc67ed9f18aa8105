"""The controller's thread, with an election and an engine that do as the test says."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any

import pytest

from modeaware.controller import worker as worker_module
from modeaware.controller.election import Seat
from modeaware.controller.inbox import NOT_BEGUN
from modeaware.controller.status import Role
from modeaware.errors import (
    ClusterError,
    ConfigError,
    ControllerFenced,
    ControllerUnavailable,
    ErrorCode,
    ModeAwareError,
    ModeSourceError,
    NewerRecord,
)
from modeaware.wire.retries import Outcome, outcome_of
from tests.support.worker_world import COMMAND, OTHER, Engine, World, loses, nothing, passes, run, sits


def test_elected_it_claims_serves_and_hands_over(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.log.weaknesses = ["one replica"]
    future = world.inbox.put([COMMAND])
    did = run(world, sits(world, Seat.LEADER), nothing)
    assert did == ["join after 70", "confirm", "claim", "execute", "release", "leave"]
    assert future.result(0)[0].topic == "orders"
    assert "weakly replicated: one replica" in caplog.text
    assert (world.status.role, world.status.failure) == (Role.STOPPED, None)


def test_a_log_that_somebody_makes_unfit_is_told_until_it_is_mended(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """And served on: a claim would read what is left of it."""
    world.log.weaknesses = [None, *[ClusterError("the log has cleanup.policy=delete: set it to compact")] * 2]

    def later() -> None:
        world.clock.advance(int(worker_module.LOG_CHECK_INTERVAL_S) * 1000)

    did = run(world, sits(world, Seat.LEADER), nothing, *[later] * 4, nothing)
    assert did == ["join after 70", "confirm", "claim", "release", "leave"]
    assert world.status.log_failures == 2
    assert [record.levelname for record in caplog.records if "set it to compact" in record.message] == ["ERROR"] * 2


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
    assert error.message.startswith(f"{failure}; the command may have been carried out")


@pytest.mark.parametrize("failure", [ControllerFenced, ClusterError])
def test_a_command_of_which_nothing_was_appended_is_answered_so(
    world: World, failure: type[ControllerFenced | ClusterError]
) -> None:
    error = failure("nothing was appended", code=NOT_BEGUN)
    world.failures.append(error)
    future = world.inbox.put([COMMAND])
    did = run(world, sits(world, Seat.LEADER), nothing, nothing, nothing)
    assert did == ["join after 70", "confirm", "claim", "confirm", "claim", "release", "leave"]
    answer = future.exception(0)
    assert isinstance(answer, ClusterError)
    assert (answer.code, answer.message) == (NOT_BEGUN, error.message)
    assert outcome_of(answer) is Outcome.NOT_DONE


def test_what_fails_after_an_append_of_the_same_commands_is_in_doubt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def execute(*_: object) -> None:
        world.log.appends += 1
        raise ClusterError("nothing was appended", code=NOT_BEGUN)

    monkeypatch.setattr(Engine, "execute", execute)
    future = world.inbox.put([COMMAND])
    run(world, sits(world, Seat.LEADER), nothing, nothing, nothing)
    error = future.exception(0)
    assert isinstance(error, ClusterError)
    assert error.code is ErrorCode.REQUEST_TIMED_OUT


def test_a_start_goes_on_where_the_log_cannot_be_described(world: World) -> None:
    world.claim_errors.append(ClusterError("no answer; nothing was appended", code=NOT_BEGUN))
    did = run(world, sits(world, Seat.LEADER), *[nothing] * 3)
    assert did == ["join after 70", "confirm", "confirm", "claim", "release", "leave"]


@pytest.mark.parametrize("how", ["lost", "a rebalance that never ends"])
def test_a_lost_place_is_left_and_joined_anew_behind_the_active_one(world: World, how: str) -> None:
    ends = [sits(world, Seat.WAITING), passes(world, worker_module.STUCK_S + 1)] if how != "lost" else [loses(world)]
    did = run(world, sits(world, Seat.LEADER), *ends, nothing, sits(world, Seat.STANDBY))
    assert did == ["join after 70", "confirm", "claim", "leave", "join after 70", "leave"]
    assert world.stood_by >= 2, "with the place, and at the end"


@pytest.mark.parametrize(
    ("at", "failure"),
    [
        ("claim", NewerRecord("upgrade")),
        ("claim", ClusterError("not allowed to write")),
        ("ensure", ClusterError("not allowed to create")),
        ("refusal", ClusterError("not allowed to join")),
    ],
)
def test_what_does_not_get_better_ends_it(world: World, at: str, failure: ModeAwareError) -> None:
    {"claim": world.claim_errors, "ensure": world.ensure_errors}.get(at, deque()).append(failure)
    world.refusal = failure if at == "refusal" else None
    future = world.inbox.put([COMMAND])
    run(world, sits(world, Seat.LEADER))
    assert world.status.failure is failure
    with pytest.raises(type(failure)):
        world.status.wait(Role.ACTIVE)
    assert isinstance(future.exception(0), ControllerUnavailable)


@pytest.mark.parametrize("failure", [ControllerFenced("fenced"), ClusterError("timed out")], ids=["fenced", "in doubt"])
def test_stop_while_the_log_is_closed_leaves_the_claim_and_closes_connections(
    world: World, failure: ModeAwareError, caplog: pytest.LogCaptureFixture
) -> None:
    world.failures.append(failure)
    world.inbox.put([COMMAND])
    cluster: Any = SimpleNamespace(close=lambda: world.did.append("close"))
    did = run(world, sits(world, Seat.LEADER), world.status.stopping.set, clusters=(cluster,))
    assert did == ["join after 70", "confirm", "claim", "leave", "close"]
    assert (world.status.role, world.status.failure) == (Role.STOPPED, None)
    assert "this controller's address was not removed from the claim" in caplog.text


NO_ANSWER = ErrorCode.REQUEST_TIMED_OUT


def test_a_start_is_tried_again_where_nobody_answers(world: World) -> None:
    world.read_errors.extend([ModeSourceError("not reached", code=NO_ANSWER)] * 3)
    world.ensure_errors.extend([ClusterError("no answer", code=NO_ANSWER)] * 2)
    world.claim_errors.extend([ClusterError("cannot be opened", code=NO_ANSWER)])
    world.confirmations.append(None)
    did = run(world, sits(world, Seat.LEADER), *[nothing] * 6)
    assert did[:2] == ["ensure"] * 2
    assert did[2:] == ["join after 70", "confirm", "confirm", "confirm", "claim", "release", "leave"]
    assert world.status.failure is None
    assert world.status.trouble == "cannot be opened"


def test_a_leader_that_cannot_claim_goes_to_the_end_of_the_queue(world: World) -> None:
    world.status.become(Role.STANDBY)
    world.claim_errors.extend([ClusterError("not allowed to write")] * 2)
    late = passes(world, worker_module.STUCK_S + 1)
    did = run(world, sits(world, Seat.LEADER), nothing, late, sits(world, Seat.STANDBY))
    assert did == ["join after 70", "confirm", "confirm", "leave", "join after 70", "leave"]


def test_topics_are_worked_on_together_as_long_as_that_is_quick(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many at once cost less; but the election, and other commands, wait for them."""
    looked: list[int] = []
    took_s = chain([0.1, 0.1, 5.0, 2.4, 0.7, 0.1], repeat(0.1))

    def check(self: Engine, topic_ids: Sequence[str]) -> bool:
        looked.append(len(topic_ids))
        world.clock.advance(round(next(took_s) * 1000))
        return True

    def wake() -> None:
        world.at_rest = False

    monkeypatch.setattr(Engine, "check", check)
    world.due.extend(f"id-{n}" for n in range(1_000))
    world.at_rest = True  # small looks say nothing of how many topics fit a whole one
    run(world, sits(world, Seat.LEADER), *[nothing] * 5, wake, *[nothing] * 20)
    assert looked[:7] == [64, 128, 256, 128, 64, 64, 128]


def test_fewer_topics_are_no_help_against_a_broker_that_does_not_answer() -> None:
    together = worker_module.Together()
    for _ in range(100):
        together.took(together.topics, 2.1)
    assert together.topics >= 32


def test_slow_pass_over_few_topics_does_not_lower_the_number_of_topics() -> None:
    together = worker_module.Together()
    together.took(1, 1.2)
    assert together.topics == worker_module.FIRST_TOPICS
    together.took(together.topics, 4.0)
    together.took(1, 4.0)
    assert together.topics == worker_module.FIRST_TOPICS // 2


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
    world.failures.append(failure)
    world.log_stays_open = True
    world.due.append("an-id")
    first, second = world.inbox.put([COMMAND]), world.inbox.put([COMMAND])
    did = run(world, sits(world, Seat.LEADER), *[nothing] * 6)
    assert str(first.exception(0)) == str(failure)
    assert second.result(0)
    assert did.count("claim") == 1
    assert "check" in did


def test_settings_that_cannot_be_used_at_a_rejoin_are_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that they name may be in the course of replacement."""
    real, failures = World.join, deque([None, ConfigError("client settings: no such file")])

    def join(world: World, after_ms: int) -> None:
        real(world, after_ms)
        if failures and (failure := failures.popleft()):
            world.lost = True
            raise failure

    monkeypatch.setattr(World, "join", join)
    did = run(world, sits(world, Seat.LEADER), loses(world), nothing, nothing, sits(world, Seat.STANDBY))
    assert did == ["join after 70", "confirm", "claim", *["leave", "join after 70"] * 2, "leave"]
    assert "no such file; rejoining the election" in caplog.text


@pytest.mark.parametrize("why", ["an election is under way", "fenced", "timed out"])
def test_a_claim_that_cannot_be_released_stays(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, why: str
) -> None:
    errors = {"fenced": ControllerFenced(why), "timed out": ClusterError(why)}

    def release(_: Engine) -> None:
        raise errors[why]

    monkeypatch.setattr(Engine, "release", release)
    did = run(world, sits(world, Seat.LEADER), nothing if why in errors else sits(world, Seat.WAITING))
    assert did == ["join after 70", "confirm", "claim", "leave"]
    assert (world.status.role, world.status.failure) == (Role.STOPPED, None)
    assert (
        f"this controller's address was not removed from the claim ({why}); the next claim replaces it" in caplog.text
    )


def test_a_standby_reports_a_leader_that_does_not_claim_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Only a user that may WRITE the mode log can; the election's group needs less."""
    seen: list[float | None] = []

    def leads(generation: int, claimed: int) -> Callable[[], None]:
        def event() -> None:
            world.seat, world.generation = Seat.STANDBY, generation
            world.claim = replace(OTHER, generation=claimed)

        return event

    def note() -> None:
        since_s = world.status.leaderless_s
        seen.append(None if since_s is None else world.clock.monotonic_s() - since_s)

    world.story.extend(
        [
            leads(3, 3),
            nothing,
            note,
            leads(4, -1),
            nothing,
            passes(world, 11),
            note,
            leads(4, 3),
            nothing,
            passes(world, 11),
            note,
        ]
    )
    run(world, nothing, leads(5, 5), passes(world, 2), nothing, note)
    assert seen == [None, None, pytest.approx(11), None]
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert "no active controller" in errors[0]
    assert "modeaware-controller.__partition_modes" in errors[0]


def test_the_leader_claims_the_log_anew_in_each_generation(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    renewed: list[int] = []
    monkeypatch.setattr(Engine, "renew", lambda _, generation: renewed.append(generation))

    def rebalances() -> None:
        world.generation = 6

    run(world, sits(world, Seat.LEADER), nothing, nothing, rebalances, nothing)
    assert list(dict.fromkeys(renewed)) == [-1, 6]


def test_the_claim_is_renewed_before_topics_are_checked_after_a_command(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command may have taken so long that the group has another generation by now."""

    def rebalances() -> None:
        world.generation = 6

    monkeypatch.setattr(Engine, "renew", lambda _, generation: world.did.append(f"renew {generation}"))
    world.generation = 5
    world.due.append("an-id")
    run(world, sits(world, Seat.LEADER), nothing, rebalances)
    assert world.did[world.did.index("check") - 1] == "renew 6"
