"""One topic's plan as sections, from which the text and the page are made. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import TextWrapper
from typing import NamedTuple

from modeaware.modes import divides_text
from modeaware.plan.effects import Effect, Share
from modeaware.plan.recognise import Placement, Recognition
from modeaware.plan.report import ResizePlan
from modeaware.printable import number, printable_lines, table
from partitioners import PLACERS

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_HEIGHTS = "▁▂▃▄▅▆▇█"
_PLAIN = str.maketrans(dict(zip("▏▎▍▌▋▊▉█▁▂▃▅▆▇▄±", "...#####__=###=~", strict=True)))
_WIDTH = 80
_A_ROW, _MOST_DRAWN = 64, 256
_SEVERITY = {"refused": "REFUSED", "waits": "WAITS  ", "check": "CHECK  "}
CHOSEN = ">"
"""The first cell of a row about the requested target."""


class Bar(NamedTuple):
    """A cell with a bar for a share (0 to 1), then ``text``. In plain text, a full bar has ``width`` characters."""

    share: float
    width: int
    text: str = ""


class Chart(NamedTuple):
    """The load of a topic's partitions, in columns.

    Attributes:
        partitions: their number.
        heights: the columns, partition 0 first, as shares (0 to 1) of ``top``.
        step: how many partitions a column stands for. The height of a column is the largest load of its partitions.
        top: the load of a column of full height, as text.
    """

    partitions: int
    heights: Sequence[float]
    step: int
    top: str


@dataclass(frozen=True)
class Section:
    """A heading, with paragraphs, a table, notes and drawn charts below.

    Attributes:
        right: the headings of the right-aligned columns.
        drawn: the charts, to one scale.
    """

    title: str
    prose: Sequence[str] = ()
    headings: Sequence[str] = ()
    rows: Sequence[Sequence[str | Bar]] = ()
    right: frozenset[str] = frozenset()
    notes: Sequence[str] = ()
    drawn: Sequence[Chart] = ()


def sections(plan: ResizePlan) -> list[Section]:
    """Return the plan's sections; the title of the first one is the title of the plan."""
    kept = "" if plan.base == plan.count else f" (of {plan.count})"
    title = f"Topic {plan.topic}: {plan.base}{kept} -> {plan.target} partitions"
    blockers = [f"{_SEVERITY[blocker.severity]}  {blocker.text}" for blocker in plan.blockers]
    return [
        Section(title, [target_text(plan)]),
        Section("Sample", sample_text(plan)),
        _hash_section(plan),
        _targets(plan),
        _loads(plan),
        _groups(plan),
        Section("In the way", blockers),
    ]


def plan_text(plan: ResizePlan) -> str:
    """Return the whole plan as text."""
    return sections_text(sections(plan))


def sections_text(of: Iterable[Section]) -> str:
    """Return sections as text."""
    return "\n\n".join(printable_lines(_lines(section)) for section in of)


def _lines(section: Section) -> list[str]:
    lines = [section.title, *_prose(section.prose)]
    if section.rows:
        rows = [[_cell(cell) for cell in row] for row in section.rows]
        lines += ["  " + line for line in table(section.headings, rows, section.right)]
    lines += _prose(section.notes)
    for chart in section.drawn:
        label = str(chart.partitions)
        line = "".join(_HEIGHTS[min(7, int(height * 8))] for height in chart.heights)
        rows_of_it = [line[at : at + _A_ROW] for at in range(0, len(line), _A_ROW)]
        lines += [f"  {label if at == 0 else '':>7}  {row}" for at, row in enumerate(rows_of_it)]
    return lines


def _cell(cell: str | Bar) -> str:
    if isinstance(cell, str):
        return cell
    eighths = round(min(1.0, max(0.0, cell.share)) * cell.width * 8)
    full, rest = divmod(max(1, eighths) if cell.share > 0 else eighths, 8)
    drawn = ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(cell.width)
    return f"{drawn} {cell.text}".rstrip()


def encodable(text: str, encoding: str) -> str:
    """Return ``text``. If ``encoding`` lacks the characters of charts, plain characters replace them."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_PLAIN)
    return text


def _prose(paragraphs: Sequence[str]) -> list[str]:
    """Return wrapped lines. Words that users copy, such as options and names of groups, are not broken."""
    whole = TextWrapper(
        _WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return [line for text in paragraphs for line in whole.wrap(text)]


def _hash_section(plan: ResizePlan) -> Section:
    """Return the verdict, and a row per hash over the topic's count. The present placement is added as the first row,
    if its count is another one."""
    recognition, present = plan.recognition, plan.recognition.present
    shown = sorted(recognition.evidence, key=lambda placement: -placement.share) if recognition.keys else []
    if shown and present is not None and present.over != plan.count:
        shown = [present, *shown]
    rows = [(e.name, str(e.over), Bar(e.share, 32), percent(e.share), percent(e.chance)) for e in shown]
    headings = ("Hash", "Over", "Keys that lie where it puts them", "Share", "Chance")
    return Section("Hash", verdict_text(plan), headings, rows, frozenset({"Over", "Share", "Chance"}))


def _targets(plan: ResizePlan) -> Section:
    note = (
        "Keys, Bytes: the share that moves (±: 95 of 100 such samples lie within). Survivors': of the keys in "
        "partitions that stay, the share that moves all the same. Least: every possible rule moves at least this share."
    )
    headings = ("", "Target", "Divides", "Keys that move", "Bytes", "Survivors'", "Least")
    right = frozenset({"Target", "Bytes", "Survivors'", "Least"})
    return Section("Targets", (), headings, [_target_row(plan, effect) for effect in plan.effects], right, [note])


def _target_row(plan: ResizePlan, effect: Effect) -> tuple[str | Bar, ...]:
    keys: str | Bar = f"? ({percent(effect.expected)} of any hash)"
    if effect.keys is not None:
        keys = Bar(effect.keys.value, 10, share_text(effect.keys))
    return (
        _mark(plan, effect),
        str(effect.target),
        "yes" if effect.divides else "no",
        keys,
        share_text(effect.bytes),
        "?" if effect.survivors is None else percent(effect.survivors),
        percent(effect.least),
    )


def _mark(plan: ResizePlan, effect: Effect) -> str:
    return CHOSEN if effect.target == plan.target else ""


def _loads(plan: ResizePlan) -> Section:
    rows = [
        (
            "now" if effect is plan.unchanged else _mark(plan, effect),
            str(effect.target),
            load_text(plan, effect.mean_load),
            load_text(plan, max(effect.load)) if effect.load else "?",
            "?" if effect.skew is None else f"{effect.skew:.2f}",
        )
        for effect in (plan.unchanged, *plan.effects)
    ]
    drawn = [effect.load for effect in (plan.unchanged, plan.chosen) if effect.load]
    top, step = max(map(max, drawn)), -(-max(map(len, drawn)) // _MOST_DRAWN)
    what = "each partition" if step == 1 else f"the most of each {step} partitions"
    notes = [
        "Skew: the largest load over the mean; 1 is even."
        + ("" if plan.chosen.load else " Which keys go where is not known."),
        f"From 0 to {load_text(plan, top)}, {what}, partition 0 first:",
    ]
    columns = [
        Chart(
            len(load),
            [max(load[at : at + step]) / (top or 1) for at in range(0, len(load), step)],
            step,
            load_text(plan, top),
        )
        for load in drawn
    ]
    headings = ("", "Partitions", "Mean", "Most", "Skew")
    return Section("Load of a partition", (), headings, rows, frozenset(headings), notes, columns)


def _groups(plan: ResizePlan) -> Section:
    if not plan.groups:
        return Section("Groups", ["No group uses it."])
    rows = [
        (
            group.group,
            group.kind + (", keeps state" if group.stateful else ""),
            group.members.text,
            number(group.lag),
            number(group.retiring) if plan.shrinks else "-",
        )
        for group in plan.groups
    ]
    notes = ["Lag: offsets not consumed; Of it retiring: in partitions that would retire."]
    headings = ("Group", "Kind", "Members", "Lag", "Of it retiring")
    return Section("Groups", (), headings, rows, frozenset(headings[3:]), notes)


_KEPT, _NOT_KEPT = 0.9, 0.25
"""Of the pairs of records with one key, the share in one partition, beyond chance. Keys count as kept together from
_KEPT on, and as not kept together up to _NOT_KEPT."""
_MUCH_UNEXPLAINED = 0.05
_CERTAIN = -6.0
_LEAST_ODDS = -12


def sample_text(plan: ResizePlan) -> list[str]:
    """Return the size of the sample, in sentences."""
    sample, recognition = plan.sample, plan.recognition
    read = f"{number(len(sample.records))} of {number(sample.total_records)}"
    span = "" if sample.span_ms is None else f", written over {duration(sample.span_ms)}"
    lines = [
        f"{read} records{span}: {number(recognition.keyed)} with a key ({number(recognition.keys)} different keys), "
        f"{number(recognition.null)} without"
        + (f", {number(recognition.empty)} with an empty one" if recognition.empty else "")
        + "."
    ]
    if sample.unread:
        lines.append(f"Not read to the end in time: the sample of {len(sample.unread)} partitions.")
    return lines


def verdict_text(plan: ResizePlan) -> list[str]:
    """Return which hash placed the keys, and its certainty."""
    recognition, present = plan.recognition, plan.recognition.present
    return (_nothing_text(plan) if present is None else _found_text(plan, present)) + _null_text(recognition)


def _found_text(plan: ResizePlan, present: Placement) -> list[str]:
    recognition = plan.recognition
    if recognition.verdict == "mixed":
        rules = dict.fromkeys(placement.name for placement in recognition.placements)
        names = " and ".join(f"{name} ({PLACERS[name].clients})" for name in rules)
        disagree = (
            f"Keys are placed by {len(rules)} different rules: {names}. Producers disagree, or did once, so equal keys "
            "may already lie in different partitions: set one partitioner everywhere first."
        )
        lines = [disagree]
    else:
        lines = [f"Keys are placed by {present.name}, the hash of {PLACERS[present.name].clients}."]
    lines += [_placement_text(placement, rest=place > 0) for place, placement in enumerate(recognition.placements)]
    if recognition.unexplained > _MUCH_UNEXPLAINED:
        lines.append(
            f"{percent(recognition.unexplained)} of the keys lie elsewhere: producers name the partition, or use "
            f"another rule. The figures below count them as placed by {present.name}."
        )
    older = [
        placement
        for placement in recognition.placements
        if placement.name == present.name and placement.over < present.over
    ]
    for placement in older:
        lines.append(f"The topic has grown from {placement.over} to {present.over} partitions: older records show it.")
    if present.over < plan.count:
        lines.append(
            f"Recent records are placed over {present.over} of the {plan.count} partitions (was the topic shrunk, or "
            f"has it just grown?): the figures below start from {present.over}."
        )
    return lines


def target_text(plan: ResizePlan) -> str:
    """Return the effect of the requested target, in a sentence."""
    effect = plan.chosen
    text = f"{plan.base} -> {plan.target}: "
    if effect.keys is None:
        return text + _unknown_text(plan)
    text += f"{share_text(effect.keys)} of the keys move"
    text += f" ({share_text(effect.bytes)} of the bytes)." if effect.bytes is not None else "."
    name = plan.recognition.placements[0].name if plan.recognition.verdict == "recognised" else ""
    if not effect.divides and name and PLACERS[name].share_moved(plan.base, plan.target) == effect.least:
        which = "only keys of the retired partitions move" if plan.shrinks else "keys move to new partitions only"
        return f"{text} By {name} {which}."
    return f"{text} {divides_text(plan.base, plan.target)}."


def share_text(share: Share | None) -> str:
    """Return ``24.9 % ±0.8``, or ``?`` for an unknown share."""
    if share is None:
        return "?"
    if share.value in (0.0, 1.0):
        return percent(share.value)
    return f"{100 * share.value:.1f} % ±{100 * share.margin:.1f}"


def percent(share: float) -> str:
    """Return ``24.9 %``."""
    return f"{100 * share:.0f} %" if share in (0.0, 1.0) else f"{100 * share:.1f} %"


def sure_text(placement: Placement) -> str:
    """Return the certainty in words, by the odds that as many keys of another rule would match."""
    exponent = max(_LEAST_ODDS, round(placement.log10_odds))
    below = " below" if placement.log10_odds < _LEAST_ODDS else ""
    word = "certain" if placement.log10_odds <= _CERTAIN else "likely"
    return f"{word}: the odds of chance are{below} 1 in {number(10**-exponent)}"


def size(value: float) -> str:
    """Return bytes as ``1.2 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def load_text(plan: ResizePlan, load: float) -> str:
    """Return a partition's load: a rate if the timestamps allow one, otherwise the bytes that it holds."""
    rate = plan.unchanged.per_s(load)
    return size(load) if rate is None else f"{size(rate)}/s"


def duration(span_ms: int) -> str:
    """Return a time as ``3 d 4 h``, ``12 min``, ``4 s`` or ``90 ms``."""
    seconds = span_ms // 1000
    if seconds < 120:
        return f"{seconds} s" if seconds >= 10 else f"{span_ms} ms"
    minutes = seconds // 60
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // 1440} d {minutes // 60 % 24} h"


def _placement_text(placement: Placement, *, rest: bool) -> str:
    whole = "Of the rest," if rest else f"Of {number(placement.of)} keys, each counted once,"
    return (
        f"{whole} {percent(placement.share)} lie where {placement.name} over {placement.over} partitions puts them; "
        f"chance alone would give {percent(placement.chance)} ({sure_text(placement)})."
    )


def _nothing_text(plan: ResizePlan) -> list[str]:
    recognition, count = plan.recognition, plan.count
    if recognition.keyed == 0:
        other = " other than an empty one" if recognition.empty else ""
        return [f"No record of the sample has a key{other}: no hash shows."]
    if count < 2:
        return ["There is one partition only: every hash puts all keys there."]
    if recognition.verdict == "unknown":
        return [f"Not known: {number(recognition.keys)} different keys are too few to tell hashes apart."]
    return [
        f"None of these: {', '.join(PLACERS)}. None explains even a quarter of the keys beyond chance.",
        _together_text(recognition, count),
    ]


def _together_text(recognition: Recognition, count: int) -> str:
    if recognition.together is None:
        return "Too few keys occur more than once to say whether a key stays in one partition."
    seen = f"Two records of one key lie in one partition in {percent(recognition.together)} of cases"
    if _apart(recognition, count):
        return (
            f"{seen}: keys are not kept together (round-robin, random or sticky), so a change of the count breaks no "
            "order."
        )
    kept = "another rule places them, such as a partitioner of your own"
    if _beyond_chance(recognition.together, count) < _KEPT:
        kept = "keys are kept together in part, by another rule or by one that has changed"
    return f"{seen}: {kept}. Only that rule determines which keys would move."


def _apart(recognition: Recognition, count: int) -> bool:
    """Return whether it is certain that the records of one key are in arbitrary partitions."""
    return recognition.together is not None and _beyond_chance(recognition.together, count) <= _NOT_KEPT


def _beyond_chance(together: float, count: int) -> float:
    return (together * count - 1) / (count - 1)


def _unknown_text(plan: ResizePlan) -> str:
    recognition = plan.recognition
    if recognition.keyed == 0:
        return "no keys, so none move."
    if recognition.verdict == "none" and _apart(recognition, plan.count):
        return "keys are not kept together now, so none has an order to lose."
    return (
        f"it is unknown which keys move. With any hash modulo the count, {percent(plan.chosen.expected)} of the keys "
        f"move; with any other rule, at least {percent(plan.chosen.least)}."
    )


def _null_text(recognition: Recognition) -> list[str]:
    if recognition.null == 0:
        return []
    if recognition.nulls_hashed:
        return ["Records without a key are hashed like an empty one: they all lie in one partition."]
    if recognition.null_home is not None:
        why = "producers name it, or hash them like an empty key (librdkafka's consistent, murmur2 and fnv1a do)"
        return [f"Records without a key all lie in partition {recognition.null_home}: {why}."]
    return ["Records without a key go anywhere; they are counted as even load."]
