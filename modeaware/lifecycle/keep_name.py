"""Keeping the name of a topic that is replaced: two replacements in a row, the *halves* of one change. Pure.

In the first half ``orders`` (12 partitions) is replaced by the *interim topic* ``orders.modeaware-3fa9`` (4). In the
second half a new ``orders`` (4) replaces the interim topic. Two topics cannot have one name, so the old ``orders`` is
deleted before the second half. In this *gap* no topic has the name.

=========  ==================================================  ======================================================
stage      is shown by the record of                           ends when
=========  ==================================================  ======================================================
first      the old topic                                       the old topic is deleted: its name is an alias of the
half                                                           interim topic
gap        the old topic (an alias)                            the second half is admitted: the controller requests it
                                                               itself, at the earliest 45 s after the deletion
                                                               (:mod:`modeaware.lifecycle.second_half`)
second     the interim topic                                   the interim topic is deleted. The alias of the old topic
half                                                           ends too, because the name has a topic again
closing    the interim topic (an alias)                        ten minutes later, once no group subscribes to its name
=========  ==================================================  ======================================================

Both halves are ordinary replacements with ``keep_name`` in their records. The form of the interim topic's name shows
which half a replacement is (:mod:`modeaware.interim`). The interim topic has the final number of partitions, and is
reserved: no other command may change it.

*Until the first switch* the change can be undone. After this switch the old topic cannot come back, but the change may
end on the interim topic (*stay*). The command to stay removes ``keep_name`` from the first half, and undoes a second
half that has not switched. A command to keep the name after all restores ``keep_name``, and the controller continues.

*The second half is never given up*, because half of a change would be left. An obstacle is shown as a reason, and is
checked again in every pass. One obstacle is another topic that has appeared under the name. If this topic is empty, the
controller fences and deletes it, unless a record arrives before the fence is in force. A topic with records is left to
the operator, without the fence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from modeaware.errors import ErrorCode
from modeaware.interim import interim_name, is_interim_of, kept_name
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import (
    FENCE_CONFIGS,
    DeleteOldTopic,
    Effect,
    FenceTopic,
    Objection,
    RemoveConfigs,
    ReplaceTopicCommand,
    TopicCommand,
    is_fence,
)
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.state import topic_phase
from modeaware.modelog.records import NO_REPLACEMENT, Replacement, TopicRecord

GAP = "gap"
"""The phase of a change that keeps a name, between its two replacements: no topic has the name."""


@dataclass(frozen=True)
class KeptName:
    """A change that keeps a name: an interim topic replaces the old one, then a new topic replaces the interim topic.

    Attributes:
        name: the name that is kept.
        first: the old topic's record, until the second half is over.
        second: the interim topic's record, once the second half has begun.
        interim: the name of the interim topic.
        num_partitions: the partition count of the interim topic and of the new topic of the name.
        half: 1 while the old topic is being replaced; 2 after its deletion, while the interim topic is being replaced.
        phase: the phase of that replacement. It is ``gap`` until the second replacement begins, and ``done`` when the
            interim topic is deleted.
        keeps: false if the change ends on the interim topic.
        first_switched_ms, first_gone_ms: when producers began to write to the interim topic, and when the old topic was
            found to be deleted. Both are null again once the interim topic is deleted.
        second_switched_ms, second_gone_ms: when producers began to write to the new topic of the name, and when the
            interim topic was found to be deleted.
        reason: the code of what holds the change up as a whole.
        waits_for: the reason in words.
    """

    json_also: ClassVar = (
        *("interim", "num_partitions", "half", "phase", "keeps", "first_switched_ms", "first_gone_ms"),
        *("second_switched_ms", "second_gone_ms", "reason", "waits_for"),
    )

    name: str
    first: TopicRecord | None = field(metadata={"json": None})
    second: TopicRecord | None = field(metadata={"json": None})

    @property
    def interim(self) -> str:
        """Return the name of the interim topic."""
        return self._first.new_topic if self.first is not None else self.second.topic if self.second else ""

    @property
    def num_partitions(self) -> int:
        return (self._first if self.first is not None else self._second).num_partitions

    @property
    def half(self) -> int:
        return 2 if self.is_in_second_half else 1

    @property
    def phase(self) -> str:
        current = self.second if self.is_in_second_half else self.first
        return GAP if current is None else topic_phase(current)

    @property
    def waits_between_halves(self) -> bool:
        """Return whether the old topic is deleted and the second half has still to begin."""
        return self.keeps and self.phase == GAP

    @property
    def first_switched_ms(self) -> int | None:
        return self._first.switched_ms

    @property
    def first_gone_ms(self) -> int | None:
        return self._first.gone_ms

    @property
    def second_switched_ms(self) -> int | None:
        return self._second.switched_ms

    @property
    def second_gone_ms(self) -> int | None:
        return self._second.gone_ms

    @property
    def is_in_second_half(self) -> bool:
        """Return whether the old topic is deleted."""
        return self.first is None or self.first.is_alias

    @property
    def is_over(self) -> bool:
        """Return whether the interim topic is deleted as well."""
        return self.second is not None and self.second.is_alias

    @property
    def keeps(self) -> bool:
        """Return whether the name is to have a topic again; else the change ends on the interim topic."""
        if self.second is not None and self._second.undone_ms is None:
            return True
        return self._first.keep_name

    @property
    def reason(self) -> str | None:
        """Return the code of what blocks the change as a whole."""
        return (self._second if self.second is not None else self._first).reason

    @property
    def waits_for(self) -> str | None:
        return None if self.reason is None else reasons.text(self.reason)

    @property
    def _first(self) -> Replacement:
        return self.first.replacing if self.first is not None else NO_REPLACEMENT

    @property
    def _second(self) -> Replacement:
        return self.second.replacing if self.second is not None else NO_REPLACEMENT


def kept(name: str, records: Iterable[TopicRecord]) -> KeptName | None:
    """Return the change that keeps ``name``, also one that now ends on the interim topic; None if there is none.

    Args:
        records: of all topics that are or were replaced.
    """
    of_name = [r for r in records if kept_name(r.topic if r.topic != name else r.replacing.new_topic) == name]
    first = next((record for record in of_name if record.topic == name), None)
    second = next((r for r in of_name if r.topic != name and r.replacing.new_topic == name), None)
    if first is not None and second is not None and first.replacing.new_topic != second.topic:
        second = None  # this record belongs to an earlier change, whose interim topic still has an alias
    if first is None and second is None:
        return None
    return KeptName(name, first, second)


def kept_names(records: Iterable[TopicRecord]) -> dict[str, KeptName]:
    """Return the changes that keep a name. Each is found under two keys: that name, and the interim topic's name.

    Args:
        records: of all topics that are or were replaced.
    """
    of_name: dict[str, list[TopicRecord]] = {}
    for record in records:
        is_first = is_interim_of(record.replacing.new_topic, record.topic)
        name = record.topic if is_first else kept_name(record.topic)
        if name is not None:
            of_name.setdefault(name, []).append(record)
    changes = (kept(name, own) for name, own in of_name.items())
    return {part: change for change in changes if change is not None for part in (change.name, change.interim)}


def removal_of(facts: TopicFacts, old_topic_id: str) -> tuple[Effect, ...]:
    """Return the effects that delete a topic that blocks the second half. If the topic has records, return the effect
    that lifts a fence that an earlier pass has set.

    Right before its request, the deletion proves the fence, and checks that each log still ends at 0 (invariant I2).

    Args:
        old_topic_id: the id of the topic whose record needs the name.
    """
    if facts.topic_id is None or not facts.untouched:
        return lifted_fence(facts, old_topic_id) if facts.untouched is False else ()
    seals = dict.fromkeys(facts.partitions, 0)
    return (
        FenceTopic(facts.topic, facts.topic_id, FENCE_CONFIGS),
        DeleteOldTopic(facts.topic, facts.topic_id, seals),
    )


def lifted_fence(facts: TopicFacts, old_topic_id: str) -> tuple[Effect, ...]:
    """Return the effect that lifts the fence of a topic that is not deleted after all, so that the topic takes records
    again. If no fence is known, return none."""
    if facts.topic_id is None or not is_fence(facts.configs or {}):
        return ()
    return (RemoveConfigs(facts.topic, facts.topic_id, tuple(FENCE_CONFIGS), old_topic_id),)


def stays_of(command: TopicCommand, records: Iterable[TopicRecord]) -> TopicRecord | None:
    """Return the record of the first half if the command undoes the second half, so that the change ends on the interim
    topic. Return None for any other command."""
    if not isinstance(command, ReplaceTopicCommand) or not command.undo:
        return None
    own = (
        record for record in records if record.is_first_half and record.is_alias and record.topic == command.new_topic
    )
    return next((record for record in own if record.replacing.new_topic == command.topic), None)


def repeated_by(
    command: ReplaceTopicCommand, topic_id: str | None, records: Iterable[TopicRecord]
) -> TopicRecord | None:
    """Return the alias of a change of two halves if the command requests the second half of this change. Such a command
    repeats the change, to keep the name after all or to accept more losses of state. Return None for any other command.

    Args:
        topic_id: the id of the command's topic.
    """
    if not command.returns_name or command.undo:
        return None
    aliases = (record for record in records if record.is_alias and record.topic == command.new_topic)
    own = (record for record in aliases if record.replacing.new_topic == command.topic)
    return next((record for record in own if record.replacing.new_topic_id == topic_id), None)


def to_keep_name(command: ReplaceTopicCommand, current: TopicRecord, *, compacted: bool) -> Iterator[Objection]:
    """Yield why a topic cannot be replaced and keep its name."""
    no = partial(Objection, command.topic)
    if command.fence == "none":
        why = (
            "to keep its name the topic has to be deleted, and only a fenced topic is deleted: omit --fence none "
            "or --keep-name"
        )
        yield no("fence", ErrorCode.INVALID_REQUEST, why)
    if compacted or command.evacuate:
        why = "a compacted topic cannot keep its name: give the new topic another name (--with NAME --evacuate)"
        yield no("compacted", ErrorCode.POLICY_VIOLATION, why)
    if command.returns_name:
        return
    if command.new_topic != (name := interim_name(command.topic, current.topic_id)):
        why = f"a replacement that keeps the name needs {name!r} as its interim topic, not {command.new_topic!r}"
        yield no("new-topic", ErrorCode.INVALID_REQUEST, why)
    if command.num_partitions == current.writable_count == len(current.modes):
        why = f"it has {command.num_partitions} partitions already and keeps its name; nothing to change"
        yield no("count", ErrorCode.INVALID_PARTITIONS, why)


def not_restored(command: TopicCommand, current: TopicRecord, records: Iterable[TopicRecord]) -> Iterator[Objection]:
    """Refuse a command to keep the name after all if another topic already replaces the interim topic."""
    replacement = current.replacing
    is_wanted = isinstance(command, ReplaceTopicCommand) and command.keep_name
    if not is_wanted or not current.has_replacement or replacement.keep_name:
        return
    after = (other for other in records if other.topic_id == replacement.new_topic_id and other.has_replacement)
    for record in after:
        why = (
            f"its interim topic {record.topic!r} is already being replaced by {record.replacing.new_topic!r}: "
            "the name stays an alias"
        )
        yield Objection(command.topic, "in-progress", ErrorCode.REASSIGNMENT_IN_PROGRESS, why)


def reserved(command: TopicCommand, records: Iterable[TopicRecord]) -> Iterator[Objection]:
    """Refuse commands about an interim topic while its change is in progress, except commands of this change."""
    for record in records:
        replacement = record.replacing
        is_first = record.is_first_half and replacement.undone_ms is None
        if not is_first and not (record.is_second_half and not record.is_alias):
            continue
        name, interim = (record.topic, replacement.new_topic) if is_first else (replacement.new_topic, record.topic)
        is_own = (
            isinstance(command, ReplaceTopicCommand)
            and command.new_topic == name
            and (command.keep_name or command.undo)
        )
        if command.topic == interim and not is_own:
            why = (
                f"it is the interim topic of a change that keeps the name {name!r}: wait until the change is done, or "
                f"end it on the interim topic (modeaware replace {name} --stay)"
            )
            yield Objection(interim, "in-progress", ErrorCode.REASSIGNMENT_IN_PROGRESS, why)
