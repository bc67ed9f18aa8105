"""Admission: whether a command may change a topic, and the record that does it. Pure; a refusal changes nothing.

KIP-694 "Proposed Changes" and KIP-195 "Anticipated errors" give the checks and the error codes.
"""

from __future__ import annotations

from collections.abc import Sequence

from modeaware.config import ControllerConfig
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle.admission import Admission
from modeaware.lifecycle.commands import DeletePartitionsCommand, TopicCommand
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.growing import admit_create
from modeaware.lifecycle.shrinking import admit_delete
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import TopicRecord


def admit(
    command: TopicCommand,
    record: TopicRecord | None,
    facts: TopicFacts,
    config: ControllerConfig,
    controller_epoch: int,
    now_ms: int,
    rules: Sequence[GroupRule] = (),
) -> Admission:
    """Decide on a command about a topic; ``rules`` are the operator's, about groups.

    Raises:
        RequestRefused: the command may not be carried out; ``code`` and the message say why and what to do.
    """
    _check_topic(command.topic, facts, config)
    if record is not None and record.topic_id != facts.topic_id:
        record = None  # recreated under its name: a new topic, with a record of its own
    if isinstance(command, DeletePartitionsCommand):
        return admit_delete(command, record, facts, config, controller_epoch, now_ms, rules)
    return admit_create(command, record, facts, controller_epoch, now_ms)


def _check_topic(topic: str, facts: TopicFacts, config: ControllerConfig) -> None:
    if facts.topic_id is None:
        raise RequestRefused(f"topic {topic!r} does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=topic)
    if facts.internal or topic == config.mode_log_topic:
        raise RequestRefused(
            f"topic {topic!r} is internal: its partition count is its owner's business",
            code=ErrorCode.INVALID_TOPIC_EXCEPTION,
            topic=topic,
        )
