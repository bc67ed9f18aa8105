"""The output of ``modeaware status``: every change in progress, its reason to wait, and the next command. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from modeaware.lifecycle import reasons
from modeaware.lifecycle.facts import MembersSeen
from modeaware.lifecycle.keep_name import GAP
from modeaware.lifecycle.report import TopicReport, waits_for
from modeaware.modelog.records import DRAINED, IMMEDIATE, RETENTION
from modeaware.modes import format_ranges
from modeaware.printable import table
from modeaware.reports.describe import alike

Typed = Callable[..., str]
"""Returns a command line: the given words, and the options of the connection."""


@dataclass(frozen=True)
class Waiting:
    """Partitions that wait for the same reason.

    Attributes:
        partitions: the numbers of the partitions; empty if the replacement waits as a whole.
        reason: the code of the reason; null if the next step is due.
        waits_for: the reason in words.
        next: the command that examines or resolves the reason; null if the wait ends without a command.
    """

    partitions: tuple[int, ...]
    phase: str
    reason: str | None
    waits_for: str | None
    next: str | None


@dataclass(frozen=True)
class ChangeStatus:
    """A change under way.

    Attributes:
        topic: the topic that is changed. For a replacement that keeps the name, this is the kept name.
        change: the change in words: a shrink, growth or replacement, and its target.
        phase: the phase of the partition that is furthest behind. Or "gap": a change that keeps a name waits between
            its halves. In the first half an interim topic replaces the old topic; in the second, a topic of the old
            name replaces the interim topic.
        waiting: each reason to wait, with its partitions.
        members: the members of all groups that read the topic.
    """

    topic: str
    change: str
    phase: str
    waiting: tuple[Waiting, ...]
    members: MembersSeen


@dataclass(frozen=True)
class StatusReport:
    """The output of ``modeaware status``.

    Attributes:
        controller_runs: whether a controller is running; null if this host or user cannot find out.
        changes: the changes under way, ordered by topic.
    """

    controller_runs: bool | None
    changes: tuple[ChangeStatus, ...]


def status_report(topics: Iterable[TopicReport], typed: Typed, controller_runs: bool | None = True) -> StatusReport:
    """Return the changes in progress of these topics."""
    return StatusReport(
        controller_runs,
        tuple(
            ChangeStatus(_name(topic), change_text(topic), phase, tuple(_waiting(topic, typed)), _members(topic))
            for topic in sorted(topics, key=lambda topic: topic.topic)
            if (phase := change_phase(topic)) != "done"
        ),
    )


def _name(topic: TopicReport) -> str:
    """Return the topic's name; for a change that keeps a name, the kept name."""
    kept = topic.kept_name
    return topic.topic if kept is None or not kept.keeps else kept.name


def change_phase(topic: TopicReport) -> str:
    """Return the phase of a topic's change, or ``gap`` while a change that keeps a name waits for its second half."""
    kept = topic.kept_name
    return GAP if kept is not None and kept.waits_between_halves and kept.name == topic.topic else topic.phase


def half_of(topic: TopicReport) -> str:
    """Return which half of a change that keeps a name is under way, as the beginning of a text; empty for others."""
    kept = topic.kept_name
    return f"half {kept.half} of 2: " if kept is not None and kept.keeps and kept.phase != "done" else ""


def change_text(topic: TopicReport) -> str:
    """Return the change of a topic in words: a shrink, growth or replacement, and its target."""
    replacement, kept = topic.replacement, topic.kept_name
    if topic.replacing.undone_ms is not None:
        return f"undo of the replacement by {topic.replacing.new_topic}"
    if kept is not None and kept.keeps and change_phase(topic) != "done":
        return f"replacement via {kept.interim} ({kept.num_partitions}) that keeps the name, half {kept.half} of 2"
    if replacement is not None:
        return f"replacement by {replacement.new_topic} ({replacement.num_partitions})"
    if (shrink := topic.deletion) is not None and shrink.delete_partitions < shrink.previous_count:
        return f"shrink from {shrink.previous_count} to {shrink.delete_partitions}"
    return f"growth to {topic.writable + sum(p.phase == 'opening' for p in topic.partitions)}"


def _members(topic: TopicReport) -> MembersSeen:
    return sum((group.members for group in topic.groups), start=MembersSeen())


def _waiting(topic: TopicReport, typed: Typed) -> Iterator[Waiting]:
    def waiting(partitions: tuple[int, ...], phase: str | None, reason: str | None, text: str | None) -> Waiting:
        words = next_command(topic, reason)
        return Waiting(partitions, phase or "", reason, text, None if words is None else typed(*words))

    kept = topic.kept_name
    if kept is not None and change_phase(topic) == GAP:
        yield waiting((), GAP, kept.reason, kept.waits_for)
        return
    changing = [p for p in topic.partitions if p.phase not in (None, "done")]
    replacement = topic.replacement
    if replacement is not None and (replacement.reason is not None or not changing):
        yield waiting((), topic.phase, replacement.reason, replacement.waits_for)
    for group in alike(changing, lambda p: (p.phase, p.reason)):
        yield waiting(tuple(p.partition for p in group), group[0].phase, group[0].reason, waits_for(group))


def next_command(topic: TopicReport, reason: str | None) -> tuple[str, ...] | None:
    """Return the command that examines or resolves a reason, as words, without the options of the connection.

    If there is no reason, or the wait ends without a command, return None.
    """
    code, group = (reasons.code_of(reason), reasons.group_of(reason)) if reason is not None else ("", "")
    if reason is None or code in BY_ITSELF:
        return None
    shrink, is_replaced = topic.deletion, topic.replacement is not None or topic.kept_name is not None
    template = (NEXT | _OF_REPLACEMENT if is_replaced else NEXT).get(code, _DESCRIBE)
    if ("{group}" in template and not group) or ("{count}" in template and shrink is None):  # a value is unknown
        template = _GROUPS
    filled = {"topic": topic.topic, "group": group, "new": topic.replacing.new_topic}
    if shrink is not None:
        policy = _POLICY_OPTION[shrink.policy].format(delay=shrink.delay_text)
        filled |= {"count": str(shrink.delete_partitions), "policy": policy}
    words = (word.format_map(filled) for word in template.split())  # a name with blanks is one word
    return tuple(word for word in words if word)


_POLICY_OPTION = {RETENTION: "", DRAINED: "--delay={delay}", IMMEDIATE: "--immediate-delete"}
_DESCRIBE = "modeaware topics --describe --topic {topic}"
_UNAVAILABLE = "modeaware topics --describe --unavailable-partitions --topic {topic}"
_GROUPS = "modeaware groups list {topic}"
_CHECK = "modeaware check --role controller {topic}"
_WAIVE = "modeaware groups waive {group} --topic {topic} --reason WHY --expires 7d"
NEXT = {
    reasons.OPEN_TRANSACTION: _DESCRIBE,
    reasons.UNAVAILABLE: _UNAVAILABLE,
    reasons.COMPACTED: "modeaware topics --undo --topic {topic}",
    reasons.GROUPS_UNKNOWN: _GROUPS,
    reasons.GROUPS_HIDDEN: _CHECK,
    reasons.GROUPS_TOO_MANY: _GROUPS,
    reasons.GROUP_REBALANCING: _GROUPS,
    reasons.GROUP_LAG: _GROUPS,
    reasons.GROUP_UNCOMMITTED: _GROUPS,
    reasons.GROUP_NEVER_COMMITTED: f"{_WAIVE} --uncommitted-only",
    reasons.GROUP_GONE: _WAIVE,
    reasons.GROUP_BEYOND_END: _GROUPS,
    reasons.GROUP_TRUNCATED: _GROUPS,
    reasons.GROUP_STATEFUL: "modeaware shrink {topic} --partitions {count} {policy} --accept-state-loss {group}",
    reasons.NOT_EVACUATED: "python -m modeaware.spark.evacuate {topic}",
    reasons.PAUSED: "modeaware replace {topic}",
    reasons.FENCE_DENIED: f"{_CHECK} --new-topic {{new}}",
    reasons.FENCE_UNKNOWN: _UNAVAILABLE,
    reasons.GROUP_NOT_MOVED: "modeaware groups prepare {group} --topic {new}",
    reasons.NEW_TOPIC_GONE: _DESCRIBE,
    reasons.GROUP_SUBSCRIBED: _GROUPS,
    reasons.EARLIER_TOPIC_FIRST: "modeaware topics --describe --topic {group}",
    reasons.NO_NEW_TOPIC: "modeaware topics --delete --topic {topic}",
    reasons.RENAME_REFUSED: _DESCRIBE,
}
"""Code of a reason -> the command that examines or resolves the reason."""
_OF_REPLACEMENT = {
    reasons.COMPACTED: "modeaware replace {topic} --undo",
    reasons.GROUP_STATEFUL: "modeaware replace {topic} --accept-state-loss {group}",
}
BY_ITSELF = frozenset(
    {
        *(reasons.STILL_WRITTEN, reasons.STRAGGLER, reasons.TRUNCATED, reasons.DELAY, reasons.RETENTION),
        *(reasons.OPENING, reasons.UNDOING, reasons.NOT_FENCED, reasons.END_NOT_READ, reasons.DELETING),
        *(reasons.KNOWN_BY_CLIENTS, reasons.OFFSETS_LEFT),
    }
)
"""Codes of reasons that pass without a command."""


def status_text(report: StatusReport) -> list[str]:
    """Return the report as one table."""
    rows = [
        (
            change.topic,
            change.change,
            waiting.phase,
            format_ranges(waiting.partitions) or "-",
            change.members.text,
            "-" if waiting.reason is None else reasons.brief(waiting.reason),
            waiting.next or "-",
        )
        for change in report.changes
        for waiting in change.waiting
    ]
    return table(("Topic", "Change", "Phase", "Partitions", "Members", "Waits for", "Next"), rows)
