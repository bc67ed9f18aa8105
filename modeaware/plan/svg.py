"""Plots as inline SVG: no script, colours by the page's CSS, a title and a description for screen readers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from modeaware.printable import markup as escape

_WIDTH = 720
_ROW = 30
_LABEL, _TEXT = 215, 125
_COLUMNS_HEIGHT = 170
_MOST_COLUMNS = 512


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


def bars(name: str, title: str, description: str, rows: Sequence[Bar]) -> str:
    """Horizontal bars, one below the other.

    Args:
        name: the plot's id on the page, unique.
    """
    parts: list[str] = []
    for place, row in enumerate(rows):
        parts += _bar(row, place * _ROW + 4)
    return _svg(name, title, description, len(rows) * _ROW + 4, parts)


class Scale(NamedTuple):
    """What several plots of columns share: the greatest value, and how many columns there is room for."""

    top: float
    room: int


def columns(name: str, title: str, description: str, values: Sequence[float], mean: float, scale: Scale) -> str:
    """One column a value, with a line at ``mean``; many values are drawn as the greatest of each few."""
    top, step = scale.top, -(-scale.room // _MOST_COLUMNS)
    drawn = [max(values[start : start + step]) for start in range(0, len(values), step)]
    width = _WIDTH / -(-scale.room // step)
    gap = min(2.0, width / 5)
    base = _COLUMNS_HEIGHT
    parts = []
    for place, value in enumerate(drawn):
        height = _scaled(value, top, base)
        parts.append(
            f'<rect class="bar" x="{place * width:.1f}" y="{base - height:.1f}" width="{max(0.5, width - gap):.1f}" '
            f'height="{height:.1f}"/>'
        )
    y = base - _scaled(mean, top, base)
    end = len(drawn) * width
    parts.append(f'<line class="marker" x1="0" x2="{end:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
    parts.append(f'<line class="axis" x1="0" x2="{_WIDTH}" y1="{base}" y2="{base}"/>')
    parts.append(_text(0, base + 16, f"partitions 0 to {len(values) - 1}, left to right", "start"))
    return _svg(name, title, description, base + 24, parts)


def _bar(row: Bar, top: int) -> Iterable[str]:
    room = _WIDTH - _LABEL - _TEXT
    height, middle = _ROW - 10, top + (_ROW - 10) / 2

    def x(share: float) -> float:
        return _LABEL + min(1.0, max(0.0, share)) * room

    kind = "bar strong" if row.strong else "bar"
    yield _text(_LABEL - 10, middle + 5, row.label, "end")
    yield f'<rect class="room" x="{_LABEL}" y="{top}" width="{room}" height="{height}"/>'
    yield f'<rect class="{kind}" x="{_LABEL}" y="{top}" width="{x(row.value) - _LABEL:.1f}" height="{height}"/>'
    if row.margin:
        low, high = x(row.value - row.margin), x(row.value + row.margin)
        yield f'<line class="whisker" x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}"/>'
    if row.marker is not None:
        at = x(row.marker)
        yield f'<line class="marker" x1="{at:.1f}" x2="{at:.1f}" y1="{top - 3}" y2="{top + height + 3}"/>'
    yield _text(_WIDTH - _TEXT + 10, middle + 5, row.text, "start")


def _svg(name: str, title: str, description: str, height: float, parts: Iterable[str]) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(description)}</desc>'
        f"{''.join(parts)}</svg>"
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _scaled(value: float, top: float, height: float) -> float:
    return min(1.0, value / top) * height if top > 0 else 0.0
