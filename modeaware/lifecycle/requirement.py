"""Whom a drain waits for: the groups noted at the admission, those that use the topic now, and the operator's rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from modeaware.lifecycle.evacuation import evacuation_of, is_evacuation_group
from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt, TopicFacts
from modeaware.lifecycle.phases import in_progress
from modeaware.modelog.group_rules import CLOSED, REQUIRE, WAIVE, GroupRule
from modeaware.modelog.records import TopicRecord


@dataclass(frozen=True)
class Requirement:
    """What must be proved of which groups.

    Attributes:
        groups: the names of the groups that must have consumed a partition, sorted.
        registered, waivers: the operator's rules in force for the topic.
        doubt: why there may be more groups than these; None when the list is sure, or was declared to be closed.
        accept_state_loss: groups with state that were named in the request.
        evacuation: the group that proves the evacuation of a retired partition, which nothing waives.
    """

    groups: tuple[str, ...] = ()
    registered: tuple[GroupRule, ...] = ()
    waivers: tuple[GroupRule, ...] = ()
    doubt: GroupsDoubt | None = None
    accept_state_loss: tuple[str, ...] = ()
    evacuation: str | None = None

    def without_evacuation(self) -> Requirement:
        """The same, of a partition that is not to be evacuated: a survivor, or one that is evacuated already."""
        return replace(self, evacuation=None)

    def waiver(self, name: str, group: GroupFacts | None, partition: int) -> GroupRule | None:
        """The waiver by which the group (None: it is not listed) need not be waited for on ``partition``.

        A waiver for many groups (a glob) spares those that are registered; one that names the group does not. Of a
        group that is not listed nobody knows whether it has ever committed.
        """
        committed = group is None or partition in group.committed
        is_registered = _matches_any(self.registered, name)
        for rule in self.waivers:
            spared = (rule.uncommitted_only and committed) or (rule.glob and is_registered)
            if rule.matches(name) and not spared:
                return rule
        return None


NOBODY = Requirement()


def requirement_of(
    record: TopicRecord | None,
    facts: TopicFacts,
    rules: Sequence[GroupRule],
    ignored_groups: Sequence[str],
    now_ms: int,
) -> Requirement:
    """Whom a drain of the topic waits for now. Groups noted at a change count while it is in progress: only then is
    anything drained."""
    noted = record.required_groups if record is not None and in_progress(record) else ()
    accepted = record.deletion.accept_state_loss if record is not None and record.deletion is not None else ()
    return required_of(noted, facts, rules, ignored_groups, now_ms, accepted, evacuation_of(record))


def handover_requirement(
    record: TopicRecord,
    facts: TopicFacts,
    rules: Sequence[GroupRule],
    ignored_groups: Sequence[str],
    now_ms: int,
) -> Requirement:
    """Whom the handover of a shrink waits for. It may last longer than the shrink, and so do the groups noted then."""
    accepted = record.deletion.accept_state_loss if record.deletion is not None else ()
    return required_of(record.required_groups, facts, rules, ignored_groups, now_ms, accepted, evacuation_of(record))


def required_of(
    noted: Sequence[str],
    facts: TopicFacts,
    rules: Sequence[GroupRule],
    ignored_groups: Sequence[str],
    now_ms: int,
    accept_state_loss: Sequence[str] = (),
    evacuation: str | None = None,
) -> Requirement:
    """Put together whom to wait for: who was noted, who uses the topic, who is registered (invariant I2).

    Args:
        noted: the groups that used the topic when the change was admitted.
        ignored_groups: globs of groups that count only once they have committed (``modeaware.ignored.groups``).
        accept_state_loss: groups with state that were named in the request.
        evacuation: the group that proves an evacuation. Those of other changes prove nothing, and read nothing.
    """
    # A rule may expire between the listing of the groups and now: one that asks for more counts all the same.
    listed_ms = now_ms if facts.listed_ms is None else facts.listed_ms
    in_force = [
        rule
        for rule in rules
        if (any if rule.kind == REQUIRE else all)(rule.applies(facts.topic, at_ms) for at_ms in (listed_ms, now_ms))
    ]
    registered = tuple(rule for rule in in_force if rule.kind == REQUIRE)
    named = {rule.group for rule in registered if not rule.glob}
    using = using_groups(facts, ignored_groups, registered)
    doubt = facts.groups_doubt
    if doubt is not None and doubt.hidden and any(rule.kind == CLOSED for rule in in_force):
        doubt = None
    return Requirement(
        groups=tuple(sorted(g for g in {*noted, *using, *named} if not is_evacuation_group(facts.topic, g))),
        registered=registered,
        waivers=tuple(rule for rule in in_force if rule.kind == WAIVE),
        doubt=doubt,
        accept_state_loss=tuple(accept_state_loss),
        evacuation=evacuation,
    )


def using_groups(
    facts: TopicFacts, ignored_groups: Sequence[str], registered: Sequence[GroupRule] = ()
) -> tuple[str, ...]:
    """The groups that use the topic now, but for those ignored until they commit (and not registered), sorted."""
    return tuple(
        sorted(
            name
            for name, group in facts.groups.items()
            if not is_evacuation_group(facts.topic, name)
            and (
                group.committed
                or _matches_any(registered, name)
                or not any(fnmatchcase(name, pattern) for pattern in ignored_groups)
            )
        )
    )


def _matches_any(rules: Sequence[GroupRule], group: str) -> bool:
    return any(rule.matches(group) for rule in rules)
