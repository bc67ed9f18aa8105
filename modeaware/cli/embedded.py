"""The controller's work in the command's own process, if no controller runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from typing import Any

from modeaware.cli.progress import tell
from modeaware.confluent.admin import AdminClient
from modeaware.confluent.controller_calls import REQUEST_TIMEOUT_S
from modeaware.controller.daemon import ELECTION_SLACK_S, Controller, default_listen
from modeaware.controller.log import describe_claim
from modeaware.controller.status import Role
from modeaware.errors import ClusterError, ControllerUnavailable, ErrorCode, ModeAwareError, RequestRefused
from modeaware.lifecycle.commands import AlterGroupRulesCommand, Command, CommandResult, ReplaceTopicCommand
from modeaware.modelog.records import ClaimRecord
from modeaware.reports.session import Session
from modeaware.wire.client import is_running
from modeaware.wire.retries import Deadline, Retrying

ANSWER_TIMEOUT_S = 30.0


@contextmanager
def embedded_controller(session: Session, claim: ClaimRecord | None) -> Iterator[Controller | None]:
    """Run a controller in this process. If the controller of ``claim`` or of a later claim runs, yield None instead.

    Raises ControllerUnavailable if it is unknown whether a controller runs.
    """
    controller = None if _seems_to_run(session, claim) else _elected(session, [])[0]
    try:
        yield controller
    finally:
        if controller is not None:
            controller.stop()


def alter_group_rules(session: Session, claim: ClaimRecord | None, command: AlterGroupRulesCommand) -> None:
    """Make the running controller, or a controller in this process, change the rules about groups.

    A controller in this process gets the rules before its first pass, so no decision uses the old rules. Only
    a controller that begins as a standby gets the rules after its election. RequestRefused: nothing was changed.
    """
    _alter(session, claim, command, lambda admin: admin.alter_group_rules(command.add, command.remove))


def forget_alias(session: Session, claim: ClaimRecord | None, command: ReplaceTopicCommand) -> None:
    """Make the running controller, or a controller in this process, forget an alias."""
    _alter(session, claim, command, lambda admin: admin.forget_aliases([command.topic])[command.topic])


def _alter(
    session: Session, claim: ClaimRecord | None, command: Command, ask: Callable[[AdminClient], Future[Any]]
) -> None:
    controller, results = (None, []) if _seems_to_run(session, claim) else _elected(session, [command])
    if controller is None:
        with admin_client(session) as admin:
            ask(admin).result()
        return
    controller.stop()
    for result in results:
        if (error := _error_of(result)) is not None:
            raise error


def admin_client(session: Session) -> AdminClient:
    """Return a client that sends commands to the controller of the session's mode log."""
    return AdminClient({**session.conf, "modeaware.mode.log.topic": session.config.mode_log_topic})


def carry_out_all(
    controller: Controller, commands: Mapping[str, Command], timeout_s: float = REQUEST_TIMEOUT_S
) -> dict[str, CommandResult | ModeAwareError]:
    """Make a controller in this process carry out commands together, and wait for the results.

    A command that changed nothing, and may succeed later, is submitted again until ``timeout_s`` have passed. An error
    among the results is RequestRefused, or one that :meth:`Controller.submit` documents.
    """

    def attempt(names: Sequence[str]) -> dict[str, CommandResult | ModeAwareError]:
        try:
            results = controller.submit([commands[name] for name in names]).result(ANSWER_TIMEOUT_S)
        except FutureTimeoutError:
            return dict.fromkeys(names, _unanswered("modeaware topics --describe"))
        except ModeAwareError as error:
            return dict.fromkeys(names, error)
        return {name: _error_of(result) or result for name, result in zip(names, results, strict=True)}

    return Retrying(Deadline(timeout_s)).each(list(commands), attempt, repeatable=False)


def _unanswered(command: str) -> ClusterError:
    return ClusterError(
        f"not done within {ANSWER_TIMEOUT_S:g} s; the outcome is unknown: run {command} before a retry",
        code=ErrorCode.REQUEST_TIMED_OUT,
    )


def _error_of(result: CommandResult) -> ModeAwareError | None:
    """Return RequestRefused if nothing was changed, ClusterError if the command may have been carried out."""
    if result.code is ErrorCode.NONE:
        return None
    kind = ClusterError if result.code is ErrorCode.REQUEST_TIMED_OUT else RequestRefused
    return kind(result.message or "refused", code=result.code, topic=result.topic)


def _seems_to_run(session: Session, claim: ClaimRecord | None) -> bool:
    """Return whether the controller of ``claim`` is known to run. If its host cannot be reached, return False: the
    controller may have been killed, and its host may not exist any more. The election then decides."""
    try:
        return is_running(session.conf, claim)
    except ControllerUnavailable as error:
        if error.code is not ErrorCode.INVALID_CONFIG:
            raise
        return False


def _elected(session: Session, commands: Sequence[Command]) -> tuple[Controller | None, list[CommandResult]]:
    """Elect a controller in this process. Return the controller and the commands' results. If another controller was
    elected, return None and no results."""
    tell("No controller is running: this command does the controller's work.")
    controller = Controller(session.conf, session.controller, listen=default_listen(session.conf))
    results = controller.submit(commands) if commands else None

    def other_elected() -> bool:
        if controller.role is Role.ACTIVE:
            return False
        claim = session.read_log().claim
        try:
            is_other = claim is not None and claim.controller_id != controller.controller_id
            if is_other and is_running(session.conf, claim):
                return True
        except ControllerUnavailable as error:  # tried again: the controller may have been killed just now
            raise ControllerUnavailable(f"no controller was elected: {error.message}") from error
        raise ControllerUnavailable(f"no controller was elected: {describe_claim(claim)}")

    # A killed controller stays in the election for one session timeout. After it, another standby may be elected.
    deadline = Deadline(session.controller.session_timeout_ms / 1000 + ELECTION_SLACK_S)
    try:
        controller.start()
        if Retrying(deadline).call(other_elected, repeatable=True):
            controller.stop()
            tell("Another controller has been elected: it does the work.")
            return None, []
        if results is None:
            return controller, []
        try:
            return controller, results.result(ANSWER_TIMEOUT_S)
        except ControllerUnavailable:  # the controller refused the commands as a standby, before its election
            return controller, controller.submit(commands).result(ANSWER_TIMEOUT_S)
    except FutureTimeoutError as error:
        controller.stop()
        raise _unanswered("modeaware groups list") from error
    except BaseException:
        controller.stop()
        raise
