"""What ``modeaware status`` shows: every change under way, what it waits for, and the command to run next. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from modeaware.durations import duration_text
from modeaware.lifecycle import reasons
from modeaware.modes import format_ranges
from modeaware.printable import table
from modeaware.reports.describe import TopicDescription, alike, waits_for

Typed = Callable[..., str]
"""Returns a command from its words, with the options of the connection."""


@dataclass(frozen=True)
class Waiting:
    """Partitions that wait for the same.

    Attributes:
        partitions: their numbers; empty: the replacement waits as a whole.
        reason: the code of what they wait for; null: the next step is due.
        waits_for: the reason in words.
        next: the command that looks into it or resolves it; null: it passes by itself, or waits as requested.
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
        change: in words: a shrink, growth or replacement, and to what.
        phase: of the partition that is furthest behind.
        waiting: a list of objects.
    """

    topic: str
    change: str
    phase: str
    waiting: tuple[Waiting, ...]


@dataclass(frozen=True)
class StatusReport:
    """What ``modeaware status`` shows.

    Attributes:
        controller_runs: whether a controller is running; null: this host or user cannot find out.
        changes: a list of objects, by topic.
    """

    controller_runs: bool | None
    changes: tuple[ChangeStatus, ...]


def status_report(
    topics: Iterable[TopicDescription], typed: Typed, controller_runs: bool | None = True
) -> StatusReport:
    """Return the changes under way of these topics."""
    return StatusReport(
        controller_runs,
        tuple(
            ChangeStatus(topic.topic, _change(topic), topic.phase, tuple(_waiting(topic, typed)))
            for topic in sorted(topics, key=lambda topic: topic.topic)
            if topic.phase != "done"
        ),
    )


def _change(topic: TopicDescription) -> str:
    if (now := topic.replacement) is not None:
        undo = now.undone_ms is not None
        return (
            f"undo of the replacement by {now.successor}"
            if undo
            else f"replacement by {now.successor} ({now.num_partitions})"
        )
    if (shrink := topic.deletion) is not None and shrink.delete_partitions < shrink.previous_count:
        return f"shrink from {shrink.previous_count} to {shrink.delete_partitions}"
    return f"growth to {topic.writable + sum(p.phase == 'opening' for p in topic.partitions)}"


def _waiting(topic: TopicDescription, typed: Typed) -> Iterator[Waiting]:
    changing = [p for p in topic.partitions if p.phase not in (None, "done")]
    now = topic.replacement
    if now is not None and (now.reason is not None or not changing):
        yield Waiting((), topic.phase, now.reason, now.waits_for, _next(topic, now.reason, typed))
    for group in alike(changing, lambda p: (p.phase, p.reason)):
        first, ids = group[0], tuple(p.partition for p in group)
        yield Waiting(ids, first.phase or "", first.reason, waits_for(group), _next(topic, first.reason, typed))


def _next(topic: TopicDescription, reason: str | None, typed: Typed) -> str | None:
    if reason is None or (code := reasons.code_of(reason)) in BY_ITSELF:
        return None
    group, command = reasons.group_of(reason), NEXT.get(code, _describe)
    if not group and command in (_waive, _waive_uncommitted, _prepare, _accept):  # it did not fit the record
        command = _groups
    return typed(*command(topic, group))


def _describe(topic: TopicDescription, group: str) -> tuple[str, ...]:
    return "modeaware", "topics", "--describe", "--topic", topic.topic


def _groups(topic: TopicDescription, group: str) -> tuple[str, ...]:
    return "modeaware", "groups", "list", topic.topic


def _unavailable(topic: TopicDescription, group: str) -> tuple[str, ...]:
    return "modeaware", "topics", "--describe", "--unavailable-partitions", "--topic", topic.topic


def _check(topic: TopicDescription, group: str) -> tuple[str, ...]:
    now = topic.replacement
    successor = () if now is None else ("--successor", now.successor)
    return "modeaware", "check", "--role", "controller", topic.topic, *successor


def _waive(topic: TopicDescription, group: str) -> tuple[str, ...]:
    return "modeaware", "groups", "waive", group, "--topic", topic.topic, "--reason", "WHY", "--expires", "7d"


def _waive_uncommitted(topic: TopicDescription, group: str) -> tuple[str, ...]:
    return *_waive(topic, group), "--uncommitted-only"


def _prepare(topic: TopicDescription, group: str) -> tuple[str, ...]:
    assert topic.replacement is not None, "groups move to a successor"
    return "modeaware", "groups", "prepare", group, "--topic", topic.replacement.successor


def _accept(topic: TopicDescription, group: str) -> tuple[str, ...]:
    return *_repeat(topic, group), "--accept-state-loss", group


def _repeat(topic: TopicDescription, group: str) -> tuple[str, ...]:
    """Return the command that began the change, or continues it."""
    shrink = topic.deletion
    if topic.replacement is not None or shrink is None:
        return "modeaware", "replace", topic.topic
    delay = () if shrink.delay_ms is None else ("--delay", duration_text(shrink.delay_ms))
    immediate = ("--immediate-delete",) if shrink.immediate_delete else ()
    return "modeaware", "shrink", topic.topic, "--partitions", str(shrink.delete_partitions), *delay, *immediate


def _undo(topic: TopicDescription, group: str) -> tuple[str, ...]:
    if topic.replacement is not None:
        return "modeaware", "replace", topic.topic, "--undo"
    return "modeaware", "topics", "--undo", "--topic", topic.topic


def _predecessor(topic: TopicDescription, predecessor: str) -> tuple[str, ...]:
    return "modeaware", "topics", "--describe", "--topic", predecessor


def _delete(topic: TopicDescription, group: str) -> tuple[str, ...]:
    return "modeaware", "topics", "--delete", "--topic", topic.topic


def _evacuate(topic: TopicDescription, group: str) -> tuple[str, ...]:
    return "python", "-m", "modeaware.spark.evacuate", topic.topic


NEXT: dict[str, Callable[[TopicDescription, str], tuple[str, ...]]] = {
    reasons.OPEN_TRANSACTION: _describe,
    reasons.UNAVAILABLE: _unavailable,
    reasons.COMPACTED: _undo,
    reasons.GROUPS_UNKNOWN: _groups,
    reasons.GROUPS_HIDDEN: _check,
    reasons.GROUPS_TOO_MANY: _groups,
    reasons.GROUP_SETTLING: _groups,
    reasons.GROUP_LAG: _groups,
    reasons.GROUP_NEVER_COMMITTED: _waive_uncommitted,
    reasons.GROUP_GONE: _waive,
    reasons.GROUP_BEYOND_END: _groups,
    reasons.GROUP_TRUNCATED: _groups,
    reasons.GROUP_STATEFUL: _accept,
    reasons.NOT_EVACUATED: _evacuate,
    reasons.PAUSED: _repeat,
    reasons.FENCE_DENIED: _check,
    reasons.FENCE_UNKNOWN: _unavailable,
    reasons.GROUP_NOT_MOVED: _prepare,
    reasons.SUCCESSOR_GONE: _describe,
    reasons.GROUP_SUBSCRIBED: _groups,
    reasons.PREDECESSOR_FIRST: _predecessor,
    reasons.NO_SUCCESSOR: _delete,
}
"""Code of a reason -> the command that looks into it or resolves it."""
BY_ITSELF = frozenset(
    {
        *(reasons.STILL_WRITTEN, reasons.STRAGGLER, reasons.TRUNCATED, reasons.DELAY, reasons.RETENTION),
        *(reasons.OPENING, reasons.UNDOING, reasons.NOT_FENCED, reasons.END_NOT_READ, reasons.DELETING),
    }
)
"""Codes of reasons that pass without a command."""


def status_text(report: StatusReport) -> list[str]:
    """Return the report as one table."""
    rows = [
        (
            change.topic,
            change.change,
            each.phase,
            format_ranges(each.partitions) or "-",
            "-" if each.reason is None else reasons.brief(each.reason),
            each.next or "-",
        )
        for change in report.changes
        for each in change.waiting
    ]
    return table(("Topic", "Change", "Phase", "Partitions", "Waits for", "Next"), rows)
