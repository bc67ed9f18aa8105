"""A plan as one page that needs nothing else: no script, no font, no image, no network. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from modeaware.clock import utc
from modeaware.plan.report import ResizePlan
from modeaware.plan.svg import Bar, Scale, bars, columns
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
from modeaware.printable import markup as escape

_STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#57606a;--paper:#fff;--line:#d0d7de;--room:#eef1f4;--bar:#5b8db8;
--strong:#1f5f99;--mark:#b3261e;--refused:#b3261e;--waits:#8a5a00;--check:#57606a}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9aa4af;--paper:#0f1318;--line:#343b44;--room:#1c222a;
--bar:#4f81ab;--strong:#8ec1ee;--mark:#ff9d94;--refused:#ff9d94;--waits:#e6b45a;--check:#9aa4af}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:60rem;padding:2rem 1.25rem 4rem;background:var(--paper);color:var(--ink);
font:16px/1.55 system-ui,sans-serif}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 .5rem;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2.5rem 0 .5rem;padding-top:1rem;border-top:1px solid var(--line)}
p{margin:.35rem 0;max-width:48rem}.lead{font-size:1.1rem}.soft,figcaption,caption{color:var(--soft);font-size:.9rem}
figure{margin:1rem 0;overflow-x:auto}svg{display:block;width:100%;min-width:34rem;height:auto}
svg text{fill:var(--ink);font:13px system-ui,sans-serif}
.room{fill:var(--room)}.bar{fill:var(--bar)}.strong{fill:var(--strong)}.marker{stroke:var(--mark);stroke-width:2;
stroke-dasharray:4 3}.axis{stroke:var(--line)}.whisker{stroke:var(--ink);stroke-width:2}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
caption{text-align:left;padding:.25rem 0}th,td{padding:.35rem .6rem;text-align:right;white-space:nowrap;
border-bottom:1px solid var(--line)}thead th{white-space:normal;vertical-align:bottom}
th:first-child{text-align:left}tr.chosen{font-weight:650}
code{font:inherit;white-space:nowrap}
ul{padding:0;list-style:none}li{margin:.6rem 0;max-width:48rem}.tag{font-weight:650;margin-right:.4rem}
.refused{color:var(--refused)}.waits{color:var(--waits)}.check{color:var(--check)}
@media print{:root{--paper:#fff;--ink:#000}}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_OPTION = re.compile(r"--[a-z-]+")
"""Not to be broken at its hyphens."""
_SEVERITY = {"refused": "Refused.", "waits": "Waits.", "check": "To check."}


def plan_html(plan: ResizePlan) -> str:
    """The page."""
    title = f"{plan.topic}: {plan.base} to {plan.target} partitions"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body><main>\n"
        f'<h1>{escape(title)}</h1>\n<p class="lead">{escape(target_text(plan))}</p>\n'
        f"{_paragraphs(sample_text(plan), 'soft')}"
        f'<p class="soft">Made {utc(plan.created_ms)}; nothing was changed and nothing was committed.</p>\n'
        + "\n".join([_hash(plan), _targets(plan), _load(plan), _groups(plan), _blockers(plan)])
        + "\n</main></body></html>\n"
    )


def _hash(plan: ResizePlan) -> str:
    found = plan.recognition
    rows = [
        Bar(f"{each.name} over {each.over}", each.share, percent(each.share), each.chance)
        for each in sorted(found.evidence, key=lambda each: -each.share)
    ]
    present = found.present
    if present is not None:
        rows = [row._replace(strong=row.label == f"{present.name} over {present.over}") for row in rows]
        if present.over != plan.count:
            label = f"{present.name} over {present.over}"
            rows.insert(0, Bar(label, present.share, percent(present.share), present.chance, strong=True))
    plot = ""
    if found.keys:
        told = "; ".join(f"{row.label}: {row.text}" for row in rows)
        keys = "sampled keys" if plan.counted is None else "all keys"
        plot = _figure(
            bars("hash", "Keys that lie where each hash puts them", told, rows),
            f"The share of {keys} that lie where each hash puts them; a key counts once. Dashed: by chance.",
        )
    return _section("What places the keys", _paragraphs(verdict_text(plan)) + plot)


def _targets(plan: ResizePlan) -> str:
    rows = [
        Bar(
            f"{effect.target}" + (" (divides)" if effect.divides and plan.shrinks else "")
            + (" (multiple)" if effect.divides and not plan.shrinks else ""),
            effect.keys.value,
            share_text(effect.keys),
            effect.least,
            effect.keys.margin,
            strong=effect.target == plan.target,
        )
        for effect in plan.effects
        if effect.keys is not None
    ]  # fmt: skip
    plot = ""
    if rows:
        told = "; ".join(f"to {row.label}: {row.text}" for row in rows)
        sure = "" if plan.counted is not None else ", with its 95 % interval"
        plot = _figure(
            bars("targets", "Keys that move, by target", told, rows),
            f"The share of keys that move to another partition{sure}. Dashed: the least that any rule would move which "
            "keeps the load even.",
        )
    headings = ("Target", "Divides", "Keys move", "Bytes move", "Of survivors' keys", "Least possible", "Mean load",
                "Greatest load", "Skew")  # fmt: skip
    cells = [
        (
            str(effect.target),
            "yes" if effect.divides else "no",
            share_text(effect.keys),
            share_text(effect.bytes),
            "?" if effect.survivors is None else percent(effect.survivors),
            percent(effect.least),
            load_text(plan, effect.mean_load),
            load_text(plan, max(effect.load)) if effect.load else "?",
            skew_text(effect),
        )
        for effect in plan.effects
    ]
    chosen = next(place for place, effect in enumerate(plan.effects) if effect.target == plan.target)
    caption = "Skew: the greatest load over the mean one; 1 is even."
    return _section("Targets", plot + _table(headings, cells, caption, chosen))


def _load(plan: ResizePlan) -> str:
    effects = [effect for effect in (plan.now, plan.chosen) if effect.load]
    scale = Scale(max(max(effect.load) for effect in effects), max(len(effect.load) for effect in effects))
    plots = []
    for name, effect in zip(("now", "then"), effects, strict=False):
        told = (
            f"{effect.target} partitions: mean {load_text(plan, effect.mean_load)}, greatest "
            f"{load_text(plan, max(effect.load))}, skew {skew_text(effect)}"
        )
        drawn = columns(name, f"Load of {effect.target} partitions", told, effect.load, effect.mean_load, scale)
        plots.append(_figure(drawn, f"{told}. Dashed: the mean."))
    if not plan.chosen.load:
        mean = load_text(plan, plan.chosen.mean_load)
        plots.append(_paragraphs([f"{plan.target} partitions: mean {mean}; which keys go where is not known."]))
    return _section("Load of each partition", "".join(plots))


def _groups(plan: ResizePlan) -> str:
    if not plan.groups:
        return _section("Groups", _paragraphs(["No group uses it."]))
    cells = [
        (
            group.group,
            group.kind + (", keeps state" if group.stateful else ""),
            "yes" if group.has_members else "no",
            number(group.lag),
            number(group.retiring) if plan.shrinks else "-",
        )
        for group in plan.groups
    ]
    headings = ("Group", "Kind", "Running", "Lag", "Lag in partitions that retire")
    return _section("Groups", _table(headings, cells, "Lag in offsets, as committed."))


def _blockers(plan: ResizePlan) -> str:
    if not plan.blockers:
        return _section("In the way", _paragraphs(["Nothing that can be seen from outside."]))
    items = "".join(
        f'<li><span class="tag {blocker.severity}">{_SEVERITY[blocker.severity]}</span>'
        f"{_OPTION.sub(_whole, escape(blocker.text))}</li>"
        for blocker in plan.blockers
    )
    return _section("In the way", f"<ul>{items}</ul>")


def _whole(option: re.Match[str]) -> str:
    return f"<code>{option[0]}</code>"


def _section(heading: str, content: str) -> str:
    return f"<section><h2>{escape(heading)}</h2>\n{content}</section>"


def _paragraphs(texts: Iterable[str], kind: str = "") -> str:
    start = f'<p class="{kind}">' if kind else "<p>"
    return "".join(f"{start}{escape(text)}</p>\n" for text in texts)


def _figure(svg: str, caption: str) -> str:
    return f'<figure tabindex="0">{svg}<figcaption>{escape(caption)}</figcaption></figure>\n'


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], caption: str, chosen: int | None = None) -> str:
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = "".join(_row(row, place == chosen) for place, row in enumerate(rows))
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}">'
        f"<table><caption>{escape(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(cells: Sequence[str], chosen: bool) -> str:
    start = '<tr class="chosen">' if chosen else "<tr>"
    rest = "".join(f"<td>{escape(cell)}</td>" for cell in cells[1:])
    return f'{start}<th scope="row">{escape(cells[0])}</th>{rest}</tr>'
