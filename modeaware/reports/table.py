"""Columns of text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from modeaware.printable import printable


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Iterable[str] = ()) -> list[str]:
    """Aligned columns of printable text, two spaces apart; the columns named in ``right`` are right-aligned."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in chain([headings], rows)) for i in range(len(headings))]
    to_right = {i for i, heading in enumerate(headings) if heading in set(right)}
    lines = []
    for row in chain([headings], rows):
        cells = [cell.rjust(widths[i]) if i in to_right else cell.ljust(widths[i]) for i, cell in enumerate(row)]
        lines.append("  ".join(cells).rstrip())
    return lines
