"""The groups that a drain waits for, and the reasons: the output of ``modeaware groups``.

The controller's own functions read the facts and decide on them (:mod:`modeaware.lifecycle.drain`). Pure, except
:func:`take_group_snapshot`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from modeaware.clock import utc
from modeaware.lifecycle import reasons
from modeaware.lifecycle.drain import noted_groups, requirement_of, using_groups
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.progress import GroupProgress, held_up_by
from modeaware.lifecycle.report import TopicReport, report_topic
from modeaware.lifecycle.state import current_record, drains, in_progress
from modeaware.modelog.group_rules import CLOSED, REQUIRE, GroupRule
from modeaware.modelog.records import ClaimRecord, TopicRecord
from modeaware.modes import format_ranges
from modeaware.printable import number, printable_lines, table
from modeaware.reports.session import Session
from modeaware.topic_view import NONE_MOVED, Moved

NOTED, USING, REGISTERED, EVACUATION, IGNORED = "noted", "using", "registered", "evacuation", "ignored"
_BECAUSE = {
    NOTED: "noted when the change began",
    USING: "uses the topic",
    REGISTERED: "registered",
    EVACUATION: "proves the evacuation",
    IGNORED: "not required: ignored until it commits (modeaware.ignored.groups)",
}


@dataclass(frozen=True, kw_only=True)
class GroupReport(GroupProgress):
    """One group in the drain of one topic.

    Attributes:
        state_loss_accepted: whether the user has accepted that the group loses state.
        because: why the drain concerns the group, as a list. noted: the group used the topic, or was registered, when
            the shrink was admitted or the replacement switched. using: it uses the topic now. registered: by a rule.
            evacuation: its commits prove the evacuation of a compacted topic. ignored: no drain waits for it before its
            first commit.
        held_up: retired partition -> the code of the reason why the partition waits for the group.
        to_do: the steps that move the group to the new topic; null if there is nothing to do.
    """

    json_also: ClassVar = (*GroupProgress.json_also, "to_do")

    state_loss_accepted: bool
    because: tuple[str, ...]
    held_up: Mapping[int, str]

    @property
    def to_do(self) -> str | None:
        return reasons.text(reasons.of_group(reasons.GROUP_NOT_MOVED, self.group)) if self.must_move else None


@dataclass(frozen=True, kw_only=True)
class TopicGroups(TopicReport):
    """One topic, with its retired partitions.

    Attributes:
        rules: the rules in force that apply to the topic.
        spared: group -> why it is unknown whether the group uses the topic. A waiver applies, so no drain waits for
            this.
    """

    groups: tuple[GroupReport, ...]
    rules: tuple[GroupRule, ...] = field(metadata={"json": None})
    spared: Mapping[str, str] = field(metadata={"json": None})


@dataclass(frozen=True)
class RuleReport:
    """A rule about groups.

    Attributes:
        kind: require, waive or closed.
        glob: whether group is a pattern.
        expires_ms: when the rule ends; null if it is in force until it is removed.
        uncommitted_only: whether the rule holds only for partitions on which the group has never committed.
    """

    kind: str
    group: str
    topic: str
    reason: str
    created_ms: int
    expires_ms: int | None
    uncommitted_only: bool
    glob: bool
    expired: bool


@dataclass(frozen=True)
class GroupsReport:
    """The output of ``modeaware groups list``.

    Attributes:
        topics: the named topic or, without a name, all topics with a change under way.
        rules: all rules, including expired ones.
    """

    topics: tuple[TopicGroups, ...]
    rules: tuple[RuleReport, ...]

    @classmethod
    def of(cls, topics: Iterable[TopicGroups], rules: Iterable[GroupRule], now_ms: int) -> GroupsReport:
        """Make a report of ``topics`` and of all rules."""
        shown = (RuleReport(**vars(r), expired=r.expires_ms is not None and r.expires_ms <= now_ms) for r in rules)
        return cls(tuple(topics), tuple(shown))


@dataclass(frozen=True)
class GroupSituation:
    """All rules, expired ones too, and the record and facts of each topic in the snapshot.

    ``moved``: id of an old topic -> the groups for which the gate of the new topic is open.
    """

    rules: tuple[GroupRule, ...]
    snapshot: tuple[tuple[TopicRecord | None, TopicFacts], ...]
    ignored_groups: tuple[str, ...]
    now_ms: int
    claim: ClaimRecord | None
    moved: Mapping[str, Moved] = field(default_factory=dict)

    def topics(self, *more: GroupRule) -> tuple[TopicGroups, ...]:
        """Return the groups of each topic, as if the rules in ``more`` were in force too."""
        keys = {rule.key for rule in more}
        rules = (*(rule for rule in self.rules if rule.key not in keys), *more)
        return tuple(
            report_groups(
                record, facts, rules, self.ignored_groups, self.now_ms, self.moved.get(facts.topic_id or "", NONE_MOVED)
            )
            for record, facts in self.snapshot
        )


def take_group_snapshot(
    session: Session, topic: str | None, wanted: Callable[[str], bool] = lambda topic: True
) -> GroupSituation:
    """Take a snapshot of one topic, or of all topics in a change.

    Args:
        topic: None for all topics with a change under way.
        wanted: selects by name among these topics.
    """
    log = session.read_log()
    rules = log.rules
    changing = (record.topic for record in log.replay.records.values() if in_progress(record))
    names = [topic] if topic is not None else sorted(filter(wanted, changing))
    snapshot = session.snapshot(log, names, rules, named=topic is not None)
    ignored, now_ms = session.controller.ignored_groups, session.clock.now_ms()
    moved = {topic_id: record.moved for topic_id, record in log.replay.moved.items()}
    return GroupSituation(rules, tuple(snapshot), ignored, now_ms, log.claim, moved)


def report_groups(
    record: TopicRecord | None,
    facts: TopicFacts,
    rules: Sequence[GroupRule],
    ignored_groups: Sequence[str],
    now_ms: int,
    moved: Moved | None = None,
) -> TopicGroups:
    """Report every group that is required or uses the topic, with its unread offsets on retired partitions."""
    record = current_record(record, facts.topic, facts.topic_id or "", facts.partition_count)
    requirement = requirement_of(record, facts, rules, ignored_groups, now_ms)
    noted = set(noted_groups(record)) if in_progress(record) else set()
    using = set(using_groups(facts, ignored_groups, requirement.registered))
    retired = sorted(record.retired.keys() & facts.partitions.keys())
    report = report_topic(record, facts, requirement, retired, moved)
    change, groups = record.replacement or record.deletion, []
    for group in report.groups:
        name = group.group
        registered = any(rule.matches(name) for rule in requirement.registered)
        why = [(NOTED, name in noted), (USING, name in using), (REGISTERED, registered), (EVACUATION, group.evacuates)]
        # On a partition that waits for no group, a waiver has no effect, so the report omits the waiver.
        waivers = {p: rule for p, rule in group.waivers.items() if drains(p, record)}
        of_group = GroupReport(
            **vars(replace(group, waivers=waivers)),
            state_loss_accepted=change is not None and name in change.accept_state_loss,
            because=tuple(word for word, holds in why if holds) or (IGNORED,),
            held_up=held_up_by(group, record, facts, requirement),
        )
        groups.append(of_group)
    in_force = tuple(rule for rule in rules if rule.applies(facts.topic, now_ms))
    spared = {name: facts.unclear_groups[name].detail for name in requirement.spared}
    return TopicGroups(**vars(report) | {"groups": tuple(groups)}, rules=in_force, spared=spared)


def groups_text(report: GroupsReport) -> str:
    """Return each topic with its groups, then all rules."""
    blocks: list[str] = [printable_lines(_topic_lines(topic)) for topic in report.topics]
    if not blocks:
        blocks = ["No topic is being changed. The groups that a change would wait for: 'modeaware groups list TOPIC'."]
    return "\n\n".join([*blocks, printable_lines(_rule_lines(report.rules))])


def _topic_lines(topic: TopicGroups) -> list[str]:
    retired = format_ranges(p.partition for p in topic.partitions) if topic.partitions else "none"
    lines = [f"Topic: {topic.topic}  Phase: {topic.phase}  Retired: {retired}"]
    if topic.groups_doubt is not None:
        lines.append(f"  The list of groups may be incomplete, so nothing is deleted: {topic.groups_doubt}")
    if not topic.groups:
        return [*lines, "  No group uses it."]
    rows = [
        (
            group.group,
            (group.kind or "not listed") + (", keeps state" if group.stateful else ""),
            group.members.text,
            number(sum(group.unread.values())) if topic.partitions else "-",
            ", ".join(_BECAUSE[word] for word in group.because),
            _blocks(group),
        )
        for group in topic.groups
    ]
    headings = ("Group", "Kind", "Members", "Unread", "Because", "Blocks")
    return lines + ["  " + line for line in table(headings, rows, {"Unread"})]


def _blocks(group: GroupReport) -> str:
    parts = []
    for reason in dict.fromkeys(group.held_up.values()):
        partitions = format_ranges(sorted(p for p, held in group.held_up.items() if held == reason))
        parts.append(f"{partitions}: {reasons.text(reason)}")
    for rule in dict.fromkeys(group.waivers.values()):
        partitions = format_ranges(sorted(p for p, waiver in group.waivers.items() if waiver == rule))
        parts.append(f"{partitions}: no, waived ({rule.reason})")
    if group.to_do is not None:
        parts.append(group.to_do)
    if group.gate is not None:
        parts.append(group.gate)
    if group.stateful and group.state_loss_accepted:
        parts.append("the loss of its state is accepted")
    return "; ".join(parts) or "no"


def _rule_lines(rules: Sequence[RuleReport]) -> list[str]:
    if not rules:
        return ["There are no rules about groups."]
    rows = [
        (
            rule.kind + (" (glob)" if rule.glob else "") + (" (uncommitted only)" if rule.uncommitted_only else ""),
            rule.group or "-",
            rule.topic,
            _term(rule),
            rule.reason or "-",
        )
        for rule in rules
    ]
    return ["Rules:", *("  " + line for line in table(("Kind", "Group", "Topic", "In force", "Reason"), rows))]


def _term(rule: RuleReport) -> str:
    if rule.expires_ms is None:
        return "until removed"
    return f"until {utc(rule.expires_ms)}" + (" (expired)" if rule.expired else "")


def rule_text(rule: GroupRule) -> str:
    """Return a rule in one line."""
    group = f"each group that matches the glob {rule.group!r}" if rule.glob else f"group {rule.group!r}"
    if rule.kind == REQUIRE:
        effect = (
            f"no record is deleted before {group} has consumed it"
            f"{', if the cluster lists the group' if rule.glob else ', even if the cluster does not list the group'}"
        )
    elif rule.kind == CLOSED:
        effect = "the registered groups and those that the cluster lists count as all groups"
    else:
        effect = f"{group} is not waited for{' unless it has committed' if rule.uncommitted_only else ''}"
    until = "" if rule.expires_ms is None else f", until {utc(rule.expires_ms)}"
    return f"Topics {rule.topic!r}: {effect}{until}" + (f" ({rule.reason})." if rule.reason else ".")


def given_up(before: Sequence[TopicGroups], after: Sequence[TopicGroups], waiver: GroupRule) -> list[str]:
    """Return the effect of a waiver, per topic: the groups that are no longer waited for, and their unread offsets.

    Args:
        before, after: each topic without, and with, the waiver.
    """
    lines = []
    for topic, waived in zip(before, after, strict=True):
        if waiver in waived.rules:
            freed = [line for group in waived.groups if (line := _freed(group, waiver)) is not None]
            freed += [
                f"{why}. The drain no longer waits for this: unread records may be deleted."
                for name, why in sorted(waived.spared.items())
                if name not in topic.spared
            ]
            lines += [f"{topic.topic}: {line}" for line in freed or ["the rule changes nothing now."]]
    return lines or ["No topic that is being changed matches; the rule applies to later changes."]


def _freed(group: GroupReport, waiver: GroupRule) -> str | None:
    partitions = sorted(p for p, rule in group.waivers.items() if rule == waiver)
    if not partitions:
        return None
    unread = {p: group.unread.get(p, 0) for p in partitions if group.unread.get(p, 0) > 0}
    if not unread:
        return f"group {group.group!r} has read partitions {format_ranges(partitions)}: nothing there is unread now."
    return (
        f"group {group.group!r} has not read {number(sum(unread.values()))} offsets of partitions "
        f"{format_ranges(sorted(unread))}: these records may be deleted unread."
    )
