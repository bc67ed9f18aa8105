"""A fleet's plan as sections, from which the text and the page are made. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from modeaware.clock import utc
from modeaware.durations import duration_text
from modeaware.plan.fleet import SMALL_BYTES_PER_S, FleetPlan, TopicAdvice
from modeaware.plan.text import Bar, Section, percent, sections_text, size
from modeaware.printable import number

SHOWN = 40
HEADINGS = (
    *("Topic", "Now", "To", "Do", "Frees", "Peak bytes/s", "Records/s", "Last write", "Retention", "Members"),
    *("Blocks", "Reason"),
)
RIGHT = frozenset({"Now", "To", "Frees", "Peak bytes/s", "Records/s", "Members", "Before", "After"})
_CURVE = (1, 10, 100, 1_000)


def fleet_text(plan: FleetPlan, limit: int = SHOWN) -> str:
    """Return the plan as text, with at most ``limit`` topics."""
    shown = plan.topics[:limit]
    notes = [f"{row.topic}: {note.text}." for row in shown if row.do != "leave" for note in row.notes]
    left = (
        f"{number(len(plan.topics) - limit)} more topics: use --limit, --json or --html."
        if len(plan.topics) > limit
        else ""
    )
    title = "Topics" if not left else f"Topics ({limit} of {number(len(plan.topics))})"
    table = Section(title, (), HEADINGS, [cells(row) for row in shown], RIGHT, [left] if left else [])
    extra = [Section("Notes", notes)] if notes else []
    return sections_text([headline(plan), brokers(plan), table, *extra, *unseen(plan)])


def headline(plan: FleetPlan) -> Section:
    """Return the totals of the plan, in sentences."""
    return Section(f"{number(len(plan.topics))} topics, {number(plan.replicas)} partition replicas", [*_totals(plan)])


def _totals(plan: FleetPlan) -> Iterator[str]:
    share = percent(plan.frees / plan.replicas) if plan.replicas else "0 %"
    count = number(len(plan.advised("replace")))
    yield (
        f"Replacing {count} topics frees {number(plan.frees)} of {number(plan.replicas)} partition replicas "
        f"({share}), by the rates of the last {duration_text(plan.window_ms)}."
    )
    curve = plan.curve
    some = [f"{n} free {percent(curve[n - 1] / plan.replicas)}" for n in _CURVE if n < len(curve)]
    if some:
        yield f"The first {', '.join(some)}."
    if shrinks := len(plan.advised("shrink")):
        yield (
            f"{number(shrinks)} topics can only be shrunk: a replacement needs brokers with KRaft. A shrink saves "
            "work of consumers, but frees no replica."
        )
    if unused := len(plan.advised("delete?")):
        more = number(plan.deletable)
        yield f"{number(unused)} topics are neither written nor read: deleting them frees {more} more replicas."
    if plan.saved_a_month is not None:
        yield f"Saved: {plan.saved_a_month:,.2f} a month, for {number(plan.frees_partitions)} partitions."
    yield (
        f"{number(plan.by_members)} topics have more partitions than their largest group has members, and less than "
        f"{SMALL_BYTES_PER_S // 1_000_000} MB/s."
    )


def brokers(plan: FleetPlan) -> Section:
    """Return the replicas of each broker, before and after the replacements."""
    top = max((load.before for load in plan.brokers), default=0) or 1
    rows = [
        (
            str(load.broker),
            Bar(load.before / top, 20, number(load.before)),
            Bar(load.after / top, 20, f"{number(load.after)}{' above the limit' if load.above else ''}"),
        )
        for load in plan.brokers
    ]
    return Section("Replicas on brokers", (), ("Broker", "Before", "After"), rows)


def unseen(plan: FleetPlan) -> list[Section]:
    """Return a section about the facts that the scan could not read; none if it could read all."""
    return [Section("Not seen", plan.unseen)] if plan.unseen else []


def cells(row: TopicAdvice) -> tuple[str, ...]:
    """Return the cells of a topic's row, in the order of :data:`HEADINGS`."""
    rates, bound = row.rates, "≤ " if row.rates.is_bound else ""
    return (
        row.topic,
        number(row.partitions),
        number(row.to),
        row.do,
        number(row.frees),
        "?" if rates.peak_bytes_per_s is None else f"{bound}{size(rates.peak_bytes_per_s)}",
        f"{bound}{rates.peak_records_per_s:.1f}",
        "-" if rates.last_write_ms is None else utc(rates.last_write_ms)[:16],
        "?" if row.retention_ms is None else "ever" if row.retention_ms < 0 else duration_text(row.retention_ms),
        number(row.members),
        ", ".join(row.blocks),
        row.reason,
    )


def reasons(row: TopicAdvice) -> Iterable[str]:
    """Yield all facts about a topic, for the details that open in its row of the page."""
    yield f"{row.do}: {row.reason}."
    mean = "?" if row.rates.bytes_per_s is None else size(row.rates.bytes_per_s)
    yield f"Mean: {row.rates.records_per_s:.2f} records/s, {mean}/s."
    if row.do == "replace":
        name = "--keep-name" if row.new_topic is None else f"--with {row.new_topic}"
        yield f"modeaware replace {row.topic} {name} --partitions {row.to}"
    if row.why_renamed is not None:
        yield f"The topic cannot keep its name: {row.why_renamed}"
    groups = (f"{name} ({of.members.text})" for name, of in sorted(row.scanned.facts.groups.items()))
    yield f"Groups, and their members: {', '.join(groups) or 'none'}."
    yield from (f"{note.text}." for note in row.notes)
