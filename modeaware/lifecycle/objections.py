"""The objections to a command about a topic: one list for controllers, dry runs and plans. Pure.

A controller refuses a command for the first objection (:mod:`modeaware.lifecycle.admission`). ``--dry-run`` and
``modeaware apply`` show the first objection; ``modeaware plan`` shows all. This list does not check whether the new
record fits the mode log: only the admission does. For shrinks and growths, the checks and error codes are those of
KIP-694 "Proposed Changes" and KIP-195 "Anticipated errors".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import partial

from modeaware.config import ControllerConfig
from modeaware.errors import ErrorCode
from modeaware.interim import interim_name
from modeaware.lifecycle import reasons
from modeaware.lifecycle.alias import alias_objections
from modeaware.lifecycle.commands import (
    CreatePartitionsCommand,
    DeletePartitionsCommand,
    Objection,
    ReplaceTopicCommand,
    TopicCommand,
)
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.keep_name import not_restored, to_keep_name
from modeaware.lifecycle.repetition import repetition_of
from modeaware.lifecycle.state import current_record, in_progress
from modeaware.modelog.records import MAX_PARTITIONS, RETENTION, Replacement, TopicRecord
from modeaware.modes import format_ranges

FENCES = ("config", "none")
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_topic_name(text: str) -> bool:
    """Return whether the text is a valid topic name. ``a.b`` is valid, although as a pattern it matches ``a-b``."""
    return _NAME.fullmatch(text) is not None and text not in (".", "..")


def current_of(record: TopicRecord | None, facts: TopicFacts) -> TopicRecord:
    """Return the topic's record before a command. The record of a deleted topic does not count for a recreated topic of
    the same name."""
    own = record if record is not None and record.topic_id == facts.topic_id else None
    return current_record(own, facts.topic, facts.topic_id or "", facts.partition_count)


def objections(
    command: TopicCommand,
    record: TopicRecord | None,
    facts: TopicFacts,
    config: ControllerConfig,
    now_ms: int,
    replaced: Collection[TopicRecord] = (),
) -> Iterator[Objection]:
    """Yield why ``command`` is refused. A repetition of the change in force, with the same settings, is accepted.

    Args:
        record: the topic's record, or None if the topic was never changed.
    """
    yield from alias_objections(command, facts, replaced, now_ms)
    no = partial(Objection, command.topic)
    if facts.topic_id is None:
        yield no("unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it does not exist")
        return
    if facts.internal or command.topic == config.mode_log_topic:
        why = "it is internal: only its owner may change its partition count"
        yield no("internal", ErrorCode.INVALID_TOPIC_EXCEPTION, why)
    current = current_of(record, facts)
    if not config.enable and not isinstance(command, CreatePartitionsCommand):
        yield no(
            "off", ErrorCode.POLICY_VIOLATION, "shrinks and replacements are off (delete.topic.partition.enable=false)"
        )
    yield from not_restored(command, current, replaced)
    if current.has_replacement:
        if (refused := why_not_now(command, current, current.replacing)) is not None:
            yield no("replaced", ErrorCode.REASSIGNMENT_IN_PROGRESS, refused)
    elif isinstance(command, CreatePartitionsCommand):
        yield from _to_growth(command, current, facts)
    elif (again := repetition_of(command, current)) is None:
        yield from _to_first(command, current, facts)
    elif again.differs:
        why = f"it is already being shrunk, with {', '.join(again.differs)}: undo that shrink first (--undo)"
        yield no("in-progress", ErrorCode.REASSIGNMENT_IN_PROGRESS, why)


def objection_to_change(replacement: Replacement) -> str:
    """Return why a topic that is replaced takes no other change, and the remedy."""
    new_topic = replacement.new_topic
    if replacement.switched_ms is not None:
        return f"its name points to {new_topic!r}, which has replaced it: change that topic"
    return f"it is being replaced by {new_topic!r}: wait until that is done, or undo it (modeaware replace --undo)"


def why_not_now(command: TopicCommand, current: TopicRecord, replacement: Replacement) -> str | None:
    """Return why a topic that is being replaced, or was, does not take a command; None if the topic takes it. A name
    that points to a new topic never points to the old topic again (invariant I8)."""
    new_topic, switched = replacement.new_topic, replacement.switched_ms is not None
    if not isinstance(command, ReplaceTopicCommand):
        return objection_to_change(replacement)
    if command.new_topic != new_topic:
        other = (
            f"it is already being replaced by {new_topic!r}: name that topic, or undo the replacement first (--undo)"
        )
        return objection_to_change(replacement) if switched else other
    if command.undo:
        remedy = (
            "end the change there (--stay)"
            if current.is_first_half
            else f"for another partition count, replace {new_topic!r}"
        )
        back = f"its producers already write to {new_topic!r}, so nothing can be undone: {remedy}"
        return back if switched else None
    if replacement.undone_ms is not None:
        return f"its replacement by {new_topic!r} is being undone: wait until that is done"
    if command.keep_name and not command.returns_name and new_topic != interim_name(command.topic, current.topic_id):
        name = f"it is already being replaced by {new_topic!r}, which is no interim topic, so it cannot keep its name"
        rename = f"wait until that is done, then rename back: replace {new_topic!r} by a new {command.topic!r}"
        return f"{name}: {rename if switched else 'undo the replacement first (--undo)'}"
    again = repetition_of(command, current)
    if again is not None and again.differs:
        remedy = "repeat the command with the same options" if switched else "undo the replacement first (--undo)"
        return f"it is already being replaced, with {', '.join(again.differs)}: {remedy}"
    if command.pause_before_switch and switched:
        return f"its producers already write to {new_topic!r}: too late to pause before the switch"
    return None


def why_evacuate(cleanup_policy: str) -> str:
    """Return why a compacted topic is neither shrunk nor replaced without an evacuation, and the remedy."""
    return (
        f"cleanup.policy is {cleanup_policy!r}, and the latest value of each key must be kept: replace the topic with "
        "--evacuate (in a file: replace and evacuate). Then run the Spark job modeaware.spark.evacuate, which copies "
        "these values to the new topic"
    )


def _to_growth(command: CreatePartitionsCommand, current: TopicRecord, facts: TopicFacts) -> Iterator[Objection]:
    no = partial(Objection, command.topic)
    target, count, listed = command.total_count, current.writable_count, len(current.modes)
    if target <= count:
        why = f"it has {count} writable partitions already; {target} is not an increase"
        yield no("count", ErrorCode.INVALID_PARTITIONS, why)
    under_way = count + len(current.opening)
    if count < target < under_way:
        why = f"it is already growing to {under_way} partitions: wait until that is done, then shrink it to {target}"
        yield no("in-progress", ErrorCode.REASSIGNMENT_IN_PROGRESS, why)
    if target > MAX_PARTITIONS:  # before a list of that length is made
        why = f"{target} partitions are too many: at most {MAX_PARTITIONS} fit its mode record"
        yield no("count", ErrorCode.INVALID_PARTITIONS, why)
    if listed <= target < facts.partition_count:  # with no partition retired, the added ones would take writes, too
        yield _added(command.topic, current, facts)
    new = max(target - facts.partition_count, 0)
    if command.assignments is not None and len(command.assignments) != new:
        why = (
            f"{len(command.assignments)} replica assignments for {new} new partitions: pass one for each (retired "
            "partitions are revived first)"
        )
        yield no("assignments", ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)


def _to_first(
    command: DeletePartitionsCommand | ReplaceTopicCommand, current: TopicRecord, facts: TopicFacts
) -> Iterator[Objection]:
    """Yield why a topic can neither be shrunk nor replaced now.

    A topic has one change at a time, because required groups are noted for one change. A group's state per partition
    does not move with the keys, so the command has to name the groups with such state (invariant I1).
    """
    no = partial(Objection, command.topic)
    if in_progress(current):
        undo = f", or undo it (modeaware topics --undo --topic {command.topic})" if not current.opening else ""
        why = f"another change is in progress: wait (--describe shows what it waits for){undo}"
        yield no("in-progress", ErrorCode.REASSIGNMENT_IN_PROGRESS, why)
    if command.delay_ms is not None and command.delay_ms < 0:
        yield no(
            "delay", ErrorCode.INVALID_REQUEST, f"invalid delay of {command.delay_ms} ms: pass 0 or more, or no delay"
        )
    if isinstance(command, DeletePartitionsCommand):
        yield from _to_shrink(command, current, facts)
    else:
        yield from _to_replacement(command, current, facts)
    if facts.stateful_owner is not None:
        owner = repr(facts.stateful_owner)
        why = f"it is an internal topic of the Streams application {owner}, which keeps state per partition"
        yield no("streams-internal", ErrorCode.POLICY_VIOLATION, why)
    stateful = {name for name, group in facts.groups.items() if group.stateful} - set(command.accept_state_loss)
    if stateful:
        why = (
            f"groups that keep state per partition (like Kafka Streams) read it: {', '.join(sorted(stateful))}. The "
            "state of keys that move would stay behind. To accept that, name each group with --accept-state-loss"
        )
        reason = reasons.of_group(reasons.GROUP_STATEFUL, min(stateful))
        yield no("stateful-groups", ErrorCode.POLICY_VIOLATION, why, reason)
    if facts.partition_count > len(current.modes):
        yield _added(command.topic, current, facts)
    if missing := [p for p in range(facts.partition_count) if p not in facts.partitions]:
        why = f"no leader available for partitions {format_ranges(missing)}; retry, or check the brokers"
        yield no("unavailable", ErrorCode.LEADER_NOT_AVAILABLE, why, reasons.UNAVAILABLE)


def _to_shrink(command: DeletePartitionsCommand, current: TopicRecord, facts: TopicFacts) -> Iterator[Objection]:
    topic, target, count = command.topic, command.total_count, current.writable_count
    no = partial(Objection, topic)
    if target < 1:
        yield no("count", ErrorCode.INVALID_PARTITIONS, f"{target} partitions: at least 1 must stay")
    if target == count:
        yield no("count", ErrorCode.INVALID_PARTITIONS, f"it has {count} writable partitions already")
    if target > count:
        grow_it = f"'modeaware grow {topic} --partitions {target}' or AdminClient.create_partitions"
        why = f"{target} is more than its {count} writable partitions: to grow it, use {grow_it}"
        yield no("count", ErrorCode.INVALID_PARTITIONS, why)
    if facts.compacted:
        yield no("compacted", ErrorCode.POLICY_VIOLATION, why_evacuate(facts.cleanup_policy))


def _to_replacement(command: ReplaceTopicCommand, current: TopicRecord, facts: TopicFacts) -> Iterator[Objection]:
    no = partial(Objection, command.topic)
    if command.undo:
        yield no("replaced", ErrorCode.INVALID_REQUEST, "it is not being replaced; nothing to undo")
    if not is_topic_name(command.new_topic):
        why = f"invalid topic name {command.new_topic!r}: 1 to 249 letters, digits, '.', '_' and '-'"
        yield no("new-topic", ErrorCode.INVALID_TOPIC_EXCEPTION, why)
    if not 1 <= command.num_partitions <= MAX_PARTITIONS:
        why = f"invalid partition count {command.num_partitions}: 1 to {MAX_PARTITIONS}"
        yield no("count", ErrorCode.INVALID_PARTITIONS, why)
    if command.new_topic == command.topic:
        why = "it cannot replace itself: the new topic needs a name of its own"
        yield no("new-topic", ErrorCode.INVALID_REQUEST, why)
    if command.keep_name:
        yield from to_keep_name(command, current, compacted=facts.compacted)
    if command.fence not in FENCES:
        why = f"unknown fence {command.fence!r}; use one of {', '.join(FENCES)}"
        yield no("fence", ErrorCode.INVALID_REQUEST, why)
    if facts.compacted and not command.evacuate:
        yield no("compacted", ErrorCode.POLICY_VIOLATION, why_evacuate(facts.cleanup_policy))
    if command.evacuate and not facts.compacted:
        why = f"cleanup.policy is {facts.cleanup_policy!r}: not compacted, nothing to evacuate; omit --evacuate"
        yield no("compacted", ErrorCode.INVALID_REQUEST, f"{why} (in a file: evacuate)")
    if command.evacuate and "compact" not in command.configs.get("cleanup.policy", "compact"):
        why = "the new topic has to be compacted too: retention would remove latest values"
        yield no("compacted", ErrorCode.INVALID_REQUEST, why)
    if command.evacuate and command.policy == RETENTION and command.fence != "none":
        why = (
            "compaction never empties it: set the delay after which it may be deleted (--delay; in a file: "
            "shrink: {policy: drained})"
        )
        yield no("compacted", ErrorCode.INVALID_REQUEST, why)
    if facts.new_topic is not None and facts.new_topic.topic_id is not None:
        why = f"a topic {command.new_topic!r} exists already: choose another name for the new topic"
        yield no("new-topic", ErrorCode.TOPIC_ALREADY_EXISTS, why)


def _added(topic: str, current: TopicRecord, facts: TopicFacts) -> Objection:
    added = format_ranges(range(len(current.modes), facts.partition_count))
    why = (
        f"some of its partitions are retired, and another tool has added partitions {added}: first grow it to "
        f"{facts.partition_count}, which opens the added partitions"
    )
    return Objection(topic, "added-partitions", ErrorCode.INVALID_PARTITIONS, why)
