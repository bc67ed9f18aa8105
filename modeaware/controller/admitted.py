"""What follows from a command on a topic: partitions to create, effects for brokers to validate, and the result."""

from __future__ import annotations

from dataclasses import dataclass

from modeaware.errors import ErrorCode, ModeAwareError
from modeaware.lifecycle.admission import Admission
from modeaware.lifecycle.commands import (
    Command,
    CommandResult,
    CreatePartitions,
    CreatePartitionsCommand,
    DeleteOldTopic,
    DeleteTopic,
    Effect,
    FenceTopic,
    ReplaceTopicCommand,
    TopicCommand,
)
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.replacement import FENCE_CONFIGS, creation
from modeaware.modelog.records import TopicRecord


@dataclass(frozen=True)
class Admitted:
    """An admitted command, with the topic's record and facts from before the command."""

    command: TopicCommand
    record: TopicRecord | None
    facts: TopicFacts
    admission: Admission

    @property
    def topic_id(self) -> str:
        return self.facts.topic_id or ""

    @property
    def new(self) -> CreatePartitions | None:
        """Return the partitions that the command creates."""
        command, record = self.command, self.admission.record
        count = self.facts.partition_count
        if not isinstance(command, CreatePartitionsCommand) or record is None or len(record.modes) <= count:
            return None
        return CreatePartitions(record.topic, record.topic_id, len(record.modes), command.assignments)

    @property
    def to_validate(self) -> tuple[Effect, ...]:
        """Return the effects that brokers validate.

        For a growth: the new partitions, also if the command only validates. For a new replacement: the creation of the
        new topic and, with a fence, the fence and the deletion of the old topic. For an undo of a replacement: the
        deletion of the new topic.
        """
        command, count = self.command, self.facts.partition_count
        if self.admission.elsewhere:
            return ()
        if isinstance(command, ReplaceTopicCommand):
            if self.record is None or not self.record.has_replacement:
                return () if command.forget else effects_to_come(command, self.topic_id)
            replacement = self.record.replacing
            if not command.undo or replacement.undone_ms is not None:
                return ()
            return (DeleteTopic(command.topic, self.topic_id, replacement.new_topic, replacement.new_topic_id or ""),)
        if not isinstance(command, CreatePartitionsCommand) or command.total_count <= count:
            return ()
        if self.new is None and not command.validate_only:
            return ()
        return (CreatePartitions(command.topic, self.topic_id, command.total_count, command.assignments),)

    @property
    def result(self) -> CommandResult:
        record = self.admission.record or self.record
        return CommandResult(self.command.topic, ErrorCode.NONE, self.admission.message, record.modes if record else ())


def effects_to_come(command: ReplaceTopicCommand, topic_id: str) -> tuple[Effect, ...]:
    """Return the effects of a new replacement that brokers can validate beforehand."""
    new = (creation(command.topic, topic_id, command),)
    if command.fence == "none":
        return new
    return (*new, FenceTopic(command.topic, topic_id, FENCE_CONFIGS), DeleteOldTopic(command.topic, topic_id, {}))


def refusal(command: Command, error: ModeAwareError, record: TopicRecord | None) -> CommandResult:
    """Return the result of a command that failed."""
    code = error.code if error.code is not None else ErrorCode.UNKNOWN_SERVER_ERROR
    return CommandResult(command.topic, code, str(error), record.modes if record is not None else ())
