"""What a command is refused with, and what a topic waits for, where a record cannot be read."""

from __future__ import annotations

from modeaware.controller.inbox import NOT_BEGUN
from modeaware.errors import ClusterError, ErrorCode, ModeAwareError, RequestRefused
from modeaware.lifecycle.commands import Command, CommandResult
from modeaware.lifecycle.facts import GroupsDoubt
from modeaware.modelog.records import TopicRecord

RULES_UNREADABLE = GroupsDoubt("the record of the rules about groups cannot be read: upgrade, or make them again")


def newer(what: str, topic: str | None = None) -> RequestRefused:
    """The refusal of a command that would replace a record of a newer version."""
    return RequestRefused(
        f"{what}: the record was written by a newer version of modeaware, which this controller does not read: upgrade "
        "it",
        code=ErrorCode.UNSUPPORTED_VERSION,
        topic=topic,
    )


def not_begun(error: ModeAwareError) -> ModeAwareError:
    """The error of a command that failed before anything was appended: a broker that did not answer leaves no doubt."""
    if error.code is not ErrorCode.REQUEST_TIMED_OUT:
        return error
    return ClusterError(f"{error.message}; nothing was changed", code=NOT_BEGUN, topic=error.topic)


def refusal(command: Command, error: ModeAwareError, record: TopicRecord | None) -> CommandResult:
    """The answer to a command that was not carried out, with the modes as they are."""
    code = error.code if error.code is not None else ErrorCode.UNKNOWN_SERVER_ERROR
    return CommandResult(command.topic, code, str(error), record.modes if record is not None else ())
