"""Short ways to write down facts and records for tests of the pure lifecycle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from modeaware.config import ControllerConfig
from modeaware.errors import RequestRefused
from modeaware.lifecycle.admission import Admission, admit
from modeaware.lifecycle.alias import alias_objections
from modeaware.lifecycle.commands import CreatePartitionsCommand, DeletePartitionsCommand, DeleteRecords, TopicCommand
from modeaware.lifecycle.facts import GroupFacts, PartitionFacts, TopicFacts
from modeaware.lifecycle.steps import Advance, advance
from modeaware.modelog.group_rules import GroupRule, has_glob_characters
from modeaware.modelog.records import TopicRecord
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
    return admit(command, record, seen if seen is not None else facts(), config, EPOCH, now_ms, rules)


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
    return advance(record, seen, config, EPOCH, now_ms, rules)


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
