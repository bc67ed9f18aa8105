"""The controller's work in the command's own process, where no controller runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager

from modeaware.cli.options import Connection
from modeaware.cli.situation import READ_TIMEOUT_S
from modeaware.config import ControllerConfig
from modeaware.confluent._admin_base import REQUEST_TIMEOUT_S
from modeaware.confluent.admin import AdminClient, DeletePartitions
from modeaware.controller.claims import describe_claim
from modeaware.controller.contact import default_listen
from modeaware.controller.daemon import ELECTION_SLACK_S, Controller
from modeaware.controller.status import Role
from modeaware.errors import ClusterError, ControllerUnavailable, ErrorCode, RequestRefused
from modeaware.lifecycle.commands import AlterGroupRulesCommand, Command, CommandResult, DeletePartitionsCommand
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import RETENTION_DELAY_MS, ClaimRecord
from modeaware.modes import PartitionMode
from modeaware.printable import printable
from modeaware.retries import Deadline, Retrying
from modeaware.wire.client import is_running

ANSWER_TIMEOUT_S = 30.0


@contextmanager
def embedded_controller(
    target: Connection, config: ControllerConfig, claim: ClaimRecord | None
) -> Iterator[Controller | None]:
    """A controller in this process, active; None where another one runs: the one that made ``claim``, or a later one.

    Raises:
        ControllerUnavailable: whether one runs cannot be told from here.
        ClusterError, ModeSourceError: no broker, or the mode log cannot be used.
    """
    controller = None if is_running(target.conf, claim) else _elected(target, config, [])[0]
    try:
        yield controller
    finally:
        if controller is not None:
            controller.stop()


def alter_group_rules(
    target: Connection, config: ControllerConfig, claim: ClaimRecord | None, command: AlterGroupRulesCommand
) -> None:
    """Have the rules about groups changed: by the controller that runs, or by one in this process.

    The latter has the rules before it looks at any topic: nothing goes by the old ones first.

    Raises:
        RequestRefused: nothing was changed.
        ModeAwareError: as of :func:`embedded_controller` and :meth:`AdminClient.alter_group_rules`.
    """
    controller, answers = (None, []) if is_running(target.conf, claim) else _elected(target, config, [command])
    if controller is None:
        with AdminClient({**target.conf, **our_settings(target)}) as admin:
            admin.alter_group_rules(command.add, command.remove).result()
        return
    controller.stop()
    for result in answers:
        _check_done(result)


def carry_out(controller: Controller, command: Command, timeout_s: float = REQUEST_TIMEOUT_S) -> CommandResult:
    """Have a controller in this process carry a command out, and wait for that.

    Where nothing was done and another attempt may succeed, the command is given again until ``timeout_s`` have passed.

    Raises:
        RequestRefused: it was refused.
        ControllerUnavailable, ControllerFenced, ClusterError: as of :meth:`Controller.submit`.
    """
    return Retrying(Deadline(timeout_s)).call(lambda: _carried_out(controller, command), repeatable=False)


def _carried_out(controller: Controller, command: Command) -> CommandResult:
    try:
        (result,) = controller.submit([command]).result(ANSWER_TIMEOUT_S)
    except FutureTimeoutError as error:
        raise ClusterError(
            f"not done within {ANSWER_TIMEOUT_S:g} s: look (modeaware topics --describe) before trying again",
            code=ErrorCode.REQUEST_TIMED_OUT,
        ) from error
    _check_done(result)
    return result


def _check_done(result: CommandResult) -> None:
    """
    Raises:
        RequestRefused: nothing was changed.
        ClusterError: it may have been carried out.
    """
    if result.code is ErrorCode.NONE:
        return
    kind = ClusterError if result.code is ErrorCode.REQUEST_TIMED_OUT else RequestRefused
    raise kind(result.message or "refused", code=result.code, topic=result.topic)


def ask_for_shrink(
    admin: AdminClient, command: DeletePartitionsCommand, timeout_s: float = REQUEST_TIMEOUT_S
) -> Mapping[int, PartitionMode]:
    """Have the controller that runs carry a shrink out. Returns the modes of the partitions that are retired now.

    Raises:
        ModeAwareError: as of :meth:`AdminClient.delete_partitions`.
    """
    delay_ms = None if command.delay_ms == RETENTION_DELAY_MS else command.delay_ms
    wanted = DeletePartitions(
        command.total_count, command.immediate_delete, command.accept_state_loss, command.evacuate
    )
    futures = admin.delete_partitions({command.topic: wanted}, delay_ms=delay_ms, request_timeout=timeout_s)
    return futures[command.topic].result().retired


def our_settings(target: Connection) -> dict[str, object]:
    """The settings of ours that a client of the same mode log needs."""
    return {"modeaware.mode.log.topic": target.config.mode_log_topic}


def tell(*lines: str) -> None:
    """For the person, not for a pipe."""
    for line in lines:
        print(printable(line), file=sys.stderr)


def _elected(
    target: Connection, config: ControllerConfig, commands: Sequence[Command]
) -> tuple[Controller | None, list[CommandResult]]:
    """A controller that was elected, with its answers to the commands; None where another one was, and runs."""
    tell("No controller is running: its work is done here.")
    controller = Controller(target.conf, config, listen=default_listen(target.conf))
    answers = controller.submit(commands) if commands else None
    # A killed controller holds its place in the election for a session; then another standby may be elected.
    deadline = Deadline(config.session_timeout_ms / 1000 + ELECTION_SLACK_S)
    try:
        controller.start()
        taken_over = Retrying(deadline).call(lambda: _taken_over(target, config, controller), repeatable=True)
    except BaseException:
        controller.stop()
        raise
    if taken_over:
        controller.stop()
        tell("Another controller has taken over meanwhile: it does the work.")
        return None, []
    try:
        return controller, [] if answers is None else _answered(controller, commands, answers)
    except FutureTimeoutError as error:
        controller.stop()
        raise ClusterError(
            f"not done within {ANSWER_TIMEOUT_S:g} s: look (modeaware groups list) before trying again",
            code=ErrorCode.REQUEST_TIMED_OUT,
        ) from error
    except BaseException:
        controller.stop()
        raise


def _taken_over(target: Connection, config: ControllerConfig, controller: Controller) -> bool:
    """Whether another controller than ``controller`` is active; False: it is itself.

    Raises:
        ControllerUnavailable: neither yet.
    """
    if controller.role is Role.ACTIVE:
        return False
    claim = read_mode_log(target.conf, config.mode_log_topic, READ_TIMEOUT_S).claim
    if claim is not None and claim.controller_id != controller.controller_id and is_running(target.conf, claim):
        return True
    raise ControllerUnavailable(f"no controller was elected: {describe_claim(claim)}")


def _answered(
    controller: Controller, commands: Sequence[Command], answers: Future[list[CommandResult]]
) -> list[CommandResult]:
    try:
        return answers.result(ANSWER_TIMEOUT_S)
    except ControllerUnavailable:  # it stood by before it was elected, and took no commands
        return controller.submit(commands).result(ANSWER_TIMEOUT_S)
