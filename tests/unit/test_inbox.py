"""Requests of many commands: the outcome of each, deadlines, and turns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from modeaware.controller import worker as worker_module
from modeaware.controller.election import Seat
from modeaware.controller.inbox import MAX_WAITING, Inbox, Job
from modeaware.endpoint.connection import Ticket
from modeaware.endpoint.facade import Outcome
from modeaware.endpoint.limits import RateLimitedLogger
from modeaware.errors import ClusterError, ControllerFenced, ControllerUnavailable, ErrorCode, ModeAwareError
from modeaware.lifecycle.commands import Command, CommandResult, DeletePartitionsCommand
from tests.support.simulated import SimClock
from tests.support.worker_world import COMMAND, Engine, World, loses, nothing, run, sits

MANY = [DeletePartitionsCommand(f"topic-{number}", 1) for number in range(5)]


def at_once(monkeypatch: pytest.MonkeyPatch, topics: int) -> None:
    """Have so many topics worked on together, however long it takes."""
    monkeypatch.setattr(worker_module, "FIRST_TOPICS", topics)
    monkeypatch.setattr(worker_module, "MOST_TOPICS", topics)


def begun(job: Job, commands: int) -> None:
    for _ in range(commands):
        (command,) = job.begin(0.0)
        job.end([CommandResult(command.topic)])


def codes(job: Job) -> list[ErrorCode]:
    return [result.code for result in job.result(0)]


@pytest.fixture
def served(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics as they are served. Each command takes 0.2 s: two of them are a slice."""
    topics: list[str] = []

    def execute(_engine: Engine, commands: Sequence[Command]) -> list[CommandResult]:
        (command,) = commands
        topics.append(command.topic)
        world.log.append()
        world.clock.advance(200)
        return [CommandResult(command.topic)]

    monkeypatch.setattr(Engine, "execute", execute)
    at_once(monkeypatch, 1)
    return topics


class TestJob:
    def test_done_unknown_and_not_begun_are_told_apart_at_the_deadline(self) -> None:
        job = Job(MANY, deadline_s=60.0)
        begun(job, 2)
        assert job.begin(59.0) == (MANY[2],)
        job.expire()
        done, unknown, not_begun = ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert codes(job) == [done, done, unknown, not_begun, not_begun]
        told = [result.message or "" for result in job.result(0)]
        assert "may have been carried out" in told[2]
        assert "nothing was changed" in told[3]
        job.end([CommandResult("topic-2")])
        job.finish()
        assert not job.begin(59.0)

    def test_no_command_is_begun_after_the_deadline(self) -> None:
        job = Job(MANY, deadline_s=60.0)
        assert not job.begin(60.0)
        error = job.exception(0)
        assert isinstance(error, ClusterError)
        assert error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert "nothing was changed" in str(error)

    def test_a_job_that_was_begun_keeps_its_results_when_the_controller_stops(self) -> None:
        job = Job(MANY)
        begun(job, 3)
        job.refuse(ControllerUnavailable("stopped: nothing was changed"))
        assert codes(job) == [ErrorCode.NONE] * 3 + [ErrorCode.NOT_CONTROLLER] * 2

    def test_a_success_that_is_not_proved_is_no_success(self) -> None:
        job = Job(MANY)
        begun(job, 1)
        assert job.begin(0.0)
        job.end([CommandResult("topic-1")], proved=False)
        job.expire()
        assert codes(job) == [ErrorCode.NONE, ErrorCode.NOT_CONTROLLER] + [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 3

    def test_the_endpoint_answers_at_the_deadline_with_what_is_known(self) -> None:
        """The controller's thread may be busy with one command, or with the election, by then."""
        job = Job(MANY)
        begun(job, 2)
        loop = asyncio.new_event_loop()
        try:
            told: asyncio.Future[Outcome] = loop.create_future()
            Ticket(loop, RateLimitedLogger(loop.time), "a command", job, 0.01, "late", told.set_result)
            outcome = loop.run_until_complete(asyncio.wait_for(told, 30))
        finally:
            loop.close()
        assert isinstance(outcome, list)
        assert [result.code for result in outcome] == [ErrorCode.NONE] * 2 + [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 3
        assert not job.begin(0.0)


class TestInbox:
    def test_a_job_that_is_put_back_waits_behind_the_others(self) -> None:
        inbox = Inbox()
        large, small = inbox.put(MANY), inbox.put([COMMAND])
        assert inbox.take(0) is large
        inbox.put_back(large)
        assert (inbox.take(0), inbox.take(0), inbox.take(0)) == (small, large, None)

    def test_full_inbox_refuses_what_it_does_not_queue(self) -> None:
        inbox = Inbox()
        assert not any(inbox.put([COMMAND]).done() for _ in range(MAX_WAITING))
        error = inbox.put([COMMAND]).exception(0)
        assert isinstance(error, ControllerUnavailable)
        assert error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED

    def test_a_timeout_is_counted_from_when_it_was_put_in(self) -> None:
        clock = SimClock()
        inbox = Inbox(clock)
        job = inbox.put(MANY, timeout_ms=5_000)
        clock.advance(4_999)
        assert job.begin(clock.monotonic_s())
        clock.advance(1)
        assert inbox.put([COMMAND]).begin(clock.monotonic_s()), "without a timeout there is no deadline"
        job.end([CommandResult("topic-0")])
        assert not job.begin(clock.monotonic_s())
        assert codes(job) == [ErrorCode.NONE] + [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 4


class TestTurns:
    def test_the_election_is_polled_between_commands(self, world: World, served: list[str]) -> None:
        job = world.inbox.put(MANY)
        polls: list[int] = []
        run(world, sits(world, Seat.LEADER), nothing, *[lambda: polls.append(len(served))] * 12)
        assert codes(job) == [ErrorCode.NONE] * 5
        assert {1, 2, 3, 4} <= set(polls)

    def test_a_large_request_lets_others_in_between(self, world: World, served: list[str]) -> None:
        large, small = world.inbox.put(MANY), world.inbox.put([COMMAND])
        world.due.append("an-id")
        did = run(world, sits(world, Seat.LEADER), *[nothing] * 30)
        assert served == ["topic-0", "topic-1", "orders", "topic-2", "topic-3", "topic-4"]
        assert "check" in did
        assert codes(large) == [ErrorCode.NONE] * 5
        assert codes(small) == [ErrorCode.NONE]

    def test_a_controller_that_loses_its_place_tells_what_it_has_done(self, world: World, served: list[str]) -> None:
        job = world.inbox.put(MANY)
        run(world, sits(world, Seat.LEADER), nothing, loses(world), nothing, *[sits(world, Seat.STANDBY)] * 3)
        done = len(served)
        assert 0 < done < 5
        assert codes(job) == [ErrorCode.NONE] * done + [ErrorCode.NOT_CONTROLLER] * (5 - done)


@pytest.mark.parametrize("commands", [1, 2])
@pytest.mark.parametrize("failure", [ControllerUnavailable("stopped"), ClusterError("fatal"), ControllerFenced("late")])
def test_unknown_outcome_is_never_told_as_nothing_done(failure: ModeAwareError, commands: int) -> None:
    job = Job(MANY[:commands])
    job.begin(0.0, commands)
    job.end([failure] * commands, unknown=True)
    job.finish()
    told: list[ErrorCode | None]
    try:
        told = [*codes(job)]
    except ClusterError as error:
        told = [error.code] * commands
    assert told == [ErrorCode.REQUEST_TIMED_OUT] * commands


@pytest.mark.parametrize(("together", "unknown"), [(1, 1), (3, 3), (64, 5)])
@pytest.mark.parametrize("failure", [ClusterError("timed out"), ControllerFenced("fenced")])
def test_an_append_that_fails_is_the_outcome_of_its_own_commands(
    world: World, monkeypatch: pytest.MonkeyPatch, failure: ModeAwareError, together: int, unknown: int
) -> None:
    """The outcome of a fenced append is unknown as well: its commit may have been made all the same."""
    at_once(monkeypatch, together)
    world.failures.append(failure)
    job = world.inbox.put(MANY)
    did = run(world, sits(world, Seat.LEADER), *[nothing] * 20)
    assert did.count("claim") == 2
    assert codes(job) == [ErrorCode.REQUEST_TIMED_OUT] * unknown + [ErrorCode.NONE] * (5 - unknown)


def test_a_memory_of_an_earlier_term_is_not_proved_by_a_later_claim(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "SLICE_S", 0)
    at_once(monkeypatch, 1)
    world.appends_nothing = True
    world.confirmations.extend([True, None])
    monkeypatch.setattr(worker_module, "CONFIRM_TIMEOUT_S", -1)
    job = world.inbox.put(MANY[:2])
    run(world, sits(world, Seat.LEADER), nothing, nothing, sits(world, Seat.LEADER, 2), *[nothing] * 20)
    assert codes(job) == [ErrorCode.NOT_CONTROLLER, ErrorCode.NONE]
