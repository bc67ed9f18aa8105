"""Admission: whether a command may change a topic or the rules about groups, and the record that changes it.

KIP-694 "Proposed Changes" and KIP-195 "Anticipated errors" give the checks and the error codes. A refusal changes
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from modeaware.config import ControllerConfig
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle.alias import alias_of
from modeaware.lifecycle.commands import (
    AlterGroupRulesCommand,
    CreatePartitionsCommand,
    DeletePartitionsCommand,
    ReplaceTopicCommand,
    TopicCommand,
)
from modeaware.lifecycle.drain import EVACUATION_PREFIX, Requirement, evacuation_group, required_of, unread_offsets
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.growth import grow
from modeaware.lifecycle.intent import (
    changed_replacement,
    new_replacement,
    objection_to_change,
    objections_to_evacuation,
    objections_to_replacement,
)
from modeaware.lifecycle.record_size import largest_bytes, most_partitions
from modeaware.lifecycle.state import current_record, in_progress
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
    MAX_PARTITIONS,
    MAX_RECORD_BYTES,
    DeleteTopicPartitions,
    RetiredPartition,
    TopicRecord,
)
from modeaware.modes import PartitionMode, format_ranges
from modeaware.printable import with_nearest

LATEST_MS = 253_402_300_799_000
"""The end of the year 9999, the last that dates can express."""
MAX_GROUP_BYTES, MAX_TOPIC_BYTES, MAX_REASON_BYTES = 500, 249, 1_000
"""Of one rule about groups, as UTF-8. Kafka allows group ids of 32 kB, and all rules share a record."""
MAX_TOPIC_RULES_BYTES = 60_000
"""Of all rules for one topic: about 400. A user may have rights on that topic alone, and others need room."""


@dataclass(frozen=True)
class Admission:
    """What follows from a command: a record to append, and the ids of topics whose records are removed."""

    record: TopicRecord | None
    message: str | None = None
    removed: tuple[str, ...] = ()


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
        RequestRefused: the command is refused; ``code`` and the message say why and what to do.
    """
    topic = command.topic
    if facts.topic_id is None:
        raise RequestRefused(f"topic {topic!r} does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=topic)
    if facts.internal or topic == config.mode_log_topic:
        why = "it is internal; its owner decides on its partition count"
        raise _refusal(topic, ErrorCode.INVALID_TOPIC_EXCEPTION, why)
    if record is not None and record.topic_id != facts.topic_id:
        record = None  # recreated under its name: a new topic, with a record of its own
    current = current_record(record, topic, facts.topic_id, facts.partition_count)
    message: str | None = None
    after: TopicRecord | None
    if current.replacement is not None and not isinstance(command, ReplaceTopicCommand):
        raise _refusal(topic, ErrorCode.REASSIGNMENT_IN_PROGRESS, objection_to_change(current.replacement))
    if isinstance(command, DeletePartitionsCommand | ReplaceTopicCommand) and not config.enable:
        raise _refusal(topic, ErrorCode.POLICY_VIOLATION, "shrinks are off (delete.topic.partition.enable=false)")
    if isinstance(command, ReplaceTopicCommand):
        after = _replaced(command, current, facts, now_ms)
    elif isinstance(command, DeletePartitionsCommand):
        if command.delay_ms is not None and command.delay_ms < 0:
            why = f"a delay of {command.delay_ms} ms: 0 or more, or none at all"
            raise _refusal(topic, ErrorCode.INVALID_REQUEST, why)
        if (after := _repeated(command, current)) is not None:
            message = "already under way: the loss of state is accepted now"
        else:
            for code, why in _objections_to_shrink(command, current, facts):
                raise _refusal(topic, code, why)
            after = _retire(
                command, current, facts, required_of((), facts, rules, config.ignored_groups, now_ms), now_ms
            )
            message = _unread(command, after, facts)
    else:
        for code, why in _objections_to_growth(command, current, facts):
            raise _refusal(topic, code, why)
        after = grow(current, command, facts, now_ms)
    if after == current:
        return Admission(None, "already under way: nothing changed")
    _check_size(after, facts)
    if isinstance(command, CreatePartitionsCommand | ReplaceTopicCommand) and command.validate_only:
        return Admission(None)
    return Admission(after.stamped(controller_epoch, now_ms), message)


def forget_alias(command: ReplaceTopicCommand, facts: TopicFacts, records: Sequence[TopicRecord]) -> Admission:
    """Decide on the end of an alias; ``records`` are those of all topics that are or were replaced.

    Raises:
        RequestRefused: as :func:`admit`.
    """
    alias = alias_of(command, facts, records)
    return Admission(None, removed=() if command.validate_only else (alias.topic_id,))


def _replaced(command: ReplaceTopicCommand, current: TopicRecord, facts: TopicFacts, now_ms: int) -> TopicRecord:
    """Return the record with the topic's replacement begun, changed or undone."""
    if current.replacement is not None:
        found = changed_replacement(current, current.replacement, command, now_ms)
        if isinstance(found, str):
            raise _refusal(command.topic, ErrorCode.REASSIGNMENT_IN_PROGRESS, found)
        return found
    for code, why in (*objections_to_replacement(command, facts), *_objections_to_change(command, current, facts)):
        raise _refusal(command.topic, code, why)
    if evacuated := [p for p, retired in current.retired.items() if retired.evacuated]:
        why = (
            f"the values of its partitions {format_ranges(evacuated)} were copied to those that stay, and would be "
            "read again after these: grow it first, so that they are written anew (modeaware grow)"
        )
        raise _refusal(command.topic, ErrorCode.POLICY_VIOLATION, why)
    return new_replacement(current, command, now_ms)


def _objections_to_shrink(
    command: DeletePartitionsCommand, current: TopicRecord, facts: TopicFacts
) -> Iterator[tuple[ErrorCode, str]]:
    """Yield why a shrink is refused, with the error codes.

    One change at a time, because required groups are noted for one change; and state that is kept per partition does
    not move with the keys, so its group has to be named (invariant I1).
    """
    topic, target, count = command.topic, command.total_count, current.writable_count
    if target < 1:
        yield ErrorCode.INVALID_PARTITIONS, f"{target} partitions: at least 1 must stay"
    if target == count:
        yield ErrorCode.INVALID_PARTITIONS, f"it has {count} writable partitions already"
    if target > count:
        grow_it = f"'modeaware grow {topic} --to {target}' or AdminClient.create_partitions"
        why = f"{target} is more than its {count} writable partitions: to grow it, use {grow_it}"
        yield ErrorCode.INVALID_PARTITIONS, why
    yield from _objections_to_change(command, current, facts)
    if command.evacuate and command.immediate_delete:
        why = "the shrink has to wait for an evacuation: --evacuate and --immediate-delete exclude each other"
        yield ErrorCode.INVALID_REQUEST, why
    remedy = (
        "and the latest value of a key in a retired partition must be kept: shrink it with --evacuate, and run the "
        "Spark job modeaware.spark.evacuate, which copies these values to the partitions that stay"
    )
    yield from objections_to_evacuation(facts, remedy, evacuate=command.evacuate)


def _objections_to_change(
    command: DeletePartitionsCommand | ReplaceTopicCommand, current: TopicRecord, facts: TopicFacts
) -> Iterator[tuple[ErrorCode, str]]:
    """Yield why a topic can neither be shrunk nor replaced now."""
    if in_progress(current):
        why = "the topic is currently under changes: wait (--describe shows what it waits for), or undo it (--undo)"
        yield ErrorCode.REASSIGNMENT_IN_PROGRESS, why
    if facts.stateful_owner is not None:
        owner = repr(facts.stateful_owner)
        why = f"it is an internal topic of the Streams application {owner}, which keeps state per partition"
        yield ErrorCode.POLICY_VIOLATION, why
    stateful = {name for name, group in facts.groups.items() if group.stateful} - set(command.accept_state_loss)
    if stateful:
        why = (
            "groups that keep state per partition (as Kafka Streams does) read it: "
            f"{', '.join(sorted(stateful))}. The state of keys that move would stay behind; to accept that, name each "
            "with --accept-state-loss"
        )
        yield ErrorCode.POLICY_VIOLATION, why
    if facts.partition_count > len(current.modes):
        why = (
            f"it has {facts.partition_count} partitions, but only {len(current.modes)} are on record and some of them "
            "are retired: another tool has grown it. Grow it with modeaware first, so that they are opened"
        )
        yield ErrorCode.INVALID_PARTITIONS, why
    if missing := [p for p in range(facts.partition_count) if p not in facts.partitions]:
        why = f"no leader available for partitions {format_ranges(missing)}; retry, or check the brokers"
        yield ErrorCode.LEADER_NOT_AVAILABLE, why


def _objections_to_growth(
    command: CreatePartitionsCommand, current: TopicRecord, facts: TopicFacts
) -> Iterator[tuple[ErrorCode, str]]:
    target, count = command.total_count, current.writable_count
    if target <= count:
        yield ErrorCode.INVALID_PARTITIONS, f"it has {count} writable partitions already; {target} is not an increase"
    if target > MAX_PARTITIONS:  # before a list of that length is made
        yield ErrorCode.INVALID_PARTITIONS, f"{target} partitions: at most {MAX_PARTITIONS} fit its mode record"
    new = max(target - facts.partition_count, 0)
    if command.assignments is not None and len(command.assignments) != new:
        why = (
            f"{len(command.assignments)} replica assignments for {new} new partitions (retired ones are revived first)"
        )
        yield ErrorCode.INVALID_REPLICA_ASSIGNMENT, why


def _repeated(command: DeletePartitionsCommand, current: TopicRecord) -> TopicRecord | None:
    """Return the record of the shrink in progress, if this is the same one; None: it is not.

    A repeated request may name more groups whose state may be lost: one that appeared since may hold the shrink up.
    """
    now = current.deletion
    if now is None or not in_progress(current):
        return None
    if not command.total_count == now.delete_partitions == current.writable_count:
        return None
    wanted = (command.delay_ms, command.immediate_delete, command.evacuate)
    if wanted != (now.delay_ms, now.immediate_delete, now.evacuate):
        why = (
            f"the topic is already being shrunk to {now.delete_partitions} partitions under the {now.policy!r} policy, "
            f"{'with' if now.evacuate else 'without'} an evacuation: undo it (--undo) to choose another"
        )
        raise _refusal(command.topic, ErrorCode.REASSIGNMENT_IN_PROGRESS, why)
    accepted = tuple(sorted({*now.accept_state_loss, *command.accept_state_loss}))
    return replace(current, deletion=replace(now, accept_state_loss=accepted))


def _retire(
    command: DeletePartitionsCommand, record: TopicRecord, facts: TopicFacts, requirement: Requirement, now_ms: int
) -> TopicRecord:
    """Return the record that retires the tail.

    ReadOnly comes first, so that nothing is hidden unread (invariant I2). The highest ids retire and survivors' end
    offsets are noted, so that keys have one place at each epoch (invariant I3). An uncertain listing is marked
    (invariant I1).
    """
    keep, writable = command.total_count, record.writable_count
    epoch = record.epoch + 1  # this record's, once it is stamped
    modes = list(record.modes)
    retired = dict(record.retired)
    for partition in range(keep, writable):
        modes[partition] = PartitionMode.READ_ONLY
        retired[partition] = RetiredPartition(
            switch_offset=facts.partitions[partition].end_offset if command.evacuate else None
        )
    # Noted like a reader: a controller of a version without evacuations waits for it all the same.
    evacuation = (evacuation_group(command.topic, epoch),) if command.evacuate else ()
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
            evacuate=command.evacuate,
            evacuation_epoch=epoch if command.evacuate else -1,
        ),
        switch_offsets={p: facts.partitions[p].end_offset for p in range(keep)},
        required_groups=tuple(sorted({*requirement.groups, *evacuation})),
        groups_complete=requirement.doubt is None,
        drained_groups=record.drained_groups if any(r.drained_by for r in record.retired.values()) else (),
        waived={},
    )


def _unread(command: DeletePartitionsCommand, record: TopicRecord, facts: TopicFacts) -> str | None:
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
    detail = f"; unread of it: {', '.join(losses)}" if losses else "; every listed group has read it all"
    if (doubt := facts.any_doubt) is not None:
        detail += f"; there may be more groups: {doubt.detail}"
    return f"immediate_delete: about {total} records will be deleted without waiting for the drain{detail}"


def _refusal(topic: str, code: ErrorCode, why: str) -> RequestRefused:
    return RequestRefused(f"topic {topic!r}: {why}", code=code, topic=topic)


def _check_size(record: TopicRecord, facts: TopicFacts) -> None:
    """Refuse a change whose record might not fit the mode log to its end."""
    now = record.replacement
    if now is not None and now.switched_ms is None and now.undone_ms is None:  # the switch will note the groups
        record = replace(record, required_groups=tuple(sorted(facts.groups)))
    size = largest_bytes(record)
    if size > MAX_RECORD_BYTES:
        what = "retired partitions" if record.replacement is None else "partitions of a topic that is replaced"
        why = (
            f"its mode record could grow to {size} bytes, more than {MAX_RECORD_BYTES}: that has room for about "
            f"{max(most_partitions(record), 0)} {what} beside its {len(record.required_groups)} groups. Delete groups "
            "that are not needed (kafka-consumer-groups --delete)"
        )
        raise _refusal(record.topic, ErrorCode.MESSAGE_TOO_LARGE, why)


# Rules about groups


def alter_group_rules(
    record: GroupRulesRecord, command: AlterGroupRulesCommand, controller_epoch: int, now_ms: int
) -> GroupRulesRecord:
    """Return the rules after ``command``, without others that have expired; ``record`` itself where nothing changes.

    No limit holds up a command that only removes rules.

    Raises:
        RequestRefused: a rule cannot be one, or one to remove does not exist, or the rules would take too much room.
    """
    for rule in command.add:
        _check_rule(rule)
    rules = {rule.key: rule for rule in record.rules}
    for key in command.remove:
        if rules.pop(key, None) is None:
            kind, group, topic = key
            why = f"there is no rule {kind!r} for group {group!r} and topic {topic!r}"
            raise _invalid(with_nearest(why, group, (rule.group for rule in record.rules if rule.kind == kind)))
    for rule in command.add:
        held = rules.get(rule.key)
        if held is not None and held.glob is not rule.glob:
            was, now = ("a glob", "a name") if held.glob else ("a name", "a glob")
            raise _invalid(
                f"group {rule.group!r} is {now} here, and {was} in a rule {rule.kind!r} for topic {rule.topic!r} that "
                f"is in force. Remove that rule first: modeaware groups forget {rule.kind} GROUP --topic TOPIC"
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
        why = f"{what} would take {size} bytes, more than {most_bytes}: use globs, or remove some (groups forget)"
        raise RequestRefused(why, code=ErrorCode.MESSAGE_TOO_LARGE)


def _check_rule(rule: GroupRule) -> None:
    if rule.kind not in KINDS:
        raise _invalid(f"unknown kind of rule {rule.kind!r} (known: {', '.join(KINDS)})")
    lengths = (("group", rule.group, MAX_GROUP_BYTES), ("topic", rule.topic, MAX_TOPIC_BYTES))
    for what, text, most_bytes in (*lengths, ("reason", rule.reason, MAX_REASON_BYTES)):
        if (size := len(text.encode(errors="surrogatepass"))) > most_bytes:
            raise _invalid(
                f"the {what} of a rule {rule.kind!r} takes {size} bytes, more than {most_bytes}: {text[:40]!r}..."
            )
    if bool(rule.group) is (rule.kind == CLOSED):
        raise _invalid(f"a rule {rule.kind!r} " + ("takes no group" if rule.group else "must name a group"))
    if rule.kind == WAIVE and rule.group.startswith(EVACUATION_PREFIX):
        raise _invalid(
            f"group {rule.group!r} proves that the latest values of keys were copied before a partition becomes None: "
            "it cannot be waived. Run the Spark job modeaware.spark.evacuate, or undo the shrink (--undo)"
        )
    if rule.glob and not has_glob_characters(rule.group):
        raise _invalid(f"group {rule.group!r} is no glob: it has none of * ? [; omit --glob (glob=True) for a name")
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
