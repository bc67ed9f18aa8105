"""An alias: the name of a topic that was replaced and is gone. Its record stays, and leads the name to the successor.

A client may use the name at any time, so an alias stays until an operator forgets it, or until the topic that it leads
to has been replaced by a new topic of the name. A forgotten alias has no record, and the name means what brokers have
under it: a topic, or none.

Until then the alias is watched: another topic under the name, and a deletion of the topic that it leads to, raise an
alarm. Another topic under the name comes by an automatic creation, for example, and a client that knows no modes may
have written to it. Mode-aware clients do not use that topic (invariant I8): an operator copies the records that are
wanted, and deletes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from modeaware.chain import walk
from modeaware.errors import ErrorCode
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import DeletePartitionsCommand, Objection, ReplaceTopicCommand, TopicCommand
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.keep_name import reserved
from modeaware.lifecycle.passes import Advance, Pass
from modeaware.lifecycle.topic_deletion import LOOK_AGAIN_MS
from modeaware.modelog.records import Replaced, Replacement, TopicRecord, replaced
from modeaware.modes import PartitionMode

FORGOTTEN_MS = 600_000
"""Twice librdkafka's ``topic.metadata.refresh.interval.ms``."""


Chain = Mapping[str, Sequence[TopicRecord]]
"""The id of each topic that has replaced others -> their records: one, and such that are gone."""


def chain_of(records: Iterable[TopicRecord]) -> Chain:
    chain: dict[str, list[TopicRecord]] = {}
    for record in records:
        if record.replacing.successor_id is not None:
            chain.setdefault(record.replacing.successor_id, []).append(record)
    return chain


def predecessor_of(topic_id: str | None, chain: Chain) -> str | None:
    """Return the name of the last topic before another one that is not gone; None: none. Where one between them was
    deleted by hand, groups still come from the one before that.

    Args:
        chain: :func:`chain_of`.
    """
    before = walk(chain.get(topic_id or "", ()), lambda record: chain.get(record.topic_id, ()))
    return next((record.topic for record in before if not record.is_alias), None)


def record_after(record: TopicRecord, now_ms: int) -> TopicRecord | None:
    """Return the record of a topic that is gone: None but where its name leads to a successor (invariant I8)."""
    replacement = record.replacing
    if replacement.switched_ms is None:
        return None
    if replacement.gone_ms is not None:
        return record
    # Nothing is left to wait for: every group may read the successor. The proof of our own deletion is kept.
    gone = replace(replacement, gone_ms=now_ms, let_go_ms=replacement.let_go_ms or now_ms, reason=None)
    retired = record.retired if replacement.deleting_ms is not None else {}
    return replace(replace(record, replacement=gone), retired=retired)


def advance_gone(topic: Replaced, this: Pass) -> Advance:
    """Keep the name where its topic is gone. A mode log that was restored may be older than the switch: the successor
    shows that by its records (invariant I2)."""
    (record, replacement), new_topic = topic, this.facts.successor
    if replacement.switched_ms is None and replacement.undone_ms is None and replacement.successor_id is not None:
        is_there = new_topic is not None and new_topic.topic_id == replacement.successor_id
        if new_topic is None or (
            new_topic.untouched is None if is_there else new_topic.topic_id is None and not new_topic.gone
        ):
            return Advance()
        if is_there and not new_topic.untouched:
            modes = (PartitionMode.READ_ONLY,) * len(record.modes)
            record = replace(topic.changed(switched_ms=this.now_ms), modes=modes, groups_complete=False)
    after = record_after(record, this.now_ms)
    if after is None:
        alarm = f"topic {record.topic!r} is gone: its mode record is removed, and it is not replaced. Its successor "
        return Advance(tombstone=True, alarms=(f"{alarm}{replacement.successor!r} stays, if it was created",))
    if after is record:
        return _watch(topic, this)
    alarm = f"topic {record.topic!r} is gone: its name leads on to {replacement.successor!r}"
    return Advance(record=after, alarms=() if replacement.deleting_ms is not None else (alarm,))


def _watch(topic: Replaced, this: Pass) -> Advance:
    """Note that the topic that the name leads to was deleted, or that another one has come up under the name; or
    neither. What is not confirmed yet changes nothing."""
    alias, replacement = topic
    facts, new_topic, before = this.facts, this.facts.successor, replacement.reason
    is_missing = new_topic is not None and new_topic.topic_id != replacement.successor_id
    reason = None
    is_waiting = alias.is_first_half and new_topic is not None
    if new_topic is not None and (new_topic.gone or (is_missing and before == reasons.LEADS_NOWHERE)):
        reason = reasons.LEADS_NOWHERE
    elif is_waiting:
        return Advance(due_ms=this.now_ms + LOOK_AGAIN_MS)
    elif facts.topic_id not in (None, alias.topic_id) or (before == reasons.NAME_TAKEN and not facts.gone):
        reason = reasons.NAME_TAKEN
    due_ms = this.now_ms + LOOK_AGAIN_MS if is_missing and reason != reasons.LEADS_NOWHERE else None
    if reason == before:
        return Advance(due_ms=due_ms)
    what = f"topic {alias.topic!r}, replaced by {replacement.successor!r}"
    alarms = () if reason is None else (f"{what}: {reasons.text(reason)}",)
    return Advance(topic.changed(reason=reason), due_ms=due_ms, alarms=alarms)


def facts_for_alias(alias: TopicRecord, facts: TopicFacts, records: Mapping[str, TopicRecord]) -> TopicFacts:
    """Return the facts that bear on an alias: not the topic of its name where that is a successor, the way back, and
    not its successor where the name leads further on.

    Args:
        records: topic id -> the record, of all topics.
    """
    if facts.topic_id is not None and is_successor(alias.topic, facts.topic_id, records.values()):
        facts = replace(facts, topic_id=None)
    following = records.get(alias.replacing.successor_id or "")
    return facts if following is None or following.replacement is None else replace(facts, successor=None)


def is_successor(topic: str, topic_id: str, records: Iterable[TopicRecord]) -> bool:
    """Return whether a topic has replaced another one, or is about to: it may be there before its id is on a record."""
    return any(
        topic_id == replacement.successor_id or (replacement.successor_id is None and topic == replacement.successor)
        for _, replacement in replaced(records)
    )


def alias_of(command: ReplaceTopicCommand, facts: TopicFacts, records: Collection[TopicRecord]) -> TopicRecord:
    """Return the alias that the command is about.

    Raises:
        RequestRefused: there is none, or its name leads to another topic than the command says; or a topic that is not
            gone is replaced by one of that name: clients that use it would be led past what they have to read before.
    """
    why = "it is no alias ('modeaware alias list' has them): no topic of that name was replaced and is gone"
    for record, replacement in replaced(records):
        if record.topic != command.topic:
            continue
        if record.is_alias:
            if replacement.successor != command.successor:
                why = f"it leads to {replacement.successor!r}, not to {command.successor!r}"
                raise Objection(command.topic, "alias", ErrorCode.INVALID_REQUEST, why).refusal
            if record.is_first_half:
                why = "the name is kept: wait until it has a topic again, or stay on the interim topic (--stay)"
                raise _too_early(command.topic, why).refusal
            _refuse_while_replaced_by(command.topic, records)
            return record
        if replacement.switched_ms is not None and record.topic_id != facts.topic_id:
            why = "it is no alias yet: no controller has noted that the topic is gone. Run one, and try again"
    raise Objection(command.topic, "alias", ErrorCode.INVALID_REQUEST, why).refusal


def _refuse_while_replaced_by(alias: str, records: Iterable[TopicRecord]) -> None:
    """Refuse to end an alias on the way back to its name, before the topic between is gone."""
    for record, replacement in replaced(records):
        if replacement.successor == alias and not record.is_alias:
            why = f"{record.topic!r} is being replaced by another topic of that name: wait until it is gone"
            raise _too_early(alias, why).refusal


def alias_objections(
    command: TopicCommand, facts: TopicFacts, records: Iterable[TopicRecord], now_ms: int
) -> Iterator[Objection]:
    """Yield the objections that records of replaced topics give rise to.

    Refuse a change of a topic that has come up under a name that leads elsewhere, or a successor of such a name
    (invariant I8): a record of it would take the name's place. Refuse one of a successor, before its predecessor is let
    go: groups that have not come to it yet would not count; a shrink, and any on the way back, before its predecessor
    is gone: groups may still come, and until then its name is an alias. Refuse a second predecessor of one successor,
    and to replace a successor before a compacted predecessor is gone: a straggler has to be copied to it.

    A topic may be replaced by a new one under the name of an alias that leads to it: the way back.
    """
    wanted = {command.topic, command.successor if isinstance(command, ReplaceTopicCommand) else command.topic}
    records = list(records)
    yield from reserved(command, records)
    has_alias = any(record.is_alias and record.topic == command.topic for record in records)
    # What is under way comes first: a way back before where its name has led.
    for topic in sorted(replaced(records), key=lambda topic: topic.record.is_alias):
        record, replacement = topic
        if record.topic == command.topic and record.topic_id == facts.topic_id:
            continue
        if isinstance(command, ReplaceTopicCommand) and is_way_back(command, facts.topic_id, record, records):
            yield from _early_return(command, facts, topic, now_ms)
            continue
        waits = _is_held(command, facts.topic_id, topic, has_alias=has_alias)
        if not waits and record.topic in wanted and replacement.switched_ms is not None:
            why = (
                f"the name leads to {replacement.successor!r}, which has replaced the topic of id {record.topic_id}; "
                "clients do not use another topic of that name"
            )
            yield Objection(record.topic, "alias", ErrorCode.INVALID_TOPIC_EXCEPTION, why)
            continue
        shares = isinstance(command, ReplaceTopicCommand) and command.successor == replacement.successor
        if waits or (shares and not record.is_alias):
            end = "that is done" if replacement.let_go_ms is None else _deleted(record.topic)
            yield _too_early(replacement.successor, f"it replaces {record.topic!r}: wait until {end}")
            continue
        takes_copies = replacement.evacuation_epoch is not None and not record.is_alias
        if takes_copies and isinstance(command, ReplaceTopicCommand) and command.topic == replacement.successor:
            why = f"it replaces {record.topic!r}, from which a late record may still have to be copied: wait until "
            yield _too_early(command.topic, why + _deleted(record.topic))
    yield from _while_groups_come(command, facts.topic_id, records)


def _is_held(command: TopicCommand, topic_id: str | None, before: Replaced, *, has_alias: bool) -> bool:
    """Return whether ``before`` is a predecessor for which the command has to wait.

    A shrink does not wait for groups that are still on the predecessor, so it is refused until that is gone (invariant
    I1).

    Args:
        topic_id: None: not known, and it is taken for the successor.
        has_alias: the name is an alias as well: of another topic than the successor that speaks for itself.
    """
    replacement = before.replacement
    if replacement.successor != command.topic:
        return False
    if has_alias and topic_id is not None and replacement.successor_id not in (None, topic_id):
        return False
    if replacement.let_go_ms is None or before.record.is_alias:
        return replacement.let_go_ms is None
    return has_alias or (isinstance(command, DeletePartitionsCommand) and topic_id in (None, replacement.successor_id))


def _while_groups_come(
    command: TopicCommand, topic_id: str | None, records: Iterable[TopicRecord]
) -> Iterator[Objection]:
    """Refuse a shrink while a topic before this one is there, also where one between them is gone."""
    before = predecessor_of(topic_id, chain_of(records)) if isinstance(command, DeletePartitionsCommand) else None
    if before is not None:
        why = f"its name has led to this topic from {before!r}, from which groups may still come: wait until "
        yield _too_early(command.topic, why + _deleted(before))


def _too_early(topic: str, why: str) -> Objection:
    return Objection(topic, "alias", ErrorCode.REASSIGNMENT_IN_PROGRESS, why)


def _deleted(topic: str) -> str:
    return f"{topic!r} is deleted (after --fence none delete it yourself), and a running controller has noted that"


def is_way_back(
    command: ReplaceTopicCommand, topic_id: str | None, alias: TopicRecord, records: Iterable[TopicRecord]
) -> bool:
    """Return whether the command gives a topic the name of an alias that leads to it."""
    if not alias.is_alias or command.successor != alias.topic:
        return False
    by_id = {record.topic_id: (record,) for record in records}
    after = walk(
        (alias,),
        lambda record: by_id.get(record.replacing.successor_id or "", ()),
    )
    return any(record.replacing.successor_id == topic_id for record in after)


def _early_return(command: ReplaceTopicCommand, facts: TopicFacts, alias: Replaced, now_ms: int) -> Iterator[Objection]:
    """Refuse a topic under a name that clients without modes still use: they would skip what it holds. Refuse more
    partitions than the name had: a client library may know the name by its earlier count until it has refreshed its
    metadata, and fails records for other partitions."""
    had = len(alias.record.modes)
    users = facts.successor.groups if facts.successor is not None and facts.successor.topic_id is None else {}
    if using := sorted(name for name, group in users.items() if group.subscribed):
        why = f"groups are subscribed to it, by clients without modes: {', '.join(using)}. Stop or move them first"
        reason = reasons.of_group(reasons.NAME_SUBSCRIBED, using[0])
        yield Objection(command.successor, "alias", ErrorCode.POLICY_VIOLATION, why, reason)
    left_ms = (alias.replacement.gone_ms or 0) + FORGOTTEN_MS - now_ms
    if command.num_partitions > had and left_ms > 0:
        why = (
            f"clients may still know it by the {had} partitions that it had: wait "
            f"{left_ms // 1000 + 1} s, or name no more than these"
        )
        yield replace(_too_early(command.successor, why), reason=reasons.KNOWN_BY_COUNT)


def ended_by(record: TopicRecord, records: Iterable[TopicRecord]) -> list[str]:
    """Return the ids of the aliases that end with the topic of ``record``, which is gone: its successor has their name,
    and no group has to read another topic before that."""
    replacement = record.replacing
    if replacement.gone_ms is None:
        return []
    ended = (alias for alias, _ in _aliases(records) if alias.topic == replacement.successor)
    return [alias.topic_id for alias in ended if alias.topic_id != replacement.successor_id]  # that leads further on


def _aliases(records: Iterable[TopicRecord]) -> Iterator[Replaced]:
    return (topic for topic in replaced(records) if topic.record.is_alias)


def led_on(gone: Collection[str], appended: Sequence[TopicRecord], records: Iterable[TopicRecord]) -> list[TopicRecord]:
    """Return the aliases that lead to an alias that is removed, leading on to the topic that has its name from now on,
    or else to where it has led. Clients know a topic by its id, and would go no further (invariant I8).

    Args:
        gone: the ids of the topics whose records are removed.
        appended: the records that are appended with that.
    """
    latest = {record.topic_id: record for record in (*records, *appended)}
    removed = {topic.record.topic_id: topic for topic in _aliases(latest.values()) if topic.record.topic_id in gone}
    changed = []
    for alias in _aliases(latest.values()):
        before = removed.get(alias.replacement.successor_id or "")
        if before is None or alias.record.topic_id in gone:
            continue
        replacement = _place_of(before, appended)
        changed.append(
            alias.changed(
                successor=replacement.successor,
                successor_id=replacement.successor_id,
                num_partitions=replacement.num_partitions,
            )
        )
    return changed


def _place_of(removed: Replaced, appended: Iterable[TopicRecord]) -> Replacement:
    """Return the replacement that leads to the topic in the place of an alias that is removed."""
    returned = (replacement for _, replacement in _aliases(appended) if replacement.successor == removed.record.topic)
    return next(returned, removed.replacement)
