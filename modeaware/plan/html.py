"""A plan as one page that needs nothing else: no script, no font, no image, no network. Pure.

The page is ``plan.html.jinja``; every text in it is escaped by jinja2 and made printable. The plots are inline SVG,
with a title and a description for screen readers; their colours are in the page's CSS.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from modeaware.clock import utc
from modeaware.plan.report import ResizePlan
from modeaware.plan.text import (
    group_rows,
    load_text,
    percent,
    sample_text,
    share_text,
    shown_evidence,
    skew_text,
    target_text,
    verdict_text,
)
from modeaware.printable import printable

_WIDTH = 720
_ROW = 30
_LABEL, _TEXT = 215, 125
_COLUMNS_HEIGHT = 170
_MOST_COLUMNS = 512
_OPTION = re.compile(r"(--[a-z-]+)")
"""Not to be broken at its hyphens."""
_SEVERITY = {"refused": "Refused.", "waits": "Waits.", "check": "To check."}
_Shapes = list[dict[str, Any]]


class Bar(NamedTuple):
    """One bar of a share.

    Attributes:
        label: to its left. value: 0 to 1. text: to its right.
        marker: a share that a thin line shows. margin: half a whisker.
        strong: to be seen first.
    """

    label: str
    value: float
    text: str
    marker: float | None = None
    margin: float | None = None
    strong: bool = False


class Figure(NamedTuple):
    """A plot: its id on the page, what screen readers say of it, and its shapes."""

    name: str
    title: str
    description: str
    caption: str
    height: int
    shapes: _Shapes


def plan_html(plan: ResizePlan) -> str:
    """Return the page."""
    return _template().render(
        width=_WIDTH,
        title=f"{plan.topic}: {plan.base} to {plan.target} partitions",
        lead=target_text(plan),
        sample=sample_text(plan),
        made=utc(plan.created_ms),
        verdict=verdict_text(plan),
        evidence=_evidence(plan),
        targets=_targets(plan),
        effects=_effects(plan),
        chosen=next(place for place, effect in enumerate(plan.effects) if effect.target == plan.target),
        loads=_loads(plan),
        mean_alone=None if plan.chosen.load else load_text(plan, plan.chosen.mean_load),
        target=plan.target,
        groups=group_rows(plan),
        blockers=[(_SEVERITY[each.severity], each.severity, _OPTION.split(each.text)) for each in plan.blockers],
    )


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else printable(value),
    )
    return environment.from_string(files("modeaware.plan").joinpath("plan.html.jinja").read_text(encoding="utf-8"))


def _evidence(plan: ResizePlan) -> Figure | None:
    found = plan.recognition
    if not found.keys:
        return None
    present = found.present and found.present.candidate
    rows = [
        Bar(
            f"{each.name} over {each.over}",
            each.share,
            percent(each.share),
            each.chance,
            strong=each.candidate == present,
        )
        for each in shown_evidence(plan)
    ]
    keys = "sampled keys" if plan.counted is None else "all keys"
    return bars(
        "hash",
        "Keys that lie where each hash puts them",
        "; ".join(f"{row.label}: {row.text}" for row in rows),
        f"The share of {keys} that lie where each hash puts them; a key counts once. Dashed: by chance.",
        rows,
    )


def _targets(plan: ResizePlan) -> Figure | None:
    rows = []
    for effect in plan.effects:
        if effect.keys is not None:
            relation = (" (divides)" if plan.shrinks else " (multiple)") if effect.divides else ""
            text, strong = share_text(effect.keys), effect.target == plan.target
            rows.append(
                Bar(f"{effect.target}{relation}", effect.keys.value, text, effect.least, effect.keys.margin, strong)
            )
    if not rows:
        return None
    sure = "" if plan.counted is not None else ", with its 95 % interval"
    return bars(
        "targets",
        "Keys that move, by target",
        "; ".join(f"to {row.label}: {row.text}" for row in rows),
        f"The share of keys that move to another partition{sure}. Dashed: the least that any rule would move which "
        "keeps the load even.",
        rows,
    )


def _effects(plan: ResizePlan) -> list[tuple[str, ...]]:
    return [
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


def _loads(plan: ResizePlan) -> list[Figure]:
    effects = [effect for effect in (plan.now, plan.chosen) if effect.load]
    top, room = max(max(effect.load) for effect in effects), max(len(effect.load) for effect in effects)
    figures = []
    for name, effect in zip(("now", "then"), effects, strict=False):
        text = (
            f"{effect.target} partitions: mean {load_text(plan, effect.mean_load)}, greatest "
            f"{load_text(plan, max(effect.load))}, skew {skew_text(effect)}"
        )
        height, shapes = _columns(effect.load, effect.mean_load, top, room)
        title = f"Load of {effect.target} partitions"
        figures.append(Figure(name, title, text, f"{text}. Dashed: the mean.", height, shapes))
    return figures


def bars(name: str, title: str, description: str, caption: str, rows: Sequence[Bar]) -> Figure:
    """Return horizontal bars, one below the other."""
    shapes: _Shapes = []
    for place, row in enumerate(rows):
        shapes += _bar(row, place * _ROW + 4)
    return Figure(name, title, description, caption, len(rows) * _ROW + 4, shapes)


def _bar(row: Bar, top: int) -> _Shapes:
    room = _WIDTH - _LABEL - _TEXT
    height, middle = _ROW - 10, top + (_ROW - 10) / 2

    def x(share: float) -> float:
        return round(_LABEL + min(1.0, max(0.0, share)) * room, 1)

    kind = "bar strong" if row.strong else "bar"
    shapes: _Shapes = [
        {"x": _LABEL - 10, "y": middle + 5, "text": row.label, "anchor": "end"},
        {"kind": "room", "x": _LABEL, "y": top, "width": room, "height": height},
        {"kind": kind, "x": _LABEL, "y": top, "width": round(x(row.value) - _LABEL, 1), "height": height},
        {"x": _WIDTH - _TEXT + 10, "y": middle + 5, "text": row.text, "anchor": "start"},
    ]
    if row.margin:
        low, high = x(row.value - row.margin), x(row.value + row.margin)
        shapes.append({"kind": "whisker", "x": low, "x2": high, "y": middle, "y2": middle})
    if row.marker is not None:
        at = x(row.marker)
        shapes.append({"kind": "marker", "x": at, "x2": at, "y": top - 3, "y2": top + height + 3})
    return shapes


def _columns(values: Sequence[float], mean: float, top: float, room: int) -> tuple[int, _Shapes]:
    """One column a value, with a line at the mean; many values are drawn as the greatest of each few.

    Args:
        top: the greatest value of all plots that share the scale.
        room: how many columns there is room for.
    """
    step = -(-room // _MOST_COLUMNS)
    drawn = [max(values[start : start + step]) for start in range(0, len(values), step)]
    width = _WIDTH / -(-room // step)
    base = _COLUMNS_HEIGHT

    def height(value: float) -> float:
        return round(min(1.0, value / top) * base, 1) if top > 0 else 0.0

    shapes: _Shapes = [
        {
            "kind": "bar",
            "x": round(place * width, 1),
            "y": round(base - height(value), 1),
            "width": round(max(0.5, width - min(2.0, width / 5)), 1),
            "height": height(value),
        }
        for place, value in enumerate(drawn)
    ]
    y = round(base - height(mean), 1)
    shapes.append({"kind": "marker", "x": 0, "x2": round(len(drawn) * width, 1), "y": y, "y2": y})
    shapes.append({"kind": "axis", "x": 0, "x2": _WIDTH, "y": base, "y2": base})
    shapes.append(
        {"x": 0, "y": base + 16, "text": f"partitions 0 to {len(values) - 1}, left to right", "anchor": "start"}
    )
    return base + 24, shapes
