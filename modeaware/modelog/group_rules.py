"""The operator's rules about groups, as the mode log keeps them: which groups a drain waits for.

One record holds all rules. The controller writes it, like every other, and the command line reads it; clients pass it
over.

A group id may hold any character, those of a glob included, so each rule keeps whether its text is a name or a glob.
Up to 0.2.0 a text with ``*``, ``?`` or ``[`` was always a glob, and a rule without the field ``literal`` is still read
so. A literal name with these characters has the field, and raises the record's ``min_reader``: a reader of 0.2.0 cannot
read the rules then, and a controller that cannot read the rules deletes nothing. Were the name read as a glob, a waiver
would give up other groups' records, and a required group would be left out once no broker lists it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from modeaware.modelog.records import dump, load, optional_int, parsing, text

GROUP_RULES_KEY = "group-rules"
LITERAL_READER = 2
"""The ``min_reader`` of a record with a literal name that an older reader would take for a glob."""
REQUIRE, WAIVE, CLOSED = "require", "waive", "closed"
KINDS = (REQUIRE, WAIVE, CLOSED)


def has_glob_characters(group: str) -> bool:
    """Return whether a group's text can be a glob; up to 0.2.0 it then was one."""
    return any(character in group for character in "*?[")


@dataclass(frozen=True)
class GroupRule:
    """One rule.

    Attributes:
        kind: ``require``: the group must have consumed a retired partition before its records go, whether the brokers
            list the group or not (a name) or as far as they do (a glob). ``waive``: it is not waited for.
            ``closed``: the list of groups is closed: the registered ones and those that are seen are all there are,
            though the controller may not see every group.
        group: the group's name, taken literally; or a glob, where ``glob`` is set; ``""`` for ``closed``.
        topic: the topics it is for: a name or a glob. (No topic's name can hold ``*``, ``?`` or ``[``.)
        reason: why, in the operator's words; it stands in the drain certificate.
        created_ms, expires_ms: wall-clock times in ms since the epoch; ``expires_ms`` None: it holds until removed.
        uncommitted_only: of a waiver: only where the group has never committed an offset on the partition.
        glob: ``group`` is a pattern (``*``, ``?``, ``[...]``; case counts).
    """

    kind: str
    group: str
    topic: str
    reason: str
    created_ms: int
    expires_ms: int | None = None
    uncommitted_only: bool = False
    glob: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """What names a rule: there is one of each kind, group and topic."""
        return (self.kind, self.group, self.topic)

    @property
    def is_unlike_0_2_0(self) -> bool:
        """Whether a reader of 0.2.0 would take the group for a glob, and it is a name."""
        return not self.glob and has_glob_characters(self.group)

    def applies(self, topic: str, now_ms: int) -> bool:
        """Return whether it is a rule for ``topic``, and in force: a waiver ends when it expires (invariant I2)."""
        return (self.expires_ms is None or now_ms < self.expires_ms) and fnmatchcase(topic, self.topic)

    def matches(self, group: str) -> bool:
        """Return whether it is about ``group``."""
        return group == self.group or (self.glob and fnmatchcase(group, self.group))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        names = ("kind", "group", "topic", "reason", "created_ms")
        fields: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.expires_ms is not None:
            fields["expires_ms"] = self.expires_ms
        if self.uncommitted_only:
            fields["uncommitted_only"] = True
        if self.is_unlike_0_2_0:
            fields["literal"] = True
        return fields

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> GroupRule:
        """The rule of a JSON form.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        if fields["kind"] not in KINDS:
            raise ValueError(f"no such kind of rule: {fields['kind']!r}")
        group = text(fields["group"])
        return cls(
            kind=fields["kind"],
            group=group,
            topic=text(fields["topic"]),
            reason=text(fields["reason"]),
            created_ms=int(fields["created_ms"]),
            expires_ms=optional_int(fields.get("expires_ms")),
            uncommitted_only=bool(fields.get("uncommitted_only", False)),
            glob=has_glob_characters(group) and not fields.get("literal", False),
        )


@dataclass(frozen=True)
class GroupRulesRecord:
    """All rules in force (and those that have expired since the last change)."""

    rules: tuple[GroupRule, ...] = ()
    controller_epoch: int = 0
    epoch: int = -1

    @property
    def version(self) -> tuple[int, int]:
        return (self.controller_epoch, self.epoch)

    def to_json(self) -> bytes:
        min_reader = LITERAL_READER if any(rule.is_unlike_0_2_0 for rule in self.rules) else 1
        return dump({**vars(self), "rules": [rule.to_dict() for rule in self.rules]}, min_reader=min_reader)

    @classmethod
    def from_json(cls, value: bytes) -> GroupRulesRecord:
        """Parse a value of the mode log.

        Raises:
            RecordError: it is not a record of group rules, or needs a newer reader.
        """
        with parsing("a record of group rules"):
            found = load(value, reader_version=LITERAL_READER)
            return cls(
                rules=tuple(GroupRule.from_dict(rule) for rule in found["rules"]),
                controller_epoch=int(found["controller_epoch"]),
                epoch=int(found["epoch"]),
            )
