"""An alias: the name of an old topic that is gone. The old topic's record stays, and the name points to the new topic.

A client may use the old name at any time. So an alias stays until an operator removes it, or until a *rename back* is
complete: a new topic with the alias's name has replaced the topic that the alias points to (its *target*). The alias of
an interim topic ends once it is unused (:mod:`modeaware.lifecycle.second_half`). When an alias ends, its record is
removed, and the name means the topic that brokers have under it, if any.

While the alias exists, the controller watches it. The controller raises an alarm when the target is deleted, or when
another topic appears under the alias's name, for example by automatic creation. Stock clients may have written to that
topic; mode-aware clients do not use it (invariant I8). An operator copies that topic's records if needed, and deletes
the topic.
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
from modeaware.lifecycle.topic_deletion import CHECK_AGAIN_MS
from modeaware.modelog.records import Replaced, Replacement, TopicRecord, replaced
from modeaware.modes import PartitionMode

FORGOTTEN_MS = 600_000
"""After this time clients have forgotten a deleted topic: twice librdkafka's ``topic.metadata.refresh.interval.ms``."""
CHECK_IN_GAP_MS = 15_000
"""The longest time between two checks whether another topic has taken a name that is to be kept."""
EPOCHS_FORGOTTEN_MS = 45_000
"""librdkafka forgets a deleted topic 30 s after the first metadata without it (``topic.metadata.propagation.max.ms``).
Until then, in a new topic of that name, librdkafka ignores a leader whose epoch is lower than that of the same
partition in the deleted topic. A consumer would never read this partition, and a producer might send to a broker that
does not lead it. Clients request metadata at the deletion. The other 15 s are for brokers that do not answer at that
time."""


Chain = Mapping[str, Sequence[TopicRecord]]
"""The id of each new topic -> the records of its old topics. At most one of these old topics exists; the others are
gone."""


def chain_of(records: Iterable[TopicRecord]) -> Chain:
    chain: dict[str, list[TopicRecord]] = {}
    for record in records:
        if record.replacing.new_topic_id is not None:
            chain.setdefault(record.replacing.new_topic_id, []).append(record)
    return chain


def earlier_topic_of(topic_id: str | None, chain: Chain) -> str | None:
    """Return the name of the nearest earlier topic of the chain that is not gone, or None if all are gone. Groups may
    still move on from this earlier topic, even if a topic in between was deleted by hand.

    Args:
        chain: the result of :func:`chain_of`.
    """
    before = walk(chain.get(topic_id or "", ()), lambda record: chain.get(record.topic_id, ()))
    return next((record.topic for record in before if not record.is_alias), None)


def is_new_topic_replaced(record: TopicRecord, records: Mapping[str, TopicRecord]) -> bool:
    """Return whether producers have switched from the new topic of ``record`` to a later topic of the chain.

    Args:
        records: the records of all topics, by topic id.
    """
    new_topic = records.get(record.replacing.new_topic_id or "")
    return new_topic is not None and new_topic.replacing.switched_ms is not None


def record_after(record: TopicRecord, now_ms: int) -> TopicRecord | None:
    """Return the record of a topic that is gone; None if producers never switched: then it is removed (I8)."""
    replacement = record.replacing
    if replacement.switched_ms is None:
        return None
    if replacement.gone_ms is not None:
        return record
    # Every group may read the new topic now. If the controller deleted the topic, the record keeps the seals as proof.
    gone = replace(replacement, gone_ms=now_ms, released_ms=replacement.released_ms or now_ms, reason=None)
    retired = record.retired if replacement.deleting_ms is not None else {}
    return replace(replace(record, replacement=gone), retired=retired)


def advance_gone(topic: Replaced, this: Pass) -> Advance:
    """Turn the name of a topic that is gone into an alias or, if producers never switched, remove the topic's record. A
    restored mode log may be older than the switch. Then records on the new topic prove the switch (invariant I2)."""
    (record, replacement), new_topic = topic, this.facts.new_topic
    if replacement.switched_ms is None and replacement.undone_ms is None and replacement.new_topic_id is not None:
        is_there = new_topic is not None and new_topic.topic_id == replacement.new_topic_id
        if new_topic is None or (
            new_topic.untouched is None if is_there else new_topic.topic_id is None and not new_topic.gone
        ):
            return Advance()
        if is_there and not new_topic.untouched:
            modes = (PartitionMode.READ_ONLY,) * len(record.modes)
            record = replace(topic.changed(switched_ms=this.now_ms), modes=modes, groups_complete=False)
    after = record_after(record, this.now_ms)
    if after is None:
        alarm = f"topic {record.topic!r} is gone: its mode record and its replacement are removed. The new topic "
        return Advance(tombstone=True, alarms=(f"{alarm}{replacement.new_topic!r} stays, if it was created",))
    if after is record:
        return _watch(topic, this)
    alarm = f"topic {record.topic!r} is gone: its name points to {replacement.new_topic!r}"
    return Advance(record=after, alarms=() if replacement.deleting_ms is not None else (alarm,))


def _watch(topic: Replaced, this: Pass) -> Advance:
    """Give the alias a reason if its target was deleted, or if another topic has its name; otherwise clear the reason.
    An absence that is not confirmed changes nothing."""
    alias, replacement = topic
    facts, new_topic, before = this.facts, this.facts.new_topic, replacement.reason
    is_missing = new_topic is not None and new_topic.topic_id != replacement.new_topic_id
    reason = None
    is_waiting = alias.is_first_half and new_topic is not None
    if new_topic is not None and (new_topic.gone or (is_missing and before == reasons.POINTS_NOWHERE)):
        reason = reasons.POINTS_NOWHERE
    elif is_waiting:
        soon_ms = this.now_ms + CHECK_AGAIN_MS
        if before == reasons.KNOWN_BY_CLIENTS:  # many topics may wait for minutes
            known_ms = min(forgotten_ms(alias, replacement.num_partitions), this.now_ms + CHECK_IN_GAP_MS)
            soon_ms = max(soon_ms, known_ms)
        return Advance(due_ms=soon_ms)
    elif facts.topic_id not in (None, alias.topic_id) or (before == reasons.NAME_TAKEN and not facts.gone):
        reason = reasons.NAME_TAKEN
    due_ms = this.now_ms + CHECK_AGAIN_MS if is_missing and reason != reasons.POINTS_NOWHERE else None
    if reason == before:
        return Advance(due_ms=due_ms)
    what = f"topic {alias.topic!r}, replaced by {replacement.new_topic!r}"
    alarms = () if reason is None else (f"{what}: {reasons.text(reason)}",)
    return Advance(topic.changed(reason=reason), due_ms=due_ms, alarms=alarms)


def facts_for_alias(alias: TopicRecord, facts: TopicFacts, records: Mapping[str, TopicRecord]) -> TopicFacts:
    """Return the facts about an alias, without two topics that need no alarm. The first is a topic of the alias's name
    that is the new topic of a replacement (a rename back). The second is a target that is or was itself replaced.

    Args:
        records: the records of all topics, by topic id.
    """
    if facts.topic_id is not None and is_new_topic(alias.topic, facts.topic_id, records.values()):
        facts = replace(facts, topic_id=None)
    following = records.get(alias.replacing.new_topic_id or "")
    return facts if following is None or not following.has_replacement else replace(facts, new_topic=None)


def is_new_topic(topic: str, topic_id: str, records: Iterable[TopicRecord]) -> bool:
    """Return whether a topic is the new topic of a replacement: by its id, or by its name while no id is recorded."""
    return any(
        topic_id == replacement.new_topic_id or (replacement.new_topic_id is None and topic == replacement.new_topic)
        for _, replacement in replaced(records)
    )


def alias_of(command: ReplaceTopicCommand, facts: TopicFacts, records: Collection[TopicRecord]) -> TopicRecord:
    """Return the alias that the command removes.

    Raises:
        RequestRefused: there is no such alias, or it points to another topic than the command names. Or a change keeps
            the name. Or a rename back to the name is in progress: clients would skip the topic in between.
    """
    why = "not an alias: no topic of that name was replaced and deleted; see 'modeaware alias list'"
    for record, replacement in replaced(records):
        if record.topic != command.topic:
            continue
        if record.is_alias:
            if replacement.new_topic != command.new_topic:
                why = f"it points to {replacement.new_topic!r}, not to {command.new_topic!r}"
                raise Objection(command.topic, "alias", ErrorCode.INVALID_REQUEST, why).refusal
            if record.is_first_half and replacement.reason != reasons.POINTS_NOWHERE:
                why = (
                    "a change keeps this name: wait until the new topic has the name, or end the change on the interim "
                    "topic (--stay)"
                )
                raise _too_early(command.topic, why).refusal
            _refuse_while_replaced_by(command.topic, records)
            return record
        if replacement.switched_ms is not None and record.topic_id != facts.topic_id:
            why = (
                "not an alias yet: no controller has recorded that the topic was deleted; start a controller, and retry"
            )
    raise Objection(command.topic, "alias", ErrorCode.INVALID_REQUEST, why).refusal


def _refuse_while_replaced_by(alias: str, records: Iterable[TopicRecord]) -> None:
    """Refuse to remove an alias while a rename back to its name is in progress."""
    for record, replacement in replaced(records):
        if replacement.new_topic == alias and not record.is_alias:
            why = (
                f"{record.topic!r} is being replaced by a new topic of this name: wait until {record.topic!r} is "
                "deleted"
            )
            raise _too_early(alias, why).refusal


def alias_objections(
    command: TopicCommand, facts: TopicFacts, records: Iterable[TopicRecord], now_ms: int
) -> Iterator[Objection]:
    """Yield the objections that follow from records of replaced topics.

    * A topic that appeared under the name of an alias is not changed, and does not become a new topic: its record would
      take the alias's place (invariant I8). Only a rename back may give a new topic the alias's name.
    * A new topic is not changed before its old topic is released: groups that still read the old topic would not count.
      A new topic is not shrunk before its old topic is gone: groups may still move from the old topic. After a rename
      back no change is made before the old topic is gone, because the new topic's name is still an alias.
    * At most one old topic of a new topic exists. If this old topic is compacted, the new topic is not replaced before
      the old topic is gone: a straggler in the old topic has to be copied.
    """
    wanted = {command.topic, command.new_topic if isinstance(command, ReplaceTopicCommand) else command.topic}
    records = list(records)
    # With thousands of aliases, a controller calls this for each alias. Only the check of the chain needs all records.
    named = [
        topic for topic in replaced(records) if topic.record.topic in wanted or topic.replacement.new_topic in wanted
    ]
    yield from reserved(command, (record for record, _ in named))
    has_alias = any(record.is_alias and record.topic == command.topic for record, _ in named)
    # Replacements in progress come first, so that a rename back comes before the alias of its name.
    for topic in sorted(named, key=lambda topic: topic.record.is_alias):
        record, replacement = topic
        if record.topic == command.topic and record.topic_id == facts.topic_id:
            continue
        if isinstance(command, ReplaceTopicCommand) and is_rename_back(command, facts.topic_id, record, records):
            yield from _to_rename_back(command, facts, topic, now_ms)
            continue
        waits = _is_held(command, facts.topic_id, topic, has_alias=has_alias)
        if not waits and record.topic in wanted and replacement.switched_ms is not None:
            why = (
                f"the name points to {replacement.new_topic!r}, which replaced an earlier topic of this name (id "
                f"{record.topic_id}); clients use no other topic of this name. Name another topic"
            )
            yield Objection(record.topic, "alias", ErrorCode.INVALID_TOPIC_EXCEPTION, why)
            continue
        shares = isinstance(command, ReplaceTopicCommand) and command.new_topic == replacement.new_topic
        if waits or (shares and not record.is_alias):
            end = "its groups have moved" if replacement.released_ms is None else _deleted(record.topic)
            yield _too_early(replacement.new_topic, f"it replaces {record.topic!r}: wait until {end}")
            continue
        takes_copies = replacement.evacuation_epoch is not None and not record.is_alias
        if takes_copies and isinstance(command, ReplaceTopicCommand) and command.topic == replacement.new_topic:
            why = f"it replaces {record.topic!r}, and a late record there may still have to be copied: wait until "
            yield _too_early(command.topic, why + _deleted(record.topic))
    yield from _before_groups_moved(command, facts.topic_id, records)


def _is_held(command: TopicCommand, topic_id: str | None, before: Replaced, *, has_alias: bool) -> bool:
    """Return whether the command has to wait for the old topic ``before``.

    The drain of a shrink would not wait for groups that still read ``before``. So a shrink is refused until ``before``
    is gone (invariant I1).

    Args:
        topic_id: the id of the command's topic. If it is None, the topic counts as the new topic of ``before``.
        has_alias: whether an alias has the name of the command's topic. Then only the topic's id shows whether the
            topic is the new topic of ``before``.
    """
    replacement = before.replacement
    if replacement.new_topic != command.topic:
        return False
    if has_alias and topic_id is not None and replacement.new_topic_id not in (None, topic_id):
        return False
    if replacement.released_ms is None or before.record.is_alias:
        return replacement.released_ms is None
    return has_alias or (isinstance(command, DeletePartitionsCommand) and topic_id in (None, replacement.new_topic_id))


def _before_groups_moved(
    command: TopicCommand, topic_id: str | None, records: Iterable[TopicRecord]
) -> Iterator[Objection]:
    """Refuse a shrink while an earlier topic of the chain exists, even if a topic in between is gone."""
    before = earlier_topic_of(topic_id, chain_of(records)) if isinstance(command, DeletePartitionsCommand) else None
    if before is not None:
        why = f"groups of {before!r}, an earlier topic of its chain, may still move to it: wait until "
        yield _too_early(command.topic, why + _deleted(before))


def _too_early(topic: str, why: str) -> Objection:
    return Objection(topic, "alias", ErrorCode.REASSIGNMENT_IN_PROGRESS, why)


def _deleted(topic: str) -> str:
    own = "after --fence none delete the topic yourself"
    return f"{topic!r} is deleted and a running controller has recorded the deletion ({own})"


def is_rename_back(
    command: ReplaceTopicCommand, topic_id: str | None, alias: TopicRecord, records: Iterable[TopicRecord]
) -> bool:
    """Return whether the command renames an alias's target, or a later topic of the chain, back to the alias's name."""
    if not alias.is_alias or command.new_topic != alias.topic:
        return False
    by_id = {record.topic_id: (record,) for record in records}
    after = walk(
        (alias,),
        lambda record: by_id.get(record.replacing.new_topic_id or "", ()),
    )
    return any(record.replacing.new_topic_id == topic_id for record in after)


def _to_rename_back(
    command: ReplaceTopicCommand, facts: TopicFacts, alias: Replaced, now_ms: int
) -> Iterator[Objection]:
    """Refuse to rename back to a name that stock clients still use: they would skip the records of the topic in
    between. Also refuse while client libraries may still use metadata of the deleted topic. Such a library would ignore
    new leaders with lower leader epochs, and fail records for partitions that the deleted topic did not have."""
    if command.undo:
        return
    users = facts.new_topic.groups if facts.new_topic is not None and facts.new_topic.topic_id is None else {}
    if using := sorted(name for name, group in users.items() if group.subscribed):
        why = f"groups with stock clients use this name: {', '.join(using)}. Stop or move these groups first"
        reason = reasons.of_group(reasons.NAME_SUBSCRIBED, using[0])
        yield Objection(command.new_topic, "alias", ErrorCode.POLICY_VIOLATION, why, reason)
    left_ms = forgotten_ms(alias.record, command.num_partitions) - now_ms
    if left_ms > 0:
        had = len(alias.record.modes)
        why = f"clients may still use the metadata of the deleted topic of this name: wait {left_ms // 1000 + 1} s"
        why += f", or request no more partitions than it had ({had})" if command.num_partitions > had else ""
        yield replace(_too_early(command.new_topic, why), reason=reasons.KNOWN_BY_CLIENTS)


def forgotten_ms(alias: TopicRecord, num_partitions: int) -> int:
    """Return when a new topic with ``num_partitions`` partitions may get the name of a deleted topic."""
    gets_more = num_partitions > len(alias.modes)
    return (alias.replacing.gone_ms or 0) + (FORGOTTEN_MS if gets_more else EPOCHS_FORGOTTEN_MS)


def ended_by(record: TopicRecord, records: Iterable[TopicRecord]) -> list[str]:
    """Return the ids of the aliases that end because the topic of ``record`` is gone. The new topic of ``record`` has
    the name of these aliases, and groups have no earlier topic left to read."""
    replacement = record.replacing
    if replacement.gone_ms is None:
        return []
    ended = (alias for alias, _ in _aliases(records) if alias.topic == replacement.new_topic)
    # The new topic's own alias does not end: it shows that the new topic is gone.
    return [alias.topic_id for alias in ended if alias.topic_id != replacement.new_topic_id]


def _aliases(records: Iterable[TopicRecord]) -> Iterator[Replaced]:
    return (topic for topic in replaced(records) if topic.record.is_alias)


def relink(gone: Collection[str], appended: Sequence[TopicRecord], records: Iterable[TopicRecord]) -> list[TopicRecord]:
    """Return the aliases that pointed to a removed alias. Each now points to the topic that has the removed alias's
    name, or else to the removed alias's own target. Clients follow ids, and would stop at the removed id (invariant
    I8).

    Args:
        gone: the ids of the topics whose records are removed.
        appended: the records that are appended in the same step.
    """
    latest = {record.topic_id: record for record in (*records, *appended)}
    removed = {topic.record.topic_id: topic for topic in _aliases(latest.values()) if topic.record.topic_id in gone}
    changed = []
    for alias in _aliases(latest.values()):
        before = removed.get(alias.replacement.new_topic_id or "")
        if before is None or alias.record.topic_id in gone:
            continue
        replacement = _replacement_after(before, appended)
        changed.append(
            alias.changed(
                new_topic=replacement.new_topic,
                new_topic_id=replacement.new_topic_id,
                num_partitions=replacement.num_partitions,
            )
        )
    return changed


def _replacement_after(removed: Replaced, appended: Iterable[TopicRecord]) -> Replacement:
    """Return the replacement whose new topic takes the place of a removed alias."""
    returned = (replacement for _, replacement in _aliases(appended) if replacement.new_topic == removed.record.topic)
    return next(returned, removed.replacement)
