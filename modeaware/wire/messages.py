"""Admin commands and their results as protocol messages, and back. No IO."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from modeaware.errors import ErrorCode, ModeAwareError, RequestRefused
from modeaware.lifecycle.commands import (
    AlterGroupRulesCommand,
    Command,
    CommandResult,
    CreatePartitionsCommand,
    DeletePartitionsCommand,
)
from modeaware.modelog.group_rules import GroupRule, has_glob_characters
from modeaware.modes import PartitionMode
from modeaware.wire import codec
from modeaware.wire.frames import MalformedFrame

_NEVER = -1
_BY_CHARACTERS = -1  # a rule of version 0, in which every group with a character of a glob is one
_GLOB_SINCE = 1
_Thing = TypeVar("_Thing", bound=Hashable)
WHOLE_TOPIC = -1
"""The partition index that stands for the topic as a whole in a DeletePartitions response."""


@dataclass(frozen=True)
class TopicResult:
    """What the controller answered for one topic.

    Attributes:
        topic: the topic's name.
        retired: the mode now of each partition that is not ReadWrite; empty for CreatePartitions, whose answer does not
            say.
        message: what the controller had to say, such as the unread records an ``immediate_delete`` takes.
    """

    topic: str
    retired: Mapping[int, PartitionMode] = field(default_factory=dict)
    message: str | None = None


def delete_partitions_request(
    counts: Mapping[str, int],
    *,
    delay_ms: int,
    immediate_delete: bool,
    timeout_ms: int,
    accept_state_loss: Mapping[str, Sequence[str]] | None = None,
    evacuate: Collection[str] = (),
) -> Any:
    """Ask to keep ``counts[topic]`` partitions of each topic. ``delay_ms`` -1 names the ``retention`` policy.

    ``accept_state_loss`` gives, per topic, the groups whose state per partition may be lost; ``evacuate`` names
    topics that are compacted and have to be evacuated.
    """
    topic = codec.DeletePartitionsRequest.DeletePartitionsTopic
    accepted = accept_state_loss or {}
    return codec.DeletePartitionsRequest(
        timeout_ms=timeout_ms,
        immediate_delete=immediate_delete,
        delete_partitions_delay=delay_ms,
        topics=[
            topic(
                name=name,
                partitions=count,
                accept_state_loss=list(accepted.get(name, ())),
                evacuate=name in evacuate,
            )
            for name, count in counts.items()
        ],
    )


def create_partitions_request(
    commands: Iterable[CreatePartitionsCommand], *, validate_only: bool, timeout_ms: int
) -> Any:
    """Ask for ``total_count`` writable partitions of each command's topic."""
    topic = codec.CreatePartitionsRequest.CreatePartitionsTopic
    assignment = topic.CreatePartitionsAssignment
    return codec.CreatePartitionsRequest(
        topics=[
            topic(
                name=command.topic,
                count=command.total_count,
                assignments=None
                if command.assignments is None
                else [assignment(broker_ids=list(brokers)) for brokers in command.assignments],
            )
            for command in commands
        ],
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )


def alter_group_rules_request(command: AlterGroupRulesCommand, *, timeout_ms: int) -> Any:
    """Ask for rules about groups to be added and removed."""
    request = codec.AlterGroupRulesRequest
    return request(
        timeout_ms=timeout_ms,
        add=[
            request.GroupRuleToAdd(
                kind=rule.kind,
                group=rule.group,
                topic=rule.topic,
                reason=rule.reason,
                created_ms=rule.created_ms,
                expires_ms=_NEVER if rule.expires_ms is None else rule.expires_ms,
                uncommitted_only=rule.uncommitted_only,
                glob=int(rule.glob),
            )
            for rule in command.add
        ],
        remove=list(command.remove),
    )


def lost_in_version(message: Any, api_version: int) -> str | None:
    """Return why an older controller would take a request for another one; None where it would not."""
    if not isinstance(message, codec.AlterGroupRulesRequest) or api_version >= _GLOB_SINCE:
        return None
    other = [rule.group for rule in message.add if bool(rule.glob) is not has_glob_characters(rule.group)]
    if not other:
        return None
    return (
        f"the controller is of 0.2.0 or older, and would take the name {other[0]!r} for a glob: nothing was sent. "
        "Upgrade the controllers first"
    )


def commands_of(message: Any) -> list[Command]:
    """The commands of a DeletePartitions, CreatePartitions or AlterGroupRules request.

    Raises:
        MalformedFrame: a field that must not be null is.
        RequestRefused: a topic, or a rule, stands in the request twice; a time is below 0.
    """
    if isinstance(message, codec.AlterGroupRulesRequest):
        return [_alter_rules_command(message)]
    command_of = _delete_command if isinstance(message, codec.DeletePartitionsRequest) else _create_command
    commands = [command_of(message, topic) for topic in _list(message.topics)]
    if repeated := _repeated(command.topic for command in commands):
        raise RequestRefused(f"topics named twice in one request: {', '.join(repeated)}", topic=repeated[0])
    return commands


def _delete_command(message: Any, topic: Any) -> Command:
    return DeletePartitionsCommand(
        topic=_text(topic.name),
        total_count=topic.partitions,
        delay_ms=message.delete_partitions_delay,
        immediate_delete=message.immediate_delete,
        accept_state_loss=tuple(_text(group) for group in _list(topic.accept_state_loss)),
        evacuate=topic.evacuate,
    )


def _create_command(message: Any, topic: Any) -> Command:
    assignments = topic.assignments
    return CreatePartitionsCommand(
        topic=_text(topic.name),
        total_count=topic.count,
        assignments=None if assignments is None else tuple(tuple(_list(brokers.broker_ids)) for brokers in assignments),
        validate_only=message.validate_only,
    )


def _alter_rules_command(message: Any) -> Command:
    command = AlterGroupRulesCommand(
        add=tuple(_group_rule(rule) for rule in _list(message.add)),
        remove=tuple((_text(rule.kind), _text(rule.group), _text(rule.topic)) for rule in _list(message.remove)),
    )
    for keys in ([rule.key for rule in command.add], command.remove):
        if repeated := _repeated(keys):
            raise RequestRefused(f"a rule named twice in one request: {' '.join(repeated[0])}")
    return command


def _group_rule(rule: Any) -> GroupRule:
    if rule.created_ms < 0 or rule.expires_ms < _NEVER:
        raise RequestRefused(f"a rule with a time below 0: created {rule.created_ms}, expires {rule.expires_ms}")
    return GroupRule(
        kind=_text(rule.kind),
        group=_text(rule.group),
        topic=_text(rule.topic),
        reason=_text(rule.reason),
        created_ms=rule.created_ms,
        expires_ms=None if rule.expires_ms == _NEVER else rule.expires_ms,
        uncommitted_only=rule.uncommitted_only,
        glob=has_glob_characters(_text(rule.group)) if rule.glob == _BY_CHARACTERS else bool(rule.glob),
    )


def _repeated(things: Iterable[_Thing]) -> list[_Thing]:
    return [thing for thing, times in Counter(things).items() if times > 1]


def response_of(request: Any, results: Sequence[CommandResult]) -> Any:
    """The answer to a request that was taken: its commands' results, in order."""
    if isinstance(request, codec.DeletePartitionsRequest):
        return delete_partitions_response(results)
    if isinstance(request, codec.AlterGroupRulesRequest):
        return alter_group_rules_response(*results)
    return create_partitions_response(results)


def alter_group_rules_response(result: CommandResult) -> Any:
    """The answer to an AlterGroupRules request."""
    return codec.AlterGroupRulesResponse(throttle_time_ms=0, error_code=int(result.code), error_message=result.message)


def delete_partitions_response(results: Sequence[CommandResult]) -> Any:
    """The answer to a DeletePartitions request that was taken: per topic its retired partitions, or its error."""
    return codec.DeletePartitionsResponse(
        throttle_time_ms=0,
        error_code=int(ErrorCode.NONE),
        error_message=None,
        responses=[(result.topic, _partitions(result)) for result in results],
    )


def _partitions(result: CommandResult) -> list[tuple[int, int, int, str | None]]:
    if result.code is not ErrorCode.NONE:
        return [(WHOLE_TOPIC, int(PartitionMode.READ_WRITE), int(result.code), result.message)]
    retired = [(p, int(mode), int(ErrorCode.NONE), None) for p, mode in enumerate(result.modes) if not mode.writable]
    note = [(WHOLE_TOPIC, int(PartitionMode.READ_WRITE), int(ErrorCode.NONE), result.message)] if result.message else []
    return [*note, *retired]


def create_partitions_response(results: Sequence[CommandResult]) -> Any:
    """The answer to a CreatePartitions request: an error code and message per topic."""
    return codec.CreatePartitionsResponse(
        throttle_time_ms=0,
        results=[(result.topic, int(result.code), result.message) for result in results],
    )


def failed_response(request: Any, error: ModeAwareError) -> Any:
    """The answer to a request that failed as a whole."""
    code = int(error.code if error.code is not None else ErrorCode.UNKNOWN_SERVER_ERROR)
    if isinstance(request, codec.DeletePartitionsRequest):
        return codec.DeletePartitionsResponse(
            throttle_time_ms=0, error_code=code, error_message=error.message, responses=[]
        )
    if isinstance(request, codec.AlterGroupRulesRequest):
        return codec.AlterGroupRulesResponse(throttle_time_ms=0, error_code=code, error_message=error.message)
    names = dict.fromkeys(_text(topic.name) for topic in _list(request.topics))
    return codec.CreatePartitionsResponse(throttle_time_ms=0, results=[(name, code, error.message) for name in names])


def results_of(response: Any) -> dict[str, TopicResult | RequestRefused]:
    """What each topic was answered; a refusal as the error to raise. AlterGroupRules is about no topic: ``""``.

    Raises:
        RequestRefused: the request failed as a whole.
        MalformedFrame: the response holds a code that Kafka does not have, or null where a value must stand.
    """
    if isinstance(response, codec.CreatePartitionsResponse):
        return {_text(r.name): _result(r.name, r.error_code, r.error_message) for r in _list(response.results)}
    if response.error_code:
        raise _refusal(response.error_code, response.error_message)
    if isinstance(response, codec.AlterGroupRulesResponse):
        return {"": TopicResult("", message=response.error_message)}
    return {_text(topic.name): _delete_result(topic) for topic in _list(response.responses)}


def _delete_result(topic: Any) -> TopicResult | RequestRefused:
    message = None
    retired = {}
    for partition in _list(topic.partitions):
        if partition.error_code:
            return _refusal(partition.error_code, partition.error_message, topic.name)
        if partition.partition_index == WHOLE_TOPIC:
            message = partition.error_message
        else:
            retired[partition.partition_index] = _mode(partition.status_code)
    return TopicResult(topic.name, retired, message)


def _result(topic: str, code: int, message: str | None) -> TopicResult | RequestRefused:
    return _refusal(code, message, topic) if code else TopicResult(topic, message=message)


def _refusal(code: int, message: str | None, topic: str | None = None) -> RequestRefused:
    known = ErrorCode(code) if code in set(ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
    return RequestRefused(message or f"the controller answered with error {code}", code=known, topic=topic)


def _mode(code: int) -> PartitionMode:
    try:
        return PartitionMode(code)
    except ValueError as error:
        raise MalformedFrame(f"the controller answered with partition mode {code}, which is unknown here") from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise MalformedFrame("a name that must not be null is null")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise MalformedFrame("a list that must not be null is null")
    return value
