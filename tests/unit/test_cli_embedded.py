"""A command where no controller runs: the work is done in its own process, unless somebody else is elected."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import chain, repeat
from types import SimpleNamespace
from typing import cast

import pytest

from modeaware.cli import embedded
from modeaware.config import ClientConfig, ControllerConfig
from modeaware.controller.daemon import Controller
from modeaware.controller.status import Role
from modeaware.errors import ClusterError, ControllerUnavailable, ErrorCode, RequestRefused
from modeaware.lifecycle.commands import AlterGroupRulesCommand, Command, CommandResult, DeletePartitionsCommand
from modeaware.modelog.records import ClaimRecord
from modeaware.reports import session
from modeaware.reports.session import Session
from tests.support.modelog import fold

CONFIG = ControllerConfig(session_timeout_ms=1_000)
TARGET = Session({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, ClientConfig(), CONFIG)
COMMAND = AlterGroupRulesCommand(remove=(("waive", "g", "t"),))
OLD, NEW = ClaimRecord(1, "127.0.0.1:1", "killed"), ClaimRecord(2, "127.0.0.1:2", "another")


@dataclass
class StubController:
    """Notes in which order it is used; ``elected`` False: another one is."""

    controller_id: str = "ours"
    elected: bool = True
    stands_by: bool = False
    code: ErrorCode | None = ErrorCode.NONE
    refusals: Sequence[ErrorCode] = ()
    calls: list[str] = field(default_factory=list)

    def submit(self, commands: Sequence[Command]) -> Future[list[CommandResult]]:
        self.calls.append("submit")
        answer: Future[list[CommandResult]] = Future()
        attempt = len(self.calls) - 1
        if self.stands_by and self.calls == ["submit"]:
            answer.set_exception(ControllerUnavailable("this controller stands by"))
        elif attempt < len(self.refusals):
            first, *others = commands
            refused = CommandResult(first.topic, self.refusals[attempt], "not yet")
            answer.set_result([refused, *(CommandResult(each.topic, ErrorCode.NONE) for each in others)])
        elif self.code is not None:
            answer.set_result([CommandResult(each.topic, self.code, "no such rule") for each in commands])
        return answer

    def start(self) -> None:
        self.calls.append("start")

    @property
    def role(self) -> Role:
        return Role.ACTIVE if self.elected else Role.STANDBY

    def stop(self) -> None:
        self.calls.append("stop")


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> StubController:
    stub = StubController()
    monkeypatch.setattr(embedded, "Controller", lambda *_, **__: stub)
    monkeypatch.setattr(embedded, "is_running", lambda conf, claim: claim == NEW)
    return stub


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What goes to the controller that runs."""
    asked: list[object] = []

    def alter_group_rules(add: object, remove: object) -> Future[None]:
        asked.append(remove)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    admin = SimpleNamespace(alter_group_rules=alter_group_rules)
    monkeypatch.setattr(embedded, "AdminClient", lambda _: nullcontext(admin))
    return asked


def _claimed_by(monkeypatch: pytest.MonkeyPatch, *claims: ClaimRecord) -> None:
    """Each look at the log finds the next of these, and the last one for ever."""
    found = chain(claims, repeat(claims[-1]))
    monkeypatch.setattr(session, "read_mode_log", lambda *_: fold([("controller", next(found).to_json())]))


def test_one_that_stood_by_before_it_was_elected_is_asked_again(stub: StubController) -> None:
    stub.stands_by = True
    embedded.alter_group_rules(TARGET, OLD, COMMAND)
    assert stub.calls == ["submit", "start", "submit", "stop"]


def test_the_one_that_was_elected_instead_is_asked(
    stub: StubController, asked: list[object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stub.elected = False
    _claimed_by(monkeypatch, OLD, OLD, NEW)  # the killed controller's stands until the next one is active
    embedded.alter_group_rules(TARGET, OLD, COMMAND)
    assert (asked, stub.calls[-1]) == ([COMMAND.remove], "stop")
    assert "Another controller has been elected" in capsys.readouterr().err
    with embedded.embedded_controller(TARGET, OLD) as controller:
        assert controller is None


def test_the_election_decides_about_a_controller_on_a_host_that_is_not_to_be_reached(
    stub: StubController, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been killed, as a command in a container that is no more."""

    def elsewhere(*_: object) -> bool:
        raise ControllerUnavailable("it runs on host ci-17", code=ErrorCode.INVALID_CONFIG)

    monkeypatch.setattr(embedded, "is_running", elsewhere)
    embedded.alter_group_rules(TARGET, OLD, COMMAND)
    assert stub.calls == ["submit", "start", "stop"]
    stub.elected = False
    monkeypatch.setattr(embedded, "ELECTION_SLACK_S", -0.5)
    _claimed_by(monkeypatch, OLD)
    with pytest.raises(ControllerUnavailable, match="no controller was elected: it runs on host ci-17"):
        embedded.alter_group_rules(TARGET, OLD, COMMAND)


def test_nobody_elected_in_time_is_an_error(stub: StubController, monkeypatch: pytest.MonkeyPatch) -> None:
    stub.elected = False
    monkeypatch.setattr(embedded, "ELECTION_SLACK_S", -0.5)
    _claimed_by(monkeypatch, OLD)
    with pytest.raises(ControllerUnavailable):
        embedded.alter_group_rules(TARGET, OLD, COMMAND)
    with pytest.raises(ControllerUnavailable), embedded.embedded_controller(TARGET, OLD):
        raise AssertionError("nobody is active")


def test_commands_are_submitted_together_and_again_those_that_were_refused_for_a_moment(stub: StubController) -> None:
    stub.refusals = [ErrorCode.LEADER_NOT_AVAILABLE]
    submitted: list[list[str]] = []

    def submit(commands: Sequence[Command]) -> Future[list[CommandResult]]:
        submitted.append([each.topic for each in commands])
        return StubController.submit(stub, commands)

    commands = {topic: DeletePartitionsCommand(topic, 1) for topic in ("orders", "bills")}
    found = embedded.carry_out_all(cast(Controller, SimpleNamespace(submit=submit)), commands)
    assert submitted == [["orders", "bills"], ["orders"]]
    assert [isinstance(each, CommandResult) and each.code for each in found.values()] == [ErrorCode.NONE] * 2


@pytest.mark.parametrize(
    ("code", "error", "told"),
    [
        (ErrorCode.INVALID_REQUEST, RequestRefused, "no such rule"),
        (ErrorCode.REQUEST_TIMED_OUT, ClusterError, "no such rule"),  # RequestRefused says that nothing was changed
        (None, ClusterError, "before a retry"),
    ],
    ids=["refused", "unknown", "no answer"],
)
def test_failure_of_a_command_is_raised_and_the_controller_stopped(
    stub: StubController, monkeypatch: pytest.MonkeyPatch, code: ErrorCode | None, error: type[Exception], told: str
) -> None:
    stub.code = code
    monkeypatch.setattr(embedded, "ANSWER_TIMEOUT_S", 0.0 if code is None else 10.0)
    with pytest.raises(error, match=told) as caught:
        embedded.alter_group_rules(TARGET, None, COMMAND)
    assert type(caught.value) is error
    assert caught.value.code is (code or ErrorCode.REQUEST_TIMED_OUT)
    assert stub.calls[-1] == "stop"
