"""An alias: the name of a topic that was replaced and is gone. Its record stays, and leads the name to the successor.

Nothing ends an alias by itself: a client may use the name at any time. An operator ends it in one of two ways.

*Forget*: the record is removed, and the name means what brokers have under it: a topic, or none.

*Adopt*: another topic has come up under the name, by an automatic creation for example, and a client that knows no
modes may have written to it. Mode-aware clients do not use that topic (invariant I8), and an operator may delete it.
Where its records are wanted, the operator adopts its id: the topic becomes a predecessor of the topic that the name
leads to. It takes no writes, is fenced and sealed, and required groups read it from its start to its end; then it is
let go like the one before it. Groups that read the successor continue meanwhile: what they are given of the adopted
topic is late.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.replacement import with_replacement
from modeaware.modelog.records import Replacement, RetiredPartition, TopicRecord
from modeaware.modes import PartitionMode


def is_alias(record: TopicRecord) -> bool:
    """Return whether the topic of the record is gone, and its name leads to a successor."""
    return record.replacement is not None and record.replacement.gone_ms is not None


def alias_of(command: ReplaceTopicCommand, records: Iterable[TopicRecord]) -> TopicRecord:
    """Return the alias that the command is about.

    Raises:
        RequestRefused: there is none, or its name leads to another topic than the command says.
    """
    for record in records:
        if record.topic == command.topic and record.replacement is not None and is_alias(record):
            if record.replacement.successor != command.successor:
                why = f"it leads to {record.replacement.successor!r}, not to {command.successor!r}"
                raise _refusal(command.topic, ErrorCode.INVALID_REQUEST, why)
            return record
    why = "it is no alias: no topic of that name was replaced and is gone"
    raise _refusal(command.topic, ErrorCode.INVALID_REQUEST, why)


def adopted(
    command: ReplaceTopicCommand, alias: TopicRecord, facts: TopicFacts, records: Iterable[TopicRecord], now_ms: int
) -> TopicRecord:
    """Return the record of the topic that has come up under an alias: a predecessor of the topic that is written.

    Raises:
        RequestRefused: it is another topic than the command names, or not one that can be fenced and drained.
    """
    topic = command.topic
    if facts.topic_id is None:
        raise _refusal(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic has come up under that name")
    if facts.topic_id != command.adopt_id:
        why = f"its id is {facts.topic_id}, not {command.adopt_id}: look at it again (modeaware alias list)"
        raise _refusal(topic, ErrorCode.UNKNOWN_TOPIC_ID, why)
    if facts.compacted:
        why = f"cleanup.policy is {facts.cleanup_policy!r}: only a topic that is not compacted can be adopted"
        raise _refusal(topic, ErrorCode.POLICY_VIOLATION, why)
    last = _last(alias, records)
    anew = Replacement(
        last.successor,
        last.num_partitions,
        requested_ms=now_ms,
        delay_ms=last.delay_ms,
        fence=last.fence,
        successor_id=last.successor_id,
        announced_ms=now_ms,
        switched_ms=now_ms,
        accept_state_loss=last.accept_state_loss,
    )
    partitions = range(facts.partition_count)
    record = replace(
        TopicRecord.unchanged(topic, facts.topic_id, facts.partition_count),
        modes=(PartitionMode.READ_ONLY,) * facts.partition_count,
        # Groups without a commit read all of it, whatever their auto.offset.reset says.
        retired={p: RetiredPartition(resume_offset=0) for p in partitions},
        required_groups=alias.required_groups,
        groups_complete=False,
    )
    return with_replacement(record, anew)


def _last(alias: TopicRecord, records: Iterable[TopicRecord]) -> Replacement:
    """Return the replacement whose successor is written to: the successor of an alias may have been replaced, too."""
    by_id = {record.topic_id: record for record in records}
    last, passed = alias.replacement, {alias.topic_id}
    assert last is not None, "an alias"
    while (following := by_id.get(last.successor_id or "")) is not None and following.topic_id not in passed:
        if following.replacement is None or following.replacement.switched_ms is None:
            break
        passed.add(following.topic_id)
        last = following.replacement
    return last


def _refusal(topic: str, code: ErrorCode, why: str) -> RequestRefused:
    return RequestRefused(f"topic {topic!r}: {why}", code=code, topic=topic)
