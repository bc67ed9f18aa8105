"""Plans as pages. Each is one file that loads nothing else: no font, no image. Pure, except :func:`write_file`.

``plan.html.jinja`` renders the sections of the plan's text; ``fleet.html.jinja`` adds a curve and a table of topics.
Every text is escaped and made printable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from modeaware.clock import utc
from modeaware.errors import ModeAwareError
from modeaware.plan.fleet import FleetPlan
from modeaware.plan.fleet_text import HEADINGS, RIGHT, brokers, cells, headline, reasons, unseen
from modeaware.plan.report import ResizePlan
from modeaware.plan.text import CHOSEN, Chart, sections
from modeaware.printable import number, printable

_MOST_TICKS = 5


def plan_html(plan: ResizePlan) -> str:
    """Return the page of one topic's plan."""
    head, *others = sections(plan)
    return _template("plan.html.jinja").render(head=head, sections=others, made=utc(plan.created_ms), mark=CHOSEN)


def fleet_html(plan: FleetPlan) -> str:
    """Return the page of a fleet's plan, with all its topics."""
    freed, top = plan.curve, plan.replicas or 1
    curve = [
        (f"{100 * n / len(freed):.2f}", f"{100 - 100 * replicas / top:.1f}") for n, replicas in enumerate(freed, 1)
    ]
    topics = [(cells(row)[0], cells(row)[1:], list(reasons(row))) for row in plan.topics]
    return _template("fleet.html.jinja").render(
        mark=CHOSEN,
        head=headline(plan),
        sections=[brokers(plan), *unseen(plan)],
        made=utc(plan.created_ms),
        curve=curve,
        x_ticks=[(f"{100 * n / len(freed):.2f}", number(n)) for n in _ticks(len(freed))] if freed else [],
        y_ticks=[(f"{100 - 100 * replicas / top:.2f}", number(replicas)) for replicas in _ticks(top)],
        replicas=number(plan.replicas),
        headings=HEADINGS,
        right=RIGHT,
        rows=topics,
    )


def write_file(text: str, file: Path) -> None:
    """Write a page, or another file made from a plan.

    Raises:
        ModeAwareError: the file cannot be written.
    """
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ModeAwareError(f"cannot write {file}: {error.strerror}") from error


def _ticks(end: int) -> list[int]:
    """Return the numbers below an axis from 0 to ``end``: round ones, and ``end`` itself."""
    step = next(size for size in _round_numbers() if end <= size * _MOST_TICKS)
    # A round number next to the end would touch it.
    return [*range(0, end - step // 2, step), end] if end else [0]


def _round_numbers() -> Iterator[int]:
    power = 1
    while True:
        yield from (power, 2 * power, 5 * power)
        power *= 10


def _aligned(heading: str, right: Collection[str]) -> Markup:
    """Return the attribute that aligns the cells below ``heading`` as in the text."""
    return Markup(' class="right"' if heading in right else "")


def _columns_ticks(chart: Chart) -> list[tuple[str, str]]:
    """Return the middle of some columns, in percent of the width, and the partitions that they begin with."""
    columns = len(chart.heights)
    return [(f"{100 * (at + 0.5) / columns:.2f}", number(at * chart.step)) for at in _ticks(columns - 1)]


@cache
def _template(name: str) -> Template:
    environment = Environment(
        loader=PackageLoader("modeaware", "plan"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else printable(value),
    )
    environment.globals |= {"aligned": _aligned, "columns_ticks": _columns_ticks}
    return environment.get_template(name)
