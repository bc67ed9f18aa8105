"""The operator's rules about groups, as the mode log keeps them: whom a drain waits for, and whom not.

One record holds all rules. It is written by the controller, like every other, and read by nobody else but the command
line: clients pass it over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from modeaware.errors import RecordError
from modeaware.modelog.json_fields import WRITER_VERSION, dump, load, optional_int, text

GROUP_RULES_KEY = "group-rules"
REQUIRE, WAIVE, CLOSED = "require", "waive", "closed"
KINDS = (REQUIRE, WAIVE, CLOSED)


@dataclass(frozen=True)
class GroupRule:
    """One rule.

    Attributes:
        kind: ``require``: the group must have consumed a retired partition before its records go, whether the brokers
            list the group or not (a plain name) or as far as they do (a glob). ``waive``: it is not waited for.
            ``closed``: the list of groups is closed: the registered ones and those that are seen are all there are,
            though the controller may not see every group.
        group: the group's name, or a glob (``*``, ``?``, ``[...]``; case counts); ``""`` for ``closed``.
        topic: the topics it is for: a name or a glob.
        reason: why, in the operator's words; it stands in the drain certificate.
        created_ms, expires_ms: wall-clock times in ms since the epoch; ``expires_ms`` None: it holds until removed.
        uncommitted_only: of a waiver: only where the group has never committed an offset on the partition.
    """

    kind: str
    group: str
    topic: str
    reason: str
    created_ms: int
    expires_ms: int | None = None
    uncommitted_only: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """What names a rule: there is one of each kind, group and topic."""
        return (self.kind, self.group, self.topic)

    @property
    def is_glob(self) -> bool:
        """Whether ``group`` stands for more than one name."""
        return any(character in self.group for character in "*?[")

    def applies(self, topic: str, now_ms: int) -> bool:
        """Whether it is a rule for ``topic``, and in force now: a waiver ends when it says so (invariant I2)."""
        return (self.expires_ms is None or now_ms < self.expires_ms) and fnmatchcase(topic, self.topic)

    def matches(self, group: str) -> bool:
        """Whether it is about ``group``."""
        return group == self.group or fnmatchcase(group, self.group)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        fields: dict[str, Any] = {
            "kind": self.kind,
            "group": self.group,
            "topic": self.topic,
            "reason": self.reason,
            "created_ms": self.created_ms,
        }
        if self.expires_ms is not None:
            fields["expires_ms"] = self.expires_ms
        if self.uncommitted_only:
            fields["uncommitted_only"] = True
        return fields

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> GroupRule:
        """The rule of a JSON form.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        if fields["kind"] not in KINDS:
            raise ValueError(f"no such kind of rule: {fields['kind']!r}")
        return cls(
            kind=fields["kind"],
            group=text(fields["group"]),
            topic=text(fields["topic"]),
            reason=text(fields["reason"]),
            created_ms=int(fields["created_ms"]),
            expires_ms=optional_int(fields.get("expires_ms")),
            uncommitted_only=bool(fields.get("uncommitted_only", False)),
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
        return dump(
            {
                "version": WRITER_VERSION,
                "min_reader": 1,
                "controller_epoch": self.controller_epoch,
                "epoch": self.epoch,
                "rules": [rule.to_dict() for rule in self.rules],
            }
        )

    @classmethod
    def from_json(cls, value: bytes) -> GroupRulesRecord:
        """Parse a value of the mode log.

        Raises:
            RecordError: it is not a record of group rules, or needs a newer reader.
        """
        fields = load(value)
        try:
            return cls(
                rules=tuple(GroupRule.from_dict(rule) for rule in fields["rules"]),
                controller_epoch=int(fields["controller_epoch"]),
                epoch=int(fields["epoch"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise RecordError(f"mode log: not a record of group rules ({type(error).__name__}: {error})") from error
