"""The operator's rules about groups, as the mode log keeps them: which groups a drain waits for.

One record holds all rules. The controller writes the record, the command line reads it, and clients ignore it.

A group id may contain any character, also those of a glob. So each rule records whether its text is a name or a glob. A
name must not be read as a glob: a waiver could then give up the records of other groups, and a requirement would no
longer count once no broker lists the group.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from modeaware.interim import kept_name
from modeaware.modelog.json_form import JsonFields, VersionedRecord, form, integer, listed, optional_int, text

GROUP_RULES_KEY = "group-rules"
REQUIRE, WAIVE, CLOSED = "require", "waive", "closed"
KINDS = (REQUIRE, WAIVE, CLOSED)


def has_glob_characters(name: str) -> bool:
    """Return whether a name contains characters of a glob."""
    return any(character in name for character in "*?[")


def _read_kind(value: Any) -> str:
    if value not in KINDS:
        raise ValueError(f"no such kind of rule: {value!r}")
    return text(value)


@dataclass(frozen=True)
class GroupRule(JsonFields):
    """One rule.

    Attributes:
        kind: ``require``: the group must have consumed a retired partition before the partition's records are deleted.
            A name counts even if the brokers do not list the group; a glob matches listed groups only. ``waive``: a
            drain does not wait for the group. ``closed``: the operator declares that there are no groups but the
            registered and the visible ones, because the controller may lack the right to see every group.
        group: the group's name, taken literally. If ``glob`` is set, a glob. ``""`` for ``closed``.
        topic: the topics of the rule: a name or a glob. (No topic's name can hold ``*``, ``?`` or ``[``.)
        reason: the operator's reason; quoted in the drain certificate.
        created_ms, expires_ms: wall-clock times in ms since the epoch. ``expires_ms`` is None if the rule holds until
            it is removed.
        uncommitted_only: whether a waiver applies only to partitions on which the group has no committed offset.
        glob: whether ``group`` is a pattern (``*``, ``?``, ``[...]``; case counts).
    """

    kind: str = field(metadata=form(_read_kind))
    group: str = field(metadata=form(text))
    topic: str = field(metadata=form(text))
    reason: str = field(metadata=form(text))
    created_ms: int = field(metadata=form(integer))
    expires_ms: int | None = field(default=None, metadata=form(optional_int))
    uncommitted_only: bool = field(default=False, metadata=form(bool))
    glob: bool = field(default=False, metadata=form(bool))

    @property
    def key(self) -> tuple[str, str, str]:
        """Return the identity of the rule: there is at most one rule for a kind, group and topic."""
        return (self.kind, self.group, self.topic)

    @property
    def may_give_up_records(self) -> bool:
        """Return whether the rule may cause the deletion of records that would stay without the rule.

        A requirement that expires may cause this, because it may replace a requirement that does not expire.
        """
        return self.kind != REQUIRE or self.expires_ms is not None

    def applies(self, topic: str, now_ms: int) -> bool:
        """Return whether the rule is in force for ``topic`` (invariant I2: a waiver ends when it expires). A rule for a
        topic that keeps its name also applies to its interim topic."""
        names = filter(None, (topic, kept_name(topic)))
        is_for = any(fnmatchcase(name, self.topic) for name in names)
        return (self.expires_ms is None or now_ms < self.expires_ms) and is_for

    def matches(self, group: str) -> bool:
        """Return whether the rule is for ``group``: its text is the group's name, or a glob that matches the name."""
        return group == self.group or (self.glob and fnmatchcase(group, self.group))


@dataclass(frozen=True)
class GroupRulesRecord(VersionedRecord):
    """All rules in force. Rules that have expired stay in the record until its next change."""

    KIND = "a record of group rules"

    rules: tuple[GroupRule, ...] = field(
        default=(),
        metadata=form(
            lambda value: tuple(GroupRule.from_dict(rule) for rule in listed(value)),
            lambda rules: [rule.to_dict() for rule in rules],
            required=True,
        ),
    )
    controller_epoch: int = field(default=0, metadata=form(integer, required=True))
    epoch: int = field(default=-1, metadata=form(integer, required=True))
