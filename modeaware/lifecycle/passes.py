"""One pass over a topic: its input and its outcome. Pure.

Passes carry out shrinks, growths and replacements, and watch aliases (:mod:`modeaware.lifecycle.steps`). Every pass
starts from the record and from fresh facts alone. So after a crash between two steps a controller continues from the
record, and repeats an effect that was lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from modeaware.config import ControllerConfig
from modeaware.lifecycle.commands import Effect
from modeaware.lifecycle.drain import Requirement, requirement_of, using_groups
from modeaware.lifecycle.facts import TopicFacts
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import TopicRecord


@dataclass(frozen=True)
class Pass:
    """The input of a pass.

    Attributes:
        record: the topic's record, as the last pass or the admission left it.
        requirement: the groups that the drain waits for.
    """

    record: TopicRecord
    facts: TopicFacts
    requirement: Requirement
    config: ControllerConfig
    now_ms: int


def pass_over(
    record: TopicRecord, facts: TopicFacts, rules: Sequence[GroupRule], config: ControllerConfig, now_ms: int
) -> Pass:
    """Return the input of a pass; ``rules`` are the operator's rules about groups."""
    return Pass(record, facts, requirement_of(record, facts, rules, config.ignored_groups, now_ms), config, now_ms)


def with_groups(record: TopicRecord, this: Pass) -> TopicRecord:
    """Return the record with a complete list of groups. After a switch, or if the list at the admission was uncertain,
    the groups of the first certain list are added (invariant I1)."""
    if record.groups_complete or this.requirement.doubt is not None:
        return record
    using = using_groups(this.facts, this.config.ignored_groups, this.requirement.registered)
    return replace(record, groups_complete=True, required_groups=tuple(sorted({*record.required_groups, *using})))


@dataclass(frozen=True)
class Advance:
    """The outcome of a pass.

    Attributes:
        record: the record to append, not stamped yet; None when nothing changed.
        tombstone: whether the topic is gone, so that its record is removed.
        effects: the effects to perform once the record is on the log.
        due_ms: the latest wall-clock time of the next pass. If it is None, the schedule alone decides.
        alarms: warnings for the operator (for example stragglers, truncation, open transactions).
    """

    record: TopicRecord | None = None
    tombstone: bool = False
    effects: tuple[Effect, ...] = ()
    due_ms: int | None = None
    alarms: tuple[str, ...] = ()


def earliest_ms(*times_ms: int | None) -> int | None:
    """Return the earliest of the given times, ignoring None; None if no time is given."""
    return min((time_ms for time_ms in times_ms if time_ms is not None), default=None)
