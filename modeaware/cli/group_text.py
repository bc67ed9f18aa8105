"""What ``modeaware groups`` prints. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from modeaware.cli.display import number
from modeaware.clock import utc
from modeaware.lifecycle import reasons
from modeaware.modelog.group_rules import CLOSED, REQUIRE, GroupRule
from modeaware.modes import format_ranges
from modeaware.printable import printable_lines
from modeaware.reports.groups import GroupReport, TopicGroups
from modeaware.reports.table import table

LIST_JSON_HELP = """\
--json prints one object:
  {"topics": [{"topic", "phase", "retired", "doubt", "groups"}], "rules"}
doubt says why there may be more groups than these, or is null. groups has
  {"group", "kind", "has_members", "stateful", "state_loss_accepted", "required", "because", "unread", "held_up",
   "waived"}
with kind classic, consumer, share, streams, or null for one that the brokers do not list; because a list of noted (it
used the topic when the shrink was admitted), using (it does now), registered (by a rule), evacuation (its commits prove
the evacuation of a compacted topic) and ignored (not waited for until it commits); unread, held_up and waived by
retired partition: the offsets it has still to consume, the reason code for which it holds the partition up, the reason
of the waiver by which it does not. rules has, expired ones too,
  {"kind", "group", "glob", "topic", "reason", "created_ms", "expires_ms", "uncommitted_only", "expired"}
Fields may be added.
"""

_BECAUSE = {
    "noted": "used the topic when the shrink was admitted",
    "using": "uses the topic",
    "registered": "registered",
    "evacuation": "proves the evacuation",
    "ignored": "not required: ignored until it commits (modeaware.ignored.groups)",
}


def groups_text(topics: Iterable[TopicGroups], rules: Sequence[GroupRule], now_ms: int) -> str:
    """Each topic with its groups, then all rules."""
    blocks: list[str] = [printable_lines(_topic_lines(topic)) for topic in topics]
    if not blocks:
        blocks = ["No topic is in a change: nobody is waited for. (--topic shows who would be.)"]
    return "\n\n".join([*blocks, printable_lines(_rule_lines(rules, now_ms))])


def groups_json(topics: Iterable[TopicGroups], rules: Iterable[GroupRule], now_ms: int) -> dict[str, Any]:
    """As :data:`LIST_JSON_HELP` documents it."""
    return {
        "topics": [
            {
                "topic": topic.topic,
                "phase": topic.phase,
                "retired": list(topic.retired),
                "doubt": topic.doubt,
                "groups": [_group_json(group) for group in topic.groups],
            }
            for topic in topics
        ],
        "rules": [
            {
                "kind": rule.kind,
                "group": rule.group,
                "glob": rule.glob,
                "topic": rule.topic,
                "reason": rule.reason,
                "created_ms": rule.created_ms,
                "expires_ms": rule.expires_ms,
                "uncommitted_only": rule.uncommitted_only,
                "expired": _expired(rule, now_ms),
            }
            for rule in rules
        ],
    }


def rule_text(rule: GroupRule) -> str:
    """A rule in one line."""
    about = f"Topics {rule.topic!r}: "
    if rule.kind == REQUIRE:
        listed = "as far as it is listed" if rule.glob else "listed or not"
        about += f"{_named(rule)} must have consumed what is deleted, {listed}"
    elif rule.kind == CLOSED:
        about += "the groups that are registered or seen are taken for all there are"
    else:
        about += f"{_named(rule)} is not waited for"
        about += " where it has never committed" if rule.uncommitted_only else ""
    until = "" if rule.expires_ms is None else f", until {utc(rule.expires_ms)}"
    return f"{about}{until}" + (f" ({rule.reason})." if rule.reason else ".")


def _named(rule: GroupRule) -> str:
    return f"each group that matches the glob {rule.group!r}" if rule.glob else f"group {rule.group!r}"


def given_up(before: Sequence[TopicGroups], after: Sequence[TopicGroups], waiver: GroupRule) -> list[str]:
    """What a waiver gives up now: per topic, the groups it frees from and what these have not read.

    Args:
        before, after: the same topics, without and with the waiver.
    """
    lines = []
    for topic, waived in zip(before, after, strict=True):
        if waiver not in waived.rules:  # it is for other topics
            continue
        freed = [line for group in waived.groups if (line := _freed(group, waiver)) is not None]
        prefix = f"{topic.topic}: "
        lines += [prefix + line for line in freed] or [f"{prefix}no group is waited for less by it now."]
    return lines or ["No topic that is in a change matches: it holds for shrinks to come."]


def _freed(group: GroupReport, waiver: GroupRule) -> str | None:
    partitions = sorted(p for p, rule in group.waived.items() if rule == waiver)
    if not partitions:
        return None
    unread = {p: group.unread.get(p, 0) for p in partitions if group.unread.get(p, 0) > 0}
    if not unread:
        return f"group {group.group!r} has read partitions {format_ranges(partitions)}: nothing is given up."
    return (
        f"group {group.group!r} has not read {number(sum(unread.values()))} offsets of partitions "
        f"{format_ranges(sorted(unread))}: they are given up, and may be deleted."
    )


def _topic_lines(topic: TopicGroups) -> list[str]:
    retired = format_ranges(topic.retired) if topic.retired else "none"
    lines = [f"Topic: {topic.topic}  Phase: {topic.phase}  Retired: {retired}"]
    if topic.doubt is not None:
        lines.append(f"  There may be more groups than these, so nothing is deleted: {topic.doubt}")
    if not topic.groups:
        return [*lines, "  No group uses it."]
    rows = [_row(group, bool(topic.retired)) for group in topic.groups]
    headings = ("Group", "Kind", "Unread", "Because", "Stands in the way")
    return lines + ["  " + line for line in table(headings, rows, {"Unread"})]


def _row(group: GroupReport, retired: bool) -> tuple[str, ...]:
    kind = (group.kind or "not listed") + (", keeps state" if group.stateful else "")
    because = ", ".join(_BECAUSE[word] for word in group.because)
    return (group.group, kind, number(sum(group.unread.values())) if retired else "-", because, _verdict(group))


def _verdict(group: GroupReport) -> str:
    told = []
    for reason in dict.fromkeys(group.held_up.values()):
        partitions = format_ranges(sorted(p for p, held in group.held_up.items() if held == reason))
        told.append(f"{partitions}: {reasons.text(reason)}")
    for rule in dict.fromkeys(group.waived.values()):
        partitions = format_ranges(sorted(p for p, waiver in group.waived.items() if waiver == rule))
        told.append(f"{partitions}: no, waived ({rule.reason})")
    if group.stateful and group.accepted:
        told.append("the loss of its state is accepted")
    return "; ".join(told) or "no"


def _rule_lines(rules: Sequence[GroupRule], now_ms: int) -> list[str]:
    if not rules:
        return ["There are no rules about groups."]
    rows = [
        (
            rule.kind + (" (glob)" if rule.glob else "") + (" (uncommitted only)" if rule.uncommitted_only else ""),
            rule.group or "-",
            rule.topic,
            _until(rule, now_ms),
            rule.reason or "-",
        )
        for rule in rules
    ]
    return ["Rules:", *("  " + line for line in table(("Kind", "Group", "Topic", "Until", "Reason"), rows))]


def _until(rule: GroupRule, now_ms: int) -> str:
    if rule.expires_ms is None:
        return "forgotten"
    return utc(rule.expires_ms) + (" (expired)" if _expired(rule, now_ms) else "")


def _expired(rule: GroupRule, now_ms: int) -> bool:
    return rule.expires_ms is not None and rule.expires_ms <= now_ms


def _group_json(group: GroupReport) -> dict[str, Any]:
    return {
        "group": group.group,
        "kind": group.kind,
        "has_members": group.has_members,
        "stateful": group.stateful,
        "state_loss_accepted": group.accepted,
        "required": group.required,
        "because": list(group.because),
        "unread": {str(p): count for p, count in group.unread.items()},
        "held_up": {str(p): reason for p, reason in group.held_up.items()},
        "waived": {str(p): rule.reason for p, rule in group.waived.items()},
    }
