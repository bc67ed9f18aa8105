"""DeletePartitions, CreatePartitions, ReplaceTopics and AlterGroupRules: authorization, and the response.

A user may change a topic if the broker returns the needed operations over the user's own connection (KIP-430). A user
may create a new topic if the broker accepts a CreateTopics request that is only validated. Metadata would not suffice:
the right CREATE may be on the topic or on the cluster, and Metadata may not show that right. Nothing here does IO.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from modeaware.endpoint.facade import ActiveController, Outcome
from modeaware.errors import (
    ClusterError,
    ControllerFenced,
    ControllerUnavailable,
    ErrorCode,
    ModeAwareError,
    RequestRefused,
)
from modeaware.lifecycle.commands import (
    AlterGroupRulesCommand,
    Command,
    CommandResult,
    DeletePartitionsCommand,
    ReplaceTopicCommand,
)
from modeaware.modelog.group_rules import REQUIRE, has_glob_characters
from modeaware.wire import codec, messages
from modeaware.wire.codec import Header
from modeaware.wire.frames import MalformedFrame, TooManyParts, peek_header
from modeaware.wire.requests import in_requests

QUESTION_VERSION = 9
"""The version of the Metadata request that returns the authorized operations."""
_MAX_TIMEOUT_MS = 600_000
_MAX_NAME = 249
_MAX_MESSAGE = 1_000
_UNCERTAIN = "the request may have been carried out: describe the topic before retrying"
_TOPIC_ERRORS = {
    int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): "unknown topic {}",
    int(ErrorCode.LEADER_NOT_AVAILABLE): "topic {}: no leader available; retry, or check the brokers",
    int(ErrorCode.INVALID_TOPIC_EXCEPTION): "invalid topic name {}",
}
_DECODED_FACTOR = 70
"""Bytes of memory for each byte of a request with many small parts. Assignments without replicas take the most."""


class AclOperation(IntEnum):
    """Kafka's ACL operations; the number is the operation's bit."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


_TO_ALTER = frozenset({AclOperation.ALTER})
"""The right on the topic that CreatePartitions needs, as with Kafka's own brokers. This right also suffices for
DeletePartitions and AlterGroupRules if they cause no deletion of records. On the cluster, ALTER allows every rule:
users with that right may grant themselves all rights anyway."""
_TO_DELETE = _TO_ALTER | {AclOperation.DELETE}
"""The rights for DeletePartitions and AlterGroupRules on a topic whose records may be deleted because of them."""
_TO_REPLACE = _TO_DELETE | {AclOperation.ALTER_CONFIGS}
"""The rights on the old topic for ReplaceTopics. CREATE is needed as well, on the new topic or on the cluster.
An alias has no topic any more: its removal needs _TO_DELETE on the topic to which it points, or _TO_ALTER on the
cluster. If that topic is deleted, _TO_ALTER on the cluster is needed."""
_ACCEPTED = (int(ErrorCode.NONE), int(ErrorCode.TOPIC_ALREADY_EXISTS))
"""The accepted codes of a new topic's validation. Brokers check the right first, so TOPIC_ALREADY_EXISTS proves that
right. The controller then decides whether the existing topic may be the new one, as after a repeated request."""


def granted(bitfield: int) -> frozenset[AclOperation]:
    """Return the operations in an ``authorized_operations`` field. A negative value means none: the operations were not
    requested, or are not known to the broker."""
    if bitfield < 0:
        return frozenset()
    return frozenset(operation for operation in AclOperation if bitfield >> operation & 1)


@dataclass
class ChangeRequest:
    """One request for changes. ``commands`` has a command for each topic, in the order of the request; for
    AlterGroupRules, one command.

    Attributes:
        size_bytes: the request's approximate size in memory.
        refused: index in ``commands`` -> the result of a command for which the user is not authorized.
    """

    header: Header
    request: Any
    commands: Sequence[Command]
    size_bytes: int
    refused: dict[int, CommandResult] = field(default_factory=dict)

    @property
    def allowed(self) -> tuple[Command, ...]:
        return tuple(command for number, command in enumerate(self.commands) if number not in self.refused)

    @property
    def timeout_ms(self) -> int:
        return int(min(max(self.request.timeout_ms, 0), _MAX_TIMEOUT_MS))

    def question(self, correlation_id: int) -> bytes:
        """Return the Metadata request for the user's authorized operations on the named topics."""
        names = dict.fromkeys(name for command in self.commands for name in _named(command) if _is_name(name))
        return codec.metadata_question(
            QUESTION_VERSION,
            correlation_id,
            self.header.client_id,
            names,
            cluster_operations=any(map(_may_be_of_the_cluster, self.commands)),
            topic_operations=True,
        )

    def creations(self) -> Iterator[dict[int, ReplaceTopicCommand]]:
        """Yield index in ``commands`` -> replacement that creates a new topic, in batches that brokers can validate in
        one request."""
        numbered = ((n, c) for n, c in enumerate(self.commands) if isinstance(c, ReplaceTopicCommand))
        creating = ((n, c) for n, c in numbered if not (c.undo or c.forget))
        yield from map(dict, in_requests(creating, lambda item: 1 + item[1].num_partitions + len(item[1].configs)))

    def creation_question(self, some: Mapping[int, ReplaceTopicCommand], correlation_id: int) -> bytes:
        """Return the CreateTopics request that validates the new topics of ``some``."""
        topics = (codec.NewTopic(c.new_topic, c.num_partitions, c.replication_factor, c.configs) for c in some.values())
        return codec.creation_question(correlation_id, self.header.client_id, topics)

    def judge_new_topics(self, some: Mapping[int, ReplaceTopicCommand], answer: bytes) -> None:
        """Refuse the commands of ``some`` whose new topics the broker's response (a whole frame) does not accept."""
        topics = {topic.name: topic for topic in codec.decode_creation(answer).topics}
        for number, command in some.items():
            created = topics.get(command.new_topic)
            if number not in self.refused and (created is None or created.error_code not in _ACCEPTED):
                self.refused[number] = _new_topic_refusal(command, created)

    def judge(self, answer: bytes) -> None:
        """Refuse the commands that the broker's response (a whole frame) does not authorize."""
        _, metadata = codec.decode_response(answer, codec.METADATA_KEY, QUESTION_VERSION)
        rights = _Rights(metadata)
        for number, command in enumerate(self.commands):
            if (refusal := rights.refusal(command)) is not None:
                self.refused[number] = refusal

    def answer(self, outcome: Outcome) -> bytes:
        """Return the response for the ``outcome`` of the allowed commands ([] if there were none)."""
        if isinstance(outcome, ControllerFenced):  # Kafka's clients would take its code to mean: nothing was done
            return self._failed(ModeAwareError(f"{outcome.message}; {_UNCERTAIN}", code=ErrorCode.REQUEST_TIMED_OUT))
        if outcome is None or isinstance(outcome, Exception) or len(outcome) != len(self.allowed):
            what = f" ({type(outcome).__name__})" if isinstance(outcome, Exception) else ""
            unexpected = f"the controller failed{what}; {_UNCERTAIN}"
            failure = ClusterError(unexpected, code=ErrorCode.UNKNOWN_SERVER_ERROR)
            return self._failed(outcome if isinstance(outcome, ModeAwareError) else failure)
        done = iter(outcome)
        results = [self.refused[n] if n in self.refused else next(done) for n in range(len(self.commands))]
        return self._encode(messages.response_of(self.request, list(map(_clipped, results))))

    def not_controller(self, active: ActiveController | None) -> bytes:
        if active is None:
            known = "no active controller is known; retry"
        elif active.host is None:
            known = f"the last active controller, {active.controller_id}, has stopped or takes no commands; retry"
        else:
            known = (
                f"the active controller is {active.controller_id} at {active.host}:{active.port}: send the "
                "request there"
            )
        return self._failed(ControllerUnavailable(f"this controller is a standby; {known}"))

    def _failed(self, error: ModeAwareError) -> bytes:
        clipped = ModeAwareError(error.message[:_MAX_MESSAGE], code=error.code)
        return self._encode(messages.failed_response(self.request, clipped))

    def _encode(self, response: Any) -> bytes:
        return codec.encode_response(response, self.header.api_version, self.header.correlation_id)


def read(payload: bytes) -> ChangeRequest | bytes:
    """Return the request in this frame or, if it is refused for every user, the response."""
    try:
        header, request = codec.decode_request(payload)
    except TooManyParts:
        header = peek_header(payload)
        if header.api_key == codec.CREATE_PARTITIONS_KEY:  # the response would need the names of the topics
            raise
        nothing = codec.MESSAGES[header.api_key][0]()
        return ChangeRequest(header, nothing, (), 0)._failed(_TOO_MANY)
    change = ChangeRequest(header, request, (), len(payload) * _DECODED_FACTOR)
    try:
        change.commands = messages.commands_of(request)
    except MalformedFrame:
        raise
    except ModeAwareError as error:
        return change._failed(error)
    return change if change.commands else change.answer([])


_TOO_MANY = RequestRefused("the request has too many parts: name fewer topics or rules in one request")


class _Rights:
    """The user's authorized operations, from one Metadata response."""

    def __init__(self, metadata: Any) -> None:
        self._cluster = granted(metadata.cluster_authorized_operations)
        self._topics: dict[str, Any] = {}
        for topic in metadata.topics:
            self._topics[topic.name] = None if topic.name in self._topics else topic  # None if a name occurs twice

    def refusal(self, command: Command) -> CommandResult | None:
        if isinstance(command, AlterGroupRulesCommand):
            return self._rules_refusal(command)
        if isinstance(command, ReplaceTopicCommand):
            if command.forget:
                return self._forget_refusal(command)
            return self._topic_refusal(command.topic, _TO_REPLACE)
        deletes = isinstance(command, DeletePartitionsCommand) and command.may_delete_records
        return self._topic_refusal(command.topic, _TO_DELETE if deletes else _TO_ALTER)

    def _forget_refusal(self, command: ReplaceTopicCommand) -> CommandResult | None:
        refusal = self._topic_refusal(command.new_topic, _TO_DELETE)
        if refusal is None or self._cluster >= _TO_ALTER:
            return None
        if refusal.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return replace(refusal, topic=command.topic)
        return CommandResult(
            command.topic,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"topic {command.topic}: its name points to the deleted topic {command.new_topic}, so removing the alias "
            "needs ALTER on the cluster, which the broker does not grant this user. Ask the administrator of the "
            f"cluster's ACLs. If {command.new_topic} is an alias itself, remove that alias first; nothing was changed",
        )

    def _topic_refusal(self, name: str, needed: frozenset[AclOperation]) -> CommandResult | None:
        if not _is_name(name):
            return CommandResult(name, ErrorCode.INVALID_TOPIC_EXCEPTION, "invalid topic name")
        topic = self._topics.get(name)
        if topic is not None and topic.error_code in _TOPIC_ERRORS:
            return CommandResult(name, ErrorCode(topic.error_code), _TOPIC_ERRORS[topic.error_code].format(name))
        if topic is None or topic.error_code or not needed <= granted(topic.topic_authorized_operations):
            words = " and ".join(sorted(operation.name for operation in needed))
            return CommandResult(
                name,
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                f"topic {name}: this needs {words} on the topic, which the broker does not grant this user. Ask the "
                "administrator of the cluster's ACLs; nothing was changed",
            )
        return None

    def _rules_refusal(self, command: AlterGroupRulesCommand) -> CommandResult | None:
        if self._cluster >= _TO_ALTER:
            return None
        needed = list(_needed_for_rules(command))
        if not needed or any(has_glob_characters(name) for name, _ in needed):
            return CommandResult(
                "",
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                "rules for more than one topic need ALTER on the cluster, which the broker does not grant this user. "
                "Name the topic, or ask the administrator of the cluster's ACLs; nothing was changed",
            )
        for name, rights in needed:
            if (refusal := self._topic_refusal(name, rights)) is not None:
                return replace(refusal, topic="")
        return None


def _clipped(result: CommandResult) -> CommandResult:
    too_long = result.message is not None and len(result.message) > _MAX_MESSAGE
    return replace(result, message=result.message[:_MAX_MESSAGE]) if result.message and too_long else result


def _new_topic_refusal(command: ReplaceTopicCommand, created: Any) -> CommandResult:
    """Return the result of a replacement whose new topic the broker refuses; ``created`` is the broker's answer."""
    code = int(ErrorCode.UNKNOWN_SERVER_ERROR) if created is None else created.error_code
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        why = (
            f"this needs CREATE on the topic {command.new_topic} or on the cluster, which the broker does not grant "
            "this user. Ask the administrator of the cluster's ACLs"
        )
    else:
        detail = "no answer" if created is None else created.error_message or f"error {code}"
        why = f"the broker refuses to create the new topic {command.new_topic}: {detail}"
    known = ErrorCode(code) if code in set(ErrorCode) else ErrorCode.INVALID_REQUEST
    return CommandResult(command.topic, known, f"topic {command.topic}: {why}; nothing was changed")


def _needed_for_rules(command: AlterGroupRulesCommand) -> Iterator[tuple[str, frozenset[AclOperation]]]:
    """Yield the topic of each rule that is added or removed, and the rights that the addition or removal needs."""
    for rule in command.add:
        yield rule.topic, _TO_DELETE if rule.may_give_up_records else _TO_ALTER
    for kind, _, topic in command.remove:
        yield topic, _TO_DELETE if kind == REQUIRE else _TO_ALTER


def _named(command: Command) -> Iterator[str]:
    if isinstance(command, AlterGroupRulesCommand):
        yield from (name for name, _ in _needed_for_rules(command))
    elif isinstance(command, ReplaceTopicCommand) and command.forget:
        yield command.new_topic
    else:
        yield command.topic


def _may_be_of_the_cluster(command: Command) -> bool:
    """Return whether a right on the cluster may authorize the command."""
    return isinstance(command, AlterGroupRulesCommand) or (isinstance(command, ReplaceTopicCommand) and command.forget)


def _is_name(name: str) -> bool:
    """Return whether the name fits into a request to a broker. The broker checks the characters."""
    return 0 < len(name) <= _MAX_NAME
