"""The operator's rules about groups, as the mode log keeps them: which groups a drain waits for.

One record holds all rules. The controller writes it, like every other, and the command line reads it; clients ignore
it.

A group id may hold any character, those of a glob included, so each rule keeps whether its text is a name or a glob.
Were a name read as a glob, a waiver would give up other groups' records, and a required group would be left out once no
broker lists it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from modeaware.interim import kept_name
from modeaware.modelog.json_form import JsonFields, VersionedRecord, form, optional_int, text

GROUP_RULES_KEY = "group-rules"
REQUIRE, WAIVE, CLOSED = "require", "waive", "closed"
KINDS = (REQUIRE, WAIVE, CLOSED)


def has_glob_characters(name: str) -> bool:
    """Return whether a name can be a glob."""
    return any(character in name for character in "*?[")


def _read_kind(value: Any) -> str:
    if value not in KINDS:
        raise ValueError(f"no such kind of rule: {value!r}")
    return text(value)


@dataclass(frozen=True)
class GroupRule(JsonFields):
    """One rule.

    Attributes:
        kind: ``require``: the group must have consumed a retired partition before its records go, whether the brokers
            list the group or not (a name) or as far as they do (a glob). ``waive``: a drain does not wait for it.
            ``closed``: the list of groups is closed: the registered ones and those that are seen are all there are,
            though the controller may not see every group.
        group: the group's name, taken literally; or a glob, where ``glob`` is set; ``""`` for ``closed``.
        topic: the topics it is for: a name or a glob. (No topic's name can hold ``*``, ``?`` or ``[``.)
        reason: why, in the operator's words; quoted in the drain certificate.
        created_ms, expires_ms: wall-clock times in ms since the epoch; ``expires_ms`` None: it holds until removed.
        uncommitted_only: of a waiver: only where the group has never committed an offset on the partition.
        glob: ``group`` is a pattern (``*``, ``?``, ``[...]``; case counts).
    """

    kind: str = field(metadata=form(_read_kind))
    group: str = field(metadata=form(text))
    topic: str = field(metadata=form(text))
    reason: str = field(metadata=form(text))
    created_ms: int = field(metadata=form(int))
    expires_ms: int | None = field(default=None, metadata=form(optional_int))
    uncommitted_only: bool = field(default=False, metadata=form(bool))
    glob: bool = field(default=False, metadata=form(bool))

    @property
    def key(self) -> tuple[str, str, str]:
        """What names a rule: there is one of each kind, group and topic."""
        return (self.kind, self.group, self.topic)

    @property
    def may_give_up_records(self) -> bool:
        """Whether records may be deleted because of the rule that would stay without it.

        A requirement that ends may replace one that does not.
        """
        return self.kind != REQUIRE or self.expires_ms is not None

    def applies(self, topic: str, now_ms: int) -> bool:
        """Return whether it is a rule for ``topic``, and in force: a waiver ends when it expires (invariant I2). A rule
        for a topic that keeps its name holds for its interim topic, too."""
        names = filter(None, (topic, kept_name(topic)))
        is_for = any(fnmatchcase(name, self.topic) for name in names)
        return (self.expires_ms is None or now_ms < self.expires_ms) and is_for

    def matches(self, group: str) -> bool:
        """Return whether the rule is for ``group``, by its name or as a glob."""
        return group == self.group or (self.glob and fnmatchcase(group, self.group))


@dataclass(frozen=True)
class GroupRulesRecord(VersionedRecord):
    """All rules in force, and those that have expired since the last change."""

    KIND = "a record of group rules"

    rules: tuple[GroupRule, ...] = field(
        default=(),
        metadata=form(
            lambda value: tuple(GroupRule.from_dict(rule) for rule in value),
            lambda rules: [rule.to_dict() for rule in rules],
            required=True,
        ),
    )
    controller_epoch: int = field(default=0, metadata=form(int, required=True))
    epoch: int = field(default=-1, metadata=form(int, required=True))
