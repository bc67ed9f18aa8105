"""Admission: accept or refuse a command about a topic, or about the operator's rules for groups.

A refused command changes nothing. An accepted command results in the topic's next record, unless it changes nothing or
is a dry run. Passes then carry out the change (:mod:`modeaware.lifecycle.steps`). A change that keeps a topic's name
consists of two replacements, its *halves* (:mod:`modeaware.lifecycle.keep_name`). A command about one half may alter
the record of the other half.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from modeaware.config import ControllerConfig
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.alias import alias_of
from modeaware.lifecycle.commands import (
    AlterGroupRulesCommand,
    CreatePartitionsCommand,
    DeletePartitionsCommand,
    Objection,
    ReplaceTopicCommand,
    TopicCommand,
)
from modeaware.lifecycle.drain import EVACUATION_PREFIX, Requirement, required_of, unread_offsets
from modeaware.lifecycle.facts import GroupsDoubt, TopicFacts
from modeaware.lifecycle.growth import grow
from modeaware.lifecycle.keep_name import repeated_by, stays_of
from modeaware.lifecycle.objections import current_of, objections, why_not_now
from modeaware.lifecycle.record_size import largest_bytes, most_partitions
from modeaware.lifecycle.repetition import repetition_of
from modeaware.lifecycle.second_half import second_half_of
from modeaware.modelog.group_rules import (
    CLOSED,
    KINDS,
    REQUIRE,
    WAIVE,
    GroupRule,
    GroupRulesRecord,
    has_glob_characters,
)
from modeaware.modelog.records import (
    MAX_RECORD_BYTES,
    DeleteTopicPartitions,
    Replaced,
    Replacement,
    RetiredPartition,
    TopicRecord,
)
from modeaware.modes import PartitionMode

LATEST_MS = 253_402_300_799_000
"""The end of the year 9999, the last year of Python's dates."""
MAX_GROUP_BYTES, MAX_TOPIC_BYTES, MAX_REASON_BYTES = 500, 249, 1_000
"""The largest group, topic and reason of a rule, in UTF-8. Kafka allows group ids of 32 kB, but rules share a
record."""
MAX_TOPIC_RULES_BYTES = 60_000
"""The largest size of all rules for one topic (about 400 rules), so that rules for other topics have room."""
NOTHING_CHANGED = "already under way; nothing changed"
STATE_LOSS_ACCEPTED = "already under way; the loss of state is now accepted"


@dataclass(frozen=True)
class Admission:
    """The outcome of an accepted command.

    Attributes:
        record: the topic's next record, which the controller stamps and appends; None if the record stays.
        also: the next record of another topic, if the command changes that record.
        removed: the ids of the topics whose records are removed.
        elsewhere: whether the command is about another topic's record alone. It then has no effect on brokers.
    """

    record: TopicRecord | None
    message: str | None = None
    also: TopicRecord | None = None
    removed: tuple[str, ...] = ()
    elsewhere: bool = False


def admit(
    command: TopicCommand,
    record: TopicRecord | None,
    facts: TopicFacts,
    config: ControllerConfig,
    now_ms: int,
    rules: Sequence[GroupRule] = (),
    replaced: Collection[TopicRecord] = (),
) -> Admission:
    """Decide on a command about a topic.

    Args:
        record: the topic's record, or None if the topic was never changed.
        rules: the operator's rules about groups.
        replaced: the records of all topics that are or were replaced.

    Raises:
        RequestRefused: the command is refused for the first of the :func:`~modeaware.lifecycle.objections.objections`,
            or because the record might become too large. Between two halves, ``why_not_now`` replaces the objections.
    """
    first_half = stays_of(command, replaced)
    if first_half is not None:
        first_half = Replaced(first_half, first_half.replacing).changed(keep_name=False, reason=None)
        if record is None or not record.has_replacement:
            return _other_topic(command, first_half)
    if isinstance(command, ReplaceTopicCommand) and (record is None or not record.has_replacement):
        alias = repeated_by(command, facts.topic_id, replaced)
        # The controller's own request begins the second half, so it repeats nothing.
        if alias is not None and not (alias.replacing.keep_name and command == second_half_of(alias)):
            return _in_gap(command, alias, facts)
    for objection in objections(command, record, facts, config, now_ms, replaced):
        raise objection.refusal
    current = current_of(record, facts)
    message: str | None = None
    if (again := repetition_of(command, current)) is not None:
        after = again.record
        message = STATE_LOSS_ACCEPTED if again.accepts else None
    elif isinstance(command, DeletePartitionsCommand):
        requirement = required_of((), facts, rules, config.ignored_groups, now_ms)
        after = _retire(command, current, requirement, now_ms)
        message = _unread(command, after, facts, requirement.doubt)
    elif isinstance(command, CreatePartitionsCommand):
        after = grow(current, command, facts, now_ms)
    elif command.undo:
        after = _undo(current, now_ms)
    else:
        after = _replace(current, command, now_ms)
    if after == current:
        return Admission(None, NOTHING_CHANGED)
    _check_size(after, facts)
    if isinstance(command, CreatePartitionsCommand | ReplaceTopicCommand) and command.validate_only:
        return Admission(None)
    return Admission(after, message, also=first_half)


def _other_topic(command: TopicCommand, record: TopicRecord | None, message: str | None = None) -> Admission:
    is_dry = isinstance(command, ReplaceTopicCommand) and command.validate_only
    return Admission(None, message, also=None if is_dry else record, elsewhere=True)


def _in_gap(command: ReplaceTopicCommand, alias: TopicRecord, facts: TopicFacts) -> Admission:
    """Decide on a repeated request for a change of two halves, before the second half begins. Only the alias's record
    may change: by this record the controller begins the second half."""
    first_half = replace(command, topic=alias.topic, new_topic=command.topic)
    if (refused := why_not_now(first_half, alias, alias.replacing)) is not None:
        raise Objection(alias.topic, "replaced", ErrorCode.REASSIGNMENT_IN_PROGRESS, refused).refusal
    again = repetition_of(first_half, alias)
    if again is None or again.record == alias:
        return _other_topic(command, None, NOTHING_CHANGED)
    _check_size(again.record, facts)
    return _other_topic(command, again.record, STATE_LOSS_ACCEPTED if again.accepts else None)


def forget_alias(command: ReplaceTopicCommand, facts: TopicFacts, records: Sequence[TopicRecord]) -> Admission:
    """Decide on the removal of an alias. ``records`` are the records of all topics that are or were replaced.

    Raises:
        RequestRefused: the alias cannot be removed.
    """
    alias = alias_of(command, facts, records)
    return Admission(None, removed=() if command.validate_only else (alias.topic_id,))


def _retire(
    command: DeletePartitionsCommand, record: TopicRecord, requirement: Requirement, now_ms: int
) -> TopicRecord:
    """Return the record that retires the highest partitions.

    The partitions become ReadOnly first, so that no data is hidden before it is read (invariant I2). The highest ids
    retire, so that each key has one partition per epoch (invariant I3). The record notes an uncertain list of groups
    (invariant I1).
    """
    keep, writable = command.total_count, record.writable_count
    modes = list(record.modes)
    retired = dict(record.retired)
    for partition in range(keep, writable):
        modes[partition] = PartitionMode.READ_ONLY
        retired[partition] = RetiredPartition()
    return replace(
        record,
        modes=tuple(modes),
        retired=retired,
        deletion=DeleteTopicPartitions(
            delete_partitions=keep,
            delay_ms=command.delay_ms,
            immediate_delete=command.immediate_delete,
            create_timestamp_ms=now_ms,
            previous_count=writable,
            accept_state_loss=tuple(sorted(command.accept_state_loss)),
        ),
        required_groups=requirement.groups,
        groups_complete=requirement.doubt is None,
        drained_groups=record.drained_groups if any(r.drained_by for r in record.retired.values()) else (),
        waived={},
    )


def _replace(record: TopicRecord, command: ReplaceTopicCommand, now_ms: int) -> TopicRecord:
    """Return the record with the new replacement; :mod:`modeaware.lifecycle.replacement` carries out the change."""
    replacement = Replacement(
        new_topic=command.new_topic,
        num_partitions=command.num_partitions,
        requested_ms=now_ms,
        replication_factor=command.replication_factor,
        configs=dict(command.configs),
        delay_ms=command.delay_ms,
        fence=command.fence,
        pause_before_switch=command.pause_before_switch,
        keep_name=command.keep_name,
        accept_state_loss=tuple(sorted(command.accept_state_loss)),
        evacuation_epoch=record.epoch + 1 if command.evacuate else None,
    )
    return replace(record, replacement=replacement)


def _undo(record: TopicRecord, now_ms: int) -> TopicRecord:
    """Return the record with the replacement undone."""
    replacement = record.replacing
    undone = replace(replacement, undone_ms=replacement.undone_ms or now_ms, reason=reasons.UNDOING)
    return replace(record, replacement=undone)


def _unread(
    command: DeletePartitionsCommand, record: TopicRecord, facts: TopicFacts, doubt: GroupsDoubt | None
) -> str | None:
    if not command.immediate_delete:
        return None
    logs = {p: facts.partitions[p] for p in record.retired}
    losses = [
        f"group {name!r}: {count}"
        for name in sorted({*record.required_groups, *facts.groups})
        if (count := sum(unread_offsets(facts.groups.get(name), p, log.end_offset, log.log_start)
                         for p, log in logs.items())) > 0
    ]  # fmt: skip
    total = sum(log.end_offset - log.log_start for log in logs.values())
    detail = f"; unread: {', '.join(losses)}" if losses else "; every listed group has read all records"
    if doubt is not None:
        detail += f"; there may be more groups: {doubt.detail}"
    return f"immediate_delete: about {total} records will be deleted without waiting for the drain{detail}"


def _check_size(record: TopicRecord, facts: TopicFacts) -> None:
    """Refuse a change whose record might become too large for the mode log before the change ends."""
    replacement = record.replacing
    if record.has_replacement and replacement.switched_ms is None and replacement.undone_ms is None:
        # The switch will add these groups to the record.
        record = replace(record, required_groups=tuple(sorted({*record.required_groups, *facts.groups})))
    size = largest_bytes(record)
    if size > MAX_RECORD_BYTES:
        why = (
            f"its mode record could grow to {size} bytes, above the limit of {MAX_RECORD_BYTES} bytes. With the "
            f"topic's {len(record.required_groups)} groups, about {max(most_partitions(record), 0)} retired partitions "
            "fit. Delete groups that are not needed (kafka-consumer-groups --delete)"
        )
        raise Objection(record.topic, "record-size", ErrorCode.MESSAGE_TOO_LARGE, why).refusal


# Rules about groups


def alter_group_rules(
    record: GroupRulesRecord, command: AlterGroupRulesCommand, controller_epoch: int, now_ms: int
) -> GroupRulesRecord:
    """Return the rules after ``command``, without expired rules. If the command changes nothing, return ``record``.

    The limits of size apply only to a command that adds rules.

    Raises:
        RequestRefused: a rule is invalid, a rule to remove does not exist, or the rules would take too much room.
    """
    for rule in command.add:
        _check_rule(rule)
    rules = {rule.key: rule for rule in record.rules}
    for key in command.remove:
        if rules.pop(key, None) is None:
            kind, group, topic = key
            raise _invalid(f"there is no rule {kind!r} for group {group!r} and topic {topic!r}")
    for rule in command.add:
        held = rules.get(rule.key)
        if held is not None and held.glob is not rule.glob:
            was, requested = ("a glob", "a name") if held.glob else ("a name", "a glob")
            raise _invalid(
                f"group {rule.group!r} is {requested} here, but {was} in a rule {rule.kind!r} for topic {rule.topic!r} "
                f"that is in force. Remove that rule first: modeaware groups forget {rule.kind} GROUP --topic TOPIC"
            )
    rules |= {rule.key: rule for rule in command.add}
    if tuple(rules.values()) == record.rules:
        return record
    kept = tuple(r for r in rules.values() if r in command.add or r.expires_ms is None or r.expires_ms > now_ms)
    after = replace(record, rules=kept, controller_epoch=controller_epoch, epoch=record.epoch + 1)
    for topic in sorted({rule.topic for rule in command.add}):
        of_topic = replace(after, rules=tuple(rule for rule in kept if rule.topic == topic))
        _check_room(f"the rules about groups of topic {topic!r}", of_topic, MAX_TOPIC_RULES_BYTES)
    if command.add:
        _check_room("all rules about groups", after, MAX_RECORD_BYTES)
    return after


def _check_room(what: str, record: GroupRulesRecord, most_bytes: int) -> None:
    if (size := len(record.to_json())) > most_bytes:
        why = (
            f"{what} would take {size} bytes; the limit is {most_bytes}. Use globs, or remove rules (modeaware "
            "groups forget)"
        )
        raise RequestRefused(why, code=ErrorCode.MESSAGE_TOO_LARGE)


def _check_rule(rule: GroupRule) -> None:
    if rule.kind not in KINDS:
        raise _invalid(f"unknown kind of rule {rule.kind!r} (known: {', '.join(KINDS)})")
    lengths = (("group", rule.group, MAX_GROUP_BYTES), ("topic", rule.topic, MAX_TOPIC_BYTES))
    for what, text, most_bytes in (*lengths, ("reason", rule.reason, MAX_REASON_BYTES)):
        if (size := len(text.encode(errors="surrogatepass"))) > most_bytes:
            raise _invalid(
                f"the {what} of a rule {rule.kind!r} takes {size} bytes; the limit is {most_bytes}: {text[:40]!r}..."
            )
    if bool(rule.group) is (rule.kind == CLOSED):
        raise _invalid(f"a rule {rule.kind!r} " + ("takes no group" if rule.group else "must name a group"))
    if rule.kind == WAIVE and rule.group.startswith(EVACUATION_PREFIX):
        raise _invalid(
            f"group {rule.group!r} proves that the latest values of a compacted topic were copied, and cannot be "
            "waived: run the Spark job modeaware.spark.evacuate"
        )
    if rule.glob and not has_glob_characters(rule.group):
        raise _invalid(
            f"group {rule.group!r} is not a glob: it contains no *, ? or [. For a plain name omit --glob (glob=True)"
        )
    if not rule.topic:
        raise _invalid(f"a rule {rule.kind!r} must name a topic, or a glob")
    if rule.kind != REQUIRE and not rule.reason.strip():
        raise _invalid(f"a rule {rule.kind!r} needs a reason: the drain certificate states it")
    if rule.expires_ms is not None and rule.expires_ms <= rule.created_ms:
        raise _invalid(f"the rule {rule.kind!r} for group {rule.group!r} would have expired before it began")
    if rule.expires_ms is not None and rule.expires_ms > LATEST_MS:
        raise _invalid(f"the rule {rule.kind!r} for group {rule.group!r} would end beyond the year 9999")


def _invalid(why: str) -> RequestRefused:
    return RequestRefused(why, code=ErrorCode.INVALID_REQUEST)
