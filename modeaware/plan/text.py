"""A plan as ``modeaware plan`` prints it: text with small charts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import TextWrapper

from modeaware.plan.blockers import GroupLag
from modeaware.plan.report import ResizePlan
from modeaware.plan.targets import Effect
from modeaware.plan.words import (
    load_text,
    number,
    percent,
    sample_text,
    share_text,
    skew_text,
    target_text,
    verdict_text,
)
from modeaware.printable import printable_lines
from modeaware.reports.table import table

JSON_HELP = """\
--json prints one object:
  {"schema_version", "topic", "partitions", "placed_over", "target", "created_ms", "sample", "hash", "now", "targets",
   "groups", "blockers", "counted"}
placed_over is the number of partitions over which producers place keys now: all, or fewer after a shrink. sample has
  {"asked", "records", "of_records", "bytes", "of_bytes", "span_ms", "unread"}
bytes before compression, unread the partitions not read to the end in time. hash has
  {"verdict", "name", "partitions", "clients", "placements", "evidence", "keyed", "null_keys", "empty_keys", "keys",
   "unexplained_share", "null_keys_hashed_share", "null_keys_partition", "keys_in_one_partition_share"}
verdict: recognised, mixed (several hashes), none (none of those known), unknown (the sample cannot tell). name and hash
are murmur2, crc32, fnv1a or minimal_movement.
null_keys_partition is the only one that records without a key lie in, keys_in_one_partition_share how often two records
of one key lie in the same, unexplained_share the keys that no placement explains. placements are what was found, each
tried on what those before it left, evidence is each hash tried on everything; matched and of count keys, with their
parts where a key's records lie in several partitions:
  {"hash", "partitions", "matched", "of", "share", "chance", "records_share", "log10_odds_of_chance"}
now and targets are
  {"target", "divides", "keys_moved", "records_moved", "bytes_moved", "survivors_keys_moved", "keys_moved_expected",
   "keys_moved_least", "mean_bytes", "most_bytes", "mean_bytes_per_s", "most_bytes_per_s", "skew", "load_bytes"}
*_moved are {"share", "margin"} (0 to 1, half the width of the 95 % interval) of the sample; expected is what arithmetic
gives for even hashes, least what any rule would move. skew is the greatest load over the mean. groups has
  {"group", "kind", "has_members", "stateful", "lag", "lag_retiring", "uncommitted_retiring"}
blockers {"code", "severity", "text"}, severity refused, waits or check. counted is null where all follows from the
sample. Where Spark has counted every record it has
  {"records", "bytes", "span_ms"}
and all figures are of the whole topic, margins 0; the sample then chose the hashes that were tried. Null stands for
what is not known. Fields may be added.
"""
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_HEIGHTS = "▁▂▃▄▅▆▇█"
_PLAIN = str.maketrans(dict(zip("▏▎▍▌▋▊▉█▁▂▃▅▆▇▄±", "...#####__=###=~", strict=True)))
_BAR, _LONG_BAR = 10, 32
_WIDTH = 80
_A_ROW, _MOST_DRAWN = 64, 256
_SEVERITY = {"refused": "REFUSED", "waits": "WAITS  ", "check": "CHECK  "}


def plan_text(plan: ResizePlan) -> str:
    """The whole plan."""
    kept = "" if plan.base == plan.count else f" (of {plan.count})"
    sections = [
        [f"Topic {plan.topic}: {plan.base}{kept} -> {plan.target} partitions", *_prose(target_text(plan))],
        ["Sample", *_prose(*sample_text(plan))],
        ["Hash", *_prose(*verdict_text(plan)), *_evidence(plan)],
        ["Targets", *_targets(plan)],
        ["Load of a partition", *_loads(plan)],
        ["Groups", *_groups(plan.groups, plan.shrinks)],
        ["In the way", *_blockers(plan)],
    ]
    return "\n\n".join(printable_lines(section) for section in sections)


def bar(share: float, width: int = _BAR) -> str:
    """A horizontal bar of ``width`` characters for 0 to 1, in steps of an eighth of a character."""
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    if share > 0:
        eighths = max(1, eighths)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def skyline(values: Sequence[float], top: float) -> str:
    """One character a value, its height relative to ``top``."""
    if top <= 0:
        return _HEIGHTS[0] * len(values)
    return "".join(_HEIGHTS[min(7, int(value / top * 8))] for value in values)


def encodable(text: str, encoding: str) -> str:
    """``text``, with plain characters for its charts where ``encoding`` has none of them."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_PLAIN)
    return text


def _prose(*paragraphs: str) -> list[str]:
    """Filled lines; what may be copied out of them (options, names of groups) is not broken."""
    whole = TextWrapper(
        _WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return [line for text in paragraphs for line in whole.wrap(text)]


def _evidence(plan: ResizePlan) -> list[str]:
    if not plan.recognition.keys:
        return []
    rows = [
        (each.name, str(each.over), bar(each.share, _LONG_BAR), percent(each.share), percent(each.chance))
        for each in sorted(plan.recognition.evidence, key=lambda each: -each.share)
    ]
    present = plan.recognition.present
    if present is not None and present.over != plan.count:
        found = (present.name, str(present.over), bar(present.share, _LONG_BAR), percent(present.share))
        rows.insert(0, (*found, percent(present.chance)))
    headings = ("Hash", "Over", "Keys that lie where it puts them", "Share", "Chance")
    return ["  " + line for line in table(headings, rows, {"Over", "Share", "Chance"})]


def _targets(plan: ResizePlan) -> list[str]:
    rows = [_target_row(plan, effect) for effect in plan.effects]
    headings = ("", "Target", "Divides", "Keys that move", "Bytes", "Survivors'", "Least")
    lines = ["  " + line for line in table(headings, rows, {"Target", "Bytes", "Survivors'", "Least"})]
    sure = "" if plan.counted is not None else "; ±: in 95 of 100 such samples"
    notes = (
        f"Keys, Bytes: the share that moves, and of the keys of partitions that stay (Survivors'){sure}. Least: the "
        "share that any rule would move."
    )
    return [*lines, *_prose(notes)]


def _target_row(plan: ResizePlan, effect: Effect) -> tuple[str, ...]:
    keys = effect.keys
    return (
        _mark(plan, effect),
        str(effect.target),
        "yes" if effect.divides else "no",
        f"{bar(keys.value)} {share_text(keys)}" if keys is not None else f"? ({percent(effect.expected)} of any hash)",
        share_text(effect.bytes),
        "?" if effect.survivors is None else percent(effect.survivors),
        percent(effect.least),
    )


def _mark(plan: ResizePlan, effect: Effect) -> str:
    return ">" if effect.target == plan.target else ""


def _loads(plan: ResizePlan) -> list[str]:
    rows = [
        (
            "now" if effect is plan.now else _mark(plan, effect),
            str(effect.target),
            load_text(plan, effect.mean_load),
            load_text(plan, max(effect.load)) if effect.load else "?",
            skew_text(effect),
        )
        for effect in (plan.now, *plan.effects)
    ]
    headings = ("", "Partitions", "Mean", "Most", "Skew")
    lines = ["  " + line for line in table(headings, rows, set(headings))]
    lines += _prose(
        "Skew: the most over the mean, 1 is even." + ("" if plan.chosen.load else " Which keys go where is not known.")
    )
    drawn = [effect.load for effect in (plan.now, plan.chosen) if effect.load]
    top, a_character = max(map(max, drawn)), -(-max(map(len, drawn)) // _MOST_DRAWN)
    each = "each partition" if a_character == 1 else f"the most of each {a_character} partitions"
    lines += _prose(f"From 0 to {load_text(plan, top)}, {each}, partition 0 first:")
    for loads in drawn:
        line = skyline([max(loads[at : at + a_character]) for at in range(0, len(loads), a_character)], top)
        rows_of_it = [line[at : at + _A_ROW] for at in range(0, len(line), _A_ROW)]
        lines += [f"  {len(loads) if at == 0 else '':>7}  {row}" for at, row in enumerate(rows_of_it)]
    return lines


def _groups(groups: Sequence[GroupLag], shrinks: bool) -> list[str]:
    if not groups:
        return ["  No group uses it."]
    rows = [
        (
            group.group,
            group.kind + (", keeps state" if group.stateful else ""),
            "yes" if group.has_members else "no",
            number(group.lag),
            number(group.retiring) if shrinks else "-",
        )
        for group in groups
    ]
    headings = ("Group", "Kind", "Running", "Lag", "Of it retiring")
    lines = ["  " + line for line in table(headings, rows, {"Lag", "Of it retiring"})]
    return [*lines, *_prose("Lag: offsets not consumed; Of it retiring: in partitions that would retire.")]


def _blockers(plan: ResizePlan) -> list[str]:
    if not plan.blockers:
        return ["  Nothing that can be seen from outside."]
    return _prose(*(f"{_SEVERITY[blocker.severity]}  {blocker.text}" for blocker in plan.blockers))
