"""Short ways to write down facts and records for tests of the pure lifecycle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import pytest

from modeaware.config import ControllerConfig
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle.admission import Admission, admit
from modeaware.lifecycle.alias import alias_objections
from modeaware.lifecycle.commands import CreatePartitionsCommand, DeletePartitionsCommand, DeleteRecords, TopicCommand
from modeaware.lifecycle.facts import GroupFacts, PartitionFacts, TopicFacts
from modeaware.lifecycle.passes import Advance, pass_over
from modeaware.lifecycle.state import in_progress, topic_phase
from modeaware.lifecycle.steps import advance
from modeaware.modelog.group_rules import GroupRule, has_glob_characters
from modeaware.modelog.records import Replacement, TopicRecord
from modeaware.modes import PartitionMode

TOPIC = "orders"
TOPIC_ID = "id-of-orders"
NOW_MS = 1_000_000
QUIET_MS = 10_000
LATER_MS = NOW_MS + QUIET_MS
"""When a partition that was quiet since NOW_MS may be sealed."""
CONFIG = ControllerConfig(seal_quiet_ms=QUIET_MS, open_timeout_ms=60_000)
EPOCH = 7
RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE


def log(
    end: int = 0,
    start: int = 0,
    *,
    stable: int | None = None,
    quiet_since_ms: int = 0,
    leader_epoch: int = 3,
    moved: bool = False,
    **more: Any,
) -> PartitionFacts:
    """One partition's log; by default empty, without an open transaction, quiet for ever."""
    return PartitionFacts(start, end, end if stable is None else stable, leader_epoch, quiet_since_ms, moved, **more)


def group(
    committed: Mapping[int, int] | None = None, *, members: bool = False, caught_up: tuple[int, ...] = (), **more: Any
) -> GroupFacts:
    return GroupFacts(dict(committed or {}), frozenset(caught_up), members, **more)


def rule(kind: str, group: str = "", topic: str = TOPIC, **more: Any) -> GroupRule:
    """A rule about groups, in force from NOW_MS on; a group with characters of a glob is one."""
    about = {"reason": "because", "created_ms": NOW_MS, "glob": has_glob_characters(group)}
    return GroupRule(kind, group, topic, **{**about, **more})


def facts(
    count: int = 12,
    logs: Mapping[int, PartitionFacts] | None = None,
    groups: Mapping[str, GroupFacts] | None = None,
    **others: Any,
) -> TopicFacts:
    """A topic of ``count`` partitions; those not in ``logs`` are empty."""
    partitions = {p: log() for p in range(count)} | dict(logs or {})
    base = TopicFacts(TOPIC, TOPIC_ID, partition_count=count, partitions=partitions, groups=dict(groups or {}))
    return replace(base, **others)


def ask(
    command: TopicCommand,
    record: TopicRecord | None = None,
    seen: TopicFacts | None = None,
    *,
    config: ControllerConfig = CONFIG,
    now_ms: int = NOW_MS,
    rules: Sequence[GroupRule] = (),
) -> Admission:
    admission = admit(command, record, seen if seen is not None else facts(), config, now_ms, rules)
    return replace(admission, record=_stamped(admission.record, now_ms))


def refusal(
    command: TopicCommand, record: TopicRecord | None = None, seen: TopicFacts | None = None, **more: Any
) -> RequestRefused:
    """The refusal of ``command``; the test fails where it is admitted."""
    with pytest.raises(RequestRefused) as refused:
        ask(command, record, seen, **more)
    return refused.value


def refuse_alias(command: TopicCommand, seen: TopicFacts, records: Sequence[TopicRecord], now_ms: int) -> None:
    """Raise the first objection that records of replaced topics give rise to."""
    for objection in alias_objections(command, seen, records, now_ms):
        raise objection.refusal


def shrink(to: int, **fields: Any) -> DeletePartitionsCommand:
    """The ``drained`` policy without a delay, unless ``fields`` say otherwise."""
    return DeletePartitionsCommand(TOPIC, to, **{"delay_ms": 0, **fields})


def grow(to: int, **fields: Any) -> CreatePartitionsCommand:
    return CreatePartitionsCommand(TOPIC, to, **fields)


def admitted(
    command: TopicCommand, record: TopicRecord | None = None, seen: TopicFacts | None = None, **more: Any
) -> TopicRecord:
    """The record that ``command`` makes."""
    made = ask(command, record, seen, **more).record
    assert made is not None
    return made


def look(
    record: TopicRecord,
    seen: TopicFacts,
    now_ms: int = LATER_MS,
    config: ControllerConfig = CONFIG,
    rules: Sequence[GroupRule] = (),
) -> Advance:
    """One pass of the controller."""
    step = advance(pass_over(record, seen, rules, config, now_ms))
    return replace(step, record=_stamped(step.record, now_ms))


def _stamped(record: TopicRecord | None, now_ms: int) -> TopicRecord | None:
    """The record as the engine appends it."""
    return None if record is None else record.stamped(EPOCH, now_ms)


def after(
    record: TopicRecord,
    seen: TopicFacts,
    now_ms: int = LATER_MS,
    passes: int = 1,
    rules: Sequence[GroupRule] = (),
) -> TopicRecord:
    """The record after ``passes`` passes over the same facts."""
    for _ in range(passes):
        record = look(record, seen, now_ms, rules=rules).record or record
    return record


def deleted(step: Advance) -> dict[int, int]:
    """What a pass asks to be deleted: partition -> offset."""
    return {p: o for effect in step.effects if isinstance(effect, DeleteRecords) for p, o in effect.offsets.items()}


PASSED: Mapping[str, Callable[[Advance, TopicRecord | None], Any]] = {
    "nothing": lambda step, _: step == Advance(),
    "changed": lambda step, before: step.record not in (None, before),
    "appended": lambda step, _: step.record is not None,
    "newer": lambda step, before: (
        step.record is not None and before is not None and step.record.version > before.version
    ),
    "new_topic_stays": lambda step, before: before and step.record.view().replaced_by == before.view().replaced_by,
    "fields": lambda step, before: {
        each.name
        for each in fields(Replacement)
        if getattr(step.record.replacement, each.name) != getattr(before.replacement, each.name)
    },
    "tombstone": lambda step, _: step.tombstone,
    "effects": lambda step, _: step.effects,
    "deleted": lambda step, _: deleted(step),
    "of_the_topic": lambda step, _: {effect.topic_id for effect in step.effects} == {TOPIC_ID},
    "kinds": lambda step, _: [type(effect) for effect in step.effects],
    "alarms": lambda step, _: len(step.alarms),
    "alarm": lambda step, _: step.alarms[0] if len(step.alarms) == 1 else len(step.alarms),
    "first_alarm": lambda step, _: step.alarms[0] if step.alarms else None,
    "due_ms": lambda step, _: step.due_ms,
}
"""What a story sees of a pass: how many ``alarms``, of the only or the first one a part, which ``fields`` of the
replacement it has changed."""


def _groups_seen(record: TopicRecord) -> tuple[set[str], bool] | None:
    """Which groups clients see that the record names, and whether those are all."""
    new_topic = record.view().replaced_by
    return None if new_topic is None else (set(new_topic.groups), new_topic.groups_complete)


SHOWN: dict[str, Callable[[TopicRecord], Any]] = {
    "phase": topic_phase,
    "in_progress": in_progress,
    "is_replaced": lambda record: record.replacement is not None,
    "is_switched": lambda record: record.replacement is not None and record.replacement.switched_ms is not None,
    "is_released": lambda record: record.replacement is not None and record.replacement.released_ms is not None,
    "seals": lambda record: {p: retired.seal_offset for p, retired in record.retired.items()},
    "reasons": lambda record: {retired.reason for retired in record.retired.values()},
    "first": lambda record: record.retired[0],
    "first_reason": lambda record: record.retired[0].reason,
    "stragglers": lambda record: sum(retired.stragglers for retired in record.retired.values()),
    "resume_offsets": lambda record: record.view().resume_offsets,
    "groups_seen": lambda record: _groups_seen(record),
    "read_up_to": lambda record: dict(record.view().replaced_by.read_up_to) if record.view().replaced_by else None,
}
"""What a story sees of a record, beside its fields and those of its replacement."""


class Life:
    """The record of a topic in a story: it is looked at, a command is requested, and what is on it is checked."""

    shown = SHOWN

    def __init__(self, record: TopicRecord | None = None) -> None:
        self._record = record

    @property
    def record(self) -> TopicRecord:
        assert self._record is not None, "no record yet"
        return self._record

    def look(self, seen: TopicFacts, now_ms: int = NOW_MS, **expected: Any) -> None:
        """One pass of the controller, whose record is kept."""
        self._record = self._pass(seen, now_ms, expected)

    def glance(self, seen: TopicFacts, now_ms: int = NOW_MS, **expected: Any) -> None:
        """One pass that would be made: the next step begins where this one did."""
        self._pass(seen, now_ms, expected)

    def ask(self, command: TopicCommand, seen: TopicFacts, **expected: Any) -> None:
        """A command that is admitted."""
        made = ask(command, self._record, seen).record
        self._check(Advance(made), self._record, made or self.record, expected)
        self._record = made or self.record

    def would_ask(self, command: TopicCommand, seen: TopicFacts, **expected: Any) -> None:
        """A command that would be admitted: the next step begins where this one did."""
        before = self._record
        self.ask(command, seen, **expected)
        self._record = before

    def refuses(self, command: TopicCommand, seen: TopicFacts, code: ErrorCode | None, *says: str) -> None:
        """A command that is not; ``code`` None: whichever it is."""
        found = refusal(command, self._record, seen)
        assert code in (None, found.code), f"refused with {found.code}"
        assert all(words in str(found) for words in says), str(found)

    def is_kept_by_the_log(self) -> None:
        assert TopicRecord.from_json(self.record.to_json()) == self.record

    def has(self, **expected: Any) -> None:
        self._check(Advance(), self._record, self.record, expected)

    def _pass(self, seen: TopicFacts, now_ms: int, expected: dict[str, Any]) -> TopicRecord:
        before = self.record
        step = look(before, seen, now_ms)
        record = step.record or before
        self._check(step, before, record, expected)
        return record

    def _check(self, step: Advance, before: TopicRecord | None, record: TopicRecord, expected: dict[str, Any]) -> None:
        found = {
            name: PASSED[name](step, before) if name in PASSED else self.shown[name](record) if name in self.shown
            else getattr(record if hasattr(record, name) else record.replacement, name)
            for name in expected
        }  # fmt: skip
        for name in {"alarm", "first_alarm"} & expected.keys():
            if expected[name] in str(found[name]):
                found[name] = expected[name]
        assert found == expected, f"found {found}"
