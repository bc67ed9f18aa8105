"""Admin commands and their results as protocol messages, and back. No IO.

A decoded message follows its schema (:mod:`modeaware.wire.strict`): a name or list in it is null only if the schema
allows null.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from modeaware.errors import ErrorCode, ModeAwareError, RequestRefused
from modeaware.lifecycle.commands import (
    AlterGroupRulesCommand,
    Command,
    CommandResult,
    CreatePartitionsCommand,
    DeletePartitionsCommand,
    ReplaceTopicCommand,
)
from modeaware.modelog.group_rules import GroupRule
from modeaware.modes import PartitionMode
from modeaware.wire import codec
from modeaware.wire.frames import MalformedFrame

_RETENTION = -1
"""The value of a request's delay if deletion is left to the topic's own retention."""
_NEVER = -1
WHOLE_TOPIC = -1
"""The partition index that stands for the topic as a whole in a DeletePartitions response."""


@dataclass(frozen=True)
class TopicResult:
    """The controller's response for one topic.

    Attributes:
        topic: the topic's name.
        retired: the present mode of each partition that is not ReadWrite; empty for CreatePartitions and ReplaceTopics,
            whose responses have no modes.
        message: a note of the controller, such as the number of unread records that an ``immediate_delete`` deletes.
    """

    topic: str
    retired: Mapping[int, PartitionMode] = field(default_factory=dict)
    message: str | None = None


def _wire_delay(delay_ms: int | None) -> int:
    return _RETENTION if delay_ms is None else delay_ms


def _delay_ms(wire_delay: int) -> int | None:
    return None if wire_delay == _RETENTION else wire_delay


def delete_partitions_request(
    counts: Mapping[str, int],
    *,
    delay_ms: int | None,
    immediate_delete: bool,
    timeout_ms: int,
    accept_state_loss: Mapping[str, Sequence[str]] | None = None,
) -> Any:
    """Return the request to keep ``counts[topic]`` partitions of each topic."""
    topic = codec.DeletePartitionsRequest.DeletePartitionsTopic
    accepted = {name: list(groups) for name, groups in (accept_state_loss or {}).items()}
    topics = [
        topic(name=name, partitions=count, accept_state_loss=accepted.get(name, [])) for name, count in counts.items()
    ]
    return codec.DeletePartitionsRequest(
        timeout_ms=timeout_ms,
        immediate_delete=immediate_delete,
        delete_partitions_delay=_wire_delay(delay_ms),
        topics=topics,
    )


def create_partitions_request(
    commands: Iterable[CreatePartitionsCommand], *, validate_only: bool, timeout_ms: int
) -> Any:
    """Return the request for ``total_count`` writable partitions of each command's topic."""
    topic = codec.CreatePartitionsRequest.CreatePartitionsTopic

    def assignments(command: CreatePartitionsCommand) -> list[Any] | None:
        if command.assignments is None:
            return None
        return [topic.CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in command.assignments]

    topics = [topic(name=c.topic, count=c.total_count, assignments=assignments(c)) for c in commands]
    return codec.CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only)


def replace_topics_request(commands: Iterable[ReplaceTopicCommand], *, validate_only: bool, timeout_ms: int) -> Any:
    """Return the request to replace each command's topic."""
    topic = codec.ReplaceTopicsRequest.ReplaceTopicsTopic
    topics = [
        topic(
            name=command.topic,
            new_topic=command.new_topic,
            num_partitions=command.num_partitions,
            replication_factor=command.replication_factor,
            configs=[topic.ReplaceTopicsConfig(name=name, value=value) for name, value in command.configs.items()],
            delete_partitions_delay=_wire_delay(command.delay_ms),
            fence=command.fence,
            pause_before_switch=command.pause_before_switch,
            undo=command.undo,
            forget=command.forget,
            accept_state_loss=list(command.accept_state_loss),
            evacuate=command.evacuate,
            keep_name=command.keep_name,
        )
        for command in commands
    ]
    return codec.ReplaceTopicsRequest(timeout_ms=timeout_ms, validate_only=validate_only, topics=topics)


def alter_group_rules_request(command: AlterGroupRulesCommand, *, timeout_ms: int) -> Any:
    """Return the request to add and remove rules about groups."""
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
                glob=rule.glob,
            )
            for rule in command.add
        ],
        remove=list(command.remove),
    )


def commands_of(message: Any) -> list[Command]:
    """Return the commands of a DeletePartitions, CreatePartitions, ReplaceTopics or AlterGroupRules request."""
    if isinstance(message, codec.AlterGroupRulesRequest):
        return [_alter_rules_command(message)]
    commands: list[Command]
    if isinstance(message, codec.ReplaceTopicsRequest):
        replacements = [_replace_command(message, topic) for topic in message.topics]
        if repeated := _repeated(command.new_topic for command in replacements if not command.forget):
            raise RequestRefused(f"new topics named twice in one request: {', '.join(repeated)}", topic=repeated[0])
        commands = [*replacements]
    elif isinstance(message, codec.DeletePartitionsRequest):
        commands = [_delete_command(message, topic) for topic in message.topics]
    else:
        commands = [_create_command(message, topic) for topic in message.topics]
    if repeated := _repeated(command.topic for command in commands):
        raise RequestRefused(f"topics named twice in one request: {', '.join(repeated)}", topic=repeated[0])
    return commands


def _delete_command(message: Any, topic: Any) -> Command:
    return DeletePartitionsCommand(
        topic=topic.name,
        total_count=topic.partitions,
        delay_ms=_delay_ms(message.delete_partitions_delay),
        immediate_delete=message.immediate_delete,
        accept_state_loss=tuple(topic.accept_state_loss),
    )


def _create_command(message: Any, topic: Any) -> Command:
    assignments = topic.assignments
    return CreatePartitionsCommand(
        topic=topic.name,
        total_count=topic.count,
        assignments=None if assignments is None else tuple(tuple(brokers.broker_ids) for brokers in assignments),
        validate_only=message.validate_only,
    )


def _replace_command(message: Any, topic: Any) -> ReplaceTopicCommand:
    configs = {config.name: config.value for config in topic.configs}
    if len(configs) < len(topic.configs):
        raise RequestRefused(f"topic {topic.name!r}: a config named twice", topic=topic.name)
    return ReplaceTopicCommand(
        topic=topic.name,
        new_topic=topic.new_topic,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        configs=configs,
        delay_ms=_delay_ms(topic.delete_partitions_delay),
        fence=topic.fence,
        pause_before_switch=topic.pause_before_switch,
        accept_state_loss=tuple(topic.accept_state_loss),
        evacuate=topic.evacuate,
        keep_name=topic.keep_name,
        undo=topic.undo,
        forget=topic.forget,
        validate_only=message.validate_only,
    )


def _alter_rules_command(message: Any) -> Command:
    command = AlterGroupRulesCommand(
        add=tuple(_group_rule(rule) for rule in message.add),
        remove=tuple((rule.kind, rule.group, rule.topic) for rule in message.remove),
    )
    for keys in ([rule.key for rule in command.add], command.remove):
        if repeated := _repeated(keys):
            raise RequestRefused(f"a rule named twice in one request: {' '.join(repeated[0])}")
    return command


def _group_rule(rule: Any) -> GroupRule:
    if rule.created_ms < 0 or rule.expires_ms < _NEVER:
        raise RequestRefused(
            f"rule for group {rule.group!r}: negative time (created {rule.created_ms}, expires {rule.expires_ms})"
        )
    return GroupRule(
        kind=rule.kind,
        group=rule.group,
        topic=rule.topic,
        reason=rule.reason,
        created_ms=rule.created_ms,
        expires_ms=None if rule.expires_ms == _NEVER else rule.expires_ms,
        uncommitted_only=rule.uncommitted_only,
        glob=rule.glob,
    )


def _repeated(keys: Iterable[Any]) -> list[Any]:
    return [key for key, times in Counter(keys).items() if times > 1]


def response_of(request: Any, results: Sequence[CommandResult]) -> Any:
    """Return the response to an accepted request: the results of its commands, in order."""
    if isinstance(request, codec.DeletePartitionsRequest):
        return codec.DeletePartitionsResponse(responses=[(result.topic, _partitions(result)) for result in results])
    if isinstance(request, codec.AlterGroupRulesRequest):
        (result,) = results
        return codec.AlterGroupRulesResponse(error_code=int(result.code), error_message=result.message)
    each_topic = [(result.topic, int(result.code), result.message) for result in results]
    if isinstance(request, codec.ReplaceTopicsRequest):
        return codec.ReplaceTopicsResponse(responses=each_topic)
    return codec.CreatePartitionsResponse(results=each_topic)


def _partitions(result: CommandResult) -> list[tuple[int, int, int, str | None]]:
    """Return the response's entries about a topic: either its error, or its note (if any) and retired partitions."""
    whole = (WHOLE_TOPIC, int(PartitionMode.READ_WRITE), int(result.code), result.message)
    if result.code is not ErrorCode.NONE:
        return [whole]
    retired = [(p, int(mode), int(ErrorCode.NONE), None) for p, mode in enumerate(result.modes) if not mode.writable]
    return [whole, *retired] if result.message else [*retired]


def failed_response(request: Any, error: ModeAwareError) -> Any:
    """Return the response to a request that failed as a whole."""
    code = int(error.code if error.code is not None else ErrorCode.UNKNOWN_SERVER_ERROR)
    if isinstance(request, codec.DeletePartitionsRequest):
        return codec.DeletePartitionsResponse(error_code=code, error_message=error.message, responses=[])
    if isinstance(request, codec.AlterGroupRulesRequest):
        return codec.AlterGroupRulesResponse(error_code=code, error_message=error.message)
    if isinstance(request, codec.ReplaceTopicsRequest):
        return codec.ReplaceTopicsResponse(error_code=code, error_message=error.message, responses=[])
    names = dict.fromkeys(topic.name for topic in request.topics)
    return codec.CreatePartitionsResponse(results=[(name, code, error.message) for name in names])


def results_of(response: Any) -> dict[str, TopicResult | RequestRefused]:
    """Return topic -> its result, or the error to raise if its command was refused.

    AlterGroupRules has only the key ``""``. Raise RequestRefused if the request was refused as a whole.
    """
    if isinstance(response, codec.CreatePartitionsResponse):
        return {result.name: _whole_result(result) for result in response.results}
    if response.error_code:
        raise _refusal(response.error_code, response.error_message)
    if isinstance(response, codec.AlterGroupRulesResponse):
        return {"": TopicResult("", message=response.error_message)}
    result_of = _whole_result if isinstance(response, codec.ReplaceTopicsResponse) else _delete_result
    return {topic.name: result_of(topic) for topic in response.responses}


def _whole_result(topic: Any) -> TopicResult | RequestRefused:
    if topic.error_code:
        return _refusal(topic.error_code, topic.error_message, topic.name)
    return TopicResult(topic.name, message=topic.error_message)


def _delete_result(topic: Any) -> TopicResult | RequestRefused:
    message = None
    retired = {}
    for partition in topic.partitions:
        if partition.error_code:
            return _refusal(partition.error_code, partition.error_message, topic.name)
        if partition.partition_index == WHOLE_TOPIC:
            message = partition.error_message
            continue
        try:
            retired[partition.partition_index] = PartitionMode(partition.status_code)
        except ValueError as error:
            raise MalformedFrame(f"unknown partition mode {partition.status_code}") from error
    return TopicResult(topic.name, retired, message)


def _refusal(code: int, message: str | None, topic: str | None = None) -> RequestRefused:
    known = ErrorCode(code) if code in set(ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
    return RequestRefused(message or f"the controller returned error {code}", code=known, topic=topic)
