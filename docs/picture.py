"""Draws docs/shrink.svg, the picture in the README, from the report of a run of ``make demo``.

python docs/picture.py docs/demo-report.json docs/shrink.svg
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

LEFT, TOP, WIDTH, ROW, GAP = 96, 64, 600, 16, 4
COLOURS = {"ReadWrite": "#2e7d32", "ReadOnly": "#f9a825", "None": "#cfd8dc"}
CAPTIONS = {
    "ReadWrite": "ReadWrite: producers and consumers",
    "ReadOnly": "ReadOnly: consumers only",
    "None": "None: empty, unused",
}


def spans(report: Mapping[str, Any], partition: int) -> Iterator[tuple[str, float, float]]:
    """Yield the modes of a partition of the topic with their begin and end, in seconds since the run's first record."""
    at = ends(report["phases_s"])
    kept = partition < report["shrunk"][1]
    yield "ReadWrite", 0.0, at["switch"] if kept else at["ReadOnly"]
    if kept:
        yield "ReadOnly", at["switch"], at["delete"]
    else:
        yield "ReadOnly", at["ReadOnly"], at["drain"]
        yield "None", at["drain"], at["delete"]


def ends(phases: Mapping[str, float]) -> dict[str, float]:
    """Return when each phase ended, in seconds since the run's first record."""
    return dict(zip(phases, accumulate(phases.values()), strict=True))


def draw(report: Mapping[str, Any]) -> str:
    """Return the picture: a bar for each partition of both topics, with its modes over time."""
    (count, kept), (_, new) = report["shrunk"], report["replaced"]
    at = ends(report["phases_s"])
    end = at["replaced"]
    scale = WIDTH / end
    bottom = TOP + (count + new) * (ROW + GAP) + GAP
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 24}" height="{bottom + 64}" '
            'font-family="sans-serif" font-size="12" fill="#263238">'
        ),
        f"<title>A topic shrinks from {count} to {kept} partitions and is replaced by one of {new}</title>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    changes = {
        f"shrink to {kept}": at["before"],
        "replace": at["shrunk"],
        f"deleted: {new} partitions are left": at["delete"],
    }
    for text, when in changes.items():
        x = LEFT + when * scale
        parts.append(f'<line x1="{x:.1f}" y1="{TOP - 14}" x2="{x:.1f}" y2="{bottom}" stroke="#263238"/>')
        parts.append(f'<text x="{x:.1f}" y="{TOP - 20}" text-anchor="middle">{text}</text>')
    rows = [(f"flights-{p}", list(spans(report, p))) for p in range(count)]
    rows += [(f"flights-v2-{p}", [("ReadWrite", at["switch"], end)]) for p in range(new)]
    for number, (name, modes) in enumerate(rows):
        y = TOP + number * (ROW + GAP) + (GAP if number >= count else 0)
        parts.append(f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{name}</text>')
        for mode, begin, stop in modes:
            x, width = LEFT + begin * scale, (stop - begin) * scale
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW}" fill="{COLOURS[mode]}"/>')
    for second in range(0, int(end) + 1, 5):
        x = LEFT + second * scale
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{second} s</text>')
    x = LEFT
    for mode, caption in CAPTIONS.items():
        parts.append(f'<rect x="{x}" y="{bottom + 34}" width="12" height="12" fill="{COLOURS[mode]}"/>')
        parts.append(f'<text x="{x + 18}" y="{bottom + 44}">{caption}</text>')
        x += 40 + 7 * len(caption)
    figures = (
        f"{report['acknowledged']:,} records acknowledged, {report['lost']} lost, {report['duplicates']} duplicates; "
        f"longest wait for an acknowledgement {max(report['longest_gap_s']):.2f} s"
    )
    parts.append(f'<text x="16" y="20" font-weight="bold">{figures}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_text(draw(json.loads(source.read_text(encoding="utf-8"))), encoding="utf-8")
