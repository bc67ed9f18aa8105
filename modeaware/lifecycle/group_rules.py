"""Changing the operator's rules about groups. Pure; a refusal changes nothing."""

from __future__ import annotations

from dataclasses import replace

from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle.admission import MAX_RECORD_BYTES
from modeaware.lifecycle.commands import AlterGroupRulesCommand
from modeaware.lifecycle.evacuation import EVACUATION_PREFIX
from modeaware.modelog.group_rules import (
    CLOSED,
    KINDS,
    REQUIRE,
    WAIVE,
    GroupRule,
    GroupRulesRecord,
    has_glob_characters,
)

LATEST_MS = 253_402_300_799_000
"""The end of the year 9999, the last that has a form in writing."""


def alter_group_rules(
    record: GroupRulesRecord, command: AlterGroupRulesCommand, controller_epoch: int
) -> GroupRulesRecord:
    """The rules after ``command``; ``record`` itself where nothing changes.

    Raises:
        RequestRefused: INVALID_REQUEST, a rule that cannot be one, or one to be removed that is not there;
            MESSAGE_TOO_LARGE, more rules than fit a record.
    """
    for rule in command.add:
        _check(rule)
    rules = {rule.key: rule for rule in record.rules}
    for key in command.remove:
        if rules.pop(key, None) is None:
            kind, group, topic = key
            raise _refusal(f"there is no rule {kind!r} for group {group!r} and topic {topic!r}")
    for rule in command.add:
        _refuse_ambiguous(rule, rules.get(rule.key))
    rules |= {rule.key: rule for rule in command.add}
    if tuple(rules.values()) == record.rules:
        return record
    after = replace(record, rules=tuple(rules.values()), controller_epoch=controller_epoch, epoch=record.epoch + 1)
    size = len(after.to_json())
    if size > MAX_RECORD_BYTES:
        raise RequestRefused(
            f"the rules about groups would take {size} bytes, more than the {MAX_RECORD_BYTES} that fit the mode log: "
            "use globs, or remove some",
            code=ErrorCode.MESSAGE_TOO_LARGE,
        )
    return after


def _check(rule: GroupRule) -> None:
    if rule.kind not in KINDS:
        raise _refusal(f"no such kind of rule: {rule.kind!r} (known are {', '.join(KINDS)})")
    if bool(rule.group) is (rule.kind == CLOSED):
        raise _refusal(f"a rule {rule.kind!r} " + ("names no group" if rule.group else "must name a group"))
    if rule.kind == WAIVE and rule.group.startswith(EVACUATION_PREFIX):
        raise _refusal(
            f"group {rule.group!r} is the proof that the latest values of keys were copied before a partition goes: it "
            "cannot be waived. Run the Spark job modeaware.spark.evacuate, or take the shrink back (--undo)"
        )
    if rule.glob and not has_glob_characters(rule.group):
        raise _refusal(
            f"group {rule.group!r} is no glob: it has none of * ? [. Leave out --glob (glob=True) for a name"
        )
    if not rule.topic:
        raise _refusal(f"a rule {rule.kind!r} must name a topic, or a glob")
    if rule.kind != REQUIRE and not rule.reason.strip():
        raise _refusal(f"a rule {rule.kind!r} needs a reason: it stands in the drain certificate")
    if rule.expires_ms is not None and rule.expires_ms <= rule.created_ms:
        raise _refusal(f"the rule {rule.kind!r} for group {rule.group!r} would have expired before it began")

    if rule.expires_ms is not None and rule.expires_ms > LATEST_MS:
        raise _refusal(f"the rule {rule.kind!r} for group {rule.group!r} would end beyond the year 9999")


def _refuse_ambiguous(rule: GroupRule, held: GroupRule | None) -> None:
    """Refuse a name where a glob of the same text is in force, and a glob where a name is."""
    if held is None or held.glob is rule.glob:
        return
    was, now = ("a glob", "a name") if held.glob else ("a name", "a glob")
    raise _refusal(
        f"group {rule.group!r} is {now} here, and {was} in a rule {rule.kind!r} for topic {rule.topic!r} that is in "
        f"force. Remove that rule first: modeaware groups forget {rule.kind} GROUP --topic TOPIC"
    )


def _refusal(why: str) -> RequestRefused:
    return RequestRefused(why, code=ErrorCode.INVALID_REQUEST)
