"""Plans as pages. Each is one file that loads nothing else: no font, no image. Pure, except :func:`write_file`.

``plan.html.jinja`` renders the sections of the plan's text; ``fleet.html.jinja`` adds a curve and a table of topics.
Every text is escaped and made printable.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from modeaware.clock import utc
from modeaware.errors import ModeAwareError
from modeaware.plan.fleet import FleetPlan
from modeaware.plan.fleet_text import HEADINGS, brokers, cells, headline, reasons, unseen
from modeaware.plan.report import ResizePlan
from modeaware.plan.text import CHOSEN, sections
from modeaware.printable import printable


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
        count=len(freed),
        replicas=plan.replicas,
        headings=HEADINGS,
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


@cache
def _template(name: str) -> Template:
    return Environment(
        loader=PackageLoader("modeaware", "plan"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else printable(value),
    ).get_template(name)
